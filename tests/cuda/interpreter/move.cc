// mov, also between one register and several, and cvta.
#include "element_wise.h"

namespace heed::interpreter {
namespace {

constexpr auto kSame = [](auto a) { return a; };

Handler CopyOf(int bytes) {
  switch (bytes) {
    case 2:
      return Unary<kSame, uint16_t>;
    case 4:
      return Unary<kSame, uint32_t>;
    case 8:
      return Unary<kSame, uint64_t>;
    default:
      Fail("moves of this size");
  }
}

void Pack(Warp& warp, const Instruction& i, Lanes lanes) {  // the first is the lowest
  ForLanes(lanes, [&](int lane) {
    uint64_t value = 0;
    for (size_t n = i.more.size(); n-- > 0;) {
      value = value << 8 * i.width_a | warp.Get(i.more[n], i.width_a, lane);
    }
    warp.Set(i.d, i.width_d, lane, value);
  });
}

void Unpack(Warp& warp, const Instruction& i, Lanes lanes) {
  ForLanes(lanes, [&](int lane) {
    uint64_t value = warp.Get(i.a, i.width_a, lane);
    for (const uint32_t to : i.more) {
      if (to != kNowhere) warp.Set(to, i.width_d, lane, value);
      value >>= 8 * i.width_d;
    }
  });
}

bool MoveElements(Decoder& decoder, const Operation& o, Instruction& i, int bytes) {
  const std::string_view to = o.operands.at(0), from = o.operands.at(1);
  const bool packs = from.front() == '{';
  const std::vector<std::string_view> elements = decoder.Elements(packs ? from : to);
  const int part = bytes / static_cast<int>(elements.size());
  for (const std::string_view element : elements) {
    i.more.push_back(packs ? decoder.Source(element, part).at
                           : decoder.DestinationOf(element, part).at);
  }
  i.width_a = static_cast<uint8_t>(packs ? part : bytes);
  i.width_d = static_cast<uint8_t>(packs ? bytes : part);
  if (packs) {
    i.d = decoder.DestinationOf(to, bytes).at;
  } else {
    i.a = decoder.Source(from, bytes).at;
  }
  i.run = packs ? Pack : Unpack;
  return true;
}

template <uint64_t kWindow>
constexpr auto kToGeneric = [](auto a) { return static_cast<uint64_t>(a) | kWindow; };
// What is of another window would be an address out of bounds.
template <uint64_t kWindow>
constexpr auto kFromGeneric = [](uint64_t a) { return a ^ kWindow; };

bool ConvertAddress(Decoder& decoder, const Operation& o, Instruction& i) {
  if (o.type() != "u64") Fail("cvta of 32 bits");
  Operands(decoder, o, i, 8, 8);
  const bool to = o.words.at(0) == "to";
  const std::string_view space = o.words.at(to ? 1 : 0);
  if (space == "global" || space == "const") {
    i.run = Unary<kSame, uint64_t>;
  } else if (space == "shared" || space == "shared::cta") {
    i.run = to ? Unary<kFromGeneric<kSharedWindow>, uint64_t>
               : Unary<kToGeneric<kSharedWindow>, uint64_t>;
  } else if (space == "local") {
    i.run = to ? Unary<kFromGeneric<kLocalWindow>, uint64_t>
               : Unary<kToGeneric<kLocalWindow>, uint64_t>;
  } else if (space == "param") {
    i.run = to ? Unary<kFromGeneric<kParamWindow>, uint64_t>
               : Unary<kToGeneric<kParamWindow>, uint64_t>;
  } else {
    Fail("cvta of this space");
  }
  return true;
}

}  // namespace

bool DecodeMove(Decoder& decoder, const Operation& o, Instruction& i) {
  if (o.name == "cvta") return ConvertAddress(decoder, o, i);
  if (o.name != "mov") return false;
  Allow(o, {});
  const Type type = TypeOf(o.type());
  if (type == Type::kPred) {
    i.d = decoder.Predicate(o.operands.at(0)).at;
    i.a = decoder.Predicate(o.operands.at(1)).at;
    i.run = [](Warp& w, const Instruction& n, Lanes l) {
      w.SetPredicate(n.d, l, *w.At<Lanes>(n.a));
    };
    return true;
  }
  const int bytes = BytesOf(type);
  if (o.operands.at(0).front() == '{' || o.operands.at(1).front() == '{') {
    return MoveElements(decoder, o, i, bytes);
  }
  Operands(decoder, o, i, bytes, bytes);
  i.run = CopyOf(bytes);
  return true;
}

}  // namespace heed::interpreter
