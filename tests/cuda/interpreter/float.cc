// Arithmetic of float32 and float64, and the approximate functions, which are exact here but for
// the rounding of their results.
#include <cfenv>
#include <cmath>

#include "element_wise.h"

namespace heed::interpreter {
namespace {

constexpr auto kAdd = [](auto a, auto b) { return a + b; };
constexpr auto kSub = [](auto a, auto b) { return a - b; };
constexpr auto kMul = [](auto a, auto b) { return a * b; };
constexpr auto kDiv = [](auto a, auto b) { return a / b; };
constexpr auto kFma = [](auto a, auto b, auto c) { return std::fma(a, b, c); };
// NaN only where both are; -0 is less than 0.
constexpr auto kMin = [](auto a, auto b) {
  if (a == 0 && b == 0) return std::signbit(a) ? a : b;
  return std::isnan(a) ? b : std::isnan(b) || a < b ? a : b;
};
constexpr auto kMax = [](auto a, auto b) {
  if (a == 0 && b == 0) return std::signbit(a) ? b : a;
  return std::isnan(a) ? b : std::isnan(b) || a > b ? a : b;
};
constexpr auto kNeg = [](auto a) { return -a; };
constexpr auto kAbs = [](auto a) { return std::fabs(a); };
constexpr auto kSqrt = [](auto a) { return std::sqrt(a); };
constexpr auto kReciprocal = [](auto a) { return 1 / a; };
constexpr auto kRsqrt = [](auto a) { return static_cast<decltype(a)>(1 / std::sqrt(double(a))); };
constexpr auto kExp2 = [](float a) {
  return static_cast<float>(std::exp2(static_cast<double>(a)));
};
constexpr auto kLog2 = [](float a) {
  return static_cast<float>(std::log2(static_cast<double>(a)));
};
constexpr auto kSin = [](float a) { return static_cast<float>(std::sin(static_cast<double>(a))); };
constexpr auto kCos = [](float a) { return static_cast<float>(std::cos(static_cast<double>(a))); };
constexpr auto kTanh = [](float a) {
  return static_cast<float>(std::tanh(static_cast<double>(a)));
};
// The sign is that of a.
constexpr auto kCopySign = [](auto a, auto b) { return std::copysign(b, a); };
constexpr auto kSaturate = [](float x) {
  return std::isnan(x) ? 0.0f : std::min(std::max(x, 0.0f), 1.0f);
};

template <auto F>
constexpr auto kFlushed1 = [](float a) { return FlushSubnormal(F(FlushSubnormal(a))); };
template <auto F>
constexpr auto kFlushed2 =
    [](float a, float b) { return FlushSubnormal(F(FlushSubnormal(a), FlushSubnormal(b))); };
template <auto F>
constexpr auto kFlushed3 = [](float a, float b, float c) {
  return FlushSubnormal(F(FlushSubnormal(a), FlushSubnormal(b), FlushSubnormal(c)));
};
// Only the upper half of a float64 is looked at, and made.
constexpr auto kCoarseReciprocal = [](double a) {
  const uint64_t bits = std::bit_cast<uint64_t>(a) & 0xffffffff00000000;
  const double r = 1 / std::bit_cast<double>(bits);
  return std::bit_cast<double>(std::bit_cast<uint64_t>(r) & 0xffffffff00000000);
};

// Another rounding than to nearest, for the length of an instruction.
int RoundingOf(const Operation& o) {
  if (o.Has("rz")) return FE_TOWARDZERO;
  if (o.Has("rm")) return FE_DOWNWARD;
  if (o.Has("rp")) return FE_UPWARD;
  return FE_TONEAREST;
}

template <auto F, class T>
__attribute__((noinline)) void Rounded3(Warp& warp, const Instruction& i, Lanes lanes) {
  std::fesetround(static_cast<int>(i.imm));
  Ternary<F, T>(warp, i, lanes);
  std::fesetround(FE_TONEAREST);
}
template <auto F, class T>
__attribute__((noinline)) void Rounded2(Warp& warp, const Instruction& i, Lanes lanes) {
  std::fesetround(static_cast<int>(i.imm));
  Binary<F, T>(warp, i, lanes);
  std::fesetround(FE_TONEAREST);
}

template <auto F>
Handler One(const Operation& o) {
  const bool flush = o.Has("ftz");
  if (o.type() == "f64") return Unary<F, double>;
  return flush ? Handler(Unary<kFlushed1<F>, float>) : Handler(Unary<F, float>);
}
template <auto F>
Handler Two(const Operation& o, Instruction& i) {
  const bool flush = o.Has("ftz");
  i.imm = RoundingOf(o);
  if (i.imm != FE_TONEAREST) {
    if (flush) Fail("ftz with this rounding");
    return o.type() == "f64" ? Handler(Rounded2<F, double>) : Handler(Rounded2<F, float>);
  }
  if (o.type() == "f64") return Binary<F, double>;
  return flush ? Handler(Binary<kFlushed2<F>, float>) : Handler(Binary<F, float>);
}
template <auto F>
Handler Three(const Operation& o, Instruction& i) {
  const bool flush = o.Has("ftz");
  i.imm = RoundingOf(o);
  if (i.imm != FE_TONEAREST) {
    if (flush) Fail("ftz with this rounding");
    return o.type() == "f64" ? Handler(Rounded3<F, double>) : Handler(Rounded3<F, float>);
  }
  if (o.type() == "f64") return Ternary<F, double>;
  return flush ? Handler(Ternary<kFlushed3<F>, float>) : Handler(Ternary<F, float>);
}

bool OneOperand(Decoder& decoder, const Operation& o, Instruction& i, int bytes) {
  const std::string_view name = o.name;
  if (name == "neg") i.run = One<kNeg>(o);
  if (name == "abs") i.run = One<kAbs>(o);
  if (name == "sqrt") i.run = One<kSqrt>(o);
  if (name == "rsqrt") i.run = One<kRsqrt>(o);
  if (name == "rcp") i.run = One<kReciprocal>(o);
  if (name == "rcp" && bytes == 8 && o.Has("approx")) i.run = Unary<kCoarseReciprocal, double>;
  const bool single = bytes == 4;
  if (name == "ex2" && single)
    i.run = o.Has("ftz") ? Unary<kFlushed1<kExp2>, float> : Unary<kExp2, float>;
  if (name == "lg2" && single)
    i.run = o.Has("ftz") ? Unary<kFlushed1<kLog2>, float> : Unary<kLog2, float>;
  if (name == "sin" && single) i.run = Unary<kSin, float>;
  if (name == "cos" && single) i.run = Unary<kCos, float>;
  if (name == "tanh" && single) i.run = Unary<kTanh, float>;
  if (i.run == nullptr) return false;
  Allow(o, {"approx", "rn", "ftz"});
  Operands(decoder, o, i, bytes, bytes);
  return true;
}

// Of two bfloat16 numbers a word; rounded to float32 on the way, which moves few results.
void MultiplyAddPairs(Warp& warp, const Instruction& i, Lanes lanes) {
  ForLanes(lanes, [&](int lane) {
    const uint32_t a = warp.At<uint32_t>(i.a)[lane], b = warp.At<uint32_t>(i.b)[lane],
                   c = warp.At<uint32_t>(i.c)[lane];
    uint32_t pair = 0;
    for (int bit = 0; bit < 32; bit += 16) {
      const auto half = [bit](uint32_t of) {
        return BFloatToFloat(static_cast<uint16_t>(of >> bit));
      };
      const float sum = std::fma(half(a), half(b), half(c));
      const uint16_t bits = std::isnan(sum) ? 0x7fff : FloatToBFloat(sum);
      pair |= uint32_t{bits} << bit;
    }
    warp.At<uint32_t>(i.d)[lane] = pair;
  });
}

}  // namespace

bool DecodeFloat(Decoder& decoder, const Operation& o, Instruction& i) {
  if (o.opcode == "fma.rn.bf16x2") {
    Operands(decoder, o, i, 4, 4, 4, 4);
    i.run = MultiplyAddPairs;
    return true;
  }
  if (o.type() != "f32" && o.type() != "f64") return false;
  const int bytes = BytesOf(TypeOf(o.type()));
  if (OneOperand(decoder, o, i, bytes)) return true;
  const std::string_view name = o.name;
  if (name == "fma" || name == "mad") {
    i.run = Three<kFma>(o, i);
    Operands(decoder, o, i, bytes, bytes, bytes, bytes);
  } else if (name == "add" || name == "sub" || name == "mul" || name == "div" || name == "min" ||
             name == "max" || name == "copysign") {
    if (name == "add") i.run = Two<kAdd>(o, i);
    if (name == "sub") i.run = Two<kSub>(o, i);
    if (name == "mul") i.run = Two<kMul>(o, i);
    if (name == "div") i.run = Two<kDiv>(o, i);
    if (name == "min") i.run = Two<kMin>(o, i);
    if (name == "max") i.run = Two<kMax>(o, i);
    if (name == "copysign") i.run = Two<kCopySign>(o, i);
    Operands(decoder, o, i, bytes, bytes, bytes);
  } else {
    return false;
  }
  Allow(o, {"rn", "rz", "rm", "rp", "ftz", "approx", "full"});
  return true;
}

}  // namespace heed::interpreter
