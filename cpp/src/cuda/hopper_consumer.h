// One of the warp groups that compute on Hopper: 64 packed rows, tile by tile (hopper_kernel.h).
//
// The sums that wgmma leaves with a thread lie as those of mma.sync do: scores(4 n + e) is row
// AccumulatorRow(lane, e) of the thread's warp, key 8 n + AccumulatorCol(lane, e), and out(4 n + e)
// likewise (PTX ISA 9.0, "Register fragments" of wgmma.mma_async.m64nNk16).
#ifndef HEED_SRC_CUDA_HOPPER_CONSUMER_H_
#define HEED_SRC_CUDA_HOPPER_CONSUMER_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/float8_tiles.h"
#include "src/cuda/fragments.h"
#include "src/cuda/hopper_group.h"
#include "src/cuda/hopper_layout.h"
#include "src/cuda/hopper_params.h"
#include "src/cuda/hopper_poison.h"
#include "src/cuda/hopper_queries.h"
#include "src/cuda/hopper_rows.h"
#include "src/cuda/hopper_scores.h"
#include "src/cuda/hopper_tiles.h"
#include "src/cuda/plugs.h"
#include "src/cuda/rows_in_memory.h"
#include "src/cuda/schedule.h"

namespace heed::cuda {

inline constexpr float kLn2 = 0.693147181f;

template <class Group, class Shape>
class HopperConsumer : HopperGroup<Group, Shape> {
  using Base = HopperGroup<Group, Shape>;
  using Base::all_;
  using Base::batch_;
  using Base::group_;
  using Base::HeadOf;
  using Base::IsWhole;
  using Base::IsWholeToGroup;
  using Base::kv_head_;
  using Base::Own;
  using Base::p_;
  using Base::PackedRow;
  using Base::place_;
  using Base::position_;
  using Base::QueryOf;
  using Base::RecallLastTile;
  using Base::RecallRound;
  using Base::RecallRows;
  using Base::row_keys_;
  using Base::Rows;
  using Base::slope_;

 public:
  HEED_DEVICE HopperConsumer(Group& group, const HopperParams& params)
      : Base(group, params),
        scale_(params.scale),
        to_base_2_((params.softcap != 0 ? params.softcap : params.scale) * kLog2E) {}

  HEED_DEVICE void Run(int32_t block, int32_t blocks) {
    if constexpr (kCopiesAhead) CopyQueries(ItemOf(block, blocks, 0));
    HEED_NO_UNROLL for (int32_t round = 0; ItemOf(block, blocks, round) < ItemsOf(p_); ++round) {
      const int32_t item = ItemOf(block, blocks, round);
      FindPlace(item);
      const ItemKeys keys = FindKeys<Shape>(group_, p_, place_, Own());
      group_.Sync();  // the last queries, and what their rows see, are read
      if constexpr (!kCopiesAhead) CopyQueries(item);
      all_ = keys.item.all;
      const TileSpan tiles = TilesOfKeys<Shape>(keys.item);
      Base::LeaveItem(keys.own, tiles, round);
      Base::FindRows();
      ClearState();
      AwaitQueries();
      const TileSpan own = Base::OwnTiles(keys.own, tiles);
      PassTiles({own.end, tiles.end});
      if (own.begin < own.end) {
        if constexpr (Shape::kIsFloat8) {
          VisitTilesOfParts(own);
        } else {
          VisitTiles(own);
        }
        PassTiles({RecallLastTile(), own.begin});
      }
      round = RecallRound();  // and the place: registers of tiles are dear
      if constexpr (kCopiesAhead) {
        group_.Sync();  // all of the group have read the queries
        CopyQueries(ItemOf(block, blocks, round + 1));
      }
      group_.template GroupSum<4>(row_sum_);
      FindPlace(ItemOf(block, blocks, round));
      StoreRows();
    }
  }

 private:
  using Element = typename Shape::Element;
  using Barriers = HopperBarriers<Shape::kStages>;
  using Turn = TileTurn<Shape::kStages>;
  template <class T, int N>
  using Registers = typename Group::template Registers<T, N>;
  static constexpr int kDim = Shape::kDim;
  static constexpr int kValueDim = Shape::kValueDim;
  static constexpr int kKeys = Shape::kKeys;
  static constexpr int kPartKeys = Shape::kPartKeys;
  static constexpr int kScores = kPartKeys / 2;
  static constexpr int kOut = kValueDim / 2;
  // Whether queries of the next item are under way while the rows of this one are stored. Beside
  // 256 columns of sums there are no registers for it.
  static constexpr bool kCopiesAhead = kValueDim <= 128;
  // Columns of values whose sums of float8 are taken at once.
  static constexpr int kStretch = kValueDim <= 128 ? kValueDim : 64;
  static constexpr int kSumsBehind = 8;
  // How far, in base 2, scores may lie above what softmax subtracts before that is raised, and sums
  // shrink: weights are up to 2^kSlack then, and have as many bits. Those of float8 would overflow.
  static constexpr float kSlack = Shape::kIsFloat8 ? 0 : 8;
  // What weights are multiplied by: 2^kLift, and its inverse.
  static constexpr float kLift = Shape::kIsFloat8 ? kFloat8Lift : 0;
  static constexpr float kUnlift = Shape::kIsFloat8 ? kFloat8Unlift : 1;

  HEED_DEVICE void FindPlace(int32_t item) {
    Base::FindPlace(item);
    if constexpr (Shape::kIsFloat8) FindScales();
  }
  // Scales come from device memory, and may be 0, negative or not finite: then scores are
  // multiplied before their maximum is found. They are before ALiBi, too.
  HEED_DEVICE void FindScales() {
    scale_ = p_.scale * ScaleOf(p_.q, batch_, kv_head_, 0) * ScaleOf(p_.k, batch_, kv_head_, 0);
    if (p_.softcap == 0) to_base_2_ = ScalesScores() ? kLog2E : scale_ * kLog2E;
  }

  HEED_DEVICE void ClearState() {
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kOut; ++n) out_(t, n) = 0;
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        row_max_(t, half) = kMinusInfinity;
        row_sum_(t, half) = 0;
      }
    });
  }

  HEED_DEVICE void CopyQueries(int32_t item) {
    if (item < ItemsOf(p_)) CopyQueriesOf<Shape>(group_, p_, PlaceOfItem(p_, item), Own());
  }
  HEED_DEVICE void AwaitQueries() {
    group_.template WaitCopies<0>();
    group_.FenceProxyAsync();
    group_.Sync();
  }

  // From the last tile to the first, as in FlashAttention-3: the tiles of causal items that hide
  // keys, with their masks and the barrier of all consumers, come where the groups are in step
  // anyway. The loop ends in its middle; without a condition of its own ptxas waited for the values
  // of the tile before in front of softmax (nvcc 13.0).
  HEED_DEVICE void VisitTiles(TileSpan tiles) {
    group_.WaitForPhase(Barriers::KeysFull(turn_.stage), turn_.parity);
    IssueScores(QueriesAt(), KeysAt(turn_.stage));
    group_.template MmaWait<0>();
    HEED_NO_UNROLL for (int32_t tile = tiles.end - 1; tile >= tiles.begin; --tile) {
      group_.ArriveWarps(Barriers::KeysEmpty(turn_.stage));
      Weigh(tile * kKeys);
      group_.template MmaWait<0>();  // the values of the tile before
      if (tile + 1 < tiles.end) group_.ArriveWarps(Barriers::ValuesEmpty(turn_.Before().stage));
      ShrinkSums();
      PackWeights();
      turn_.Advance();
      const Turn values = turn_.Before();  // of the values that the second product reads
      group_.WaitForPhase(Barriers::ValuesFull(values.stage), values.parity);
      if (!IsWhole(tile * kKeys)) KeepPoisonOut(tile * kKeys, values.stage, 0);
      if (tile == tiles.begin) break;
      const uint64_t queries = QueriesAt(), next_keys = KeysAt(turn_.stage);
      const uint64_t own_values = ValuesAt(values.stage);
      group_.WaitForPhase(Barriers::KeysFull(turn_.stage), turn_.parity);
      IssueScores(queries, next_keys);
      IssueValues(own_values);
      group_.template MmaWait<1>();
    }
    const int stage = turn_.Before().stage;
    IssueValues(ValuesAt(stage));
    group_.template MmaWait<0>();
    group_.ArriveWarps(Barriers::ValuesEmpty(stage));
  }

  // A tile of which the group sees nothing: whoever loads, or looks for poison, counts on it all
  // the same.
  HEED_DEVICE void PassTile(int32_t tile) {
    group_.WaitForPhase(Barriers::KeysFull(turn_.stage), turn_.parity);
    group_.ArriveWarps(Barriers::KeysEmpty(turn_.stage));
    group_.WaitForPhase(Barriers::ValuesFull(turn_.stage), turn_.parity);
    HEED_NO_UNROLL for (int part = 0; part < Shape::kParts; ++part) {
      if (IsWhole(tile * kKeys + part * kPartKeys)) continue;
      HopperPoison<Group, Shape>(group_, Own(), turn_.stage, part).KeepOut();
    }
    group_.ArriveWarps(Barriers::ValuesEmpty(turn_.stage));
    turn_.Advance();
  }
  HEED_DEVICE void PassTiles(TileSpan span) {
    HEED_NO_UNROLL for (int32_t tile = span.end - 1; tile >= span.begin; --tile) PassTile(tile);
  }

  // Products of float8, one after the other. The other group's softmax runs under them: sums of a
  // part apart from those of all parts leave no registers for the next scores.
  HEED_DEVICE void VisitTilesOfParts(TileSpan tiles) {
    HEED_NO_UNROLL for (int32_t tile = tiles.end - 1; tile >= tiles.begin; --tile) {
      group_.WaitForPhase(Barriers::KeysFull(turn_.stage), turn_.parity);
      HEED_NO_UNROLL for (int part = 0; part < Shape::kParts; ++part) {
        const int32_t first = tile * kKeys + part * kPartKeys;
        IssueScores(QueriesAt(), KeysAt(turn_.stage, part));
        group_.template MmaWait<0>();
        if (part + 1 == Shape::kParts) group_.ArriveWarps(Barriers::KeysEmpty(turn_.stage));
        Weigh(first);
        PackWeights();
        if (part == 0) group_.WaitForPhase(Barriers::ValuesFull(turn_.stage), turn_.parity);
        if (!IsWhole(first)) KeepPoisonOut(first, turn_.stage, part);
        HEED_UNROLL for (int column = 0; column < kValueDim; column += kStretch) {
          IssueTransposedValues(turn_.stage, part, column);
          group_.template MmaWait<0>();
          const bool last = part + 1 == Shape::kParts && column + kStretch == kValueDim;
          if (last) group_.ArriveWarps(Barriers::ValuesEmpty(turn_.stage));
          AddSums(column);
        }
      }
      turn_.Advance();
    }
  }

  // What products are told of the queries, and of the tiles of a stage.
  HEED_DEVICE uint64_t QueriesAt() const { return group_.Matrix(Shape::QueriesAt(Own()), 16); }
  HEED_DEVICE uint64_t KeysAt(int stage, int part = 0) const {
    return group_.Matrix(Shape::KeysAt(stage) + part * kPartKeys * kPanelBytes, 16);
  }
  HEED_DEVICE uint64_t ValuesAt(int stage) const {
    return group_.Matrix(Shape::ValuesAt(stage), Shape::kPanelOfKeys);
  }

  HEED_DEVICE void IssueScores(uint64_t queries, uint64_t keys) {
    group_.MmaFence();
    constexpr int kRowBytes = kDim * static_cast<int>(sizeof(Element));
    HEED_UNROLL for (int byte = 0; byte < kRowBytes; byte += 32) {
      const int panel = byte / kPanelBytes;
      const int column = byte % kPanelBytes;
      group_.template MmaShared<kPartKeys>(
          Element{}, scores_,
          AdvancedDescriptor(queries, panel * kGroupRows * kPanelBytes + column),
          AdvancedDescriptor(keys, panel * Shape::kPanelOfKeys + column), byte != 0);
    }
    group_.MmaCommit();
  }

  HEED_DEVICE void IssueValues(uint64_t values) {
    group_.MmaFence();
    HEED_UNROLL for (int key = 0; key < kKeys; key += 16) {
      group_.template MmaRegisters<kValueDim>(Element{}, out_, weights_, key / 4,
                                              AdvancedDescriptor(values, key * kPanelBytes));
    }
    group_.MmaCommit();
  }

  // Weighted values of a part of a tile of float8 alone, from a column on: tensor cores add in
  // fewer bits than float32 has (docs/cuda_kernels.md), so sums of many tiles are not left to them.
  HEED_DEVICE void IssueTransposedValues(int stage, int part, int column) {
    const uint64_t values =
        group_.Matrix(Shape::ValuesAt(stage) + column * kPanelBytes + part * kPartKeys, 16);
    group_.MmaFence();
    HEED_UNROLL for (int position = 0; position < kPartKeys; position += 32) {
      group_.template MmaRegisters<kStretch>(Element{}, PartSums(), weights_, position / 8,
                                             AdvancedDescriptor(values, position), position != 0);
    }
    group_.MmaCommit();
  }
  // They lie where the scores were, if there are as many.
  HEED_DEVICE auto& PartSums() {
    if constexpr (kStretch / 2 == kScores) {
      return scores_;
    } else {
      return part_sums_;
    }
  }
  HEED_DEVICE void AddSums(int column) {
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kStretch / 2; ++n) {
        float& sum = out_(t, column / 2 + n);
        sum = fmaf(sum, shrink_(t, n % 4 / 2), PartSums()(t, n));
      }
    });
  }

  // Scores become weights, and join the sums of their rows. A score s stands for s to_base_2_ in
  // base 2, plus what a thread's scores of a row are shifted by in this tile.
  HEED_DEVICE void Weigh(int32_t first) {
    Registers<float, 2> shifts;
    group_.Each([&](int t) { shifts(t, 0) = shifts(t, 1) = 0; });
    if constexpr (!Shape::kPlain) {
      if (p_.softcap != 0) {
        HopperScores<Group, kScores>(group_, scores_).Bend(scale_ / p_.softcap);
      }
    }
    if constexpr (Shape::kIsFloat8) {
      if (ScalesScores()) ScaleScores();
    }
    if constexpr (!Shape::kPlain) {
      if (p_.alibi_slopes != nullptr) AddAlibi(first, shifts);
    }
    if (!IsWhole(first)) Hide(first);
    Registers<float, 2> highest;
    group_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        // Two maxima, as each comparison waits for the one before.
        float even = scores_(t, 2 * half), odd = scores_(t, 2 * half + 1);
        HEED_UNROLL for (int n = 4 + 2 * half; n < kScores; n += 4) {
          even = fmaxf(even, scores_(t, n));
          odd = fmaxf(odd, scores_(t, n + 1));
        }
        highest(t, half) = fmaxf(even, odd);
        if constexpr (!Shape::kPlain) {
          highest(t, half) = fmaf(highest(t, half), to_base_2_, shifts(t, half));
        }
      }
    });
    group_.template GroupMax<4>(highest);
    group_.Each([&](int t) {
      float subtrahend[2];
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        const float before = row_max_(t, half);
        const float raised = Shape::kPlain ? highest(t, half) * to_base_2_ : highest(t, half);
        if (raised > before + kSlack) row_max_(t, half) = raised;
        subtrahend[half] = Subtrahend(row_max_(t, half));
        shrink_(t, half) = Group::Exp2(before - subtrahend[half]);
        subtrahend[half] -= Shape::kPlain ? kLift : kLift + shifts(t, half);
        row_sum_(t, half) *= shrink_(t, half);
      }
      // A weight joins its sum a while after it is made: exponentials take long to arrive.
      HEED_UNROLL for (int n = 0; n < kScores + kSumsBehind; ++n) {
        if (n < kScores) {
          scores_(t, n) = Group::Exp2(fmaf(scores_(t, n), to_base_2_, -subtrahend[n % 4 / 2]));
        }
        if (n >= kSumsBehind) row_sum_(t, n % 4 / 2) += scores_(t, n - kSumsBehind);
      }
    });
  }

  HEED_DEVICE bool ScalesScores() const {
    return p_.softcap == 0 && (p_.alibi_slopes != nullptr || !(scale_ > 0));
  }
  HEED_DEVICE void ScaleScores() {
    group_.Each(
        [&](int t) { HEED_UNROLL for (int n = 0; n < kScores; ++n) scores_(t, n) *= scale_; });
  }
  HEED_DEVICE void AddAlibi(int32_t part_first, Registers<float, 2>& shifts) {
    RecallRows();
    Registers<int32_t, 2> from;
    group_.Each([&](int t) {
      const int first = FirstKey<Group>(t, part_first);
      HEED_UNROLL for (int half = 0; half < 2; ++half) from(t, half) = position_(t, half) - first;
    });
    HopperScores<Group, kScores>(group_, scores_).AddAlibi(from, slope_, shifts);
    group_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) shifts(t, half) *= to_base_2_;
    });
  }

  // Hidden scores are -inf.
  HEED_DEVICE void Hide(int32_t part_first) {
    if (IsWholeToGroup(part_first)) return;
    RecallRows();
    group_.Each([&](int t) {
      const int first = FirstKey<Group>(t, part_first);
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        if (!Sees(row_keys_, t, first, n)) scores_(t, n) = kMinusInfinity;
      }
    });
  }
  HEED_DEVICE void KeepPoisonOut(int32_t first, int stage, int part) {
    const auto row_keys = [this]() -> auto& {
      RecallRows();
      return row_keys_;
    };
    HopperPoison<Group, Shape>(group_, Own(), stage, part).KeepOut(first, scores_, row_keys, out_);
  }

  HEED_DEVICE void ShrinkSums() {
    if (!group_.AnyOfWarp([&](int t) { return shrink_(t, 0) != 1 || shrink_(t, 1) != 1; })) return;
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kOut; ++n) out_(t, n) *= shrink_(t, n % 4 / 2);
    });
  }

  // Two neighbouring sums are a pair of wgmma's operand A, as they are of that of mma.sync. Of
  // float8 a register holds four, in the order of float8_tiles.h.
  HEED_DEVICE void PackWeights() {
    group_.Each([&](int t) {
      if constexpr (Shape::kIsFloat8) {
        HEED_UNROLL for (int n = 0; n < kScores / 4; ++n) {
          const int at = n / 2 * 8 + n % 2 * 2;  // keys 16 (n / 2) + 2 (lane % 4), row n % 2
          const int swapped = n / 2 % 2;
          weights_(t, n) =
              Group::PackFour(scores_(t, at + swapped), scores_(t, at + 1 - swapped),
                              scores_(t, at + 4 + swapped), scores_(t, at + 5 - swapped));
        }
      } else {
        HEED_UNROLL for (int n = 0; n < kScores; n += 2) {
          weights_(t, n / 2) = Group::Pack(Element{}, scores_(t, n), scores_(t, n + 1));
        }
      }
    });
  }

  HEED_DEVICE void StoreRows() {
    float factor = 1;
    if constexpr (Shape::kIsFloat8) factor = ScaleOf(p_.v, batch_, kv_head_, 0) * kUnlift;
    group_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        const int32_t row = PackedRow(place_, RowInGroup(t, half));
        if (row >= Rows()) continue;
        const RowState state = {row_max_(t, half) * kLn2, row_sum_(t, half) * kUnlift};
        const RowEnd end = FinishSoftmax(p_, HeadOf(kv_head_, row), state);
        if (t % 4 == 0 && p_.lse.data != nullptr) {
          StoreAs(DType::kFloat32, RowOfOutput(p_.lse, row), 0, end.lse);
        }
        if (p_.output.data == nullptr) continue;
        StoreRow(t, half, end.empty ? 0.0f : end.factor * factor, RowOfOutput(p_.output, row));
      }
    });
  }
  HEED_DEVICE void StoreRow(int t, int half, float factor, char* to) {
    if constexpr (!Shape::kIsFloat8) {  // outputs of the type of the call, of all columns
      if (p_.output.dtype == p_.q.dtype && p_.v.width == kValueDim &&
          reinterpret_cast<uintptr_t>(to) % 4 == 0) {
        return StoreWholeRow<Group, Element, kOut>(Element{}, t, half, out_, factor, to);
      }
    }
    StoreSumsOfRow<Group, kOut>(t, half, out_, factor, p_.output.dtype, p_.v.width, to);
  }
  HEED_DEVICE char* RowOfOutput(const DeviceOutput& output, int32_t row) const {
    return output.data + batch_ * output.strides[0] + HeadOf(kv_head_, row) * output.strides[1] +
           QueryOf(row) * output.strides[2];
  }

  float scale_, to_base_2_;

  Turn turn_;  // of the next keys

  Registers<float, kScores> scores_;          // then weights
  Registers<float, kStretch / 2> part_sums_;  // of float8, where scores_ is no place for them
  Registers<uint32_t, kScores / 2> weights_;  // rounded, for the product
  Registers<float, kOut> out_;                // sums of weighted values
  Registers<float, 2> row_max_;               // in base 2, alike in a quad
  Registers<float, 2> row_sum_;               // of the thread's own columns, until the end
  Registers<float, 2> shrink_;                // what the last tile multiplies sums by
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_CONSUMER_H_
