// cvt.
#include <cfenv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "element_wise.h"

namespace heed::interpreter {
namespace {

double RoundToInteger(double x, int64_t rounding) {
  switch (rounding) {
    case FE_TOWARDZERO:
      return std::trunc(x);
    case FE_DOWNWARD:
      return std::floor(x);
    case FE_UPWARD:
      return std::ceil(x);
    default:
      return std::nearbyint(x);
  }
}

// What does not fit becomes the nearest that does; NaN becomes 0, or the lowest bit pattern with
// the sign where one of the types has 64 bits (PTX ISA, "cvt").
template <class D>
D IntegerOf(double x, bool wide) {
  using Limits = std::numeric_limits<D>;
  if (std::isnan(x)) return wide ? static_cast<D>(static_cast<D>(1) << (8 * sizeof(D) - 1)) : 0;
  if (x <= static_cast<double>(Limits::min())) return Limits::min();
  if (x >= static_cast<double>(Limits::max())) return Limits::max();
  return static_cast<D>(x);
}

template <class A>
A SourceOf(Warp& warp, const Instruction& i, int lane) {
  const uint64_t bits = warp.Get(i.a, i.width_a, lane);
  A a;
  std::memcpy(&a, &bits, sizeof(A));
  return a;
}
template <class D>
void SetResult(Warp& warp, const Instruction& i, int lane, D d) {
  uint64_t bits = 0;
  if constexpr (std::is_integral_v<D>) {
    bits = static_cast<uint64_t>(static_cast<int64_t>(d));  // the sign fills a wider register
    if constexpr (std::is_unsigned_v<D>) bits = d;
  } else {
    std::memcpy(&bits, &d, sizeof(D));
  }
  warp.Set(i.d, i.width_d, lane, bits);
}

template <class D, class A>
void IntegerFromInteger(Warp& warp, const Instruction& i, Lanes lanes) {
  ForLanes(lanes, [&](int lane) {
    SetResult<D>(warp, i, lane, static_cast<D>(SourceOf<A>(warp, i, lane)));
  });
}
template <class D, class A>
void IntegerFromFloat(Warp& warp, const Instruction& i, Lanes lanes) {
  constexpr bool kWide = std::is_same_v<A, double> || sizeof(D) == 8;
  ForLanes(lanes, [&](int lane) {
    const double x = RoundToInteger(SourceOf<A>(warp, i, lane), i.imm);
    SetResult<D>(warp, i, lane, IntegerOf<D>(x, kWide));
  });
}
template <class D, class A>
void FloatFromInteger(Warp& warp, const Instruction& i, Lanes lanes) {
  ForLanes(lanes, [&](int lane) {
    SetResult<D>(warp, i, lane, static_cast<D>(SourceOf<A>(warp, i, lane)));
  });
}
template <class D, class A>
void FloatFromFloat(Warp& warp, const Instruction& i, Lanes lanes) {
  ForLanes(lanes, [&](int lane) {
    SetResult<D>(warp, i, lane, static_cast<D>(SourceOf<A>(warp, i, lane)));
  });
}
template <class T>
void RoundFloat(Warp& warp, const Instruction& i, Lanes lanes) {
  ForLanes(lanes, [&](int lane) {
    const T x = SourceOf<T>(warp, i, lane);
    SetResult<T>(warp, i, lane, std::copysign(static_cast<T>(RoundToInteger(x, i.imm)), x));
  });
}
void Saturate(Warp& warp, const Instruction& i, Lanes lanes) {
  ForLanes(lanes, [&](int lane) {
    const float x = SourceOf<float>(warp, i, lane);
    SetResult<float>(warp, i, lane, x > 0 ? std::min(x, 1.0f) : 0.0f);  // NaN to 0
  });
}

template <class D, class A>
Handler Between() {
  constexpr bool kToFloat = std::is_floating_point_v<D>, kFromFloat = std::is_floating_point_v<A>;
  if constexpr (kToFloat) {
    return kFromFloat ? Handler(FloatFromFloat<D, A>) : Handler(FloatFromInteger<D, A>);
  } else if constexpr (kFromFloat) {
    return IntegerFromFloat<D, A>;
  } else {
    return IntegerFromInteger<D, A>;
  }
}
template <class D>
Handler FromAny(Type from) {
  switch (from) {
    case Type::kU8:
      return Between<D, uint8_t>();
    case Type::kU16:
      return Between<D, uint16_t>();
    case Type::kU32:
      return Between<D, uint32_t>();
    case Type::kU64:
      return Between<D, uint64_t>();
    case Type::kS8:
      return Between<D, int8_t>();
    case Type::kS16:
      return Between<D, int16_t>();
    case Type::kS32:
      return Between<D, int32_t>();
    case Type::kS64:
      return Between<D, int64_t>();
    case Type::kF32:
      return Between<D, float>();
    case Type::kF64:
      return Between<D, double>();
    default:
      return nullptr;
  }
}
Handler Plain(Type to, Type from) {
  switch (to) {
    case Type::kU8:
      return FromAny<uint8_t>(from);
    case Type::kU16:
      return FromAny<uint16_t>(from);
    case Type::kU32:
      return FromAny<uint32_t>(from);
    case Type::kU64:
      return FromAny<uint64_t>(from);
    case Type::kS8:
      return FromAny<int8_t>(from);
    case Type::kS16:
      return FromAny<int16_t>(from);
    case Type::kS32:
      return FromAny<int32_t>(from);
    case Type::kS64:
      return FromAny<int64_t>(from);
    case Type::kF32:
      return FromAny<float>(from);
    case Type::kF64:
      return FromAny<double>(from);
    default:
      return nullptr;
  }
}

// The widths where it matters: cvt between 32 and 64 bits is a third of what kernels do.
Handler Fast(Type to, Type from, int width_d, int width_a) {
  if (width_d != BytesOf(to) || width_a != BytesOf(from)) return nullptr;
  constexpr auto kSame = [](auto a) { return a; };
  if (to == Type::kS64 && from == Type::kS32) return Unary<kSame, int64_t, int32_t>;
  if (to == Type::kU64 && from == Type::kU32) return Unary<kSame, uint64_t, uint32_t>;
  if (to == Type::kU32 && from == Type::kU64) return Unary<kSame, uint32_t, uint64_t>;
  if (to == Type::kF32 && from == Type::kS32) return Unary<kSame, float, int32_t>;
  return nullptr;
}

int RoundingOf(const Operation& o) {
  if (o.Has("rzi") || o.Has("rz")) return FE_TOWARDZERO;
  if (o.Has("rmi")) return FE_DOWNWARD;
  if (o.Has("rpi")) return FE_UPWARD;
  if (o.Has("rm") || o.Has("rp")) Fail("cvt of this rounding");
  return FE_TONEAREST;
}

// Types of 8 and 16 bits. Of two sources the first goes to the upper half.
template <auto F>
void PackTwo(Warp& warp, const Instruction& i, Lanes lanes) {
  ForLanes(lanes, [&](int lane) {
    const uint32_t high = F(warp.At<float>(i.a)[lane]), low = F(warp.At<float>(i.b)[lane]);
    if (i.width_d == 2) {
      warp.At<uint16_t>(i.d)[lane] = static_cast<uint16_t>(high << 8 | low);
    } else {
      warp.At<uint32_t>(i.d)[lane] = high << 16 | low;
    }
  });
}
void HalvesFromE4M3(Warp& warp, const Instruction& i, Lanes lanes) {
  ForLanes(lanes, [&](int lane) {
    const uint32_t bits = warp.At<uint16_t>(i.a)[lane];
    const auto half = [](uint32_t byte) -> uint32_t {
      return FloatToHalf(E4M3ToFloat(static_cast<uint8_t>(byte)));
    };
    warp.At<uint32_t>(i.d)[lane] = half(bits >> 8) << 16 | half(bits & 0xff);
  });
}

bool Small(Decoder& decoder, const Operation& o, Instruction& i, Type to, Type from) {
  if (from == Type::kF32 && (to == Type::kF16x2 || to == Type::kBF16x2 || to == Type::kE4M3x2)) {
    if (!o.Has("rn")) Fail("this rounding");
    const bool saturates = o.Has("satfinite");
    if (saturates != (to == Type::kE4M3x2)) Fail("satfinite");
    Operands(decoder, o, i, BytesOf(to), 4, 4);
    i.width_d = static_cast<uint8_t>(BytesOf(to));
    i.run = to == Type::kF16x2    ? PackTwo<FloatToHalf>
            : to == Type::kBF16x2 ? PackTwo<FloatToBFloat>
                                  : PackTwo<FloatToE4M3>;
  } else if (to == Type::kF32 && from == Type::kF16) {
    Operands(decoder, o, i, 4, 2);
    i.run = Unary<HalfToFloat, float, uint16_t>;
  } else if (to == Type::kF32 && from == Type::kBF16) {
    Operands(decoder, o, i, 4, 2);
    i.run = Unary<BFloatToFloat, float, uint16_t>;
  } else if (to == Type::kF16 && from == Type::kF32 && o.Has("rn")) {
    Operands(decoder, o, i, 2, 4);
    i.run = Unary<FloatToHalf, uint16_t, float>;
  } else if (to == Type::kBF16 && from == Type::kF32 && o.Has("rn")) {
    Operands(decoder, o, i, 2, 4);
    i.run = Unary<FloatToBFloat, uint16_t, float>;
  } else if (to == Type::kF16x2 && from == Type::kE4M3x2) {
    Operands(decoder, o, i, 4, 2);
    i.run = HalvesFromE4M3;
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool DecodeConvert(Decoder& decoder, const Operation& o, Instruction& i) {
  if (o.name != "cvt") return false;
  if (o.words.size() < 2) Fail("types of cvt");
  const Type from = TypeOf(o.type()), to = TypeOf(o.words[o.words.size() - 2]);
  if (o.Has("ftz") || o.Has("relu")) Fail("modifiers of cvt");
  i.imm = RoundingOf(o);
  if (Small(decoder, o, i, to, from)) return true;
  const Place d = decoder.Destination(o.operands.at(0));
  const Place a = decoder.WideSource(o.operands.at(1), BytesOf(from));
  if (d.width < BytesOf(to) || a.width < BytesOf(from)) Fail("a register too narrow");
  i.d = d.at, i.a = a.at;
  i.width_d = static_cast<uint8_t>(d.width), i.width_a = static_cast<uint8_t>(a.width);
  const bool rounds = o.Has("rni") || o.Has("rzi") || o.Has("rmi") || o.Has("rpi");
  if (o.Has("sat")) {
    if (to != Type::kF32 || from != Type::kF32 || rounds) Fail("sat");
    i.run = Saturate;
  } else if (to == from && (to == Type::kF32 || to == Type::kF64)) {
    i.run = to == Type::kF32 ? RoundFloat<float> : RoundFloat<double>;
    if (!rounds) Fail("cvt to the same type");
  } else {
    if (i.imm == FE_TOWARDZERO && to >= Type::kF32) Fail("rz to floats");
    i.run = Fast(to, from, d.width, a.width);
    if (i.run == nullptr) i.run = Plain(to, from);
  }
  if (i.run == nullptr) Fail("types of cvt");
  return true;
}

}  // namespace heed::interpreter
