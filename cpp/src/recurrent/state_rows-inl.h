// The kernels of state_rows.h.
#if defined(HEED_RECURRENT_STATE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_RECURRENT_STATE_ROWS_INL_H_
#undef HEED_RECURRENT_STATE_ROWS_INL_H_
#else
#define HEED_RECURRENT_STATE_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "hwy/highway.h"
#include "src/recurrent/state_rows.h"
#include "src/simd/fma-inl.h"
#include "src/simd/reduce-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// body(load, store) for each vector of a row; the last one may be a part.
template <class Body>
HWY_INLINE void ForEachPart(size_t width, const Body& body) {
  const DF d;
  size_t e = 0;
  for (; e + hn::Lanes(d) <= width; e += hn::Lanes(d)) {
    body([&](const float* from) HWY_ATTR { return hn::LoadU(d, from + e); },
         [&](VF x, float* to) HWY_ATTR { hn::StoreU(x, d, to + e); });
  }
  if (e == width) return;
  body([&](const float* from) HWY_ATTR { return hn::LoadN(d, from + e, width - e); },
       [&](VF x, float* to) HWY_ATTR { hn::StoreN(x, d, to + e, width - e); });
}

// Four whole vectors of columns: as many chains of additions.
HWY_INLINE void SumColumns(const StateRows<const float>& rows, const float* factors, size_t e,
                           float* sum) {
  const DF d;
  VF sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (int64_t c = 0; c < rows.count; ++c) {
    const VF factor = hn::Set(d, factors[c]);
    const float* row = rows.data + c * rows.width + e;
    for (size_t n = 0; n < 4; ++n) {
      sums[n] = Fma(factor, hn::LoadU(d, row + n * hn::Lanes(d)), sums[n]);
    }
  }
  for (size_t n = 0; n < 4; ++n) hn::StoreU(sums[n], d, sum + e + n * hn::Lanes(d));
}

void SumRows(const StateRows<const float>& rows, const float* factors, float* sum) {
  const DF d;
  const size_t lanes = hn::Lanes(d), width = static_cast<size_t>(rows.width);
  size_t e = 0;
  for (; e + 4 * lanes <= width; e += 4 * lanes) SumColumns(rows, factors, e, sum);
  for (; e < width; e += lanes) {
    const size_t left = std::min(lanes, width - e);
    VF part = hn::Zero(d);
    for (int64_t c = 0; c < rows.count; ++c) {
      part = Fma(hn::Set(d, factors[c]), hn::LoadN(d, rows.data + c * rows.width + e, left), part);
    }
    hn::StoreN(part, d, sum + e, left);
  }
}

// Four rows side by side, of which the last ones may be one row again.
void MeetRows(const StateRows<const float>& rows, const float* other, int64_t other_stride,
              float* dots) {
  const DF d;
  for (int64_t first = 0; first < rows.count; first += 4) {
    const float *row[4], *met[4];
    VF sums[4];
    for (int64_t n = 0; n < 4; ++n) {
      const int64_t c = std::min(first + n, rows.count - 1);
      row[n] = rows.data + c * rows.width;
      met[n] = other + c * other_stride;
      sums[n] = hn::Zero(d);
    }
    ForEachPart(static_cast<size_t>(rows.width), [&](auto load, auto) HWY_ATTR {
      for (size_t n = 0; n < 4; ++n) sums[n] = Fma(load(row[n]), load(met[n]), sums[n]);
    });
    const size_t left = static_cast<size_t>(std::min<int64_t>(4, rows.count - first));
    hn::StoreN(ReduceFour(d, sums, SumOf()), D4(), dots + first, left);
  }
}

void AddOuter(const float* factors, const float* other, const StateRows<float>& rows) {
  const DF d;
  for (int64_t c = 0; c < rows.count; ++c) {
    const VF factor = hn::Set(d, factors[c]);
    float* const row = rows.data + c * rows.width;
    ForEachPart(static_cast<size_t>(rows.width), [&](auto load, auto store) HWY_ATTR {
      store(Fma(factor, load(other), load(row)), row);
    });
  }
}

void StepRows(const StateRows<const float>& from, const float* decays,
              std::span<const Outer> products, float* to) {
  const DF d;
  const Outer &first = products.front(), &last = products.back();
  const bool has_two = products.size() > 1;
  for (int64_t c = 0; c < from.count; ++c) {
    const float* const before = from.data + c * from.width;
    float* const after = to + c * from.width;
    const VF decay = hn::Set(d, decays[c]);
    const auto forgets = hn::Eq(decay, hn::Zero(d));
    const VF a = hn::Set(d, first.factors[c]), b = hn::Set(d, last.factors[c]);
    ForEachPart(static_cast<size_t>(from.width), [&](auto load, auto store) HWY_ATTR {
      VF row = hn::IfThenZeroElse(forgets, hn::Mul(decay, load(before)));
      row = Fma(a, load(first.other), row);
      if (has_two) row = Fma(b, load(last.other), row);
      store(row, after);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_RECURRENT_STATE_ROWS_INL_H_
