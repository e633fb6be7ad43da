// Integers: sums, products, shifts and bits.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "element_wise.h"

namespace heed::interpreter {
namespace {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

// The same sum, product or bits whether signed or not.
template <auto F>
Handler ForBits(int bytes) {
  switch (bytes) {
    case 2:
      return Binary<F, uint16_t>;
    case 4:
      return Binary<F, uint32_t>;
    case 8:
      return Binary<F, uint64_t>;
    default:
      Fail("integers of this size");
  }
}
template <auto F>
Handler ForIntegers(Type type) {
  switch (type) {
    case Type::kU16:
      return Binary<F, uint16_t>;
    case Type::kU32:
      return Binary<F, uint32_t>;
    case Type::kU64:
      return Binary<F, uint64_t>;
    case Type::kS16:
      return Binary<F, int16_t>;
    case Type::kS32:
      return Binary<F, int32_t>;
    case Type::kS64:
      return Binary<F, int64_t>;
    default:
      Fail("no integers");
  }
}
template <auto F>
Handler ForShift(Type type) {
  switch (type) {
    case Type::kB16:
    case Type::kU16:
      return Binary<F, uint16_t, uint16_t, uint32_t>;
    case Type::kB32:
    case Type::kU32:
      return Binary<F, uint32_t, uint32_t, uint32_t>;
    case Type::kB64:
    case Type::kU64:
      return Binary<F, uint64_t, uint64_t, uint32_t>;
    case Type::kS16:
      return Binary<F, int16_t, int16_t, uint32_t>;
    case Type::kS32:
      return Binary<F, int32_t, int32_t, uint32_t>;
    case Type::kS64:
      return Binary<F, int64_t, int64_t, uint32_t>;
    default:
      Fail("shifts of this type");
  }
}

constexpr auto kAdd = [](auto a, auto b) { return a + b; };
constexpr auto kSub = [](auto a, auto b) { return a - b; };
constexpr auto kMul = [](auto a, auto b) { return a * b; };
constexpr auto kAnd = [](auto a, auto b) { return a & b; };
constexpr auto kOr = [](auto a, auto b) { return a | b; };
constexpr auto kXor = [](auto a, auto b) { return a ^ b; };
constexpr auto kMin = [](auto a, auto b) { return std::min(a, b); };
constexpr auto kMax = [](auto a, auto b) { return std::max(a, b); };
// Division by 0 is not defined; GPUs give all ones.
constexpr auto kDiv = [](auto a, auto b) -> decltype(a) {
  using T = decltype(a);
  if (b == 0) return static_cast<T>(-1);
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
  }
  return static_cast<T>(a / b);
};
constexpr auto kRem = [](auto a, auto b) -> decltype(a) {
  using T = decltype(a);
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return 0;
  }
  return static_cast<T>(a % b);
};
constexpr auto kShl = [](auto a, uint32_t n) -> decltype(a) {
  return n >= 8 * sizeof(a) ? 0 : static_cast<decltype(a)>(a << n);
};
// Of signed numbers the sign comes in from the left.
constexpr auto kShr = [](auto a, uint32_t n) -> decltype(a) {
  constexpr uint32_t kBits = 8 * sizeof(a);
  if constexpr (std::is_signed_v<decltype(a)>) {
    return static_cast<decltype(a)>(a >> std::min(n, kBits - 1));
  } else {
    return n >= kBits ? 0 : static_cast<decltype(a)>(a >> n);
  }
};

template <class T>
T HighProduct(T a, T b) {
  using Wide =
      std::conditional_t<sizeof(T) == 8, std::conditional_t<std::is_signed_v<T>, Int128, UInt128>,
                         std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
  return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> 8 * sizeof(T));
}
constexpr auto kMulHigh = [](auto a, auto b) { return HighProduct(a, b); };
constexpr auto kMulAdd = [](auto a, auto b, auto c) { return a * b + c; };
template <class Wide>
constexpr auto kMulWide =
    [](auto a, auto b) { return static_cast<Wide>(a) * static_cast<Wide>(b); };
template <class Wide>
constexpr auto kMulAddWide = [](auto a, auto b, auto c) {
  return static_cast<uint64_t>(static_cast<Wide>(a) * static_cast<Wide>(b)) +
         static_cast<uint64_t>(c);
};

bool Product(Decoder& decoder, const Operation& o, Instruction& i) {
  const Type type = TypeOf(o.type());
  const int bytes = BytesOf(type);
  const bool adds = o.name == "mad";
  if (o.Has("wide")) {
    Operands(decoder, o, i, 2 * bytes, bytes, bytes, adds ? 2 * bytes : -1);
    switch (type) {
      case Type::kU16:
        i.run = adds ? nullptr : Handler(Binary<kMulWide<uint32_t>, uint32_t, uint16_t>);
        break;
      case Type::kS16:
        i.run = adds ? nullptr : Handler(Binary<kMulWide<int32_t>, int32_t, int16_t>);
        break;
      case Type::kU32:
        i.run = adds ? Handler(Ternary<kMulAddWide<uint64_t>, uint64_t, uint32_t>)
                     : Handler(Binary<kMulWide<uint64_t>, uint64_t, uint32_t>);
        break;
      case Type::kS32:
        i.run = adds ? Handler(Ternary<kMulAddWide<int64_t>, int64_t, int32_t>)
                     : Handler(Binary<kMulWide<int64_t>, int64_t, int32_t>);
        break;
      default:
        break;
    }
    if (i.run == nullptr) Fail("wide products of this type");
    return true;
  }
  Operands(decoder, o, i, bytes, bytes, bytes, adds ? bytes : -1);
  if (adds) {
    if (!o.Has("lo")) Fail("mad.hi");
    i.run = bytes == 2   ? Handler(Ternary<kMulAdd, uint16_t>)
            : bytes == 4 ? Handler(Ternary<kMulAdd, uint32_t>)
                         : Handler(Ternary<kMulAdd, uint64_t>);
  } else if (o.Has("hi")) {
    i.run = type == Type::kU32   ? Handler(Binary<kMulHigh, uint32_t>)
            : type == Type::kS32 ? Handler(Binary<kMulHigh, int32_t>)
            : type == Type::kU64 ? Handler(Binary<kMulHigh, uint64_t>)
                                 : Handler(Binary<kMulHigh, int64_t>);
  } else {
    i.run = ForBits<kMul>(bytes);
  }
  return true;
}

// add.cc, sub.cc, mad.cc and those that take the carry: a predicate of the warp. Of a difference it
// is a borrow.
enum class Chain { kSum, kDifference, kLowProduct, kHighProduct };
template <Chain kChain, class T>
void WithCarry(Warp& warp, const Instruction& i, Lanes lanes) {
  using Wide = UInt128;
  Lanes carries = *warp.At<Lanes>(i.more[0]);
  ForLanes(lanes, [&](int lane) {
    const T a = warp.At<T>(i.a)[lane], b = warp.At<T>(i.b)[lane];
    const Wide in = (i.imm & 1) != 0 ? carries >> lane & 1 : 0;
    Wide sum;
    if constexpr (kChain == Chain::kSum) sum = static_cast<Wide>(a) + b + in;
    if constexpr (kChain == Chain::kDifference) sum = static_cast<Wide>(a) - b - in;
    if constexpr (kChain == Chain::kLowProduct || kChain == Chain::kHighProduct) {
      const Wide product = static_cast<Wide>(a) * b;
      const T part =
          static_cast<T>(kChain == Chain::kLowProduct ? product : product >> 8 * sizeof(T));
      sum = static_cast<Wide>(part) + warp.At<T>(i.c)[lane] + in;
    }
    warp.At<T>(i.d)[lane] = static_cast<T>(sum);
    if ((i.imm & 2) == 0) return;
    const Lanes out = (sum >> 8 * sizeof(T)) != 0 ? 1u : 0u;
    carries = (carries & ~(1u << lane)) | out << lane;
  });
  *warp.At<Lanes>(i.more[0]) = carries;
}
template <Chain kChain>
Handler CarryHandler(int bytes) {
  return bytes == 4 ? Handler(WithCarry<kChain, uint32_t>) : Handler(WithCarry<kChain, uint64_t>);
}

bool Chained(Decoder& decoder, const Operation& o, Instruction& i) {
  const bool takes = o.name == "addc" || o.name == "subc" || o.name == "madc";
  if (!takes && !o.Has("cc")) return false;
  const int bytes = BytesOf(TypeOf(o.type()));
  if (bytes < 4) Fail("carries of this type");
  const bool product = o.name.starts_with("mad");
  Operands(decoder, o, i, bytes, bytes, bytes, product ? bytes : -1);
  i.imm = (takes ? 1 : 0) | (o.Has("cc") ? 2 : 0);
  i.more = {decoder.carry().at};
  if (product) {
    if (IsSigned(TypeOf(o.type()))) Fail("signed products with carry");
    i.run = o.Has("hi") ? CarryHandler<Chain::kHighProduct>(bytes)
                        : CarryHandler<Chain::kLowProduct>(bytes);
  } else {
    i.run = o.name.starts_with("add") ? CarryHandler<Chain::kSum>(bytes)
                                      : CarryHandler<Chain::kDifference>(bytes);
  }
  return true;
}

void Permute(Warp& warp, const Instruction& i, Lanes lanes) {
  ForLanes(lanes, [&](int lane) {
    const uint64_t bytes =
        warp.At<uint32_t>(i.a)[lane] | static_cast<uint64_t>(warp.At<uint32_t>(i.b)[lane]) << 32;
    const uint32_t selector = warp.At<uint32_t>(i.c)[lane];
    uint32_t result = 0;
    for (int n = 0; n < 4; ++n) {
      const uint32_t nibble = selector >> 4 * n;
      uint32_t byte = bytes >> 8 * (nibble & 7) & 0xff;
      if ((nibble & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
      result |= byte << 8 * n;
    }
    warp.At<uint32_t>(i.d)[lane] = result;
  });
}

template <class T>
void InsertField(Warp& warp, const Instruction& i, Lanes lanes) {  // d = bfi(a, b, c, more[0])
  ForLanes(lanes, [&](int lane) {
    const T field = warp.At<T>(i.a)[lane];
    T result = warp.At<T>(i.b)[lane];
    const uint32_t at = warp.At<uint32_t>(i.c)[lane] & 0xff;
    const uint32_t count = warp.At<uint32_t>(i.more[0])[lane] & 0xff;
    for (uint32_t n = 0; n < count && at + n < 8 * sizeof(T); ++n) {
      const T bit = static_cast<T>(1) << (at + n);
      result = (field >> n & 1) != 0 ? result | bit : result & ~bit;
    }
    warp.At<T>(i.d)[lane] = result;
  });
}
template <class T>
void ExtractField(Warp& warp, const Instruction& i, Lanes lanes) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  ForLanes(lanes, [&](int lane) {
    const T a = warp.At<T>(i.a)[lane];
    const uint32_t at = warp.At<uint32_t>(i.b)[lane] & 0xff;
    const uint32_t count = warp.At<uint32_t>(i.c)[lane] & 0xff;
    const auto bit = [&](uint32_t n) { return (a >> std::min(n, kBits - 1) & 1) != 0; };
    T result = 0;
    if (std::is_signed_v<T> && count > 0 && bit(at + count - 1)) result = static_cast<T>(-1);
    using U = std::make_unsigned_t<T>;
    for (uint32_t n = 0; n < std::min(count, kBits); ++n) {
      const bool set = at + n < kBits ? bit(at + n) : std::is_signed_v<T> && a < 0;
      const U one = static_cast<U>(1) << n;
      result = static_cast<T>(set ? static_cast<U>(result) | one : static_cast<U>(result) & ~one);
    }
    warp.At<T>(i.d)[lane] = result;
  });
}

void Lookup(Warp& warp, const Instruction& i, Lanes lanes) {  // lop3
  ForLanes(lanes, [&](int lane) {
    const uint32_t a = warp.At<uint32_t>(i.a)[lane], b = warp.At<uint32_t>(i.b)[lane],
                   c = warp.At<uint32_t>(i.c)[lane];
    uint32_t d = 0;
    for (int n = 0; n < 8; ++n) {
      if ((i.imm >> n & 1) == 0) continue;
      d |= ((n & 4) != 0 ? a : ~a) & ((n & 2) != 0 ? b : ~b) & ((n & 1) != 0 ? c : ~c);
    }
    warp.At<uint32_t>(i.d)[lane] = d;
  });
}

// shf.l and shf.r: 32 bits of the two words [b, a].
template <bool kLeft, bool kWrap>
void Funnel(Warp& warp, const Instruction& i, Lanes lanes) {
  ForLanes(lanes, [&](int lane) {
    const uint64_t both =
        warp.At<uint32_t>(i.a)[lane] | static_cast<uint64_t>(warp.At<uint32_t>(i.b)[lane]) << 32;
    const uint32_t c = warp.At<uint32_t>(i.c)[lane];
    const uint32_t n = kWrap ? c & 31 : std::min(c, 32u);
    warp.At<uint32_t>(i.d)[lane] =
        static_cast<uint32_t>(kLeft ? (n == 32 ? both << 32 : both << n) >> 32 : both >> n);
  });
}

bool Bits(Decoder& decoder, const Operation& o, Instruction& i) {
  const Type type = TypeOf(o.type());
  const int bytes = BytesOf(type);
  if (o.name == "prmt") {
    Allow(o, {});
    Operands(decoder, o, i, 4, 4, 4, 4);
    i.run = Permute;
  } else if (o.name == "lop3") {
    Operation shorter = o;
    i.imm = static_cast<int64_t>(Decoder::Immediate(o.operands.at(4), 4));
    shorter.operands.pop_back();
    Operands(decoder, shorter, i, 4, 4, 4, 4);
    i.run = Lookup;
  } else if (o.name == "shf") {
    Operands(decoder, o, i, 4, 4, 4, 4);
    const bool left = o.Has("l"), wrap = o.Has("wrap");
    i.run = left ? (wrap ? Funnel<true, true> : Funnel<true, false>)
                 : (wrap ? Funnel<false, true> : Funnel<false, false>);
  } else if (o.name == "bfi") {
    Operation shorter = o;
    i.more = {decoder.Source(o.operands.at(4), 4).at};
    shorter.operands.pop_back();
    Operands(decoder, shorter, i, bytes, bytes, bytes, 4);
    i.run = bytes == 4 ? Handler(InsertField<uint32_t>) : Handler(InsertField<uint64_t>);
  } else if (o.name == "bfe") {
    Operands(decoder, o, i, bytes, bytes, 4, 4);
    i.run = type == Type::kU32   ? Handler(ExtractField<uint32_t>)
            : type == Type::kS32 ? Handler(ExtractField<int32_t>)
            : type == Type::kU64 ? Handler(ExtractField<uint64_t>)
                                 : Handler(ExtractField<int64_t>);
  } else if (o.name == "popc" || o.name == "clz" || o.name == "brev") {
    constexpr auto kCount = [](auto a) { return static_cast<uint32_t>(std::popcount(a)); };
    constexpr auto kZeros = [](auto a) { return static_cast<uint32_t>(std::countl_zero(a)); };
    constexpr auto kReverse = [](auto a) {
      decltype(a) r = 0;
      for (size_t n = 0; n < 8 * sizeof(a); ++n)
        r = static_cast<decltype(a)>(r << 1 | (a >> n & 1));
      return r;
    };
    Operands(decoder, o, i, o.name == "brev" ? bytes : 4, bytes);
    const bool wide = bytes == 8;
    if (o.name == "popc")
      i.run = wide ? Unary<kCount, uint32_t, uint64_t> : Unary<kCount, uint32_t>;
    if (o.name == "clz") i.run = wide ? Unary<kZeros, uint32_t, uint64_t> : Unary<kZeros, uint32_t>;
    if (o.name == "brev") i.run = wide ? Unary<kReverse, uint64_t> : Unary<kReverse, uint32_t>;
  } else {
    return false;
  }
  return true;
}

bool PredicateLogic(Decoder& decoder, const Operation& o, Instruction& i) {
  i.d = decoder.Predicate(o.operands.at(0)).at;
  i.a = decoder.Predicate(o.operands.at(1)).at;
  if (o.name == "not") {
    i.run = [](Warp& w, const Instruction& n, Lanes l) {
      w.SetPredicate(n.d, l, ~*w.At<Lanes>(n.a));
    };
    return true;
  }
  i.b = decoder.Predicate(o.operands.at(2)).at;
  if (o.name == "and") {
    i.run = [](Warp& w, const Instruction& n, Lanes l) {
      w.SetPredicate(n.d, l, *w.At<Lanes>(n.a) & *w.At<Lanes>(n.b));
    };
  } else if (o.name == "or") {
    i.run = [](Warp& w, const Instruction& n, Lanes l) {
      w.SetPredicate(n.d, l, *w.At<Lanes>(n.a) | *w.At<Lanes>(n.b));
    };
  } else {
    i.run = [](Warp& w, const Instruction& n, Lanes l) {
      w.SetPredicate(n.d, l, *w.At<Lanes>(n.a) ^ *w.At<Lanes>(n.b));
    };
  }
  return true;
}

bool OneOperand(Decoder& decoder, const Operation& o, Instruction& i, int bytes) {
  constexpr auto kNot = [](auto a) { return ~a; };
  constexpr auto kNeg = [](auto a) { return 0 - a; };
  constexpr auto kAbs = [](auto a) {
    return static_cast<std::make_signed_t<decltype(a)>>(a) < 0 ? 0 - a : a;
  };
  Operands(decoder, o, i, bytes, bytes);
  if (o.name == "not") {
    i.run = bytes == 2   ? Handler(Unary<kNot, uint16_t>)
            : bytes == 4 ? Handler(Unary<kNot, uint32_t>)
                         : Handler(Unary<kNot, uint64_t>);
  } else if (o.name == "neg") {
    i.run = bytes == 2   ? Handler(Unary<kNeg, uint16_t>)
            : bytes == 4 ? Handler(Unary<kNeg, uint32_t>)
                         : Handler(Unary<kNeg, uint64_t>);
  } else {
    i.run = bytes == 2   ? Handler(Unary<kAbs, uint16_t>)
            : bytes == 4 ? Handler(Unary<kAbs, uint32_t>)
                         : Handler(Unary<kAbs, uint64_t>);
  }
  return true;
}

}  // namespace

bool DecodeArithmetic(Decoder& decoder, const Operation& o, Instruction& i) {
  if (Bits(decoder, o, i) || Chained(decoder, o, i)) return true;
  const Type type = TypeOf(o.type());
  const std::string_view name = o.name;
  const bool logic = name == "and" || name == "or" || name == "xor" || name == "not";
  if (type == Type::kPred && logic) return PredicateLogic(decoder, o, i);
  if (type >= Type::kF16 || type <= Type::kPred) return false;
  const int bytes = BytesOf(type);
  if (name == "mul" || name == "mad") return Product(decoder, o, i);
  if (name == "not" || name == "neg" || name == "abs") return OneOperand(decoder, o, i, bytes);
  if (name == "shl" || name == "shr") {
    Allow(o, {});
    Operands(decoder, o, i, bytes, bytes, 4);
    i.run = name == "shl" ? ForShift<kShl>(type) : ForShift<kShr>(type);
    return true;
  }
  const bool known = logic || name == "add" || name == "sub" || name == "div" || name == "rem" ||
                     name == "min" || name == "max";
  if (!known) return false;
  Allow(o, {});
  Operands(decoder, o, i, bytes, bytes, bytes);
  if (name == "add") i.run = ForBits<kAdd>(bytes);
  if (name == "sub") i.run = ForBits<kSub>(bytes);
  if (name == "and") i.run = ForBits<kAnd>(bytes);
  if (name == "or") i.run = ForBits<kOr>(bytes);
  if (name == "xor") i.run = ForBits<kXor>(bytes);
  if (name == "div") i.run = ForIntegers<kDiv>(type);
  if (name == "rem") i.run = ForIntegers<kRem>(type);
  if (name == "min") i.run = ForIntegers<kMin>(type);
  if (name == "max") i.run = ForIntegers<kMax>(type);
  return true;
}

}  // namespace heed::interpreter
