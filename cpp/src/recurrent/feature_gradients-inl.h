// The derivative of what queries and keys become before they meet, row by row.
#if defined(HEED_RECURRENT_FEATURE_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_RECURRENT_FEATURE_GRADIENTS_INL_H_
#undef HEED_RECURRENT_FEATURE_GRADIENTS_INL_H_
#else
#define HEED_RECURRENT_FEATURE_GRADIENTS_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "src/recurrent/backward_problem.h"
#include "src/recurrent/features-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// to[c] = slope(x[c]) * arriving[c], x a row of `width`.
template <class Slope>
inline void MultiplyBySlope(const float* x, const float* arriving, size_t width, float* to,
                            const Slope& slope) {
  const DF d;
  for (size_t c = 0; c < width; c += hn::Lanes(d)) {
    const size_t here = std::min(hn::Lanes(d), width - c);
    const VF by = slope(d, hn::LoadN(d, x + c, here));
    hn::StoreN(hn::Mul(by, hn::LoadN(d, arriving + c, here)), d, to + c, here);
  }
}

// Softmax: f (a - f.a), f the features.
inline void SoftmaxSlope(const float* x, const float* arriving, size_t width, float* to) {
  SoftmaxFeatures(x, width, to);
  float mean = 0;
  for (size_t c = 0; c < width; ++c) mean += to[c] * arriving[c];
  for (size_t c = 0; c < width; ++c) to[c] *= arriving[c] - mean;
}

// x / |x|: (a - f (f.a)) / |x|; 0 for a vector of zeros.
inline void UnitSlope(const float* x, const float* arriving, size_t width, float* to) {
  const double squares = SumOfSquares(x, width);
  const double inverse = squares == 0 ? 0 : 1 / std::sqrt(squares);
  double along = 0;
  for (size_t c = 0; c < width; ++c) along += double{x[c]} * inverse * double{arriving[c]};
  for (size_t c = 0; c < width; ++c) {
    to[c] =
        squares == 0
            ? 0
            : static_cast<float>((double{arriving[c]} - double{x[c]} * inverse * along) * inverse);
  }
}

// Of TaylorRow().
inline void TaylorSlope(const float* x, const float* arriving, size_t width, float factor,
                        float* to) {
  const float* a = arriving + 1;
  for (size_t i = 0; i < width; ++i) to[i] = factor * *a++;
  for (size_t i = 0; i < width; ++i) {
    const float square = factor * factor;
    to[i] += square * 2 * 0.70710678f * x[i] * *a++;
    for (size_t j = i + 1; j < width; ++j, ++a) {
      to[i] += square * x[j] * *a;
      to[j] += square * x[i] * *a;
    }
  }
}

// Of CosineRow().
inline void CosineSlope(const float* x, const float* arriving, size_t width, double angle,
                        float* to) {
  const float cosine = static_cast<float>(std::cos(angle));
  const float sine = static_cast<float>(std::sin(angle));
  for (size_t c = 0; c < width; ++c) {
    to[c] = x[c] > 0 ? cosine * arriving[c] + sine * arriving[width + c] : 0;
    if (std::isnan(x[c])) to[c] = x[c];
  }
}

// The gradient of a row from that of its features, feature_dim of them.
inline void FeatureGradient(const RecurrentBackwardProblem& g, Side side, const float* x,
                            const TokenPlace& place, const float* arriving, float* to) {
  const RecurrentProblem& p = g.forward;
  const size_t width = static_cast<size_t>(p.head_dim);
  const float factor = side == Side::kKey ? 1.0f : p.scale;
  switch (p.options.feature_map) {
    case FeatureMap::kComplement:
      if (side == Side::kQuery) return ScaleRow(arriving, width, factor, to);
      return MultiplyBySlope(x, arriving, width, to,
                             [](DF d, VF row) HWY_ATTR { return hn::Neg(ExpNonPositive(d, row)); });
    case FeatureMap::kEluPlusOne:
      MultiplyBySlope(x, arriving, width, to, [](DF d, VF row) HWY_ATTR {
        // Where x is NaN, x <= 0 is false: 1 + 0 x is NaN.
        const auto falls = hn::Le(row, hn::Zero(d));
        const VF rises = Fma(row, hn::Zero(d), hn::Set(d, 1.0f));
        return hn::IfThenElse(falls, ExpNonPositive(d, hn::IfThenElseZero(falls, row)), rises);
      });
      break;
    case FeatureMap::kRelu:
      MultiplyBySlope(x, arriving, width, to, [](DF d, VF row) HWY_ATTR {
        return hn::IfThenElseZero(hn::Gt(row, hn::Zero(d)), hn::Set(d, 1.0f));
      });
      break;
    case FeatureMap::kSoftmax:
      SoftmaxSlope(x, arriving, width, to);
      break;
    case FeatureMap::kUnit:
      UnitSlope(x, arriving, width, to);
      break;
    case FeatureMap::kTaylor:
      TaylorSlope(x, arriving, width, p.Factor(side), to);
      break;
    case FeatureMap::kCosine:
      CosineSlope(x, arriving, width, p.Angle(place.b, place.t), to);
      break;
    case FeatureMap::kUser:
      std::copy_n(x, width, to);
      g.gradients.feature_mod_backward(
          {place.b, place.head, side == Side::kKey, 1, width, to, width}, arriving);
      break;
    default:  // kIdentity; the others have no features of their own here
      return ScaleRow(arriving, width, factor, to);
  }
  if (factor != 1.0f) ScaleRow(to, width, factor, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_RECURRENT_FEATURE_GRADIENTS_INL_H_
