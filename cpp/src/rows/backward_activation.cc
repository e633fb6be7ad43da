#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/rows/backward_activation.cc"
#include "src/rows/backward_activation.h"

#include <algorithm>
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/parallel/pieces.h"
#include "src/simd/sigmoid-inl.h"
#include "src/simd/tanh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

struct Silu {
  HWY_INLINE VF Value(DF d, VF x) const { return hn::Mul(x, Sigmoid(d, x)); }
  // s (1 + x (1 - s)), s = sigmoid(x).
  HWY_INLINE VF Slope(DF d, VF x) const {
    const VF one = hn::Set(d, 1.0f), s = Sigmoid(d, x);
    return hn::Mul(s, Fma(x, hn::Sub(one, s), one));
  }
};

// Hendrycks & Gimpel 2016, arXiv:1606.08415: x (1 + tanh(c (x + a x^3))) / 2.
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
void ForEachVector(size_t begin, size_t end, const Body& body) {
  const size_t lanes = hn::Lanes(DF());
  for (size_t n = begin; n < end; n += lanes) body(n, std::min(lanes, end - n));
}

template <class Function>
void Values(const Function& function, const float* x, size_t begin, size_t end, float* y) {
  const DF d;
  ForEachVector(begin, end, [&](size_t n, size_t count) HWY_ATTR {
    hn::StoreN(function.Value(d, hn::LoadN(d, x + n, count)), d, y + n, count);
  });
}

template <class Function>
void Gradients(const Function& function, const float* x, const float* d_y, size_t begin, size_t end,
               float* d_x) {
  const DF d;
  ForEachVector(begin, end, [&](size_t n, size_t count) HWY_ATTR {
    const VF slope = function.Slope(d, hn::LoadN(d, x + n, count));
    const VF arriving = hn::LoadN(d, d_y + n, count);
    const VF gradient = hn::IfThenZeroElse(hn::Eq(arriving, hn::Zero(d)), hn::Mul(slope, arriving));
    hn::StoreN(gradient, d, d_x + n, count);
  });
}

// Elements [begin, end); d_y == nullptr asks for values.
template <class Function>
void Part(const Function& function, const float* x, const float* d_y, size_t begin, size_t end,
          float* to) {
  if (d_y == nullptr) {
    Values(function, x, begin, end, to);
  } else {
    Gradients(function, x, d_y, begin, end, to);
  }
}

}  // namespace

void ActivatePart(Activation activation, const float* x, const float* d_y, size_t begin, size_t end,
                  float* to) {
  if (activation == Activation::kSilu) return Part(Silu(), x, d_y, begin, end, to);
  if (activation == Activation::kRelu) return Part(Relu(), x, d_y, begin, end, to);
  Part(GeluTanh(), x, d_y, begin, end, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(ActivatePart);

namespace {

// Gelu by the error function, which has no vector form here.
void GeluPart(const float* x, const float* d_y, size_t begin, size_t end, float* to) {
  constexpr float kRootHalf = 0.70710678f, kRootTwoPi = 0.39894228f;
  for (size_t n = begin; n < end; ++n) {
    const float share = 0.5f * (1 + std::erf(x[n] * kRootHalf));
    if (d_y == nullptr) {
      to[n] = x[n] * share;
    } else {
      const float slope = share + x[n] * kRootTwoPi * std::exp(-0.5f * x[n] * x[n]);
      to[n] = d_y[n] == 0 ? 0 : d_y[n] * slope;
    }
  }
}

void Run(Activation activation, const float* x, const float* d_y, int64_t count, float* to,
         ThreadPool* pool) {
  ForEachPiece(count, kTaskElements, pool, [&](int64_t begin, int64_t end, int64_t) {
    const size_t first = static_cast<size_t>(begin), last = static_cast<size_t>(end);
    if (activation == Activation::kGelu) return GeluPart(x, d_y, first, last, to);
    HWY_DYNAMIC_DISPATCH(ActivatePart)(activation, x, d_y, first, last, to);
  });
}

}  // namespace

void Activate(Activation activation, const float* x, int64_t count, float* y, ThreadPool* pool) {
  Run(activation, x, nullptr, count, y, pool);
}

void ActivateBackward(Activation activation, const float* x, const float* d_y, int64_t count,
                      float* d_x, ThreadPool* pool) {
  Run(activation, x, d_y, count, d_x, pool);
}

}  // namespace heed
#endif  // HWY_ONCE
