// Scores with keys, and sums over values, that are used where they lie and as they are stored.
#if defined(HEED_EXACT_STORED_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_STORED_ROWS_INL_H_
#undef HEED_EXACT_STORED_ROWS_INL_H_
#else
#define HEED_EXACT_STORED_ROWS_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "heed/dtype.h"
#include "hwy/highway.h"
#include "src/exact/tile.h"
#include "src/simd/convert-inl.h"
#include "src/simd/reduce-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The stored rows of a tile of keys or values, and what they are multiplied by; only int8 and
// float8 have scales.
struct StoredRows {
  const void* rows[kTileKeys];
  float scales[kTileKeys];
};

template <class T>
inline constexpr bool kHasScale = std::is_same_v<T, int8_t> || std::is_same_v<T, Float8E4M3>;

// Rows whose products with keys are in flight at once, two accumulators each. Fewer where vectors
// are short: the code of so many types and rows is a part of what the WASM package weighs.
inline constexpr size_t kDotRows = hn::MaxLanes(DF()) > 4 ? 4 : 2;

// Products of kRows queries with four keys, two at a time: the processor's prefetchers follow rows
// that are read one after the other, not four at once (three times the time; Zen 4, 268 MB). Lanes
// are summed last: no key is transposed.
template <class T, size_t kRows>
HWY_INLINE void DotFour(const T* const (&keys)[4], const float (&scales)[4],
                        const float* HWY_RESTRICT queries, size_t depth,
                        float* HWY_RESTRICT scores) {
  const DF d;
  VF sums[kRows][4];
  for (size_t j = 0; j < 4; j += 2) {
    VF sum0[kRows], sum1[kRows];
    for (size_t r = 0; r < kRows; ++r) sum0[r] = sum1[r] = hn::Zero(d);
    for (size_t t = 0; t < depth; t += hn::Lanes(d)) {
      VF key0 = InRegister(LoadStored(d, keys[j] + t));
      VF key1 = InRegister(LoadStored(d, keys[j + 1] + t));
      if constexpr (kHasScale<T>) {
        key0 = hn::Mul(key0, hn::Set(d, scales[j]));
        key1 = hn::Mul(key1, hn::Set(d, scales[j + 1]));
      }
      HWY_UNROLL(4)
      for (size_t r = 0; r < kRows; ++r) {
        const VF query = InRegister(hn::LoadU(d, queries + r * depth + t));
        sum0[r] = Fma(query, key0, sum0[r]);
        sum1[r] = Fma(query, key1, sum1[r]);
      }
    }
    for (size_t r = 0; r < kRows; ++r) {
      sums[r][j] = sum0[r];
      sums[r][j + 1] = sum1[r];
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    hn::StoreU(ReduceFour(d, sums[r], SumOf()), D4(), scores + r * kTileKeys);
  }
}

// Scores of the tile's rows, queries[row][depth], with its keys. `depth` is a multiple of a vector.
// Columns beyond the last key repeat it.
template <class T>
void DotKeys(const StoredRows& stored, const float* HWY_RESTRICT queries, size_t depth,
             const ScoreTile& tile) {
  const size_t last_key = std::min(tile.last, tile.num_keys) - 1;
  for (size_t c = tile.first; c < tile.last; c += 4) {
    const T* keys[4];
    float scales[4] = {};
    for (size_t j = 0; j < 4; ++j) {
      const size_t key = std::min(c + j, last_key);
      keys[j] = static_cast<const T*>(stored.rows[key]);
      if constexpr (kHasScale<T>) scales[j] = stored.scales[key];
    }
    for (size_t r = 0; r < tile.num_rows; r += kDotRows) {
      WithRows<kDotRows>(std::min(kDotRows, tile.num_rows - r), [&]<size_t kRows>() HWY_ATTR {
        DotFour<T, kRows>(keys, scales, queries + r * depth, depth, tile.row_scores(r) + c);
      });
    }
  }
}

inline void DotStoredKeys(DType dtype, const StoredRows& keys, const float* queries, size_t depth,
                          const ScoreTile& tile) {
  switch (dtype) {
    case DType::kFloat16:
      return DotKeys<Float16>(keys, queries, depth, tile);
    case DType::kBFloat16:
      return DotKeys<BFloat16>(keys, queries, depth, tile);
    case DType::kInt8:
      return DotKeys<int8_t>(keys, queries, depth, tile);
    case DType::kFloat8E4M3:
      return DotKeys<Float8E4M3>(keys, queries, depth, tile);
    default:
      return DotKeys<float>(keys, queries, depth, tile);
  }
}

// Keys whose values stay in L1 while all rows pass over them.
inline constexpr size_t kValueKeys = 32;

// Rows and vectors of columns whose sums are in registers while keys pass. As wide as can be, for
// the same reason as in DotFour: panels of two vectors, which leave a value half read, take nearly
// twice the time (Zen 4, 268 MB, with or without prefetching).
inline constexpr size_t kSumRows = kTileRows == 8 ? 2 : 1;
inline constexpr size_t kSumVectors = hn::MaxLanes(DF()) > 4 ? 8 : 4;

// Keys [begin, end) of kRows rows and kVectors vectors of columns: sums += weights x values, one
// chain of multiply-adds per number in ascending order of keys.
template <class T, size_t kRows, size_t kVectors>
HWY_INLINE void SumColumns(const StoredRows& values, size_t column,
                           const float* HWY_RESTRICT weights, size_t begin, size_t end,
                           float* HWY_RESTRICT sums, size_t v_cols) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  VF sum[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t i = 0; i < kVectors; ++i) sum[r][i] = hn::Load(d, sums + r * v_cols + i * lanes);
  }
  for (size_t j = begin; j < end; ++j) {
    const T* HWY_RESTRICT row = static_cast<const T*>(values.rows[j]) + column;
    VF weight[kRows];
    for (size_t r = 0; r < kRows; ++r) weight[r] = hn::Set(d, weights[r * kTileKeys + j]);
    HWY_UNROLL(8)
    for (size_t i = 0; i < kVectors; ++i) {
      VF value = LoadStored(d, row + i * lanes);
      if constexpr (kHasScale<T>) value = hn::Mul(value, hn::Set(d, values.scales[j]));
      HWY_UNROLL(2)
      for (size_t r = 0; r < kRows; ++r) sum[r][i] = Fma(weight[r], value, sum[r][i]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t i = 0; i < kVectors; ++i) hn::Store(sum[r][i], d, sums + r * v_cols + i * lanes);
  }
}

// The same for all columns of kRows rows, as many vectors at a time as there are.
template <class T, size_t kRows>
void SumRows(const StoredRows& values, const float* weights, size_t begin, size_t end, float* sums,
             size_t v_cols) {
  const size_t lanes = hn::Lanes(DF());
  size_t c = 0;
  const auto pass = [&]<size_t kVectors>() HWY_ATTR {
    for (; c + kVectors * lanes <= v_cols; c += kVectors * lanes) {
      SumColumns<T, kRows, kVectors>(values, c, weights, begin, end, sums + c, v_cols);
    }
  };
  pass.template operator()<kSumVectors>();
  if constexpr (kSumVectors > 4) pass.template operator()<4>();
  pass.template operator()<2>();
}

// sums[row][v_cols] = weights x values, which are read where they lie. The same operations in the
// same order as on packed values. v_cols is a multiple of PanelCols().
template <class T>
void SumValues(const StoredRows& values, const ScoreTile& tile, size_t v_cols,
               float* HWY_RESTRICT sums) {
  std::fill_n(sums, tile.num_rows * v_cols, 0.0f);
  const size_t last = std::min(tile.last, tile.num_keys);
  for (size_t key = tile.first; key < last; key += kValueKeys) {
    for (size_t r = 0; r < tile.num_rows; r += kSumRows) {
      const ColumnRange& columns = tile.groups[r / kTileRows];
      const size_t begin = std::max(columns.begin, key);
      const size_t end = std::min({columns.end, last, key + kValueKeys});
      if (begin >= end) continue;
      WithRows<kSumRows>(std::min(kSumRows, tile.num_rows - r), [&]<size_t kRows>() HWY_ATTR {
        SumRows<T, kRows>(values, tile.row_scores(r), begin, end, sums + r * v_cols, v_cols);
      });
    }
  }
}

inline void SumStoredValues(DType dtype, const StoredRows& values, const ScoreTile& tile,
                            size_t v_cols, float* sums) {
  switch (dtype) {
    case DType::kFloat16:
      return SumValues<Float16>(values, tile, v_cols, sums);
    case DType::kBFloat16:
      return SumValues<BFloat16>(values, tile, v_cols, sums);
    case DType::kInt8:
      return SumValues<int8_t>(values, tile, v_cols, sums);
    case DType::kFloat8E4M3:
      return SumValues<Float8E4M3>(values, tile, v_cols, sums);
    default:
      return SumValues<float>(values, tile, v_cols, sums);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_STORED_ROWS_INL_H_
