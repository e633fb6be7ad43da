// One token of a recurrent mechanism: its features and factors, writing and reading the state.
#if defined(HEED_RECURRENT_TOKEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_RECURRENT_TOKEN_INL_H_
#undef HEED_RECURRENT_TOKEN_INL_H_
#else
#define HEED_RECURRENT_TOKEN_INL_H_
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

// to[c] = from[c * stride] mapped by `map(d, vector)`, c < width.
template <class Map>
HWY_INLINE void MapRow(const float* HWY_RESTRICT from, size_t width, float* HWY_RESTRICT to,
                       const Map& map) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  size_t c = 0;
  for (; c + lanes <= width; c += lanes) hn::StoreU(map(d, hn::LoadU(d, from + c)), d, to + c);
  if (c < width) hn::StoreN(map(d, hn::LoadN(d, from + c, width - c)), d, to + c, width - c);
}

inline void SoftmaxRow(const float* from, size_t width, float* to) {
  float largest = -std::numeric_limits<float>::infinity();
  for (size_t c = 0; c < width; ++c) largest = std::max(largest, from[c]);
  MapRow(from, width, to,
         [&](DF d, VF x) HWY_ATTR { return ExpNonPositive(d, hn::Sub(x, hn::Set(d, largest))); });
  float sum = 0;
  for (size_t c = 0; c < width; ++c) sum += to[c];
  for (size_t c = 0; c < width; ++c) to[c] /= sum;
}

inline void UnitRow(const float* from, size_t width, float* to) {
  // In float64: squares of floats neither overflow nor vanish there.
  double squares = 0;
  for (size_t c = 0; c < width; ++c) squares += double{from[c]} * double{from[c]};
  const double inverse = squares == 0 ? 0 : 1 / std::sqrt(squares);
  for (size_t c = 0; c < width; ++c) to[c] = static_cast<float>(double{from[c]} * inverse);
}

inline void ScaleRow(const float* from, size_t width, float factor, float* to) {
  MapRow(from, width, to, [=](DF d, VF x) HWY_ATTR { return hn::Mul(x, hn::Set(d, factor)); });
}

// The features of a row, times `factor`.
inline void Features(FeatureMap map, const float* from, size_t width, float factor, float* to) {
  switch (map) {
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
      SoftmaxRow(from, width, to);
      break;
    case FeatureMap::kUnit:
      UnitRow(from, width, to);
      break;
  }
  if (factor != 1.0f) ScaleRow(to, width, factor, to);
}

// What a token does to the state.
struct Token {
  const float* keys;    // features, head_dim of them
  const float* decays;  // factors: head_dim of them with per_channel, else one; nullptr for none
  bool per_channel;
  float beta;
  bool delta;

  float Decay(size_t c) const {
    return decays == nullptr ? 1.0f : decays[per_channel ? c : size_t{0}];
  }
};

// A vector of columns of a state, of which `here` exist: row c lies at data + c * stride.
struct StateColumns {
  float* data;
  size_t stride;
  size_t here;

  HWY_INLINE VF Load(DF d, size_t c) const {
    const float* row = data + c * stride;
    return here == hn::Lanes(d) ? hn::LoadU(d, row) : hn::LoadN(d, row, here);
  }
  HWY_INLINE void Store(DF d, VF s, size_t c) const {
    float* row = data + c * stride;
    if (here == hn::Lanes(d)) {
      hn::StoreU(s, d, row);
    } else {
      hn::StoreN(s, d, row, here);
    }
  }
};

// Decays, erases and writes columns of the state. `value` is v for delta, else beta v.
inline void WriteToken(const Token& token, size_t dim, VF value, const StateColumns& state) {
  const DF d;
  VF known = hn::Zero(d);
  for (size_t c = 0; c < dim && (token.decays != nullptr || token.delta); ++c) {
    VF s = state.Load(d, c);
    if (token.decays != nullptr) {
      s = hn::Mul(s, hn::Set(d, token.Decay(c)));
      state.Store(d, s, c);
    }
    if (token.delta) known = Fma(hn::Set(d, token.keys[c]), s, known);
  }
  if (token.delta) value = hn::Mul(hn::Set(d, token.beta), hn::Sub(value, known));
  for (size_t c = 0; c < dim; ++c) {
    state.Store(d, Fma(hn::Set(d, token.keys[c]), value, state.Load(d, c)), c);
  }
}

// Columns of the state, read by the features of a query.
inline VF ReadToken(const float* query, size_t dim, const StateColumns& state) {
  const DF d;
  VF sum = hn::Zero(d);
  for (size_t c = 0; c < dim; ++c) sum = Fma(hn::Set(d, query[c]), state.Load(d, c), sum);
  return sum;
}

// Writes a finished row of `width` outputs; column `width` holds the denominator with `normalize`.
inline void StoreAnswer(bool normalize, const float* from, size_t width, float* to) {
  if (!normalize) return ScaleRow(from, width, 1.0f, to);
  const float sum = from[width];
  for (size_t e = 0; e < width; ++e) to[e] = sum == 0.0f ? 0.0f : from[e] / sum;
}

// Adds the token's own value.
inline void AddSkip(float skip, const float* value, size_t width, float* to) {
  const DF d;
  for (size_t e = 0; e < width; e += hn::Lanes(d)) {
    const size_t here = std::min(hn::Lanes(d), width - e);
    const VF sum = Fma(hn::Set(d, skip), hn::LoadN(d, value + e, here), hn::LoadN(d, to + e, here));
    hn::StoreN(sum, d, to + e, here);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_RECURRENT_TOKEN_INL_H_
