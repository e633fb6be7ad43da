// What threads do together, but for products of matrices: barriers, shuffles, votes.
#include <algorithm>

#include "block.h"
#include "element_wise.h"

namespace heed::interpreter {
namespace {

enum Mode : int64_t { kUp, kDown, kButterfly, kIndex };

// PTX ISA, "shfl.sync": the pseudo code. `more` holds the mask's register, imm the mode.
void Shuffle(Warp& warp, const Instruction& i, Lanes lanes) {
  std::array<uint32_t, kLanes> source, result;
  std::copy_n(warp.At<uint32_t>(i.a), kLanes, source.begin());
  Lanes inside = 0;
  ForLanes(lanes, [&](int lane) {
    const int b = static_cast<int>(warp.At<uint32_t>(i.b)[lane] & 31);
    const uint32_t c = warp.At<uint32_t>(i.more[0])[lane];
    const int clamp = static_cast<int>(c & 31), segment = static_cast<int>(c >> 8 & 31);
    const int highest = (lane & segment) | (clamp & ~segment);
    const int lowest = lane & segment;
    int from = lane;
    bool in = false;
    switch (i.imm) {
      case kUp:
        from = lane - b, in = from >= highest;
        break;
      case kDown:
        from = lane + b, in = from <= highest;
        break;
      case kButterfly:
        from = lane ^ b, in = from <= highest;
        break;
      default:
        from = lowest | (b & ~segment), in = from <= highest;
    }
    if (!in) from = lane;
    if ((lanes >> from & 1) == 0) Fail("shfl reads a lane that takes no part");
    result[static_cast<size_t>(lane)] = source[static_cast<size_t>(from)];
    inside |= static_cast<Lanes>(in) << lane;
  });
  if (i.d != kNowhere) {
    ForLanes(lanes,
             [&](int lane) { warp.At<uint32_t>(i.d)[lane] = result[static_cast<size_t>(lane)]; });
  }
  if (i.more.size() > 1) warp.SetPredicate(i.more[1], lanes, inside);
}

bool DecodeShuffle(Decoder& decoder, const Operation& o, Instruction& i) {
  if (!o.Has("sync") || o.type() != "b32") Fail("this shuffle");
  i.imm = o.Has("up") ? kUp : o.Has("down") ? kDown : o.Has("bfly") ? kButterfly : kIndex;
  std::string_view result = o.operands.at(0);
  i.more = {decoder.Source(o.operands.at(3), 4).at};
  if (const size_t bar = result.find('|'); bar != std::string_view::npos) {
    i.more.push_back(decoder.Predicate(Trim(result.substr(bar + 1))).at);
    result = Trim(result.substr(0, bar));
  }
  i.d = decoder.DestinationOf(result, 4).at;
  i.a = decoder.Source(o.operands.at(1), 4).at;
  i.b = decoder.Source(o.operands.at(2), 4).at;
  i.c = decoder.Source(o.operands.at(4), 4).at;
  i.kind = Kind::kMasked;
  i.run = Shuffle;
  return true;
}

Lanes Holding(Warp& warp, const Instruction& i, Lanes lanes) {
  const Lanes values = *warp.At<Lanes>(i.a);
  return (i.negated_c ? ~values : values) & lanes;
}

bool DecodeVote(Decoder& decoder, const Operation& o, Instruction& i) {
  if (!o.Has("sync")) Fail("a vote without sync");
  std::string_view test = o.operands.at(1);
  if (test.front() == '!') i.negated_c = true, test.remove_prefix(1);
  i.a = decoder.Predicate(test).at;
  i.c = decoder.Source(o.operands.at(2), 4).at;
  i.kind = Kind::kMasked;
  if (o.Has("ballot")) {
    i.d = decoder.DestinationOf(o.operands.at(0), 4).at;
    i.run = [](Warp& w, const Instruction& n, Lanes lanes) {
      const Lanes holding = Holding(w, n, lanes);
      ForLanes(lanes, [&](int lane) { w.At<uint32_t>(n.d)[lane] = holding; });
    };
    return true;
  }
  i.d = decoder.Predicate(o.operands.at(0)).at;
  if (o.Has("any")) {
    i.run = [](Warp& w, const Instruction& n, Lanes lanes) {
      w.SetPredicate(n.d, lanes, Holding(w, n, lanes) != 0 ? kAllLanes : 0);
    };
  } else if (o.Has("all")) {
    i.run = [](Warp& w, const Instruction& n, Lanes lanes) {
      w.SetPredicate(n.d, lanes, Holding(w, n, lanes) == lanes ? kAllLanes : 0);
    };
  } else {
    Fail("this vote");
  }
  return true;
}

template <class T, auto F>
void Reduce(Warp& warp, const Instruction& i, Lanes lanes) {
  T all = warp.At<T>(i.a)[std::countr_zero(lanes)];
  ForLanes(lanes & (lanes - 1), [&](int lane) { all = F(all, warp.At<T>(i.a)[lane]); });
  ForLanes(lanes, [&](int lane) { warp.At<T>(i.d)[lane] = all; });
}

bool DecodeReduction(Decoder& decoder, const Operation& o, Instruction& i) {
  constexpr auto kMin = [](auto a, auto b) { return std::min(a, b); };
  constexpr auto kMax = [](auto a, auto b) { return std::max(a, b); };
  constexpr auto kAdd = [](auto a, auto b) { return a + b; };
  constexpr auto kAnd = [](auto a, auto b) { return a & b; };
  constexpr auto kOr = [](auto a, auto b) { return a | b; };
  i.d = decoder.DestinationOf(o.operands.at(0), 4).at;
  i.a = decoder.Source(o.operands.at(1), 4).at;
  i.c = decoder.Source(o.operands.at(2), 4).at;
  i.kind = Kind::kMasked;
  const bool is_signed = o.type() == "s32";
  if (o.type() == "f32") Fail("redux of floats");
  if (o.Has("min"))
    i.run = is_signed ? Handler(Reduce<int32_t, kMin>) : Handler(Reduce<uint32_t, kMin>);
  if (o.Has("max"))
    i.run = is_signed ? Handler(Reduce<int32_t, kMax>) : Handler(Reduce<uint32_t, kMax>);
  if (o.Has("add")) i.run = Reduce<uint32_t, kAdd>;
  if (o.Has("and")) i.run = Reduce<uint32_t, kAnd>;
  if (o.Has("or")) i.run = Reduce<uint32_t, kOr>;
  if (i.run == nullptr) Fail("this reduction");
  return true;
}

// bar and barrier: [d, ] number [, threads] [, predicate].
bool DecodeBarrier(Decoder& decoder, const Operation& o, Instruction& i) {
  i.kind = Kind::kBarrier;
  const std::vector<std::string_view>& operands = o.operands;
  if (!o.Has("red")) {
    i.imm = static_cast<int64_t>(o.Has("arrive") ? BarrierAction::kArrive : BarrierAction::kSync);
    i.a = decoder.Source(operands.at(0), 4).at;
    if (operands.size() > 1) i.b = decoder.Source(operands[1], 4).at;
    if (o.Has("arrive") && operands.size() < 2) Fail("an arrival without a number of threads");
    return true;
  }
  const bool counts = o.Has("popc");
  i.imm = static_cast<int64_t>(counts        ? BarrierAction::kCount
                               : o.Has("or") ? BarrierAction::kOr
                                             : BarrierAction::kAnd);
  const Place d =
      counts ? decoder.DestinationOf(operands.at(0), 4) : decoder.Predicate(operands.at(0));
  i.d = d.at;
  i.width_d = static_cast<uint8_t>(d.width);
  i.a = decoder.Source(operands.at(1), 4).at;
  if (operands.size() > 3) i.b = decoder.Source(operands[2], 4).at;
  std::string_view test = operands.back();
  if (test.front() == '!') i.negated_c = true, test.remove_prefix(1);
  i.c = decoder.Predicate(test).at;
  return true;
}

}  // namespace

bool DecodeCollective(Decoder& decoder, const Operation& o, Instruction& i) {
  if (o.name == "shfl") return DecodeShuffle(decoder, o, i);
  if (o.name == "vote") return DecodeVote(decoder, o, i);
  if (o.name == "redux") return DecodeReduction(decoder, o, i);
  if (o.opcode == "bar.warp.sync") {
    i.c = decoder.Source(o.operands.at(0), 4).at;
    i.kind = Kind::kMasked;
    i.run = [](Warp&, const Instruction&, Lanes) {};
    return true;
  }
  if (o.name == "bar" || o.name == "barrier") return DecodeBarrier(decoder, o, i);
  if (o.name == "activemask") {
    i.d = decoder.DestinationOf(o.operands.at(0), 4).at;
    i.run = [](Warp& w, const Instruction& n, Lanes lanes) {
      ForLanes(lanes, [&](int lane) { w.At<uint32_t>(n.d)[lane] = lanes; });
    };
    return true;
  }
  // Blocks run one after the other, and stores are seen at once.
  if (o.name == "membar" || (o.name == "fence" && !o.Has("proxy") && !o.Has("mbarrier_init"))) {
    i.run = [](Warp&, const Instruction&, Lanes) {};
    return true;
  }
  return false;
}

}  // namespace heed::interpreter
