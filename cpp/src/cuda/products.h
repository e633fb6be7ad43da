// The two products of attention on a tile in shared memory: scores += q k^T and out += weights v.
// (Those of float32 are in float_products.h.) A thread owns the same cells of the scores in both
// forms, those of an mma.sync accumulator; which columns of the output it owns is the form's own
// matter.
//
//   scores(4 n + e)  row AccumulatorRow(lane, e) of the warp, key 8 n + AccumulatorCol(lane, e)
//   out(n)           row lane / 4 + 8 * Half(n) of the warp, column Column(lane, n)
#ifndef HEED_SRC_CUDA_PRODUCTS_H_
#define HEED_SRC_CUDA_PRODUCTS_H_

#include <bit>
#include <cstdint>

#include "heed/dtype.h"
#include "src/cuda/accumulators.h"
#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"
#include "src/cuda/finite.h"
#include "src/cuda/fragments.h"

namespace heed::cuda {

HEED_DEVICE constexpr float AsFloat(uint32_t word) { return std::bit_cast<float>(word); }
HEED_DEVICE constexpr uint32_t AsWord(float x) { return std::bit_cast<uint32_t>(x); }

HEED_DEVICE float Widen(float x) { return x; }
HEED_DEVICE float Widen(Float16 x) { return ToFloat(x); }
HEED_DEVICE float Widen(BFloat16 x) { return ToFloat(x); }

// Tensor cores on float16 or bfloat16; sums are float32, weights are rounded to the element first.
// Rows in shared memory are 8 elements longer than kDim: ldmatrix then meets no bank twice.
//
// The warps of a block have 16 rows each and all keys of a tile, or, where there are no more than
// 16 rows (kByKeys), all rows and a quarter of the keys each.
template <class T, int kDim_, int kKeys_, bool kByKeys_ = false>
struct MmaProducts {
  using Element = T;
  static constexpr bool kByKeys = kByKeys_;
  static constexpr int kDim = kDim_;
  static constexpr int kKeys = kKeys_;
  static constexpr int kStride = kDim + 8;
  static constexpr int kRows = kByKeys ? kWarpRows : kBlockRows;
  static constexpr int kWarpKeys = kByKeys ? kKeys / kBlockWarps : kKeys;
  static constexpr int kScores = kWarpKeys / 2;
  static constexpr int kOut = kDim / 2;

  // The first row of a thread's warp in the block, and its first key in the tile.
  HEED_DEVICE static constexpr int FirstRow(int t) { return kByKeys ? 0 : t / kWarp * kWarpRows; }
  HEED_DEVICE static constexpr int FirstKey(int t) { return kByKeys ? t / kWarp * kWarpKeys : 0; }

  HEED_DEVICE static constexpr int Half(int n) { return n / 2 % 2; }
  HEED_DEVICE static constexpr int Column(int lane, int n) {
    return n / 4 * 8 + AccumulatorCol(lane, n % 2);
  }

  // Stores half `half` of a thread's sums, times `factor`, to a row of `width` columns at `to`.
  template <class Block, class Out>
  HEED_DEVICE static void StoreRow(int t, int half, Out& out, float factor, DType dtype, int width,
                                   char* to) {
    StoreSumsOfRow<Block, kOut>(t, half, out, factor, dtype, width, to);
  }

  template <class Block, class Shared, class Scores>
  HEED_DEVICE static void ScoreTile(Block& block, const Shared& q, const Shared& k,
                                    Scores& scores) {
    typename Block::template Registers<uint32_t, 4> a, b;
    HEED_UNROLL for (int d = 0; d < kDim; d += 16) {
      block.LoadMatrix(a, q, [d](int t) {
        return (FirstRow(t) + RowOfA(t % kWarp)) * kStride + d + ColOfA(t % kWarp);
      });
      HEED_UNROLL for (int key = 0; key < kWarpKeys; key += 16) {
        block.LoadMatrix(b, k, [d, key](int t) {
          return (FirstKey(t) + key + RowOfB(t % kWarp)) * kStride + d + ColOfB(t % kWarp);
        });
        block.Mma(T{}, scores, key / 8, a, b, 0);
        block.Mma(T{}, scores, key / 8 + 1, a, b, 1);
      }
    }
  }

  template <class Block, class Shared, class Scores, class Out>
  HEED_DEVICE static void AddValues(Block& block, Scores& weights, const Shared& v, Out& out) {
    typename Block::template Registers<uint32_t, 4> a, b;
    HEED_UNROLL for (int key = 0; key < kWarpKeys; key += 16) {
      // Two neighbouring accumulators are an A operand, pair by pair.
      block.Each([&](int t) {
        HEED_UNROLL for (int pair = 0; pair < 4; ++pair) {
          const int n = key / 2 + 2 * pair;
          a(t, pair) = Block::Pack(T{}, weights(t, n), weights(t, n + 1));
        }
      });
      HEED_UNROLL for (int d = 0; d < kDim; d += 16) {
        block.LoadMatrixTransposed(b, v, [d, key](int t) {
          return (FirstKey(t) + key + RowOfTransposedB(t % kWarp)) * kStride + d +
                 ColOfTransposedB(t % kWarp);
        });
        block.Mma(T{}, out, d / 8, a, b, 0);
        block.Mma(T{}, out, d / 8 + 1, a, b, 1);
      }
    }
  }
};

// Blocks whose registers a multiprocessor holds (docs/cuda_kernels.md): three where one kind of
// sums, of 64 columns, leaves registers for them beside the products. Those of float32 have more,
// but where attention has no other sums.
template <class Products>
inline constexpr int kResidentOf = Products::kDim == 64 && sizeof(typename Products::Element) == 2
                                       ? 3
                                       : 2;
template <class Products>
inline constexpr int kAttentionResidentOf =
    sizeof(typename Products::Element) == 4 && Products::kDim <= 128 ? 3 : kResidentOf<Products>;

// The bit of a cell in a word that has one for each score of a thread.
HEED_DEVICE bool BitOf(uint32_t word, int key, int half) {
  return (word >> (key / 8 * 4 + 2 * half + key % 2) & 1) != 0;
}

// Adds what values that are not finite do to the rows that see their keys. Bits of `visible` say
// which rows do, those of `positive` whose weight is above 0: 0 times infinity is NaN.
template <class Products, class Block, class Shared, class Bits, class Out>
HEED_DEVICE void AddPoison(Block& block, Bits& visible, Bits& positive, const Shared& v, Out& out) {
  Bits seen, weighted;
  HEED_NO_UNROLL for (int key = 0; key < Products::kWarpKeys; ++key) {
    block.FromQuad(visible, 0, key % 8 / 2, seen, 0);
    block.FromQuad(positive, 0, key % 8 / 2, weighted, 0);
    block.Each([&](int t) {
      HEED_UNROLL for (int m = 0; m < Products::kOut; ++m) {
        const int half = Products::Half(m);
        const float value = Widen(v.Load(
            t, (Products::FirstKey(t) + key) * Products::kStride + Products::Column(t % kWarp, m)));
        if (IsFinite(value) || !BitOf(seen(t, 0), key, half)) continue;
        out(t, m) += BitOf(weighted(t, 0), key, half) ? value : value * 0.0f;
      }
    });
  }
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_PRODUCTS_H_
