// ld, st and atomics.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "block.h"
#include "element_wise.h"

namespace heed::interpreter {
namespace {

enum class Space { kGlobal, kShared, kLocal, kParam, kGeneric };

template <Space kSpace>
char* Resolve(Warp& warp, uint64_t address, uint32_t bytes, int lane) {
  if constexpr (kSpace == Space::kGlobal) return warp.Global(address, bytes, lane);
  if constexpr (kSpace == Space::kShared) return warp.Shared(address, bytes, lane);
  if constexpr (kSpace == Space::kLocal) return warp.Local(address, bytes, lane);
  if constexpr (kSpace == Space::kParam) return warp.Param(address, bytes, lane);
  return warp.Generic(address, bytes, lane);
}

// d or more: registers of width_d bytes, of which T are in memory.
template <Space kSpace, class T>
void Load(Warp& warp, const Instruction& i, Lanes lanes) {
  const uint32_t count = static_cast<uint32_t>(i.more.size());
  ForLanes(lanes, [&](int lane) {
    const uint64_t address = warp.AddressOf(i, lane);
    const char* from = Resolve<kSpace>(warp, address, count * sizeof(T), lane);
    if (kSpace == Space::kShared ||
        (kSpace == Space::kGeneric && (address & kWindowMask) == kSharedWindow)) {
      warp.block().SeeRead(warp, address & ~kWindowMask, count * sizeof(T));
    }
    for (const uint32_t to : i.more) {
      T value;
      std::memcpy(&value, from, sizeof(T));
      from += sizeof(T);
      if (to == kNowhere) continue;
      if constexpr (std::is_signed_v<T>) {
        warp.Set(to, i.width_d, lane, static_cast<uint64_t>(static_cast<int64_t>(value)));
      } else {
        warp.Set(to, i.width_d, lane, value);
      }
    }
  });
}

void SeeStore(Warp& warp, uint64_t address, uint32_t bytes, int lane) {
  Block& block = warp.block();
  block.SeeWrite(warp, address, bytes);
  if (!block.has_async()) return;
  block.RequireUnread(static_cast<uint32_t>(address), bytes);
  block.MarkStore(static_cast<uint32_t>(address), bytes, warp.index() * kLanes + lane);
}

template <Space kSpace, class T>
void Store(Warp& warp, const Instruction& i, Lanes lanes) {
  const uint32_t bytes = static_cast<uint32_t>(i.more.size() * sizeof(T));
  ForLanes(lanes, [&](int lane) {
    const uint64_t address = warp.AddressOf(i, lane);
    char* to = Resolve<kSpace>(warp, address, bytes, lane);
    if (kSpace == Space::kParam) Fail("a store to a parameter");
    if (kSpace == Space::kShared || (address & kWindowMask) == kSharedWindow) {
      SeeStore(warp, address & ~kWindowMask, bytes, lane);
    }
    for (const uint32_t from : i.more) {
      const T value = static_cast<T>(warp.Get(from, i.width_d, lane));
      std::memcpy(to, &value, sizeof(T));
      to += sizeof(T);
    }
  });
}

template <Space kSpace>
Handler LoadOf(int bytes, bool is_signed) {
  switch (bytes) {
    case 1:
      return is_signed ? Handler(Load<kSpace, int8_t>) : Handler(Load<kSpace, uint8_t>);
    case 2:
      return is_signed ? Handler(Load<kSpace, int16_t>) : Handler(Load<kSpace, uint16_t>);
    case 4:
      return is_signed ? Handler(Load<kSpace, int32_t>) : Handler(Load<kSpace, uint32_t>);
    default:
      return Load<kSpace, uint64_t>;
  }
}
template <Space kSpace>
Handler StoreOf(int bytes) {
  switch (bytes) {
    case 1:
      return Store<kSpace, uint8_t>;
    case 2:
      return Store<kSpace, uint16_t>;
    case 4:
      return Store<kSpace, uint32_t>;
    default:
      return Store<kSpace, uint64_t>;
  }
}
Handler HandlerOf(bool loads, Space space, int bytes, bool is_signed) {
  switch (space) {
    case Space::kGlobal:
      return loads ? LoadOf<Space::kGlobal>(bytes, is_signed) : StoreOf<Space::kGlobal>(bytes);
    case Space::kShared:
      return loads ? LoadOf<Space::kShared>(bytes, is_signed) : StoreOf<Space::kShared>(bytes);
    case Space::kLocal:
      return loads ? LoadOf<Space::kLocal>(bytes, is_signed) : StoreOf<Space::kLocal>(bytes);
    case Space::kParam:
      return loads ? LoadOf<Space::kParam>(bytes, is_signed) : StoreOf<Space::kParam>(bytes);
    default:
      return loads ? LoadOf<Space::kGeneric>(bytes, is_signed) : StoreOf<Space::kGeneric>(bytes);
  }
}

Space SpaceOf(const Operation& o) {
  if (o.Has("global") || o.Has("const")) return Space::kGlobal;
  if (o.Has("shared") || o.Has("shared::cta")) return Space::kShared;
  if (o.Has("local")) return Space::kLocal;
  if (o.Has("param")) return Space::kParam;
  return Space::kGeneric;
}

// The base of the address to `a`.
Space SetAddress(Decoder& decoder, const Operation& o, Instruction& i, std::string_view operand) {
  const Address address = decoder.AddressOf(operand);
  i.a = address.place.at;
  i.width_a = static_cast<uint8_t>(address.place.width);
  i.imm = address.offset;
  const Space space = SpaceOf(o);
  // Parameters of calls are variables of the caller.
  if (space == Space::kParam && address.base == Address::Base::kLocal) return Space::kLocal;
  return space;
}

// Atomics. The lanes come one after the other.
template <class T, class F>
void Update(Warp& warp, const Instruction& i, Lanes lanes, F next) {
  ForLanes(lanes, [&](int lane) {
    const uint64_t address = warp.AddressOf(i, lane);
    char* at = i.more[0] == static_cast<uint32_t>(Space::kGlobal)
                   ? warp.Global(address, sizeof(T), lane)
               : i.more[0] == static_cast<uint32_t>(Space::kShared)
                   ? warp.Shared(address, sizeof(T), lane)
                   : warp.Generic(address, sizeof(T), lane);
    T old;
    std::memcpy(&old, at, sizeof(T));
    const T updated =
        next(old, warp.At<T>(i.b)[lane], i.c == kNowhere ? T{} : warp.At<T>(i.c)[lane]);
    std::memcpy(at, &updated, sizeof(T));
    if (i.d != kNowhere) warp.At<T>(i.d)[lane] = old;
  });
}
template <class T, auto F>
void Atomic(Warp& warp, const Instruction& i, Lanes lanes) {
  Update<T>(warp, i, lanes, F);
}

constexpr auto kAdd = [](auto old, auto b, auto) { return static_cast<decltype(old)>(old + b); };
constexpr auto kMin = [](auto old, auto b, auto) { return std::min(old, b); };
constexpr auto kMax = [](auto old, auto b, auto) { return std::max(old, b); };
constexpr auto kExchange = [](auto, auto b, auto) { return b; };
constexpr auto kCompareAndSwap = [](auto old, auto b, auto c) { return old == b ? c : old; };
constexpr auto kAnd = [](auto old, auto b, auto) { return old & b; };
constexpr auto kOr = [](auto old, auto b, auto) { return old | b; };
constexpr auto kXor = [](auto old, auto b, auto) { return old ^ b; };
constexpr auto kIncrement = [](uint32_t old, uint32_t b, uint32_t) {
  return old >= b ? 0 : old + 1;
};
constexpr auto kDecrement = [](uint32_t old, uint32_t b, uint32_t) {
  return old == 0 || old > b ? b : old - 1;
};

template <class T>
Handler IntegerAtomic(const Operation& o) {
  if (o.Has("add")) return Atomic<T, kAdd>;
  if (o.Has("min")) return Atomic<T, kMin>;
  if (o.Has("max")) return Atomic<T, kMax>;
  if (o.Has("exch")) return Atomic<T, kExchange>;
  if (o.Has("cas")) return Atomic<T, kCompareAndSwap>;
  if (o.Has("and")) return Atomic<T, kAnd>;
  if (o.Has("or")) return Atomic<T, kOr>;
  if (o.Has("xor")) return Atomic<T, kXor>;
  return nullptr;
}
Handler AtomicOf(const Operation& o) {
  switch (TypeOf(o.type())) {
    case Type::kU32:
    case Type::kB32:
      if (o.Has("inc")) return Atomic<uint32_t, kIncrement>;
      if (o.Has("dec")) return Atomic<uint32_t, kDecrement>;
      return IntegerAtomic<uint32_t>(o);
    case Type::kS32:
      return IntegerAtomic<int32_t>(o);
    case Type::kU64:
    case Type::kB64:
      return IntegerAtomic<uint64_t>(o);
    case Type::kS64:
      return IntegerAtomic<int64_t>(o);
    case Type::kF32:
      return o.Has("add") ? Handler(Atomic<float, kAdd>) : nullptr;
    case Type::kF64:
      return o.Has("add") ? Handler(Atomic<double, kAdd>) : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace

bool DecodeMemory(Decoder& decoder, const Operation& o, Instruction& i) {
  const bool loads = o.name == "ld" || o.name == "ldu";
  if (!loads && o.name != "st") return false;
  if (o.type() == "b128") Fail("128 bits at once");
  const Space space = SetAddress(decoder, o, i, o.operands.at(loads ? 1 : 0));
  const Type type = TypeOf(o.type());
  if (type == Type::kNone) Fail("the type");
  const std::vector<std::string_view> elements = decoder.Elements(o.operands.at(loads ? 0 : 1));
  const size_t count = o.Has("v2") ? 2 : o.Has("v4") ? 4 : o.Has("v8") ? 8 : 1;
  if (count != elements.size()) Fail("elements of a vector");
  for (const std::string_view element : elements) {
    const Place place =
        loads ? decoder.Destination(element) : decoder.WideSource(element, BytesOf(type));
    if (place.at != kNowhere) i.width_d = static_cast<uint8_t>(place.width);
    i.more.push_back(place.at);
  }
  if (i.width_d < BytesOf(type)) Fail("a register too narrow");
  i.run = HandlerOf(loads, space, BytesOf(type), IsSigned(type));
  return true;
}

bool DecodeAtomic(Decoder& decoder, const Operation& o, Instruction& i) {
  if (o.name != "atom" && o.name != "red") return false;
  const size_t first = o.name == "red" ? 0 : 1;
  const int bytes = BytesOf(TypeOf(o.type()));
  if (first == 1) i.d = decoder.DestinationOf(o.operands.at(0), bytes).at;
  i.more = {static_cast<uint32_t>(SetAddress(decoder, o, i, o.operands.at(first)))};
  i.b = decoder.Source(o.operands.at(first + 1), bytes).at;
  if (o.Has("cas")) i.c = decoder.Source(o.operands.at(first + 2), bytes).at;
  i.run = AtomicOf(o);
  if (i.run == nullptr) Fail("this atomic");
  return true;
}

}  // namespace heed::interpreter
