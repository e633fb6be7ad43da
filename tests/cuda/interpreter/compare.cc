// setp, selp and slct.
#include <cmath>

#include "element_wise.h"

namespace heed::interpreter {
namespace {

constexpr auto kEq = [](auto a, auto b) { return a == b; };
constexpr auto kNe = [](auto a, auto b) { return a < b || a > b; };  // false of NaN
constexpr auto kLt = [](auto a, auto b) { return a < b; };
constexpr auto kLe = [](auto a, auto b) { return a <= b; };
constexpr auto kGt = [](auto a, auto b) { return a > b; };
constexpr auto kGe = [](auto a, auto b) { return a >= b; };
constexpr auto kIntegerNe = [](auto a, auto b) { return a != b; };
// Those with u hold where a number is NaN.
constexpr auto kEqu = [](auto a, auto b) { return !(a < b || a > b); };
constexpr auto kNeu = [](auto a, auto b) { return !(a == b); };
constexpr auto kLtu = [](auto a, auto b) { return !(a >= b); };
constexpr auto kLeu = [](auto a, auto b) { return !(a > b); };
constexpr auto kGtu = [](auto a, auto b) { return !(a <= b); };
constexpr auto kGeu = [](auto a, auto b) { return !(a < b); };
constexpr auto kNum = [](auto a, auto b) { return !std::isnan(a) && !std::isnan(b); };
constexpr auto kNan = [](auto a, auto b) { return std::isnan(a) || std::isnan(b); };

enum Joined : int64_t { kAlone, kAnd, kOr, kXor };

// d, and c[1] where it is asked for: the comparison, and its contrary, each joined with c[0].
template <auto F, class T>
void Compare(Warp& warp, const Instruction& i, Lanes lanes) {
  const T* const a = warp.At<T>(i.a);
  const T* const b = warp.At<T>(i.b);
  Lanes holds = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    holds |= static_cast<Lanes>(F(a[lane], b[lane])) << lane;
  }
  Lanes contrary = ~holds;
  if (i.imm != kAlone) {
    const Lanes other = i.negated_c ? ~*warp.At<Lanes>(i.c) : *warp.At<Lanes>(i.c);
    const auto join = [&](Lanes x) {
      return i.imm == kAnd ? x & other : i.imm == kOr ? x | other : x ^ other;
    };
    holds = join(holds);
    contrary = join(contrary);
  }
  warp.SetPredicate(i.d, lanes, holds);
  if (!i.more.empty()) warp.SetPredicate(i.more[0], lanes, contrary);
}

template <auto F>
Handler ForIntegers(Type type) {
  switch (type) {
    case Type::kB16:
    case Type::kU16:
      return Compare<F, uint16_t>;
    case Type::kB32:
    case Type::kU32:
      return Compare<F, uint32_t>;
    case Type::kB64:
    case Type::kU64:
      return Compare<F, uint64_t>;
    case Type::kS16:
      return Compare<F, int16_t>;
    case Type::kS32:
      return Compare<F, int32_t>;
    case Type::kS64:
      return Compare<F, int64_t>;
    default:
      return nullptr;
  }
}
template <auto F>
Handler ForFloats(Type type) {
  return type == Type::kF32   ? Handler(Compare<F, float>)
         : type == Type::kF64 ? Handler(Compare<F, double>)
                              : nullptr;
}

Handler HandlerOf(std::string_view comparison, Type type) {
  const auto is = [&](const char* word) { return comparison == word; };
  if (type == Type::kF32 || type == Type::kF64) {
    if (is("eq")) return ForFloats<kEq>(type);
    if (is("ne")) return ForFloats<kNe>(type);
    if (is("lt")) return ForFloats<kLt>(type);
    if (is("le")) return ForFloats<kLe>(type);
    if (is("gt")) return ForFloats<kGt>(type);
    if (is("ge")) return ForFloats<kGe>(type);
    if (is("equ")) return ForFloats<kEqu>(type);
    if (is("neu")) return ForFloats<kNeu>(type);
    if (is("ltu")) return ForFloats<kLtu>(type);
    if (is("leu")) return ForFloats<kLeu>(type);
    if (is("gtu")) return ForFloats<kGtu>(type);
    if (is("geu")) return ForFloats<kGeu>(type);
    if (is("num")) return ForFloats<kNum>(type);
    if (is("nan")) return ForFloats<kNan>(type);
    return nullptr;
  }
  if (is("eq")) return ForIntegers<kEq>(type);
  if (is("ne")) return ForIntegers<kIntegerNe>(type);
  if (is("lt") || is("lo")) return ForIntegers<kLt>(type);
  if (is("le") || is("ls")) return ForIntegers<kLe>(type);
  if (is("gt") || is("hi")) return ForIntegers<kGt>(type);
  if (is("ge") || is("hs")) return ForIntegers<kGe>(type);
  return nullptr;
}

bool SetPredicate(Decoder& decoder, const Operation& o, Instruction& i) {
  const Type type = TypeOf(o.type());
  i.run = HandlerOf(o.words.at(0), type);
  if (i.run == nullptr || o.Has("ftz")) Fail("this comparison");
  i.imm = o.Has("and") ? kAnd : o.Has("or") ? kOr : o.Has("xor") ? kXor : kAlone;
  std::string_view result = o.operands.at(0);
  if (const size_t bar = result.find('|'); bar != std::string_view::npos) {
    i.more = {decoder.Predicate(Trim(result.substr(bar + 1))).at};
    result = Trim(result.substr(0, bar));
  }
  i.d = decoder.Predicate(result).at;
  i.a = decoder.Source(o.operands.at(1), BytesOf(type)).at;
  i.b = decoder.Source(o.operands.at(2), BytesOf(type)).at;
  if (i.imm == kAlone) return true;
  std::string_view other = o.operands.at(3);
  if (other.front() == '!') i.negated_c = true, other.remove_prefix(1);
  i.c = decoder.Predicate(other).at;
  return true;
}

template <class T>
void Select(Warp& warp, const Instruction& i, Lanes lanes) {
  T* const d = warp.At<T>(i.d);
  const T* const a = warp.At<T>(i.a);
  const T* const b = warp.At<T>(i.b);
  const Lanes chosen = *warp.At<Lanes>(i.c);
  ForLanes(lanes, [=](int lane) { d[lane] = (chosen >> lane & 1) != 0 ? a[lane] : b[lane]; });
}

}  // namespace

bool DecodeCompare(Decoder& decoder, const Operation& o, Instruction& i) {
  if (o.name == "setp") return SetPredicate(decoder, o, i);
  if (o.name != "selp") return false;
  const int bytes = BytesOf(TypeOf(o.type()));
  i.d = decoder.DestinationOf(o.operands.at(0), bytes).at;
  i.a = decoder.Source(o.operands.at(1), bytes).at;
  i.b = decoder.Source(o.operands.at(2), bytes).at;
  i.c = decoder.Predicate(o.operands.at(3)).at;
  i.run = bytes == 2   ? Select<uint16_t>
          : bytes == 4 ? Select<uint32_t>
          : bytes == 8 ? Select<uint64_t>
                       : nullptr;
  if (i.run == nullptr) Fail("selp of this type");
  return true;
}

}  // namespace heed::interpreter
