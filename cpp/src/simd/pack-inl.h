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

// Writes 4 columns of 4 rows transposed: to[c * to_stride + r].
HWY_INLINE void Transpose4x4(const float* const* HWY_RESTRICT rows, size_t column,
                             float* HWY_RESTRICT to, size_t to_stride) {
  const hn::FixedTag<float, 4> d4;
  const auto r0 = hn::LoadU(d4, rows[0] + column);
  const auto r1 = hn::LoadU(d4, rows[1] + column);
  const auto r2 = hn::LoadU(d4, rows[2] + column);
  const auto r3 = hn::LoadU(d4, rows[3] + column);
  const auto low01 = hn::InterleaveLower(d4, r0, r1);
  const auto high01 = hn::InterleaveUpper(d4, r0, r1);
  const auto low23 = hn::InterleaveLower(d4, r2, r3);
  const auto high23 = hn::InterleaveUpper(d4, r2, r3);
  hn::StoreU(hn::ConcatLowerLower(d4, low23, low01), d4, to);
  hn::StoreU(hn::ConcatUpperUpper(d4, low23, low01), d4, to + to_stride);
  hn::StoreU(hn::ConcatLowerLower(d4, high23, high01), d4, to + 2 * to_stride);
  hn::StoreU(hn::ConcatUpperUpper(d4, high23, high01), d4, to + 3 * to_stride);
}

// Writes `count` rows of `width` floats transposed: to[t * to_stride + r].
inline void TransposeRows(const float* const* HWY_RESTRICT rows, size_t count, size_t width,
                          float* HWY_RESTRICT to, size_t to_stride) {
  const size_t rows4 = count / 4 * 4;
  const size_t width4 = width / 4 * 4;
  for (size_t r = 0; r < rows4; r += 4) {
    for (size_t t = 0; t < width4; t += 4) {
      Transpose4x4(rows + r, t, to + t * to_stride + r, to_stride);
    }
  }
  for (size_t r = 0; r < count; ++r) {
    const float* HWY_RESTRICT row = rows[r];
    for (size_t t = r < rows4 ? width4 : 0; t < width; ++t) to[t * to_stride + r] = row[t];
  }
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

// Packs the query rows of a group, [width][count], times `factor`.
inline void PackQueryGroup(const float* const* rows, size_t count, size_t width, float factor,
                           float* HWY_RESTRICT to) {
  TransposeRows(rows, count, width, to, count);
  for (size_t i = 0; i < count * width; ++i) to[i] *= factor;
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_SIMD_PACK_INL_H_
