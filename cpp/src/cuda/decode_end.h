// How a row of single queries ends (decode_kernel.h): what the warps of a block have becomes one,
// then what the blocks have between which the keys are split, then a result. Calls of few keys last
// as long as their program takes to arrive, so everything stands here once, in loops that are
// short.
#ifndef HEED_SRC_CUDA_DECODE_END_H_
#define HEED_SRC_CUDA_DECODE_END_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/combine_kernel.h"
#include "src/cuda/decode_plan.h"
#include "src/cuda/device.h"
#include "src/cuda/four_numbers.h"
#include "src/cuda/fragments.h"
#include "src/cuda/plugs.h"
#include "src/cuda/schedule.h"

namespace heed::cuda {

// Of a step a lane loads parts of keys RowOfLane() and 8 further on, and of the query of head
// RowOfLane(). It gets the scores of that head for the four keys KeyOfLane(n), whose values it
// loads. Its sums are those of heads 2 PlaceOfLane() and the next.
HEED_DEVICE constexpr int RowOfLane(int t) { return t % kWarp / 4; }
HEED_DEVICE constexpr int PlaceOfLane(int t) { return t % 4; }
HEED_DEVICE constexpr int KeyOfLane(int t, int n) { return 2 * PlaceOfLane(t) + n % 2 + n / 2 * 8; }

template <class Block, int kDim>
class DecodeEnd {
 public:
  template <class U, int N>
  using Registers = typename Block::template Registers<U, N>;
  static constexpr int kSums = kDim / 4;  // of a lane

 private:
  static constexpr int kOutStride = kDim + 4;
  // Threads that end a row, four columns each, and heads whose rows end at once.
  static constexpr int kRowThreads = kDim / 4;
  static constexpr int kPassHeads = kBlockThreads / kRowThreads;
  // Splits that are added in a round, and floats of a round or of what the warps have.
  static constexpr int kRoundSplits = 16;
  static constexpr int kPartFloats = kRoundSplits * kBlockThreads * 4;
  static_assert(kPartFloats >= kBlockWarps * kDecodeHeads * kOutStride);
  enum Kept { kUnit, kSplit, kFirstSplit, kSplitCount, kBatch, kKvHead, kNumKept };

 public:
  static constexpr int kSharedBytes =
      (2 * kBlockWarps * kDecodeHeads + kPartFloats + 2 * kMostMergedParts + 8) *
      static_cast<int>(sizeof(float));

  HEED_DEVICE DecodeEnd(Block& block, const AttentionParams& params)
      : block_(block),
        p_(params),
        part_max_(block.template Allocate<float>(kBlockWarps * kDecodeHeads)),
        part_sum_(block.template Allocate<float>(kBlockWarps * kDecodeHeads)),
        parts_(block.template Allocate<float>(kPartFloats)),
        states_(block.template Allocate<float>(2 * kMostMergedParts)),
        kept_(block.template Allocate<int32_t>(kNumKept)) {}

  // Whose rows they are. Registers are dear while tiles pass, so that waits in shared memory.
  HEED_DEVICE void Keep(const BlockPlace& place, const UnitSplits& splits, int batch, int kv_head) {
    block_.Each([&](int t) {
      if (t != 0) return;
      kept_.Store(t, kUnit, place.unit);
      kept_.Store(t, kSplit, place.split);
      kept_.Store(t, kFirstSplit, static_cast<int32_t>(splits.first));
      kept_.Store(t, kSplitCount, splits.count);
      kept_.Store(t, kBatch, batch);
      kept_.Store(t, kKvHead, kv_head);
    });
  }

  // Of the lane's rows: the largest score and the sum of weights of head RowOfLane(), the latter of
  // the lane's own keys alone, and the sums of values of the other two.
  HEED_DEVICE void Run(Registers<float, 1>& row_max, Registers<float, 1>& row_sum,
                       Registers<float, kSums>& out) {
    ShareSums(row_max, row_sum, out);
    const bool is_split = kept_.LoadUniform(kSplitCount) > 1;
    HEED_NO_UNROLL for (int round = 0; round < (is_split ? 2 : 1); ++round) {
      if (round > 0 && !IsLast()) return;
      HEED_NO_UNROLL for (int first = 0; first < p_.group; first += kPassHeads) {
        if (round == 0) AddWarps(first);
        if (round > 0) AddSplits(first);
        EachHead(first, [&](int t, int head, int column) {
          const RowState row = {max_(t, 0), sum_(t, 0)};
          float four[4];
          HEED_UNROLL for (int n = 0; n < 4; ++n) four[n] = four_(t, n);
          if (round == 0 && is_split) {
            StoreSplit(head, column, row, four);
          } else {
            StoreHead(head, column, row, four);
          }
        });
      }
    }
  }

 private:
  HEED_DEVICE static int PartOf(int warp, int head) { return warp * kDecodeHeads + head; }
  HEED_DEVICE float HighestOf(int t, int head) const {
    float highest = part_max_.Load(t, PartOf(0, head));
    HEED_UNROLL for (int w = 1; w < kBlockWarps; ++w) {
      highest = fmaxf(highest, part_max_.Load(t, PartOf(w, head)));
    }
    return highest;
  }

  // What the warps have of each head goes to shared memory, all of it as seen from its largest
  // score.
  HEED_DEVICE void ShareSums(Registers<float, 1>& row_max, Registers<float, 1>& row_sum,
                             Registers<float, kSums>& out) {
    block_.template GroupSum<4>(row_sum);
    block_.Each([&](int t) {
      if (PlaceOfLane(t) != 0) return;
      part_max_.Store(t, PartOf(t / kWarp, RowOfLane(t)), row_max(t, 0));
      part_sum_.Store(t, PartOf(t / kWarp, RowOfLane(t)), row_sum(t, 0));
    });
    block_.Sync();
    block_.Each([&](int t) {
      HEED_UNROLL for (int e = 0; e < 2; ++e) {
        const int head = 2 * PlaceOfLane(t) + e;
        if (head >= p_.group) continue;
        const int part = PartOf(t / kWarp, head);
        const float factor = Exp(part_max_.Load(t, part) - Subtrahend(HighestOf(t, head)));
        HEED_UNROLL for (int first = 0; first < kSums; first += 8) {
          float four[4];
          HEED_UNROLL for (int n = 0; n < 4; ++n) four[n] = out(t, first + 2 * n + e) * factor;
          const int column = first / 16 * 64 + RowOfLane(t) * 8 + first % 16 / 2;
          parts_.StoreFour(t, part * kOutStride + column, four);
        }
      }
    });
    block_.Sync();
  }

  // Calls body(thread, head, column) for the threads whose head there is, each of which ends four
  // columns: max_, sum_ and four_ are theirs.
  template <class Body>
  HEED_DEVICE void EachHead(int first_head, const Body& body) {
    block_.Each([&](int t) {
      const int head = first_head + t / kRowThreads;
      if (head < p_.group) body(t, head, t % kRowThreads * 4);
    });
  }

  // What the warps have.
  HEED_DEVICE void AddWarps(int first_head) {
    EachHead(first_head, [&](int t, int head, int column) {
      max_(t, 0) = HighestOf(t, head);
      sum_(t, 0) = 0;
      HEED_UNROLL for (int n = 0; n < 4; ++n) four_(t, n) = 0;
      HEED_UNROLL for (int w = 0; w < kBlockWarps; ++w) {
        const int part = PartOf(w, head);
        const float shrink = Exp(part_max_.Load(t, part) - Subtrahend(max_(t, 0)));
        sum_(t, 0) += part_sum_.Load(t, part) * shrink;
        float four[4];
        parts_.LoadFour(t, part * kOutStride + column, four);
        HEED_UNROLL for (int n = 0; n < 4; ++n) four_(t, n) += four[n];
      }
    });
  }

  // Where a head of a split lies in memory.
  HEED_DEVICE int64_t PlaceOfSplit(int s, int head) const {
    return (int64_t{kept_.LoadUniform(kFirstSplit)} + s) * p_.group + head;
  }
  HEED_DEVICE void StoreSplit(int head, int column, const RowState& row, const float (&four)[4]) {
    const int64_t at = PlaceOfSplit(kept_.LoadUniform(kSplit), head);
    if (column == 0) p_.split_states[at] = row;
    *reinterpret_cast<FourFloats*>(p_.split_values + at * kDim +
                                   column) = {{four[0], four[1], four[2], four[3]}};
  }
  // Is this the last block of its unit, which sees what all of them have stored?
  HEED_DEVICE bool IsLast() {
    if (p_.counters == nullptr) return false;
    uint32_t* counter = p_.counters + kept_.LoadUniform(kUnit);
    return block_.ArrivesLast(counter, static_cast<uint32_t>(kept_.LoadUniform(kSplitCount)));
  }

  // What all splits have, added in the order of MergeRow() (combine_kernel.h): the same bits. Each
  // thread copies to shared memory what it adds, a round of splits at a time: they travel together,
  // and a loop of copies is short, where registers would want one load after the other in the
  // program.
  HEED_DEVICE void AddSplits(int first_head) {
    const int splits = kept_.LoadUniform(kSplitCount);
    CopyRound(first_head, 0, splits);
    WeighSplits(first_head, splits);
    HEED_NO_UNROLL for (int first = 0; first < splits; first += kRoundSplits) {
      if (first > 0) CopyRound(first_head, first, splits);
      block_.template WaitCopies<0>();
      AddRound(first_head, first, splits);
    }
  }
  HEED_DEVICE static int EndOfRound(int first, int splits) {
    return first + kRoundSplits < splits ? first + kRoundSplits : splits;
  }
  HEED_DEVICE void CopyRound(int first_head, int first, int splits) {
    EachHead(first_head, [&](int t, int head, int column) {
      const float* from = p_.split_values + PlaceOfSplit(first, head) * kDim + column;
      HEED_NO_UNROLL for (int s = first; s < EndOfRound(first, splits); ++s) {
        parts_.CopyAsync(t, ((s - first) * kBlockThreads + t) * 4, from);
        from += p_.group * kDim;
      }
    });
    block_.CommitCopies();
  }
  // Largest scores become the factors by which splits count. A thread has some splits of a head.
  HEED_DEVICE void WeighSplits(int first_head, int splits) {
    block_.Each([&](int t) { max_(t, 0) = kMinusInfinity; });
    EachHead(first_head, [&](int t, int head, int) {
      HEED_NO_UNROLL for (int s = t % kRowThreads; s < splits; s += kRowThreads) {
        const RowState state = p_.split_states[PlaceOfSplit(s, head)];
        max_(t, 0) = fmaxf(max_(t, 0), state.max);
        states_.Store(t, StateAt(s, head), state.max);
        states_.Store(t, StateAt(s, head) + 1, state.sum);
      }
    });
    block_.template GroupMax<kRowThreads>(max_);
    EachHead(first_head, [&](int t, int head, int) {
      sum_(t, 0) = 0;
      HEED_UNROLL for (int n = 0; n < 4; ++n) four_(t, n) = 0;
      HEED_NO_UNROLL for (int s = t % kRowThreads; s < splits; s += kRowThreads) {
        const float highest = states_.Load(t, StateAt(s, head));
        states_.Store(t, StateAt(s, head), ShrinkOf(highest, max_(t, 0)));
      }
    });
    block_.Sync();
  }
  HEED_DEVICE int StateAt(int s, int head) const { return 2 * (s * p_.group + head); }

  HEED_DEVICE void AddRound(int first_head, int first, int splits) {
    EachHead(first_head, [&](int t, int head, int) {
      RowState row = {max_(t, 0), sum_(t, 0)};
      float four[4];
      HEED_UNROLL for (int n = 0; n < 4; ++n) four[n] = four_(t, n);
      HEED_UNROLL_BY_FOUR for (int s = first; s < EndOfRound(first, splits); ++s) {
        float state[2], part[4];
        states_.LoadTwo(t, StateAt(s, head), state);
        parts_.LoadFour(t, ((s - first) * kBlockThreads + t) * 4, part);
        FoldSplit(state[0], state[1], part, row, four);
      }
      sum_(t, 0) = row.sum;
      HEED_UNROLL for (int n = 0; n < 4; ++n) four_(t, n) = four[n];
    });
  }

  HEED_DEVICE void StoreHead(int head, int column, const RowState& row, const float (&four)[4]) {
    const int64_t head_of_all = kept_.LoadUniform(kKvHead) * int64_t{p_.group} + head;
    const RowEnd end = FinishSoftmax(p_, static_cast<int>(head_of_all), row);
    const auto row_of = [&](const DeviceOutput& output) {
      return output.data + kept_.LoadUniform(kBatch) * output.strides[0] +
             head_of_all * output.strides[1];
    };
    if (column == 0 && p_.lse.data != nullptr) {
      StoreAs(DType::kFloat32, row_of(p_.lse), 0, end.lse);
    }
    if (p_.output.data == nullptr) return;
    float results[4];
    HEED_UNROLL for (int n = 0; n < 4; ++n) results[n] = end.empty ? 0 : four[n] * end.factor;
    StoreFour<Block>(p_.output.dtype, ElementOf(row_of(p_.output), p_.output.dtype, column),
                     results);
  }

  Block& block_;
  const AttentionParams& p_;
  using SharedFloats = typename Block::template Shared<float>;
  SharedFloats part_max_, part_sum_;  // of the warps, for each head
  SharedFloats parts_;                // sums of values of the warps, or of a round of splits
  SharedFloats states_;               // of the unit's splits and heads: two floats each
  typename Block::template Shared<int32_t> kept_;
  Registers<float, 1> max_, sum_;
  Registers<float, 4> four_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_DECODE_END_H_
