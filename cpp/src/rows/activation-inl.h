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
#include "src/simd/tanh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Silu {
  HWY_INLINE VF Value(DF d, VF x) const { return hn::Mul(x, Sigmoid(d, x)); }
  // s (1 + x (1 - s)), s = sigmoid(x).
  HWY_INLINE VF Slope(DF d, VF x) const {
    const VF one = hn::Set(d, 1.0f), s = Sigmoid(d, x);
    return hn::Mul(s, Fma(x, hn::Sub(one, s), one));
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

// The same paper's approximation: x (1 + tanh(c (x + a x^3))) / 2.
struct GeluTanh {
  static constexpr float kC = 0.79788456f, kA = 0.044715f;

  HWY_INLINE VF Tanh(DF d, VF x) const {
    const VF cubic = Fma(hn::Mul(hn::Mul(x, x), hn::Set(d, kA)), x, x);
    VF t[1] = {hn::Mul(cubic, hn::Set(d, kC))};
    heed::HWY_NAMESPACE::Tanh(d, t);
    return t[0];
  }
  HWY_INLINE VF Value(DF d, VF x) const {
    const VF half = hn::Mul(x, hn::Set(d, 0.5f));
    return Fma(half, Tanh(d, x), half);
  }
  // (1 + t) / 2 + x (1 - t^2) c (1 + 3 a x^2) / 2.
  HWY_INLINE VF Slope(DF d, VF x) const {
    const VF half = hn::Set(d, 0.5f), one = hn::Set(d, 1.0f), t = Tanh(d, x);
    const VF inner = Fma(hn::Mul(x, x), hn::Set(d, 3 * kA * kC), hn::Set(d, kC));
    const VF outer = hn::Mul(hn::Mul(x, half), hn::Sub(one, hn::Mul(t, t)));
    return Fma(outer, inner, Fma(t, half, half));
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

// Calls `visit` with the function that the activation is.
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
