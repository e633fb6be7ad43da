// Sums over values that are used where they lie and as they are stored.
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
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The stored rows of a tile of keys or values, and what they are multiplied by; only int8 and
// float8 have scales. Columns of padding repeat the last row.
struct StoredRows {
  const void* rows[kTileKeys];
  float scales[kTileKeys];
};

// Asks for the line that is used in a while. Into the second-level cache: the first one waits for
// so few lines at once that the products would wait with it (a fifth slower, Zen 4). Where the call
// stands it stays: the compiler would gather them beside loads, and a burst of them stalls as well.
HWY_INLINE void PrefetchAhead([[maybe_unused]] const void* used) {
#if HWY_ARCH_X86
  constexpr size_t kBytesAhead = 8192;
  HWY_FENCE;
  _mm_prefetch(static_cast<const char*>(used) + kBytesAhead, _MM_HINT_T1);
#endif
}

template <class T>
inline constexpr bool kHasScale = std::is_same_v<T, int8_t> || std::is_same_v<T, Float8E4M3>;

template <class T>
HWY_INLINE VF LoadScaled(const T* from, const float* scale) {
  const DF d;
  const VF x = LoadStored(d, from);
  return kHasScale<T> ? hn::Mul(x, hn::Set(d, *scale)) : x;
}

// Types of which one load makes two vectors, of numbers at even and at odd places, by half the
// instructions that two vectors of neighbours take. Not in WebAssembly, where the size of code
// counts.
template <class T>
inline constexpr bool kLoadsEvenOdd = std::is_same_v<T, BFloat16> && !HWY_ARCH_WASM;

// kVectors vectors of a row, as floats: one, or two of numbers at even and at odd places.
template <class T, size_t kVectors>
HWY_INLINE void LoadVectors(const T* from, const float* scale, VF (&x)[kVectors]) {
  if constexpr (kVectors == 2) {
    LoadEvenOdd(DF(), from, x[0], x[1]);
  } else {
    x[0] = LoadScaled(from, scale);
  }
}

// Types whose rows are scored as they are stored: all, but in WebAssembly, where the size of code
// counts.
inline bool DotsStoredRows(DType dtype) { return dtype == DType::kFloat32 || !HWY_ARCH_WASM; }

// Keys whose values stay in L1 while all rows pass over them. Few, because nothing is read from
// memory while rows pass again, and the processor's prefetchers stop. Types of two bytes wait less
// for memory than for arithmetic, and load and store sums less often (bfloat16, 67 MB, Zen 4: 8
// keys take 3.0 ms, 16 and 32 2.8, 64 3.5).
template <class T>
inline constexpr size_t kValueKeys = hn::MaxLanes(DF()) == 16 && sizeof(T) == 2 ? 32 : 8;

// Rows and vectors of columns whose sums are in registers while keys pass. As wide as can be for
// floats: the processor's prefetchers follow rows that are read whole, one after the other. Panels
// of two vectors take nearly twice the time (Zen 4, 268 MB, with or without prefetching). As many
// rows as can be for what takes long to convert.
template <class T>
inline constexpr size_t kValueRows = kTileRows == 8 ? (kHasScale<T> ? 4 : 2) : 1;
// In WebAssembly only floats, what is stored otherwise has less code.
template <class T>
inline constexpr size_t kValueVectors = kTileRows == 8 ? 16 / kValueRows<T>
                                        : HWY_ARCH_WASM && !std::is_same_v<T, float> ? 4
                                                                                     : 8;

// Keys [begin, end) of kRows rows and kVectors vectors of columns: sums += weights x values, one
// chain of multiply-adds per number in ascending order of keys. Sums lie as values are loaded.
template <class T, size_t kRows, size_t kVectors>
HWY_INLINE void SumColumns(const StoredRows& values, size_t column,
                           const float* HWY_RESTRICT weights, size_t begin, size_t end,
                           float* HWY_RESTRICT sums, size_t v_cols) {
  constexpr size_t kVectorBytes = hn::MaxLanes(DF()) * sizeof(T);
  constexpr bool kAsksAhead = hn::MaxLanes(DF()) == 16;
  constexpr size_t kLoaded = kLoadsEvenOdd<T> ? 2 : 1;
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
    for (size_t i = 0; i < kVectors; i += kLoaded) {
      if (kAsksAhead && i * kVectorBytes % 64 == 0) PrefetchAhead(row + i * lanes);
      VF value[kLoaded];
      LoadVectors(row + i * lanes, values.scales + j, value);
      HWY_FENCE;  // once, and in the order of memory, which prefetchers follow
      HWY_UNROLL(2)
      for (size_t n = 0; n < kLoaded; ++n) {
        HWY_UNROLL(4)
        for (size_t r = 0; r < kRows; ++r) {
          sum[r][i + n] = Fma(weight[r], value[n], sum[r][i + n]);
        }
      }
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
  pass.template operator()<kValueVectors<T>>();
  if constexpr (kValueVectors < T >> 4 && !HWY_ARCH_WASM) pass.template operator()<4>();
  pass.template operator()<2>();
}

// From two vectors of columns at even and odd places to columns in order.
inline void ZipColumns(size_t count, float* sums) {
  const DF d;
  for (size_t c = 0; c < count; c += PanelCols()) {
    hn::StoreInterleaved2(hn::Load(d, sums + c), hn::Load(d, sums + c + hn::Lanes(d)), d, sums + c);
  }
}

// sums[row][v_cols] = weights x values, which are read where they lie. The same operations in the
// same order as on packed values. v_cols is a multiple of PanelCols().
template <class T>
void SumValues(const StoredRows& values, const ScoreTile& tile, size_t v_cols,
               float* HWY_RESTRICT sums) {
  std::fill_n(sums, tile.num_rows * v_cols, 0.0f);
  const size_t last = std::min(tile.last, tile.num_keys);
  for (size_t key = tile.first; key < last; key += kValueKeys<T>) {
    for (size_t r = 0; r < tile.num_rows; r += kValueRows<T>) {
      const ColumnRange& columns = tile.groups[r / kTileRows];
      const size_t begin = std::max(columns.begin, key);
      const size_t end = std::min({columns.end, last, key + kValueKeys<T>});
      if (begin >= end) continue;
      WithRows<kValueRows<T>>(
          std::min(kValueRows<T>, tile.num_rows - r), [&]<size_t kRows>() HWY_ATTR {
            SumRows<T, kRows>(values, tile.row_scores(r), begin, end, sums + r * v_cols, v_cols);
          });
    }
  }
  if constexpr (kLoadsEvenOdd<T>) ZipColumns(tile.num_rows * v_cols, sums);
}

// Calls `body.template operator()<T>()` for the storage type T.
template <class Body>
HWY_INLINE void WithStored(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kFloat16:
      return body.template operator()<Float16>();
    case DType::kBFloat16:
      return body.template operator()<BFloat16>();
    case DType::kInt8:
      return body.template operator()<int8_t>();
    case DType::kFloat8E4M3:
      return body.template operator()<Float8E4M3>();
    default:
      return body.template operator()<float>();
  }
}

inline void SumStoredValues(DType dtype, const StoredRows& values, const ScoreTile& tile,
                            size_t v_cols, float* sums) {
  WithStored(dtype, [&]<class T>() HWY_ATTR { SumValues<T>(values, tile, v_cols, sums); });
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_STORED_ROWS_INL_H_
