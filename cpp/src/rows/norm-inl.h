// Moments of a row, and the row without them. In double: a mean far from 0 costs no digits, and
// squares of large floats stay finite.
#if defined(HEED_ROWS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_ROWS_NORM_INL_H_
#undef HEED_ROWS_NORM_INL_H_
#else
#define HEED_ROWS_NORM_INL_H_
#endif

#include <cmath>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DD = hn::ScalableTag<double>;
using VD = hn::Vec<DD>;
using DHalf = hn::Rebind<float, DD>;

HWY_INLINE VD LoadDoubles(const float* x) { return hn::PromoteTo(DD(), hn::LoadU(DHalf(), x)); }

// Sum of body(x) over a row, body on vectors and on single numbers.
template <class Body>
HWY_INLINE double SumDoubles(const float* HWY_RESTRICT x, size_t n, const Body& body) {
  const DD d;
  const size_t lanes = hn::Lanes(d);
  VD sum[2] = {hn::Zero(d), hn::Zero(d)};
  size_t c = 0;
  for (; c + 2 * lanes <= n; c += 2 * lanes) {
    sum[0] = hn::Add(sum[0], body(LoadDoubles(x + c)));
    sum[1] = hn::Add(sum[1], body(LoadDoubles(x + c + lanes)));
  }
  double total = hn::ReduceSum(d, hn::Add(sum[0], sum[1]));
  for (; c < n; ++c) total += hn::GetLane(body(hn::Set(d, static_cast<double>(x[c]))));
  return total;
}

struct RowMoments {
  double mean;
  double inverse_deviation;
};

inline RowMoments LayerMoments(const float* x, size_t n, double epsilon) {
  const DD d;
  const double count = static_cast<double>(n);
  const double mean = SumDoubles(x, n, [](VD v) HWY_ATTR { return v; }) / count;
  const VD center = hn::Set(d, mean);
  const double squares = SumDoubles(x, n, [&](VD v) HWY_ATTR {
    const VD away = hn::Sub(v, center);
    return hn::Mul(away, away);
  });
  return {mean, 1 / std::sqrt(squares / count + epsilon)};
}

inline RowMoments RmsMoments(const float* x, size_t n, double epsilon) {
  const double squares = SumDoubles(x, n, [](VD v) HWY_ATTR { return hn::Mul(v, v); });
  return {0, 1 / std::sqrt(squares / static_cast<double>(n) + epsilon)};
}

// out = (x - mean) * inverse_deviation * weight + bias. Without a weight 1, without a bias 0; out
// may be x.
inline void NormaliseRow(const float* x, size_t n, const RowMoments& moments, const float* weight,
                         const float* bias, float* out) {
  const DD d;
  const DHalf dh;
  const size_t lanes = hn::Lanes(d);
  const VD mean = hn::Set(d, moments.mean);
  const VD factor = hn::Set(d, moments.inverse_deviation);
  size_t c = 0;
  for (; c + lanes <= n; c += lanes) {
    VD y = hn::Mul(hn::Sub(LoadDoubles(x + c), mean), factor);
    if (weight != nullptr) y = hn::Mul(y, LoadDoubles(weight + c));
    if (bias != nullptr) y = hn::Add(y, LoadDoubles(bias + c));
    hn::StoreU(hn::DemoteTo(dh, y), dh, out + c);
  }
  for (; c < n; ++c) {
    double y = (static_cast<double>(x[c]) - moments.mean) * moments.inverse_deviation;
    if (weight != nullptr) y *= static_cast<double>(weight[c]);
    if (bias != nullptr) y += static_cast<double>(bias[c]);
    out[c] = static_cast<float>(y);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_ROWS_NORM_INL_H_
