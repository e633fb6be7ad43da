// The activations of feed-forward networks as functions of vectors, with their derivatives.
#if defined(HEED_ROWS_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_ROWS_ACTIVATION_INL_H_
#undef HEED_ROWS_ACTIVATION_INL_H_
#else
#define HEED_ROWS_ACTIVATION_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "heed/layers.h"
#include "hwy/highway.h"
#include "src/simd/normal_tail-inl.h"
#include "src/simd/sigmoid-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Silu {
  HWY_INLINE VF Value(DF d, VF x) const { return hn::Mul(x, Sigmoid(d, x)); }
  // s + x s (1 - s), s = sigmoid(x), where s (1 - s) = e / (1 + e)^2 with e = e^-|x|: 1 - s would
  // have lost what a large x multiplies.
  HWY_INLINE VF Slope(DF d, VF x) const {
    const VF one = hn::Set(d, 1.0f);
    const VF e = ExpNegAbs(d, x), inverse = hn::Div(one, hn::Add(one, e));
    const VF s = hn::Mul(inverse, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one));
    return Fma(x, hn::Mul(hn::Mul(inverse, inverse), e), s);
  }
};

// Hendrycks & Gimpel 2016, arXiv:1606.08415: x times the share of normal numbers below x.
struct Gelu {
  HWY_INLINE VF Value(DF d, VF x) const { return hn::Mul(x, ShareBelow(d, x).below); }
  HWY_INLINE VF Slope(DF d, VF x) const {
    const NormalShare<VF> share = ShareBelow(d, x);
    return Fma(hn::Mul(x, hn::Set(d, 0.39894228f)), share.bell, share.below);  // 1 / sqrt(2 pi)
  }
};

// The same paper's approximation, x (1 + tanh(c (x + a x^3))) / 2 = x sigmoid(2 c (x + a x^3)),
// which keeps its relative precision below zero.
struct GeluTanh {
  static constexpr float kTwoC = 1.59576912f, kA = 0.044715f;

  HWY_INLINE VF Inner(DF d, VF x) const {
    const VF cubic = Fma(hn::Mul(hn::Mul(x, x), hn::Set(d, kA)), x, x);
    return hn::Mul(cubic, hn::Set(d, kTwoC));
  }
  HWY_INLINE VF Value(DF d, VF x) const { return hn::Mul(x, Sigmoid(d, Inner(d, x))); }
  // s + x s (1 - s) 2 c (1 + 3 a x^2), where s (1 - s) = e / (1 + e)^2 with e = e^-|inner|.
  HWY_INLINE VF Slope(DF d, VF x) const {
    const VF one = hn::Set(d, 1.0f), inner = Inner(d, x);
    const VF e = ExpNegAbs(d, inner), inverse = hn::Div(one, hn::Add(one, e));
    const VF s = hn::Mul(inverse, hn::IfThenElse(hn::Lt(inner, hn::Zero(d)), e, one));
    const VF slope = Fma(hn::Mul(x, x), hn::Set(d, 3 * kA * kTwoC), hn::Set(d, kTwoC));
    return Fma(hn::Mul(x, hn::Mul(hn::Mul(inverse, inverse), e)), slope, s);
  }
};

struct Relu {
  HWY_INLINE VF Value(DF d, VF x) const {
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);  // NaN stays
  }
  HWY_INLINE VF Slope(DF d, VF x) const {
    return hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), hn::Set(d, 1.0f));
  }
};

template <class Body>
HWY_INLINE void ForEachVector(size_t begin, size_t end, const Body& body) {
  const size_t lanes = hn::Lanes(DF());
  for (size_t n = begin; n < end; n += lanes) body(n, std::min(lanes, end - n));
}

// Calls `visit` with the function that the activation is. Inside of loops: loads and stores of
// parts of vectors are larger code than any of the functions.
template <class Visit>
HWY_INLINE void WithActivation(Activation activation, const Visit& visit) {
  switch (activation) {
    case Activation::kGelu:
      return visit(Gelu());
    case Activation::kGeluTanh:
      return visit(GeluTanh());
    case Activation::kSilu:
      return visit(Silu());
    case Activation::kRelu:
      return visit(Relu());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_ROWS_ACTIVATION_INL_H_
