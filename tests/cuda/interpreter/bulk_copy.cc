// cp.async.bulk, of bytes and of boxes of tensors, and the mbarriers that count what has come.
#include <cstring>

#include "block.h"
#include "element_wise.h"
#include "tensor_maps.h"

namespace heed::interpreter {
namespace {

// Chunk c of the 16 bytes of a row stands at c ^ (row % 8), both read off the address.
uint32_t Swizzled128(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

void Write(Block& block, const Races::Clocks& started, uint32_t to, const char* from,
           uint32_t bytes) {
  block.RequireUnread(to, bytes);
  if (block.races() != nullptr) block.races()->CopyWrites(started, to, bytes);
  if (from == nullptr) {
    std::memset(block.shared().data() + to, 0, bytes);
  } else {
    std::memcpy(block.shared().data() + to, from, bytes);
  }
}

struct Box {
  EncodedMap map;
  uint32_t to, barrier;
  int64_t first[4];
  Races::Clocks started{};
};

// The bytes of a row of the box that are in the tensor.
Range RowOf(const Box& box, int64_t y, int64_t z, int64_t w) {
  const EncodedMap& map = box.map;
  const int64_t at[4] = {box.first[0], box.first[1] + y, box.first[2] + z, box.first[3] + w};
  uint64_t address = map.address;
  for (int n = 1; n < 4; ++n) {
    if (at[n] < 0 || at[n] >= map.sizes[n]) return {};
    address += static_cast<uint64_t>(at[n]) * map.strides[n - 1];
  }
  const Range row = {address, static_cast<uint64_t>(map.sizes[0]) * map.element_bytes};
  if (!FindRange(row.begin).Holds(row.begin, row.bytes)) {
    Fail("TMA reads outside of global memory, at " + std::to_string(row.begin));
  }
  return row;
}

// What is outside of the tensor is 0; all bytes of the box count.
void ArriveBox(Block& block, const Box& box) {
  const EncodedMap& map = box.map;
  const uint32_t width = map.element_bytes, inner = map.box[0] * width;
  uint32_t to = box.to;
  for (int64_t w = 0; w < map.box[3]; ++w) {
    for (int64_t z = 0; z < map.box[2]; ++z) {
      for (int64_t y = 0; y < map.box[1]; ++y, to += inner) {
        const Range row = RowOf(box, y, z, w);
        for (uint32_t byte = 0; byte < inner; byte += width) {
          const uint64_t from = row.begin + static_cast<uint64_t>(box.first[0]) * width + byte;
          const uint32_t place =
              map.swizzle == CU_TENSOR_MAP_SWIZZLE_128B ? Swizzled128(to + byte) : to + byte;
          Write(block, box.started, place,
                row.Holds(from, width) ? reinterpret_cast<const char*>(from) : nullptr, width);
        }
      }
    }
  }
  block.BytesCame(box.barrier, to - box.to);
}

void RequireRoom(Block& block, uint32_t to, uint32_t bytes, uint32_t align) {
  if (to % align != 0) Fail("a bulk copy to a misaligned place");
  if (to < kSharedBegin || to + bytes > block.shared().size()) Fail("a bulk copy leaves the block");
  block.RequireFenced(to, bytes);
  block.RequireUnread(to, bytes);
}

Races::Clocks StartedBy(Warp& warp) {
  Races* races = warp.block().races();
  return races == nullptr ? Races::Clocks{} : races->Start(static_cast<size_t>(warp.index()));
}

// a: to; b: the map; more: the barrier, coordinates.
void StartBox(Warp& warp, const Instruction& i, Lanes lanes) {
  ForLanes(lanes, [&](int lane) {
    Box box;
    const uint64_t at = warp.Get(i.b, 8, lane) + static_cast<uint64_t>(i.offset_b);
    if (at % 64 != 0) Fail("a tensor map that is not aligned to 64 bytes");
    if ((at & kWindowMask) != kParamWindow && (at & kWindowMask) != 0) Fail("where the map is");
    std::memcpy(&box.map, warp.Generic(at, 64, lane), 64);
    std::memcpy(&box.map, warp.Generic(at, 64, lane), sizeof(box.map));
    if (box.map.magic != EncodedMap::kMagic || box.map.rank != 4) Fail("no tensor map of rank 4");
    box.to = warp.At<uint32_t>(i.a)[lane] + static_cast<uint32_t>(i.imm);
    box.barrier = warp.At<uint32_t>(i.more[0])[lane];
    uint32_t bytes = box.map.element_bytes;
    for (size_t n = 0; n < 4; ++n) {
      box.first[n] = warp.At<int32_t>(i.more[1 + n])[lane];
      bytes *= box.map.box[n];
    }
    Block& block = warp.block();
    RequireRoom(block, box.to, bytes, 128);
    box.started = StartedBy(warp);
    block.Start([&block, box] { ArriveBox(block, box); });
  });
}

// a: to; b: from; c: bytes; more: the barrier.
void StartBytes(Warp& warp, const Instruction& i, Lanes lanes) {
  ForLanes(lanes, [&](int lane) {
    const uint32_t to = warp.At<uint32_t>(i.a)[lane] + static_cast<uint32_t>(i.imm);
    const uint64_t from = warp.Get(i.b, 8, lane) + static_cast<uint64_t>(i.offset_b);
    const uint32_t bytes = warp.At<uint32_t>(i.c)[lane],
                   barrier = warp.At<uint32_t>(i.more[0])[lane];
    if (bytes % 16 != 0 || from % 16 != 0) Fail("a bulk copy of no multiple of 16 bytes");
    if (!FindRange(from).Holds(from, bytes)) Fail("a bulk copy from outside of global memory");
    Block& block = warp.block();
    RequireRoom(block, to, bytes, 16);
    block.Start([&block, started = StartedBy(warp), to, from, bytes, barrier] {
      Write(block, started, to, reinterpret_cast<const char*>(from), bytes);
      block.BytesCame(barrier, bytes);
    });
  });
}

uint32_t Offset(Decoder& decoder, std::string_view operand, uint32_t& place) {
  const Address address = decoder.AddressOf(operand);
  if (address.place.width != 4) Fail("a shared address of 64 bits");
  place = address.place.at;
  return static_cast<uint32_t>(address.offset);
}

bool DecodeBulk(Decoder& decoder, const Operation& o, Instruction& i) {
  i.imm = Offset(decoder, o.operands.at(0), i.a);
  if (o.opcode == "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes") {
    const Address from = decoder.AddressOf(o.operands.at(1));
    i.b = from.place.at, i.offset_b = from.offset;
    i.c = decoder.Source(o.operands.at(2), 4).at;
    i.more.resize(1);
    if (Offset(decoder, o.operands.at(3), i.more[0]) != 0) Fail("a barrier's offset");
    i.run = StartBytes;
    return true;
  }
  if (o.opcode !=
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes") {
    Fail("this bulk copy");
  }
  const std::string_view box = o.operands.at(1);
  const std::vector<std::string_view> parts = SplitList(box.substr(1, box.size() - 2));
  const Address map = decoder.AddressOf("[" + std::string(parts.at(0)) + "]");
  i.b = map.place.at, i.offset_b = map.offset;
  i.more.resize(1);
  if (Offset(decoder, o.operands.at(2), i.more[0]) != 0) Fail("a barrier's offset");
  for (const std::string_view coordinate : decoder.Elements(parts.at(1))) {
    i.more.push_back(decoder.Source(coordinate, 4).at);
  }
  if (i.more.size() != 5) Fail("coordinates of a box");
  i.run = StartBox;
  return true;
}

void InitBarrier(Warp& warp, const Instruction& i, Lanes lanes) {
  ForLanes(lanes, [&](int lane) {
    warp.block().InitPhase(warp.At<uint32_t>(i.a)[lane] + static_cast<uint32_t>(i.imm),
                           warp.At<uint32_t>(i.b)[lane]);
  });
}
// Of b bytes more, where there is a b.
void ArriveBarrier(Warp& warp, const Instruction& i, Lanes lanes) {
  ForLanes(lanes, [&](int lane) {
    warp.block().ArriveAtPhase(warp, warp.At<uint32_t>(i.a)[lane] + static_cast<uint32_t>(i.imm), 1,
                               i.b == kNowhere ? 0 : warp.At<uint32_t>(i.b)[lane]);
  });
}
void TryBarrier(Warp& warp, const Instruction& i, Lanes lanes) {
  Lanes over = 0;
  ForLanes(lanes, [&](int lane) {
    const uint32_t address = warp.At<uint32_t>(i.a)[lane] + static_cast<uint32_t>(i.imm);
    const uint32_t parity = warp.At<uint32_t>(i.b)[lane];
    if (parity > 1) Fail("a parity of mbarrier");
    over |= static_cast<Lanes>(warp.block().PhaseIsOver(warp, address, parity)) << lane;
  });
  warp.SetPredicate(i.d, lanes, over);
}

bool DecodePhase(Decoder& decoder, const Operation& o, Instruction& i) {
  if (o.opcode == "mbarrier.init.shared::cta.b64") {
    i.imm = Offset(decoder, o.operands.at(0), i.a);
    i.b = decoder.Source(o.operands.at(1), 4).at;
    i.run = InitBarrier;
  } else if (o.opcode == "mbarrier.arrive.expect_tx.shared::cta.b64" ||
             o.opcode == "mbarrier.arrive.shared::cta.b64") {
    if (o.operands.at(0) != "_") Fail("a state of mbarrier");
    i.imm = Offset(decoder, o.operands.at(1), i.a);
    const bool expects = o.Has("expect_tx");
    if (o.operands.size() != (expects ? 3u : 2u)) Fail("arrivals");
    if (expects) i.b = decoder.Source(o.operands[2], 4).at;
    i.run = ArriveBarrier;
  } else if (o.opcode == "mbarrier.try_wait.parity.shared::cta.b64") {
    i.d = decoder.Predicate(o.operands.at(0)).at;
    i.imm = Offset(decoder, o.operands.at(1), i.a);
    i.b = decoder.Source(o.operands.at(2), 4).at;
    i.kind = Kind::kTry;
    i.run = TryBarrier;
  } else {
    Fail("this mbarrier");
  }
  return true;
}

}  // namespace

bool DecodeAsync(Decoder& decoder, const Operation& o, Instruction& i) {
  if (o.name == "cp" && o.Has("bulk")) return DecodeBulk(decoder, o, i);
  if (o.name == "mbarrier") return DecodePhase(decoder, o, i);
  if (o.opcode == "fence.mbarrier_init.release.cluster") {
    i.run = [](Warp&, const Instruction&, Lanes) {};
    return true;
  }
  if (o.opcode == "fence.proxy.async.shared::cta") {
    i.run = [](Warp& w, const Instruction&, Lanes lanes) {
      ForLanes(lanes, [&](int lane) { w.block().FenceProxy(w.index() * kLanes + lane); });
    };
    return true;
  }
  return false;
}

}  // namespace heed::interpreter
