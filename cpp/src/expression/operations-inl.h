// The operations of expressions on rows of floats, with defined results for every argument.
#if defined(HEED_EXPRESSION_OPERATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXPRESSION_OPERATIONS_INL_H_
#undef HEED_EXPRESSION_OPERATIONS_INL_H_
#else
#define HEED_EXPRESSION_OPERATIONS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "src/expression/program.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

HWY_INLINE VF Truth(DF d, hn::Mask<DF> mask) { return hn::IfThenElseZero(mask, hn::Set(d, 1.0f)); }
// NaN is false.
HWY_INLINE hn::Mask<DF> IsTrue(DF d, VF x) { return hn::Gt(hn::Abs(x), hn::Zero(d)); }

// Highway's Exp is meant for arguments up to 104 and its Log for positive ones.
HWY_INLINE VF SafeExp(DF d, VF x) {
  const VF inside = hn::IfThenElse(hn::Gt(x, hn::Set(d, 89.0f)), hn::Set(d, 89.0f), x);
  const VF low = hn::IfThenElse(hn::Lt(inside, hn::Set(d, -104.0f)), hn::Set(d, -104.0f), inside);
  const VF result = hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.8f)), hn::Set(d, kInf), hn::Exp(d, low));
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

HWY_INLINE VF SafeLog(DF d, VF x) {
  const VF positive = hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Set(d, 1.0f));
  VF result = hn::IfThenElse(hn::Gt(x, hn::Set(d, std::numeric_limits<float>::max())),
                             hn::Set(d, kInf), hn::Log(d, positive));
  result = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Set(d, kNan), result);
  result = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Set(d, -kInf), result);
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

HWY_INLINE VF SafeTanh(DF d, VF x) {
  const VF one = hn::Set(d, 1.0f);
  const VF result =
      hn::IfThenElse(hn::Gt(hn::Abs(x), hn::Set(d, 20.0f)), hn::CopySign(one, x), hn::Tanh(d, x));
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

// IEEE division by zero, which Highway's emulated target does not have.
HWY_INLINE VF Divide(DF d, VF a, VF b) {
  const VF infinite = hn::Mul(a, hn::CopySign(hn::Set(d, kInf), b));
  return hn::IfThenElse(hn::Eq(b, hn::Zero(d)), infinite, hn::Div(a, b));
}

// The smaller of two numbers; NaN if one is NaN.
HWY_INLINE VF Smaller(VF a, VF b) {
  const VF least = hn::IfThenElse(hn::Lt(b, a), b, a);
  return hn::IfThenElse(hn::IsNaN(b), b, least);
}

HWY_INLINE VF Sigmoid(DF d, VF x) {
  const VF one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, SafeExp(d, hn::Neg(x))));
}

// x minus the largest multiple of y, rounded once: 0, or with the sign of y.
HWY_INLINE float Remainder(float x, float y) {
  const float rest = std::fmod(x, y);  // exact, with the sign of x
  return rest + (rest != 0 && (rest < 0) != (y < 0) ? y : 0.0f);
}

// Below 2^23 a rounded quotient of whole numbers lies between the same two as the exact one.
HWY_INLINE hn::Mask<DF> IsSmallAndWhole(DF d, VF x) {
  return hn::And(hn::Lt(hn::Abs(x), hn::Set(d, 0x1p23f)), hn::Eq(x, hn::Floor(x)));
}

// An operand: a slot, or one value for the whole row.
struct Operand {
  const float* slot;
  float value;
  HWY_INLINE VF At(DF d, size_t c) const {
    return slot != nullptr ? hn::Load(d, slot + c) : hn::Set(d, value);
  }
  float Scalar(size_t c) const { return slot != nullptr ? slot[c] : value; }
};

// What an operation reads and where it writes: whole vectors, the last one beyond `count`.
struct Pass {
  Operand a, b, c;
  float* to;
  size_t count;

  // The loop is inside the choice of the operation.
  template <class Function>
  HWY_INLINE void One(Function function) const {
    const DF d;
    for (size_t at = 0; at < count; at += hn::Lanes(d)) {
      hn::Store(function(d, a.At(d, at)), d, to + at);
    }
  }
  template <class Function>
  HWY_INLINE void Two(Function function) const {
    const DF d;
    for (size_t at = 0; at < count; at += hn::Lanes(d)) {
      hn::Store(function(d, a.At(d, at), b.At(d, at)), d, to + at);
    }
  }
  // Indices take the fast way, which is exact for them; what lies beyond `count` may be anything.
  void Modulo() const {
    const DF d;
    for (size_t at = 0; at < count; at += hn::Lanes(d)) {
      const VF x = a.At(d, at), y = b.At(d, at);
      const auto simple = hn::And(IsSmallAndWhole(d, x), IsSmallAndWhole(d, y));
      if (hn::AllTrue(d, hn::Or(hn::Not(hn::FirstN(d, count - at)), simple))) {
        const VF rest = hn::Sub(x, hn::Mul(y, hn::Floor(Divide(d, x, y))));
        hn::Store(hn::Add(rest, hn::Zero(d)), d, to + at);  // 0, not -0, on every target
        continue;
      }
      const size_t end = std::min(count, at + hn::Lanes(d));
      for (size_t n = at; n < end; ++n) to[n] = Remainder(a.Scalar(n), b.Scalar(n));
    }
  }
  void Select() const {
    const DF d;
    for (size_t at = 0; at < count; at += hn::Lanes(d)) {
      const auto condition = IsTrue(d, a.At(d, at));
      hn::Store(hn::IfThenElse(condition, b.At(d, at), c.At(d, at)), d, to + at);
    }
  }
};

#define HEED_ONE(expression)         \
  pass.One([](DF d, VF x) HWY_ATTR { \
    (void)d;                         \
    return expression;               \
  })
#define HEED_TWO(expression)               \
  pass.Two([](DF d, VF x, VF y) HWY_ATTR { \
    (void)d;                               \
    return expression;                     \
  })

void RunOperation(Op op, const Pass& pass) {
  switch (op) {
    case Op::kNegate:
      return HEED_ONE(hn::Neg(x));
    case Op::kNot:
      return HEED_ONE(Truth(d, hn::Not(IsTrue(d, x))));
    case Op::kAbs:
      return HEED_ONE(hn::Abs(x));
    case Op::kFloor:
      return HEED_ONE(hn::Floor(x));
    case Op::kSqrt:
      return HEED_ONE(hn::Sqrt(x));
    case Op::kExp:
      return HEED_ONE(SafeExp(d, x));
    case Op::kLog:
      return HEED_ONE(SafeLog(d, x));
    case Op::kTanh:
      return HEED_ONE(SafeTanh(d, x));
    case Op::kSigmoid:
      return HEED_ONE(Sigmoid(d, x));
    case Op::kAdd:
      return HEED_TWO(hn::Add(x, y));
    case Op::kSubtract:
      return HEED_TWO(hn::Sub(x, y));
    case Op::kMultiply:
      return HEED_TWO(hn::Mul(x, y));
    case Op::kDivide:
      return HEED_TWO(Divide(d, x, y));
    case Op::kModulo:
      return pass.Modulo();
    case Op::kMin:
      return HEED_TWO(Smaller(x, y));
    case Op::kMax:
      return HEED_TWO(hn::Neg(Smaller(hn::Neg(x), hn::Neg(y))));
    case Op::kLess:
      return HEED_TWO(Truth(d, hn::Lt(x, y)));
    case Op::kLessEqual:
      return HEED_TWO(Truth(d, hn::Le(x, y)));
    case Op::kEqual:
      return HEED_TWO(Truth(d, hn::Eq(x, y)));
    case Op::kNotEqual:
      return HEED_TWO(Truth(d, hn::Not(hn::Eq(x, y))));  // NaN differs from itself
    case Op::kAnd:
      return HEED_TWO(Truth(d, hn::And(IsTrue(d, x), IsTrue(d, y))));
    case Op::kOr:
      return HEED_TWO(Truth(d, hn::Or(IsTrue(d, x), IsTrue(d, y))));
    case Op::kSelect:
      return pass.Select();
    default:
      return;
  }
}

#undef HEED_ONE
#undef HEED_TWO

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXPRESSION_OPERATIONS_INL_H_
