// Softmax of a row that lies in memory, and of columns side by side.
#if defined(HEED_ROWS_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_ROWS_SOFTMAX_INL_H_
#undef HEED_ROWS_SOFTMAX_INL_H_
#else
#define HEED_ROWS_SOFTMAX_INL_H_
#endif

#include <stdint.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "src/simd/exp2-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Elements whose exponentials are added in float before the sum goes on in double.
inline constexpr size_t kSumBlock = 1024;

// What becomes of the exponentials while they are summed: they are kept, or not.
struct KeepExponentials {
  float* HWY_RESTRICT out;
  HWY_INLINE void Whole(size_t c, VF e) const { hn::StoreU(e, DF(), out + c); }
  HWY_INLINE void Part(size_t c, VF e, size_t count) const { hn::StoreN(e, DF(), out + c, count); }
};
struct DropExponentials {
  HWY_INLINE void Whole(size_t, VF) const {}
  HWY_INLINE void Part(size_t, VF, size_t) const {}
};

// What to subtract before exponentials are taken: the largest element, 0 for a row of -inf alone.
// NaN may or may not show: it reaches the sum.
inline float ShiftOf(const float* HWY_RESTRICT x, size_t n) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  VF max[2] = {hn::Set(d, kLowest), hn::Set(d, kLowest)};
  size_t c = 0;
  for (; c + 2 * lanes <= n; c += 2 * lanes) {
    max[0] = hn::Max(hn::LoadU(d, x + c), max[0]);
    max[1] = hn::Max(hn::LoadU(d, x + c + lanes), max[1]);
  }
  for (; c < n; c += lanes) {
    max[0] = hn::Max(hn::LoadNOr(hn::Set(d, kLowest), d, x + c, n - c), max[0]);
  }
  max[0] = hn::Max(max[0], max[1]);
  // Not every target's ReduceMax knows a number below the lowest finite one.
  if (hn::AllTrue(d, hn::Eq(max[0], hn::Set(d, kLowest)))) return 0.0f;
  return hn::ReduceMax(d, max[0]);
}

// Hands e^(x - shift) to `take` and returns the sum.
template <class Take>
double SumExponentials(const float* x, float shift, size_t n, const Take& take) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const VF from = hn::Set(d, shift);
  const VF to_log2 = hn::Set(d, kLog2E);
  double total = 0;
  for (size_t begin = 0; begin < n; begin += kSumBlock) {
    const size_t end = std::min(n, begin + kSumBlock);
    VF sum[2] = {hn::Zero(d), hn::Zero(d)};
    size_t c = begin;
    for (; c + 4 * lanes <= end; c += 4 * lanes) {
      VF e[4];
      for (size_t i = 0; i < 4; ++i) {
        e[i] = hn::Mul(hn::Sub(hn::LoadU(d, x + c + i * lanes), from), to_log2);
      }
      Exp2NonPositive(d, e);
      for (size_t i = 0; i < 4; ++i) {
        take.Whole(c + i * lanes, e[i]);
        sum[i % 2] = hn::Add(sum[i % 2], e[i]);
      }
    }
    for (; c < end; c += lanes) {
      const VF loaded = hn::LoadNOr(hn::Set(d, kLowest), d, x + c, end - c);
      VF e[1] = {hn::Mul(hn::Sub(loaded, from), to_log2)};
      Exp2NonPositive(d, e);
      take.Part(c, e[0], end - c);
      sum[0] = hn::Add(sum[0], e[0]);
    }
    total += static_cast<double>(hn::ReduceSum(d, hn::Add(sum[0], sum[1])));
  }
  return total;
}

// out = body(x), vector by vector. out may be x.
template <class Body>
HWY_INLINE void MapRow(const float* x, size_t n, float* out, Body&& body) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  size_t c = 0;
  for (; c + lanes <= n; c += lanes) hn::StoreU(body(hn::LoadU(d, x + c)), d, out + c);
  if (c < n) hn::StoreN(body(hn::LoadN(d, x + c, n - c)), d, out + c, n - c);
}

// out = softmax(x); out may be x. Returns whether NaN or infinity made the row NaN.
inline bool SoftmaxRow(const float* x, size_t n, float* out) {
  const DF d;
  const double sum = SumExponentials(x, ShiftOf(x, n), n, KeepExponentials{out});
  const VF factor = hn::Set(d, sum == 0 ? 0.0f : static_cast<float>(1 / sum));
  MapRow(out, n, out, [&](VF e) HWY_ATTR { return hn::Mul(e, factor); });
  return std::isnan(sum);
}

// out = log(softmax(x)).
inline void LogSoftmaxRow(const float* HWY_RESTRICT x, size_t n, float* HWY_RESTRICT out) {
  const DF d;
  const float shift = ShiftOf(x, n);
  const double sum = SumExponentials(x, shift, n, DropExponentials());
  const VF from = hn::Set(d, shift);
  const VF log = hn::Set(d, sum == 0 ? 0.0f : static_cast<float>(std::log(sum)));
  MapRow(x, n, out, [&](VF v) HWY_ATTR { return hn::Sub(hn::Sub(v, from), log); });
}

// out = x where keep is not 0, else -inf; what x holds there does not matter.
inline void HideEntries(const float* HWY_RESTRICT x, const uint8_t* HWY_RESTRICT keep, size_t n,
                        float* HWY_RESTRICT out) {
  const DF d;
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<uint8_t, DF> d8;
  const size_t lanes = hn::Lanes(d);
  size_t c = 0;
  for (; c + lanes <= n; c += lanes) {
    const auto bytes = hn::PromoteTo(du, hn::LoadU(d8, keep + c));
    const auto kept = hn::RebindMask(d, hn::Ne(bytes, hn::Zero(du)));
    hn::StoreU(hn::IfThenElse(kept, hn::LoadU(d, x + c), hn::Set(d, kLowest)), d, out + c);
  }
  for (; c < n; ++c) out[c] = keep[c] != 0 ? x[c] : kLowest;
}

// Columns side by side: kCount whole vectors, or with kCount = 1 the first `count` lanes of one.
// Elements of a column lie `stride` apart.
template <size_t kCount, class T>
struct Columns {
  T* first;
  int64_t stride;
  size_t n;
  size_t count;

  HWY_INLINE T* At(size_t i, size_t v) const {
    return first + static_cast<int64_t>(i) * stride + v * hn::Lanes(DF());
  }
  HWY_INLINE bool IsPart() const { return kCount == 1 && count < hn::Lanes(DF()); }
  HWY_INLINE VF Load(size_t i, size_t v) const {
    return IsPart() ? hn::LoadN(DF(), At(i, v), count) : hn::LoadU(DF(), At(i, v));
  }
  HWY_INLINE void Store(VF y, size_t i, size_t v) const {
    if (IsPart()) {
      hn::StoreN(y, DF(), At(i, v), count);
    } else {
      hn::StoreU(y, DF(), At(i, v));
    }
  }
};

// What to subtract from columns; see ShiftOf.
template <size_t kCount>
HWY_INLINE void ShiftsOf(const Columns<kCount, const float>& x, VF (&shift)[kCount]) {
  const DF d;
  const VF lowest = hn::Set(d, kLowest);
  for (VF& s : shift) s = lowest;
  for (size_t i = 0; i < x.n; ++i) {
    for (size_t v = 0; v < kCount; ++v) shift[v] = hn::Max(x.Load(i, v), shift[v]);
  }
  for (VF& s : shift) s = hn::IfThenElseZero(hn::Ne(s, lowest), s);
}

// Rows whose exponentials are added before they join the sums of columns: long columns round no
// more often than 64 + n / 64 times.
inline constexpr size_t kSumRows = 64;

// Sums of e^(x - shift), each of which is handed to take(e, i, v).
template <size_t kCount, class Take>
HWY_INLINE void SumColumns(const Columns<kCount, const float>& x, const VF (&shift)[kCount],
                           VF (&sum)[kCount], const Take& take) {
  const DF d;
  for (VF& s : sum) s = hn::Zero(d);
  for (size_t begin = 0; begin < x.n; begin += kSumRows) {
    VF part[kCount];
    for (VF& s : part) s = hn::Zero(d);
    for (size_t i = begin; i < std::min(x.n, begin + kSumRows); ++i) {
      VF e[kCount];
      for (size_t v = 0; v < kCount; ++v) {
        e[v] = hn::Mul(hn::Sub(x.Load(i, v), shift[v]), hn::Set(d, kLog2E));
      }
      Exp2NonPositive(d, e);
      for (size_t v = 0; v < kCount; ++v) {
        take(e[v], i, v);
        part[v] = hn::Add(part[v], e[v]);
      }
    }
    for (size_t v = 0; v < kCount; ++v) sum[v] = hn::Add(sum[v], part[v]);
  }
}

template <size_t kCount>
void SoftmaxColumns(const Columns<kCount, const float>& x, const Columns<kCount, float>& out) {
  const DF d;
  VF shift[kCount];
  VF sum[kCount];
  ShiftsOf(x, shift);
  SumColumns(x, shift, sum, [&](VF e, size_t i, size_t v) HWY_ATTR { out.Store(e, i, v); });
  for (VF& s : sum) {
    s = hn::IfThenZeroElse(hn::Eq(s, hn::Zero(d)), hn::Div(hn::Set(d, 1.0f), s));
  }
  const Columns<kCount, const float> weights = {out.first, out.stride, out.n, out.count};
  for (size_t i = 0; i < x.n; ++i) {
    for (size_t v = 0; v < kCount; ++v) out.Store(hn::Mul(weights.Load(i, v), sum[v]), i, v);
  }
}

template <size_t kCount>
void LogSoftmaxColumns(const Columns<kCount, const float>& x, const Columns<kCount, float>& out) {
  const DF d;
  VF shift[kCount];
  VF sum[kCount];
  ShiftsOf(x, shift);
  SumColumns(x, shift, sum, [](VF, size_t, size_t) {});
  for (VF& s : sum) {
    HWY_ALIGN float logs[hn::MaxLanes(DF())];
    hn::Store(hn::IfThenElse(hn::Eq(s, hn::Zero(d)), hn::Set(d, 1.0f), s), d, logs);
    for (float& value : logs) value = std::log(value);
    s = hn::Load(d, logs);
  }
  for (size_t i = 0; i < x.n; ++i) {
    for (size_t v = 0; v < kCount; ++v) {
      out.Store(hn::Sub(hn::Sub(x.Load(i, v), shift[v]), sum[v]), i, v);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_ROWS_SOFTMAX_INL_H_
