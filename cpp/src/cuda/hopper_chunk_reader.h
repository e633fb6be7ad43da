// A warp group that reads in the kernel of chunked recurrent attention on Hopper
// (hopper_chunk_kernel.h): the queries of every other chunk meet its tokens and the state before
// it.
//
//   out(n)  row RowInGroup(thread, n % 4 / 2) of the chunk, column AccumulatorCol(lane, 0) +
//   Apart(n)
//
// The sum of a row's weights is one more product, with ones in the place of values and the sums of
// keys in that of the state: whole(2 half) + whole(2 half + 1).
#ifndef HEED_SRC_CUDA_HOPPER_CHUNK_READER_H_
#define HEED_SRC_CUDA_HOPPER_CHUNK_READER_H_

#include <cstdint>
#include <limits>

#include "heed/dtype.h"
#include "src/cuda/accumulators.h"
#include "src/cuda/chunk_params.h"
#include "src/cuda/device.h"
#include "src/cuda/hopper_chunk_layout.h"
#include "src/cuda/hopper_chunk_tokens.h"
#include "src/cuda/hopper_tiles.h"
#include "src/cuda/plugs.h"
#include "src/cuda/products.h"
#include "src/cuda/shared_words.h"

namespace heed::cuda {

template <class Group, class Shape>
class HopperChunkReader {
 public:
  using Maps = ChunkMaps<typename Group::Map>;

  HEED_DEVICE HopperChunkReader(Group& group, const ChunkParams& params, const Maps& maps)
      : group_(group), p_(params), maps_(maps) {}

  // Chunks `own`, own + kReaders, and so on. Who has read a stage fills it again.
  HEED_DEVICE void Run(const ChunkItem& item, int own) {
    FindPlaces(item);
    group_.Leader([&] {
      HEED_NO_UNROLL for (int n = own; n < Shape::kStages; n += ChunkGroups::kReaders) {
        if (n < p_.chunks) LoadTiles(item, n, n);
      }
    });
    HEED_NO_UNROLL for (int n = 0; n < own; ++n) turn_.Advance();
    HEED_NO_UNROLL for (int chunk = own; chunk < p_.chunks; chunk += ChunkGroups::kReaders) {
      group_.SyncWarps();  // the leader is back
      group_.WaitForPhase(Barriers::Full(turn_.stage), turn_.parity);
      LoadQueries();
      group_.WaitForPhase(Barriers::Ready(turn_.stage), turn_.parity);
      IssueScores();
      IssueState();
      group_.template MmaWait<1>();
      if constexpr (Shape::kHasGates) DecayScores();
      PackWeights();
      group_.template MmaWait<0>();
      if constexpr (Shape::kHasGates) DecayRows();
      IssueValues();
      group_.template MmaWait<0>();
      FinishRows(item);
      StoreRows(item, chunk * kChunkTokens);
      group_.ArriveWarps(Barriers::Empty(turn_.stage));
      if (chunk + Shape::kStages < p_.chunks) {
        group_.Leader([&] {
          group_.WaitForPhase(Barriers::Empty(turn_.stage), turn_.parity);
          LoadTiles(item, chunk + Shape::kStages, turn_.stage);
        });
      }
      HEED_UNROLL for (int n = 0; n < ChunkGroups::kReaders; ++n) turn_.Advance();
    }
  }

 private:
  using Barriers = HopperChunkBarriers<Shape::kStages>;
  template <class T, int N>
  using Registers = typename Group::template Registers<T, N>;
  static constexpr int kScores = kChunkTokens / 2;
  static constexpr int kTiles = kChunkTokens / 8;  // of eight tokens
  static constexpr int kOut = kSliceCols / 2;

  HEED_DEVICE void FindPlaces(const ChunkItem& item) {
    rows_ = p_.output.data + item.batch * p_.output.strides[0] + item.head * p_.output.strides[1];
    group_.Each([&](int t) {
      pair_(t, 0) = PairAt(t);
      eight_(t, 0) = EightAt(t);
      query_(t, 0) = SwizzledOffset(kChunkTokens, t / kWarp * kWarpRows + RowOfA(t % kWarp),
                                    ColOfA(t % kWarp));
      const int behind = RowInGroup(t, 0) - AccumulatorCol(t % kWarp, 0);
      HEED_UNROLL for (int tile = 0; tile < kTiles; ++tile) {
        const uint32_t ones = 8 * tile < behind ? ~0u : 8 * tile == behind ? 0xffffu : 0u;
        // Opaque: kept, as registers are there, and not found again for every chunk.
        seen_(t, tile) = static_cast<uint32_t>(Group::Opaque(static_cast<int>(ones)));
      }
    });
  }
  HEED_DEVICE void LoadTiles(const ChunkItem& item, int chunk, int stage) {
    const int full = Barriers::Full(stage), first = chunk * kChunkTokens;
    group_.ArriveExpecting(full, 3 * Shape::kTileBytes);
    group_.LoadBox(Shape::KeysAt(stage), maps_.k, full, 0, first, item.kv_head, item.batch);
    group_.LoadBox(Shape::ValuesAt(stage), maps_.v, full, item.slice * kSliceCols, first,
                   item.kv_head, item.batch);
    group_.LoadBox(Shape::QueriesAt(stage), maps_.q, full, 0, first, item.head, item.batch);
  }

  HEED_DEVICE void LoadQueries() {
    HEED_UNROLL for (int feature = 0; feature < kHopperChunkDim; feature += 16) {
      group_.LoadFragments(queries_, feature / 4, [&](int t) {
        return Shape::QueriesAt(turn_.stage) + (query_(t, 0) ^ 2 * feature);
      });
    }
    // Features that do not exist become numbers, which meet zeros.
    WithMap(p_.feature_map, [&](auto map) {
      group_.Each([&](int t) {
        HEED_UNROLL for (int n = 0; n < kHopperChunkDim / 4; ++n) {
          queries_(t, n) = MapPair<Group, decltype(map)::value>(queries_(t, n));
        }
      });
    });
  }

  HEED_DEVICE void IssueScores() {
    const uint64_t keys = group_.Matrix(Shape::KeysAt(turn_.stage), 16);
    group_.MmaFence();
    HEED_UNROLL for (int feature = 0; feature < kHopperChunkDim; feature += 16) {
      group_.template MmaLeftRegisters<kChunkTokens, RightOperand::kRowsOfN>(
          scores_, queries_, feature / 4, AdvancedDescriptor(keys, 2 * feature), feature != 0);
    }
    group_.MmaCommit();
  }
  // What queries answer to the state before the chunk, and to its sums of keys.
  HEED_DEVICE void IssueState() {
    const uint64_t state = group_.Matrix(Shape::StateAt(turn_.stage), Shape::kTileBytes);
    const uint64_t sums = group_.Matrix(Shape::SumsAt(turn_.stage), 16);
    HEED_UNROLL for (int feature = 0; feature < kHopperChunkDim; feature += 16) {
      group_.template MmaLeftRegisters<kSliceCols, RightOperand::kRowsOfK>(
          out_, queries_, feature / 4, AdvancedDescriptor(state, feature * kPanelBytes),
          feature != 0);
      if constexpr (Shape::kNormalizes) {
        group_.template MmaLeftRegisters<Shape::kSumRows, RightOperand::kRowsOfN>(
            whole_, queries_, feature / 4, AdvancedDescriptor(sums, 2 * feature), feature != 0);
      }
    }
    group_.MmaCommit();
  }
  HEED_DEVICE void IssueValues() {
    const uint64_t values = group_.Matrix(Shape::ValuesAt(turn_.stage), Shape::kTileBytes);
    const uint64_t ones = group_.Matrix(Shape::OnesAt(), 16);
    group_.MmaFence();
    HEED_UNROLL for (int token = 0; token < kChunkTokens; token += 16) {
      group_.template MmaLeftRegisters<kSliceCols, RightOperand::kRowsOfK>(
          out_, weights_, token / 4, AdvancedDescriptor(values, token * kPanelBytes), true);
      if constexpr (Shape::kNormalizes) {
        group_.template MmaLeftRegisters<Shape::kSumRows, RightOperand::kRowsOfN>(
            whole_, weights_, token / 4, AdvancedDescriptor(ones, 2 * token), true);
      }
    }
    group_.MmaCommit();
  }

  // Scores are what a token wrote with and what is left of it. Those of tokens behind the row may
  // become anything.
  HEED_DEVICE void DecayScores() {
    group_.Each([&](int t) {
      float rows[2][2];
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        HEED_UNROLL for (int e = 0; e < 2; ++e) {
          rows[half][e] = AsFloat(group_.LoadWord(t, DecayAt(RowInGroup(t, half)) + 4 * e));
        }
      }
      HEED_UNROLL for (int tile = 0; tile < kChunkTokens / 8; ++tile) {
        const int token = 8 * tile + AccumulatorCol(t % kWarp, 0);
        uint32_t of_two[4];
        group_.LoadChunk(t, DecayAt(token), of_two);
        HEED_UNROLL for (int e = 0; e < 4; ++e) {
          const float beta =
              AsFloat(group_.LoadWord(t, Shape::BetasAt(turn_.stage) + 4 * (token + e % 2)));
          const float sum = rows[e / 2][0] - AsFloat(of_two[e % 2 * 2]);
          const float rest = rows[e / 2][1] - AsFloat(of_two[e % 2 * 2 + 1]);
          scores_(t, 4 * tile + e) *= Exp(sum + rest) * beta;
        }
      }
    });
  }
  HEED_DEVICE int DecayAt(int token) const { return Shape::DecaysAt(turn_.stage) + 8 * token; }
  // The state decays up to each row.
  HEED_DEVICE void DecayRows() {
    group_.Each([&](int t) {
      float decays[2];
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        decays[half] = Exp(AsFloat(group_.LoadWord(t, DecayAt(RowInGroup(t, half)))));
      }
      HEED_UNROLL for (int n = 0; n < kOut; ++n) out_(t, n) *= decays[n % 4 / 2];
      if constexpr (Shape::kNormalizes) {
        HEED_UNROLL for (int n = 0; n < 4; ++n) whole_(t, n) *= decays[n / 2];
      }
    });
  }

  // Tokens behind a row have no weight there. Weights are rounded.
  HEED_DEVICE void PackWeights() {
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kScores; n += 2) {
        const uint32_t pair = Group::Pack(BFloat16{}, scores_(t, n), scores_(t, n + 1));
        // Eight rows below, the tokens of the tile before. There the first has none behind a row.
        const int tile = n / 4 - n % 4 / 2;
        weights_(t, n / 2) = tile < 0 ? pair : pair & seen_(t, tile);
      }
    });
  }

  HEED_DEVICE void FinishRows(const ChunkItem& item) {
    group_.Each([&](int t) {
      float factors[2] = {p_.scale, p_.scale};
      if constexpr (Shape::kNormalizes) {
        HEED_UNROLL for (int half = 0; half < 2; ++half) {
          const float whole = whole_(t, 2 * half) + whole_(t, 2 * half + 1);
          factors[half] = whole * p_.scale == 0 ? 0.0f : 1 / whole;
        }
      }
      HEED_UNROLL for (int n = 0; n < kOut; ++n) out_(t, n) *= factors[n % 4 / 2];
    });
    if (p_.skip != nullptr) AddSkip(p_.skip[item.head]);
    const bool has_poison = group_.AnyOfWarp(
        [&](int t) { return group_.LoadWord(t, Shape::HasPoisonAt(turn_.stage)) != 0; });
    if (has_poison) LoseRows();
  }
  HEED_DEVICE void AddSkip(float skip) {
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kOut; n += 2) {
        const uint32_t pair =
            group_.LoadWord(t, Shape::ValuesAt(turn_.stage) + NextPair(pair_(t, 0), n));
        out_(t, n) += skip * Group::Unpack(BFloat16{}, static_cast<uint16_t>(pair));
        out_(t, n + 1) += skip * Group::Unpack(BFloat16{}, static_cast<uint16_t>(pair >> 16));
      }
    });
  }
  // Columns are NaN from the first value on that was taken out.
  HEED_DEVICE void LoseRows() {
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kOut; ++n) {
        const int col = AccumulatorCol(t % kWarp, 0) + Apart(n);
        const uint32_t first = group_.LoadWord(t, Shape::FirstPoisonAt(turn_.stage) + 4 * col);
        if (static_cast<uint32_t>(RowInGroup(t, n % 4 / 2)) < first) continue;
        out_(t, n) = std::numeric_limits<float>::quiet_NaN();
      }
    });
  }
  // Through the place of the queries, 16 bytes at a time, where rows allow for it.
  HEED_DEVICE void StoreRows(const ChunkItem& item, int first) {
    const int first_col = item.slice * kSliceCols, cols = p_.width - first_col;
    const int64_t stride = p_.output.strides[2];
    char* const to = rows_ + first * stride;
    char* const to_cols = to + first_col * static_cast<int>(sizeof(BFloat16));
    const int64_t places = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to_cols)) | stride |
                           cols * static_cast<int>(sizeof(BFloat16));
    if (p_.output.dtype != DType::kBFloat16 || places % 16 != 0) {
      return StoreNumbers(first, first_col, to);
    }
    const int queries = Shape::QueriesAt(turn_.stage);
    group_.Sync();  // queries are read
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kOut; n += 2) {
        group_.StoreWord(t, queries + NextPair(pair_(t, 0), n),
                         Group::Pack(BFloat16{}, out_(t, n), out_(t, n + 1)));
      }
    });
    group_.Sync();
    group_.Each([&](int t) {
      const int left = t % 8 * 8 < cols ? p_.len - first - t / 8 : 0;  // rows from the first on
      char* const own = to_cols + t / 8 * stride + t % 8 * 16;
      HEED_UNROLL for (int n = 0; n < kEightsOfTile; ++n) {
        uint32_t pairs[4];
        group_.LoadChunk(t, queries + NextEight(eight_(t, 0), n), pairs);
        if (n * kEightRows < left) StoreGlobalEight(own + n * kEightRows * stride, pairs);
      }
    });
    group_.FenceProxyAsync();  // TMA writes there next
  }
  HEED_DEVICE void StoreNumbers(int first, int first_col, char* to) {
    const int size = static_cast<int>(ElementSize(p_.output.dtype));
    const int cols = p_.width - first_col;
    group_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        const int row = RowInGroup(t, half);
        if (first + row >= p_.len) continue;
        StoreSumsOfRow<Group, kOut>(t, half, out_, 1, p_.output.dtype,
                                    cols < kSliceCols ? cols : kSliceCols,
                                    to + row * p_.output.strides[2] + first_col * size);
      }
    });
  }

  Group& group_;
  const ChunkParams& p_;
  const Maps& maps_;
  char* rows_;  // of the head
  TileTurn<Shape::kStages> turn_;
  // Places of the thread in a tile: PairAt(), EightAt(), and what it names to ldmatrix.
  Registers<int, 1> pair_, eight_, query_;
  Registers<uint32_t, kTiles> seen_;  // ones for the tokens of a pair that the first row sees
  Registers<uint32_t, kHopperChunkDim / 4> queries_;
  Registers<float, kScores> scores_;
  Registers<uint32_t, kScores / 2> weights_;
  Registers<float, kOut> out_;
  Registers<float, 4> whole_;  // sums of weights, of two rows in two parts
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_CHUNK_READER_H_
