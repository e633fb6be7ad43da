// What queries and keys become before they meet, row by row.
#if defined(HEED_RECURRENT_FEATURES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_RECURRENT_FEATURES_INL_H_
#undef HEED_RECURRENT_FEATURES_INL_H_
#else
#define HEED_RECURRENT_FEATURES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "src/recurrent/problem.h"
#include "src/simd/exp2-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// e^x for x <= 0; -inf gives 0, NaN gives NaN.
HWY_INLINE VF ExpNonPositive(DF d, VF x) {
  VF power[1] = {hn::Mul(x, hn::Set(d, kLog2E))};
  Exp2NonPositive(d, power);
  return power[0];
}

// to[c] = from[c] mapped by `map(d, vector)`, c < width.
template <class Map>
HWY_INLINE void MapRow(const float* from, size_t width, float* to, const Map& map) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  size_t c = 0;
  for (; c + lanes <= width; c += lanes) hn::StoreU(map(d, hn::LoadU(d, from + c)), d, to + c);
  if (c < width) hn::StoreN(map(d, hn::LoadN(d, from + c, width - c)), d, to + c, width - c);
}

// What a state keeps, e^x for x <= 0. It is multiplied by thousands of these, so one error in all
// of them would add up: near 1, e^x - 1 = x (1 + x / 2 (1 + x / 3 (...))) is added to 1 and rounded
// once.
HWY_INLINE VF DecayFactor(DF d, VF x) {
  const VF one = hn::Set(d, 1.0f);
  VF series = one;
  for (float n = 5; n >= 2; --n) series = Fma(hn::Mul(x, hn::Set(d, 1 / n)), series, one);
  const VF near = Fma(x, series, one);
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, -0.125f)), near, ExpNonPositive(d, x));
}

// to[c] = DecayFactor(log_decays[c]).
HWY_NOINLINE inline void DecayFactors(const float* log_decays, size_t width, float* to) {
  MapRow(log_decays, width, to, [](DF d, VF x) HWY_ATTR { return DecayFactor(d, x); });
}

inline void ScaleRow(const float* from, size_t width, float factor, float* to) {
  MapRow(from, width, to, [=](DF d, VF x) HWY_ATTR { return hn::Mul(x, hn::Set(d, factor)); });
}

// to[c] = exp(from[c] - largest), largest >= all of them.
inline void ExpRow(const float* from, size_t width, float largest, float* to) {
  MapRow(from, width, to,
         [&](DF d, VF x) HWY_ATTR { return ExpNonPositive(d, hn::Sub(x, hn::Set(d, largest))); });
}

inline void SoftmaxFeatures(const float* from, size_t width, float* to) {
  float largest = -std::numeric_limits<float>::infinity();
  for (size_t c = 0; c < width; ++c) largest = std::max(largest, from[c]);
  ExpRow(from, width, largest, to);
  float sum = 0;
  for (size_t c = 0; c < width; ++c) sum += to[c];
  for (size_t c = 0; c < width; ++c) to[c] /= sum;
}

// In float64: squares of floats neither overflow nor vanish there.
inline double SumOfSquares(const float* from, size_t width) {
  double squares = 0;
  for (size_t c = 0; c < width; ++c) squares += double{from[c]} * double{from[c]};
  return squares;
}

inline void UnitRow(const float* from, size_t width, float* to) {
  const double squares = SumOfSquares(from, width);
  const double inverse = squares == 0 ? 0 : 1 / std::sqrt(squares);
  for (size_t c = 0; c < width; ++c) to[c] = static_cast<float>(double{from[c]} * inverse);
}

// 1 - e^x for x <= 0, to full relative precision.
HWY_INLINE VF Complement(DF d, VF x) {
  // -x (1 + x/2 (1 + x/3 (...))) above -1/2, where the difference would cancel.
  VF series = hn::Set(d, 1.0f);
  for (float n = 8; n >= 2; --n) {
    series = Fma(hn::Mul(x, hn::Set(d, 1 / n)), series, hn::Set(d, 1.0f));
  }
  const VF far = hn::Sub(hn::Set(d, 1.0f), ExpNonPositive(d, x));
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, -0.5f)), hn::Neg(hn::Mul(x, series)), far);
}

// 1, x and all products of two elements such that the product of two rows of features is
// 1 + s + s^2 / 2, s = factor^2 times the product of the rows.
inline void TaylorRow(const float* from, size_t width, float factor, float* to) {
  *to++ = 1.0f;
  for (size_t i = 0; i < width; ++i) *to++ = factor * from[i];
  for (size_t i = 0; i < width; ++i) {
    const float x = factor * factor * from[i];
    *to++ = x * from[i] * 0.70710678f;
    for (size_t j = i + 1; j < width; ++j) *to++ = x * from[j];
  }
}

// max(0, x) cos a, then max(0, x) sin a: products of such rows have the factor cos(a - a').
inline void CosineRow(const float* from, size_t width, double angle, float* to) {
  for (const double factor : {std::cos(angle), std::sin(angle)}) {
    MapRow(from, width, to, [&](DF d, VF x) HWY_ATTR {
      return hn::Mul(RaiseToBound(x, hn::Zero(d)), hn::Set(d, static_cast<float>(factor)));
    });
    to += width;
  }
}

// Rows of tokens of one head, `stride` apart, become what the user's function makes of them.
inline void MapByUser(const RecurrentProblem& p, Side side, const TokenPlace& place, float* rows,
                      size_t count, size_t stride) {
  const size_t width = static_cast<size_t>(p.head_dim);
  p.options.feature_mod({place.b, place.head, side == Side::kKey, count, width, rows, stride});
  if (side == Side::kKey || p.scale == 1.0f) return;
  for (size_t i = 0; i < count; ++i) ScaleRow(rows + i * stride, width, p.scale, rows + i * stride);
}

// The features of a row, feature_dim of them; of kRandom see Exponents().
inline void Features(const RecurrentProblem& p, Side side, const float* from,
                     const TokenPlace& place, float* to) {
  const size_t width = static_cast<size_t>(p.head_dim);
  const float factor = side == Side::kKey ? 1.0f : p.scale;
  switch (p.options.feature_map) {
    case FeatureMap::kComplement:
      if (side == Side::kKey) {
        MapRow(from, width, to, [](DF d, VF x) HWY_ATTR { return Complement(d, x); });
        break;
      }
      [[fallthrough]];
    case FeatureMap::kRandom:
    case FeatureMap::kIdentity:
      return ScaleRow(from, width, factor, to);
    case FeatureMap::kEluPlusOne:
      MapRow(from, width, to, [](DF d, VF x) HWY_ATTR {
        const VF zero = hn::Zero(d);
        // Where x is NaN, neither branch may hide it: x <= 0 is false, and x + 1 is NaN.
        const auto falls = hn::Le(x, zero);
        const VF fallen = ExpNonPositive(d, hn::IfThenElseZero(falls, x));
        return hn::IfThenElse(falls, fallen, hn::Add(x, hn::Set(d, 1.0f)));
      });
      break;
    case FeatureMap::kRelu:
      MapRow(from, width, to, [](DF d, VF x) HWY_ATTR { return RaiseToBound(x, hn::Zero(d)); });
      break;
    case FeatureMap::kSoftmax:
      SoftmaxFeatures(from, width, to);
      break;
    case FeatureMap::kUnit:
      UnitRow(from, width, to);
      break;
    case FeatureMap::kTaylor:
      TaylorRow(from, width, p.Factor(side), to);
      break;
    case FeatureMap::kAppendOne:
      ScaleRow(from, width, 1.0f, to);
      to[width] = 1.0f;
      break;
    case FeatureMap::kCosine:
      CosineRow(from, width, p.Angle(place.b, place.t), to);
      break;
    case FeatureMap::kUser:
      std::copy_n(from, width, to);
      return MapByUser(p, side, place, to, 1, width);
  }
  if (factor != 1.0f) ScaleRow(to, static_cast<size_t>(p.feature_dim), factor, to);
}

// What is taken off all exponents of a key: half its squared length, of the row times the factor.
inline float HalfSquare(const RecurrentProblem& p, Side side, const float* from) {
  if (side == Side::kQuery) return 0.0f;  // weights are divided by their sum
  const double factor = double{p.Factor(side)};
  const double squares = SumOfSquares(from, static_cast<size_t>(p.head_dim));
  return static_cast<float>(factor * factor * squares / 2);
}

// The logarithms of the random features of one row, by products of rows.
inline void Exponents(const RecurrentProblem& p, Side side, const float* from, float* to) {
  const DF d;
  const size_t width = static_cast<size_t>(p.head_dim), lanes = hn::Lanes(d);
  const float half = HalfSquare(p, side, from);
  for (int64_t c = 0; c < p.feature_dim; ++c) {
    const float* direction = &p.options.projection(0, 0, c, 0);
    VF sum = hn::Zero(d);
    for (size_t n = 0; n < width; n += lanes) {
      const size_t here = std::min(lanes, width - n);
      sum = Fma(hn::LoadN(d, direction + n, here), hn::LoadN(d, from + n, here), sum);
    }
    to[c] = p.Factor(side) * hn::ReduceSum(d, sum) - half;
  }
}

// The features of a query from its exponents, where keys were divided by exp(peaks): relative to
// the largest. A feature that no key has written has the peak -inf.
inline void RelativeToPeaks(const float* peaks, size_t width, float* row) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  float largest = kNone;
  for (size_t c = 0; c < width; ++c) {
    row[c] += peaks[c];
    largest = std::max(largest, row[c]);
  }
  ExpRow(row, width, largest == kNone ? 0.0f : largest, row);
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_RECURRENT_FEATURES_INL_H_
