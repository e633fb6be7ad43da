// The warp group that carries the state in the kernel of chunked recurrent attention on Hopper
// (hopper_chunk_kernel.h). Of each chunk it leaves the state before it beside the tiles, rounded,
// and then adds the chunk: state += keys^T values, 64 features of 64 columns in accumulators.
//
//   state(n)  feature RowInGroup(thread, n % 4 / 2), column AccumulatorCol(lane, 0) + Apart(n)
//
// Sums of keys are one more product, with ones in the place of values.
#ifndef HEED_SRC_CUDA_HOPPER_CHUNK_STATE_H_
#define HEED_SRC_CUDA_HOPPER_CHUNK_STATE_H_

#include <cstdint>
#include <limits>

#include "heed/dtype.h"
#include "src/cuda/accumulators.h"
#include "src/cuda/chunk_features.h"
#include "src/cuda/chunk_params.h"
#include "src/cuda/device.h"
#include "src/cuda/finite.h"
#include "src/cuda/hopper_chunk_layout.h"
#include "src/cuda/hopper_tiles.h"
#include "src/cuda/plugs.h"
#include "src/cuda/products.h"

namespace heed::cuda {

// The feature of a number. Of the maps of single numbers, those that chunks take.
HEED_DEVICE float FeatureOf(FeatureMap map, float x) {
  const float small = map == FeatureMap::kRelu ? 0.0f : Exp(x);
  const float large = map == FeatureMap::kRelu ? x : x + 1;
  return x <= 0 ? small : large;
}
// Two bfloat16 numbers become their features, rounded.
template <class Group>
HEED_DEVICE uint32_t MapPair(FeatureMap map, uint32_t pair) {
  const float low = Group::Unpack(BFloat16{}, static_cast<uint16_t>(pair));
  const float high = Group::Unpack(BFloat16{}, static_cast<uint16_t>(pair >> 16));
  return Group::Pack(BFloat16{}, FeatureOf(map, low), FeatureOf(map, high));
}

template <class Group, class Shape>
class HopperChunkState {
 public:
  HEED_DEVICE HopperChunkState(Group& group, const ChunkParams& params)
      : group_(group), p_(params) {}

  HEED_DEVICE void Run(const ChunkItem& item) {
    LoadState(item);
    HEED_NO_UNROLL for (int chunk = 0; chunk < p_.chunks; ++chunk) {
      group_.WaitForPhase(Barriers::Full(turn_.stage), turn_.parity);
      if (p_.feature_map != FeatureMap::kIdentity) MapKeys(p_.len - chunk * kChunkTokens);
      LeaveState();
      group_.FenceProxyAsync();
      const bool has_poison = group_.AnyOfGroup([&](int t) { return HasPoison(t); });
      if (has_poison) TakePoisonOut();
      group_.Each([&](int t) {
        if (t == 0) group_.StoreWord(t, Shape::HasPoisonAt(turn_.stage), has_poison ? 1 : 0);
      });
      group_.ArriveWarps(Barriers::Ready(turn_.stage));
      AddChunk();
      if (has_poison) LoseColumns();
      group_.ArriveWarps(Barriers::Empty(turn_.stage));
      turn_.Advance();
    }
    if (item.is_first && p_.final_state.data != nullptr) StoreState(item);
  }

 private:
  using Barriers = HopperChunkBarriers<Shape::kStages>;
  template <class T, int N>
  using Registers = typename Group::template Registers<T, N>;
  static constexpr int kState = kSliceCols / 2;
  static constexpr int kEights = kChunkTokens * kSliceCols / 8 / kGroupThreads;

  // body(n, row, col) for a thread's numbers of the state that there are, col of the whole width.
  template <class Body>
  HEED_DEVICE void EachOfState(int t, const ChunkItem& item, const Body& body) const {
    const int first = item.slice * kSliceCols + AccumulatorCol(t % kWarp, 0);
    HEED_UNROLL for (int n = 0; n < kState; ++n) {
      const int row = RowInGroup(t, n % 4 / 2), col = first + Apart(n);
      if (row < p_.features && col < p_.width) body(n, row, col);
    }
  }
  HEED_DEVICE void LoadState(const ChunkItem& item) {
    const FloatRows<const float>& from = p_.initial_state;
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kState; ++n) state_(t, n) = 0;
      HEED_UNROLL for (int n = 0; n < 4; ++n) sums_(t, n) = 0;
      if (from.data == nullptr) return;
      EachOfState(t, item, [&](int n, int row, int col) {
        state_(t, n) = from.Row(item.batch, item.kv_head, row)[col];
      });
      if constexpr (Shape::kNormalizes) {
        HEED_UNROLL for (int half = 0; half < 2; ++half) {
          const int row = RowInGroup(t, half);
          if (row >= p_.features) continue;
          sums_(t, 2 * half) = from.Row(item.batch, item.kv_head, row)[p_.width];
        }
      }
    });
  }
  HEED_DEVICE void StoreState(const ChunkItem& item) {
    const FloatRows<float>& to = p_.final_state;
    group_.Each([&](int t) {
      EachOfState(t, item, [&](int n, int row, int col) {
        to.Row(item.batch, item.kv_head, row)[col] = state_(t, n);
      });
      if constexpr (Shape::kNormalizes) {
        if (item.slice != 0 || t % 4 != 0) return;
        HEED_UNROLL for (int half = 0; half < 2; ++half) {
          const int row = RowInGroup(t, half);
          if (row >= p_.features) continue;
          to.Row(item.batch, item.kv_head, row)[p_.width] = sums_(t, 2 * half);
        }
      }
    });
  }

  // The n-th 16 bytes of a thread in a tile: of eight columns of a row.
  HEED_DEVICE static int RowOfEight(int t, int n) { return t / 8 + n * kGroupThreads / 8; }
  HEED_DEVICE static int EightAt(int t, int n) {
    return SwizzledByte(kChunkTokens, RowOfEight(t, n), t % 8 * 16);
  }
  // Keys become features in their place, but for what lies behind them and behind the last token.
  HEED_DEVICE void MapKeys(int tokens) {
    const FeatureMap map = p_.feature_map;
    group_.Each([&](int t) {
      const int left = p_.features - t % 8 * 8;  // from the first of the eight on
      if (left <= 0) return;
      HEED_UNROLL for (int n = 0; n < kEights; ++n) {
        if (RowOfEight(t, n) >= tokens) continue;
        const int at = Shape::KeysAt(turn_.stage) + EightAt(t, n);
        uint32_t pairs[4];
        group_.LoadChunk(t, at, pairs);
        HEED_UNROLL for (int m = 0; m < 4; ++m) {
          pairs[m] = MapPair<Group>(map, pairs[m]);
          if (left < 8) pairs[m] &= 2 * m + 1 < left ? ~0u : 2 * m < left ? 0xffffu : 0u;
        }
        group_.StoreChunk(t, at, pairs);
      }
    });
  }

  // The state as a right operand, rows of features.
  HEED_DEVICE void LeaveState() {
    group_.Each([&](int t) {
      const int col = AccumulatorCol(t % kWarp, 0);
      HEED_UNROLL for (int n = 0; n < kState; n += 2) {
        const int at = SwizzledOffset(kHopperChunkDim, RowInGroup(t, n % 4 / 2), col + Apart(n));
        group_.StoreWord(t, Shape::StateAt(turn_.stage) + at,
                         Group::Pack(BFloat16{}, state_(t, n), state_(t, n + 1)));
      }
      if constexpr (Shape::kNormalizes) LeaveSums(t);
    });
  }
  // All lanes of a quad have the sums, and leave them for two of the eight columns.
  HEED_DEVICE void LeaveSums(int t) {
    HEED_UNROLL for (int half = 0; half < 2; ++half) {
      const float sum = sums_(t, 2 * half);
      const uint32_t upper = Group::Pack(BFloat16{}, sum, 0);
      const float rest = sum - Group::Unpack(BFloat16{}, static_cast<uint16_t>(upper));
      const uint32_t pair = upper | Group::Pack(BFloat16{}, 0, rest);
      HEED_UNROLL for (int e = 0; e < 2; ++e) {
        const int at =
            SwizzledOffset(Shape::kSumRows, AccumulatorCol(t % kWarp, e), RowInGroup(t, half));
        group_.Store(t, Shape::SumsAt(turn_.stage) + at, static_cast<uint16_t>(pair >> 16 * e));
      }
    }
  }

  // Values that are not finite are taken out, as their product with the weight 0 of a row before
  // them would be NaN. Their columns are NaN from their rows on.
  HEED_DEVICE bool HasPoison(int t) {
    uint32_t carries = 0;
    HEED_UNROLL for (int n = 0; n < kEights; ++n) {
      uint32_t pairs[4];
      group_.LoadChunk(t, Shape::ValuesAt(turn_.stage) + EightAt(t, n), pairs);
      HEED_UNROLL for (int m = 0; m < 4; ++m) carries |= CarryOfNonFinite<BFloat16>(pairs[m]);
    }
    return (carries & kCarries) != 0;
  }
  HEED_DEVICE void TakePoisonOut() {
    group_.Each([&](int t) {
      if (t >= kSliceCols) return;
      int first = kChunkTokens;
      HEED_NO_UNROLL for (int token = kChunkTokens - 1; token >= 0; --token) {
        const int at = Shape::ValuesAt(turn_.stage) + SwizzledOffset(kChunkTokens, token, t);
        if (!IsNotFinite(BFloat16{}, group_.Load(t, at))) continue;
        first = token;
        group_.Store(t, at, 0);
      }
      group_.StoreWord(t, Shape::FirstPoisonAt(turn_.stage) + 4 * t, static_cast<uint32_t>(first));
    });
    group_.FenceProxyAsync();
    group_.Sync();
  }
  HEED_DEVICE void LoseColumns() {
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kState; ++n) {
        const int col = AccumulatorCol(t % kWarp, 0) + Apart(n);
        const uint32_t first = group_.LoadWord(t, Shape::FirstPoisonAt(turn_.stage) + 4 * col);
        if (first < kChunkTokens) state_(t, n) = std::numeric_limits<float>::quiet_NaN();
      }
    });
  }

  // The chunk decays the state, and joins it.
  HEED_DEVICE void AddChunk() {
    if constexpr (Shape::kHasGates) {
      LoadStrongKeys();
      DecayState();
    }
    const uint64_t keys = group_.Matrix(Shape::KeysAt(turn_.stage), Shape::kTileBytes);
    const uint64_t values = group_.Matrix(Shape::ValuesAt(turn_.stage), Shape::kTileBytes);
    const uint64_t ones = group_.Matrix(Shape::OnesAt(), 16);
    group_.MmaFence();
    HEED_UNROLL for (int token = 0; token < kChunkTokens; token += 16) {
      const uint64_t right = AdvancedDescriptor(values, token * kPanelBytes);
      if constexpr (Shape::kHasGates) {
        group_.template MmaLeftRegisters<kSliceCols, RightOperand::kRowsOfK>(
            state_, keys_, token / 4, right, true);
      } else {
        group_.template MmaLeftTransposed<kSliceCols, RightOperand::kRowsOfK>(
            state_, AdvancedDescriptor(keys, token * kPanelBytes), right, true);
      }
      if constexpr (Shape::kNormalizes) {
        const uint64_t of_ones = AdvancedDescriptor(ones, 2 * token);
        if constexpr (Shape::kHasGates) {
          group_.template MmaLeftRegisters<Shape::kSumRows, RightOperand::kRowsOfN>(
              sums_, keys_, token / 4, of_ones, true);
        } else {
          group_.template MmaLeftTransposed<Shape::kSumRows, RightOperand::kRowsOfN>(
              sums_, AdvancedDescriptor(keys, token * kPanelBytes), of_ones, true);
        }
      }
    }
    group_.MmaCommit();
    group_.template MmaWait<0>();
  }
  // Keys times the strengths of their tokens, rounded, as a left operand: rows of features.
  HEED_DEVICE void LoadStrongKeys() {
    HEED_UNROLL for (int token = 0; token < kChunkTokens; token += 16) {
      group_.LoadFragmentsTransposed(keys_, token / 4, [&](int t) {
        return Shape::KeysAt(turn_.stage) +
               SwizzledOffset(kChunkTokens, token + RowOfTransposedA(t % kWarp),
                              t / kWarp * kWarpRows + ColOfTransposedA(t % kWarp));
      });
    }
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kChunkTokens / 4; ++n) {
        const int at = Shape::StrengthsAt(turn_.stage) +
                       4 * (n / 4 * 16 + n % 4 / 2 * 8 + AccumulatorCol(t % kWarp, 0));
        const float low = AsFloat(group_.LoadWord(t, at));
        const float high = AsFloat(group_.LoadWord(t, at + 4));
        const uint32_t pair = keys_(t, n);
        keys_(t, n) =
            Group::Pack(BFloat16{}, low * Group::Unpack(BFloat16{}, static_cast<uint16_t>(pair)),
                        high * Group::Unpack(BFloat16{}, static_cast<uint16_t>(pair >> 16)));
      }
    });
  }
  HEED_DEVICE void DecayState() {
    group_.Each([&](int t) {
      const float decay = AsFloat(group_.LoadWord(t, Shape::ChunkDecayAt(turn_.stage)));
      HEED_UNROLL for (int n = 0; n < kState; ++n) state_(t, n) *= decay;
      HEED_UNROLL for (int n = 0; n < 4; ++n) sums_(t, n) *= decay;
    });
  }

  Group& group_;
  const ChunkParams& p_;
  TileTurn<Shape::kStages> turn_;
  Registers<float, kState> state_;
  Registers<float, 4> sums_;  // of keys: 0 and 2; the product has zeros beside them
  Registers<uint32_t, kChunkTokens / 4> keys_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_CHUNK_STATE_H_
