// What the ways back through the attention-free transformer share: a vector of channels of a row.
#if defined(HEED_COMPOSE_BACKWARD_ATTENTION_FREE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_COMPOSE_BACKWARD_ATTENTION_FREE_INL_H_
#undef HEED_COMPOSE_BACKWARD_ATTENTION_FREE_INL_H_
#else
#define HEED_COMPOSE_BACKWARD_ATTENTION_FREE_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "hwy/highway.h"
#include "src/compose/backward_attention_free.h"
#include "src/compose/rows.h"
#include "src/simd/exp2-inl.h"
#include "src/simd/register_tile-inl.h"
#include "src/simd/sigmoid-inl.h"
#include "src/simd/wide_sum-inl.h"

// Parts of vectors. WebAssembly has no masks, so that a call is smaller; elsewhere a call, even one
// that is not made, takes the sums of a row out of registers.
#undef HEED_FREE_TAIL
#if HWY_ARCH_WASM
#define HEED_FREE_TAIL HWY_NOINLINE
#else
#define HEED_FREE_TAIL HWY_INLINE
#endif

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE VF MinusInfinity() { return hn::Set(DF(), -std::numeric_limits<float>::infinity()); }

// The columns from c on of a row: a whole vector, the last one filled up with zeros.
class FreeColumns {
 public:
  int64_t c;
  size_t count;  // at most a vector

  FreeColumns(int64_t width, int64_t vector) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
    c = vector * lanes;
    count = static_cast<size_t>(std::min(lanes, width - c));
  }
  HWY_INLINE VF Load(const float* row) const {
    const DF d;
    return count == hn::Lanes(d) ? hn::LoadU(d, row + c) : LoadSome(row + c, count);
  }
  HWY_INLINE void Store(VF x, float* row) const {
    const DF d;
    if (count == hn::Lanes(d)) return hn::StoreU(x, d, row + c);
    StoreSome(x, row + c, count);
  }

 private:
  static HEED_FREE_TAIL VF LoadSome(const float* from, size_t count) {
    return hn::LoadN(DF(), from, count);
  }
  static HEED_FREE_TAIL void StoreSome(VF x, float* to, size_t count) {
    hn::StoreN(x, DF(), to, count);
  }
};

inline int64_t FreeVectors(int64_t width) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  return (width + lanes - 1) / lanes;
}

// e^(x - max), for x up to max. A max of -inf is that of nothing: it is not subtracted.
HWY_INLINE VF ExpBelow(VF x, VF max) {
  const DF d;
  const VF base = hn::IfThenZeroElse(hn::Eq(max, MinusInfinity()), max);
  VF e[1] = {hn::Mul(hn::Sub(x, base), hn::Set(d, kLog2E))};
  Exp2NonPositive(d, e);
  return e[0];
}

// Where -inf is a key's exponent it is not there: its value, even NaN, is left out.
HWY_INLINE VF Present(VF x, VF value) {
  return hn::IfThenZeroElse(hn::Eq(x, MinusInfinity()), value);
}

// A running sum of e^x and of e^x v, relative to the largest x so far.
struct FreeMean {
  VF max;
  WideSum sum, values;

  HWY_INLINE FreeMean() : max(MinusInfinity()) {}
  HWY_INLINE void Add(VF x, VF v) {
    RaiseTo(hn::Max(max, x));
    const VF weight = ExpBelow(x, max);
    sum.Add(weight);
    values.AddProduct(weight, Present(x, v));
  }
  // Most keys do not raise it.
  HWY_INLINE void RaiseTo(VF now) {
    if (hn::AllTrue(DF(), hn::Eq(now, max))) return;
    const VF fall = ExpBelow(max, now);
    sum.Scale(fall);
    values.Scale(fall);
    max = now;
  }
};

// What a row leaves for its keys, a vector of channels: the largest exponent (-inf: no key), what
// arrives at the mean over the denominator, the mean.
inline constexpr size_t kFreeRowVectors = 3;

// With y = s m, s = 1 / (1 + e^-q): dm = dy s, dq = dy m s (1 - s). A channel without keys passes
// nothing on.
inline void FinishFreeRow(const FreeBackward& g, const FreeColumns& columns, int64_t b, int64_t h,
                          int64_t i, const FreeMean& mean, float* row) {
  const DF d;
  const DD dd;
  const size_t lanes = hn::Lanes(d);
  const auto empty = hn::Eq(mean.sum.Rounded(), hn::Zero(d));
  WideSum inverse, quotient;
  inverse.low = hn::Div(hn::Set(dd, 1.0), mean.sum.low);
  inverse.high = hn::Div(hn::Set(dd, 1.0), mean.sum.high);
  quotient.low = hn::Mul(mean.values.low, inverse.low);
  quotient.high = hn::Mul(mean.values.high, inverse.high);
  const VF middle = hn::IfThenZeroElse(empty, quotient.Rounded());
  const VF q = columns.Load(RowOf(g.p.q, b, h, i));
  const VF arriving = columns.Load(RowOf(g.d_output, b, h, i));
  const VF e = ExpNegAbs(d, q);
  const VF open = hn::Div(hn::Set(d, 1.0f), hn::Add(hn::Set(d, 1.0f), e));  // of |q|
  const VF closed = hn::Mul(e, open);
  const VF gate = hn::IfThenElse(hn::Lt(q, hn::Zero(d)), closed, open);
  const VF share = hn::Mul(hn::Mul(arriving, gate), inverse.Rounded());
  hn::Store(mean.max, d, row);
  hn::Store(hn::IfThenZeroElse(empty, share), d, row + lanes);
  hn::Store(middle, d, row + 2 * lanes);
  if (!g.d_q.has_value()) return;
  const VF slope = hn::Mul(hn::Mul(arriving, middle), hn::Mul(open, closed));
  columns.Store(hn::IfThenZeroElse(empty, slope), RowOf(g.d_q, b, h, i));
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_COMPOSE_BACKWARD_ATTENTION_FREE_INL_H_
