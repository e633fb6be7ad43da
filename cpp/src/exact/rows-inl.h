// Rows of q, k and v as floats, wherever and in whatever type they are stored, and sums over values
// that are used where they lie.
#if defined(HEED_EXACT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_ROWS_INL_H_
#undef HEED_EXACT_ROWS_INL_H_
#else
#define HEED_EXACT_ROWS_INL_H_
#endif

#include <algorithm>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/exact/problem.h"
#include "src/exact/row_groups-inl.h"
#include "src/exact/tile.h"
#include "src/simd/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Where the rows of k or v of one KV head are.
struct HeadRows {
  const StoredTensor* tensor;
  const CachedRows* cached;  // instead of the tensor's data, or nullptr
  int64_t batch;
  int64_t head;

  DType dtype() const { return cached == nullptr ? tensor->dtype : cached->dtype; }
  size_t width() const { return static_cast<size_t>(tensor->shape[3]); }
  // nullptr for a token that was evicted: no row sees it.
  const void* Row(int64_t j) const {
    return cached == nullptr ? tensor->Row(batch, head, j) : cached->Row(batch, head, j);
  }
  float Scale(int64_t j) const { return cached == nullptr ? 1.0f : cached->Scale(batch, head, j); }
};

// Memory for rows that are not floats where they lie.
struct RowBuffers {
  float* converted;    // PanelCols() rows
  const float* zeros;  // one row
};

// Points rows[r] to row first + r as floats, for up to PanelCols() rows.
inline void GatherRows(const HeadRows& from, int64_t first, size_t count, RowBuffers buffers,
                       const float** rows) {
  const size_t width = from.width();
  for (size_t r = 0; r < count; ++r) {
    const int64_t j = first + static_cast<int64_t>(r);
    const void* stored = from.Row(j);
    if (stored == nullptr) {
      rows[r] = buffers.zeros;
    } else if (from.dtype() == DType::kFloat32) {
      rows[r] = static_cast<const float*>(stored);
    } else {
      float* HWY_RESTRICT to = buffers.converted + r * width;
      StoredRowToFloats(from.dtype(), stored, width, to);
      const float scale = from.Scale(j);
      if (scale != 1.0f) {
        for (size_t c = 0; c < width; ++c) to[c] *= scale;
      }
      rows[r] = to;
    }
  }
}

// Asks for rows [first, first + count) ahead of their use. Rows are too short for the prefetchers
// of the processor, which only learn them when they are over.
inline void PrefetchRows(const HeadRows& from, int64_t first, size_t count) {
  constexpr size_t kLine = 64;
  const size_t bytes = from.width() * static_cast<size_t>(ElementSize(from.dtype()));
  for (size_t r = 0; r < count; ++r) {
    const char* row = static_cast<const char*>(from.Row(first + static_cast<int64_t>(r)));
    if (row == nullptr) continue;
    for (size_t byte = 0; byte < bytes; byte += kLine) hwy::Prefetch(row + byte);
  }
}

// The rows of a tile of values, and what they are multiplied by; only int8 and float8 have scales.
struct ValueRows {
  const void* rows[kTileKeys];
  float scales[kTileKeys];
};

inline void FindValueRows(const HeadRows& from, const ScoreTile& tile, const float* zeros,
                          ValueRows& values) {
  const size_t end = std::min(tile.last, tile.num_keys);
  const bool scaled = from.dtype() == DType::kInt8 || from.dtype() == DType::kFloat8E4M3;
  for (size_t c = tile.first; c < end; ++c) {
    const int64_t j = tile.key_begin + static_cast<int64_t>(c);
    const void* row = from.Row(j);
    values.rows[c] = row == nullptr ? zeros : row;
    if (scaled) values.scales[c] = row == nullptr ? 0.0f : from.Scale(j);
  }
}

template <class T>
inline constexpr bool kHasScale = std::is_same_v<T, int8_t> || std::is_same_v<T, Float8E4M3>;

// Keys [begin, end) of kRows rows and one panel of values: sums += weights x values, one chain of
// multiply-adds per number in ascending order of keys.
template <class T, size_t kRows>
HWY_INLINE void SumPanel(const ValueRows& values, size_t column, const float* HWY_RESTRICT weights,
                         size_t begin, size_t end, float* HWY_RESTRICT sums, size_t stride) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  VF sum0[kRows];
  VF sum1[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    sum0[r] = hn::Load(d, sums + r * stride);
    sum1[r] = hn::Load(d, sums + r * stride + lanes);
  }
  for (size_t j = begin; j < end; ++j) {
    const T* HWY_RESTRICT row = static_cast<const T*>(values.rows[j]) + column;
    VF v0 = LoadStored(d, row);
    VF v1 = LoadStored(d, row + lanes);
    if constexpr (kHasScale<T>) {
      v0 = hn::Mul(v0, hn::Set(d, values.scales[j]));
      v1 = hn::Mul(v1, hn::Set(d, values.scales[j]));
    }
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) {
      const VF weight = hn::Set(d, weights[r * kTileKeys + j]);
      sum0[r] = Fma(weight, v0, sum0[r]);
      sum1[r] = Fma(weight, v1, sum1[r]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    hn::Store(sum0[r], d, sums + r * stride);
    hn::Store(sum1[r], d, sums + r * stride + lanes);
  }
}

// Keys whose values stay in L1 while all panels of columns pass over them.
inline constexpr size_t kValueKeys = 32;

// sums[row][v_cols] = weights x values, which are read where they lie: each value once for up to
// kTileRows rows, rows one after the other. The same operations in the same order as on packed
// values. v_cols is a multiple of PanelCols().
template <class T>
void SumValues(const ValueRows& values, const ScoreTile& tile, size_t v_cols,
               float* HWY_RESTRICT sums) {
  std::fill_n(sums, tile.num_rows * v_cols, 0.0f);
  const size_t last = std::min(tile.last, tile.num_keys);
  for (size_t key = tile.first; key < last; key += kValueKeys) {
    const size_t next_end = std::min(last, key + 2 * kValueKeys);
    for (size_t j = key + kValueKeys; j < next_end; ++j) {
      const char* row = static_cast<const char*>(values.rows[j]);
      for (size_t byte = 0; byte < v_cols * sizeof(T); byte += 64) hwy::Prefetch(row + byte);
    }
    for (size_t c = 0; c < v_cols; c += PanelCols()) {
      ForEachRowGroup(tile, [&]<size_t kRows>(size_t r, const ColumnRange& columns) HWY_ATTR {
        const size_t begin = std::max(columns.begin, key);
        const size_t end = std::min({columns.end, last, key + kValueKeys});
        if (begin >= end) return;
        SumPanel<T, kRows>(values, c, tile.row_scores(r), begin, end, sums + r * v_cols + c,
                           v_cols);
      });
    }
  }
}

inline void SumStoredValues(DType dtype, const ValueRows& values, const ScoreTile& tile,
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

#endif  // HEED_EXACT_ROWS_INL_H_
