// Packing: the layouts that the register tile reads. Rows come from strided views, a contiguous row
// at a time; nothing is read beyond the last element of a row.
#if defined(HEED_SIMD_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_SIMD_PACK_INL_H_
#undef HEED_SIMD_PACK_INL_H_
#else
#define HEED_SIMD_PACK_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of `width` floats, `stride` floats apart.
struct Rows {
  const float* data;
  int64_t stride;
  const float* row(size_t i) const { return data + static_cast<int64_t>(i) * stride; }
};

// Rows that lie anywhere.
struct RowPointers {
  const float* const* rows;
  const float* row(size_t i) const { return rows[i]; }
};

// Vectors of kBlocks blocks of 4 floats each; afterwards vector b holds block b of every vector.
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE void TransposeBlocks(hn::Vec512<float> (&x)[4]) {
  const __m512 even01 = _mm512_shuffle_f32x4(x[0].raw, x[1].raw, 0x88);
  const __m512 even23 = _mm512_shuffle_f32x4(x[2].raw, x[3].raw, 0x88);
  const __m512 odd01 = _mm512_shuffle_f32x4(x[0].raw, x[1].raw, 0xdd);
  const __m512 odd23 = _mm512_shuffle_f32x4(x[2].raw, x[3].raw, 0xdd);
  x[0].raw = _mm512_shuffle_f32x4(even01, even23, 0x88);
  x[1].raw = _mm512_shuffle_f32x4(odd01, odd23, 0x88);
  x[2].raw = _mm512_shuffle_f32x4(even01, even23, 0xdd);
  x[3].raw = _mm512_shuffle_f32x4(odd01, odd23, 0xdd);
}
#endif
template <class V>
HWY_INLINE void TransposeBlocks(V (&x)[2]) {
  const hn::DFromV<V> d;
  const V low = hn::ConcatLowerLower(d, x[1], x[0]);
  x[1] = hn::ConcatUpperUpper(d, x[1], x[0]);
  x[0] = low;
}
template <class V>
HWY_INLINE void TransposeBlocks(V (&)[1]) {}

// kSquare columns of as many rows, transposed: (*this)(c) is column c of them. `row(r)` loads row
// r.
template <size_t kSquare>
struct TransposedSquare {
  static constexpr size_t kBlocks = kSquare / 4;
  using D = hn::FixedTag<float, kSquare>;
  using V = hn::Vec<D>;

  template <class LoadRow>
  HWY_INLINE explicit TransposedSquare(const LoadRow& row) {
    const D d;
    const hn::RepartitionToWide<D> d2;
    HWY_UNROLL(4)
    for (size_t g = 0; g < kBlocks; ++g) {
      const V r0 = row(4 * g);
      const V r1 = row(4 * g + 1);
      const V r2 = row(4 * g + 2);
      const V r3 = row(4 * g + 3);
      const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d, r0, r1));
      const auto high01 = hn::BitCast(d2, hn::InterleaveUpper(d, r0, r1));
      const auto low23 = hn::BitCast(d2, hn::InterleaveLower(d, r2, r3));
      const auto high23 = hn::BitCast(d2, hn::InterleaveUpper(d, r2, r3));
      x[0][g] = hn::BitCast(d, hn::InterleaveLower(d2, low01, low23));
      x[1][g] = hn::BitCast(d, hn::InterleaveUpper(d2, low01, low23));
      x[2][g] = hn::BitCast(d, hn::InterleaveLower(d2, high01, high23));
      x[3][g] = hn::BitCast(d, hn::InterleaveUpper(d2, high01, high23));
    }
    HWY_UNROLL(4)
    for (size_t i = 0; i < 4; ++i) TransposeBlocks(x[i]);
  }

  HWY_INLINE V operator()(size_t column) const { return x[column % 4][column / 4]; }

  V x[4][kBlocks];
};

// Writes kSquare columns of as many rows transposed: to[c * to_stride + r]. Squares as wide as a
// vector are loaded and stored a fourth as often as squares of 4.
template <size_t kSquare>
HWY_INLINE void TransposeSquare(const float* const* HWY_RESTRICT rows, size_t column,
                                float* HWY_RESTRICT to, size_t to_stride) {
  const hn::FixedTag<float, kSquare> d;
  const TransposedSquare<kSquare> square([&](size_t r)
                                             HWY_ATTR { return hn::LoadU(d, rows[r] + column); });
  HWY_UNROLL(16)
  for (size_t c = 0; c < kSquare; ++c) hn::StoreU(square(c), d, to + c * to_stride);
}

// Rows [begin, count) of `width` floats transposed, in squares of kSquare and then smaller ones:
// to[t * to_stride + r].
template <size_t kSquare>
HWY_INLINE void TransposeFrom(size_t begin, const float* const* HWY_RESTRICT rows, size_t count,
                              size_t width, float* HWY_RESTRICT to, size_t to_stride) {
  const size_t whole_width = width / kSquare * kSquare;
  size_t r = begin;
  for (; r + kSquare <= count; r += kSquare) {
    for (size_t t = 0; t < whole_width; t += kSquare) {
      TransposeSquare<kSquare>(rows + r, t, to + t * to_stride + r, to_stride);
    }
    for (size_t t = whole_width; t < width; ++t) {
      for (size_t i = r; i < r + kSquare; ++i) to[t * to_stride + i] = rows[i][t];
    }
  }
  if constexpr (kSquare > 4) {
    TransposeFrom<kSquare / 2>(r, rows, count, width, to, to_stride);
  } else {
    for (size_t i = 0; i < count % 4; ++i) {
      const float* HWY_RESTRICT row = rows[r + i];
      for (size_t t = 0; t < width; ++t) to[t * to_stride + r + i] = row[t];
    }
  }
}

// Writes `count` rows of `width` floats transposed: to[t * to_stride + r].
inline void TransposeRows(const float* const* HWY_RESTRICT rows, size_t count, size_t width,
                          float* HWY_RESTRICT to, size_t to_stride) {
  constexpr size_t kLanes = hn::MaxLanes(DF());
  TransposeFrom<kLanes <= 16 ? kLanes : 4>(0, rows, count, width, to, to_stride);
}

// Packs up to PanelCols() rows of keys as one transposed panel [width][PanelCols()]; missing rows
// become zeros.
template <class AnyRows = Rows>
inline void PackTransposedPanel(const AnyRows& rows, size_t count, size_t width,
                                float* HWY_RESTRICT panel) {
  const float* pointers[PanelCols()];
  for (size_t r = 0; r < count; ++r) pointers[r] = rows.row(r);
  if (count < PanelCols()) std::fill(panel, panel + width * PanelCols(), 0.0f);
  TransposeRows(pointers, count, width, panel, PanelCols());
}

// Packs `count` rows of values as panels [panel][row][PanelCols()], `panel_rows` rows apart;
// missing columns become zeros. Returns whether every value is finite.
template <class AnyRows = Rows>
inline bool PackPanels(const AnyRows& rows, size_t count, size_t width, size_t panel_rows,
                       float* HWY_RESTRICT to) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const size_t cols = PanelCols();
  // x * 0 is NaN exactly for NaN and infinities, and one NaN spoils the sum.
  VF poison = hn::Zero(d);
  for (size_t first = 0; first < width; first += cols) {
    float* HWY_RESTRICT panel = to + first / cols * panel_rows * cols;
    const size_t here = std::min(cols, width - first);
    for (size_t r = 0; r < count; ++r, panel += cols) {
      const float* row = rows.row(r) + first;
      const VF low = here >= lanes ? hn::LoadU(d, row) : hn::LoadN(d, row, here);
      const VF high = here == cols   ? hn::LoadU(d, row + lanes)
                      : here > lanes ? hn::LoadN(d, row + lanes, here - lanes)
                                     : hn::Zero(d);
      hn::StoreU(low, d, panel);
      hn::StoreU(high, d, panel + lanes);
      poison = hn::Add(poison, hn::Add(hn::Mul(low, hn::Zero(d)), hn::Mul(high, hn::Zero(d))));
    }
  }
  return hn::ReduceSum(d, poison) == 0.0f;
}

#if HWY_TARGET <= HWY_AVX2
// Packs the rows of a whole group times `factor`, in squares of 8. Where a group has 6 rows a
// column begins upon the last two numbers of the one before it.
inline void PackWholeGroup(const float* const* HWY_RESTRICT rows, size_t width, float factor,
                           float* HWY_RESTRICT to) {
  constexpr size_t kSquare = 8;
  const hn::FixedTag<float, kSquare> d;
  const auto times = hn::Set(d, factor);
  const size_t whole = width / kSquare * kSquare;
  for (size_t t = 0; t < whole; t += kSquare) {
    const TransposedSquare<kSquare> square([&](size_t r) HWY_ATTR {
      return hn::Mul(hn::LoadU(d, rows[std::min(r, kTileRows - 1)] + t), times);
    });
    float* const columns = to + t * kTileRows;
    HWY_UNROLL(8)
    for (size_t c = 0; c + 1 < kSquare; ++c) hn::StoreU(square(c), d, columns + c * kTileRows);
    float* const last = columns + (kSquare - 1) * kTileRows;
    if (t + kSquare < width) {
      hn::StoreU(square(kSquare - 1), d, last);
    } else {
      hn::StoreN(square(kSquare - 1), d, last, kTileRows);
    }
  }
  for (size_t t = whole; t < width; ++t) {
    for (size_t r = 0; r < kTileRows; ++r) to[t * kTileRows + r] = rows[r][t] * factor;
  }
}
#endif

// Packs the query rows of a group, [width][count], times `factor`.
inline void PackQueryGroup(const float* const* rows, size_t count, size_t width, float factor,
                           float* HWY_RESTRICT to) {
#if HWY_TARGET <= HWY_AVX2
  if (count == kTileRows) return PackWholeGroup(rows, width, factor, to);
#endif
  TransposeRows(rows, count, width, to, count);
  const DF d;
  const VF times = hn::Set(d, factor);
  const size_t floats = count * width;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= floats; i += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(hn::LoadU(d, to + i), times), d, to + i);
  }
  for (; i < floats; ++i) to[i] *= factor;
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_SIMD_PACK_INL_H_
