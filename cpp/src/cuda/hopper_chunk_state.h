// The warp group that carries the state in the kernel of chunked recurrent attention on Hopper
// (hopper_chunk_kernel.h). Of each chunk it leaves the state before it beside the tiles, rounded,
// and adds the chunk: state += keys^T values, 64 features of 64 columns in accumulators.
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
#include "src/cuda/chunk_params.h"
#include "src/cuda/device.h"
#include "src/cuda/hopper_chunk_layout.h"
#include "src/cuda/hopper_tiles.h"
#include "src/cuda/products.h"

namespace heed::cuda {

template <class Group, class Shape>
class HopperChunkState {
 public:
  HEED_DEVICE HopperChunkState(Group& group, const ChunkParams& params)
      : group_(group), p_(params) {}

  HEED_DEVICE void Run(const ChunkItem& item) {
    group_.Each([&](int t) { pair_(t, 0) = PairAt(t); });
    LoadState(item);
    HEED_NO_UNROLL for (int chunk = 0; chunk < p_.chunks; ++chunk) {
      group_.WaitForPhase(Barriers::Full(turn_.stage), turn_.parity);
      group_.WaitForPhase(Barriers::Found(turn_.stage), turn_.parity);
      LeaveState();
      if constexpr (Shape::kHasGates) {
        LoadStrongKeys();
        DecayState();
      }
      IssueChunk();
      group_.FenceProxyAsync();
      group_.ArriveWarps(Barriers::Ready(turn_.stage));
      const bool has_poison = group_.AnyOfWarp(
          [&](int t) { return group_.LoadWord(t, Shape::HasPoisonAt(turn_.stage)) != 0; });
      group_.template MmaWait<0>();
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

  // The state as a right operand, rows of features.
  HEED_DEVICE void LeaveState() {
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kState; n += 2) {
        group_.StoreWord(t, Shape::StateAt(turn_.stage) + NextPair(pair_(t, 0), n),
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

  // Columns of values that were taken out are NaN.
  HEED_DEVICE void LoseColumns() {
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kState; ++n) {
        const int col = AccumulatorCol(t % kWarp, 0) + Apart(n);
        const uint32_t first = group_.LoadWord(t, Shape::FirstPoisonAt(turn_.stage) + 4 * col);
        if (first < kChunkTokens) state_(t, n) = std::numeric_limits<float>::quiet_NaN();
      }
    });
  }

  // The chunk joins the state.
  HEED_DEVICE void IssueChunk() {
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
  Registers<int, 1> pair_;  // a place of the thread: PairAt()
  Registers<float, kState> state_;
  Registers<float, 4> sums_;  // of keys: 0 and 2; the product has zeros beside them
  Registers<uint32_t, kChunkTokens / 4> keys_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_CHUNK_STATE_H_
