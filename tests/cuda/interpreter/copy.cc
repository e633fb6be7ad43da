// cp.async: copies that have arrived when their thread has waited for their group, and not before.
#include "block.h"
#include "element_wise.h"

namespace heed::interpreter {
namespace {

void StartCopy(Warp& warp, const Instruction& i, Lanes lanes) {
  const uint32_t bytes = static_cast<uint32_t>(i.more[0]);
  ForLanes(lanes, [&](int lane) {
    const uint64_t to = warp.AddressOf(i, lane);
    const uint64_t from = warp.Get(i.b, 8, lane) + static_cast<uint64_t>(i.offset_b);
    uint32_t read = bytes;
    if (i.c != kNowhere) read = warp.At<uint32_t>(i.c)[lane];
    if (read > bytes) Fail("cp.async reads more than it writes");
    if (from % bytes != 0) Fail("cp.async from a misaligned place");
    const char* source = read == 0 ? nullptr : warp.Global(from, read, lane);
    char* const target = warp.Shared(to, bytes, lane);
    warp.block().SeeWrite(warp, to, bytes);
    warp.copies.push_back(
        {lane, warp.copy_group[static_cast<size_t>(lane)], target, source, read, bytes - read});
  });
  if (!warp.block().launch().late_copies) warp.ArriveCopies(lanes);
}

bool DecodeStart(Decoder& decoder, const Operation& o, Instruction& i) {
  Allow(o, {"async", "cg", "ca", "shared", "shared::cta", "global", "L2::128B", "L2::256B"});
  const Address to = decoder.AddressOf(o.operands.at(0)),
                from = decoder.AddressOf(o.operands.at(1));
  i.a = to.place.at, i.width_a = static_cast<uint8_t>(to.place.width), i.imm = to.offset;
  if (from.place.width != 8) Fail("a global address of 32 bits");
  i.b = from.place.at, i.offset_b = from.offset;
  const uint64_t bytes = Decoder::Immediate(o.operands.at(2), 4);
  if (bytes != 16 && (o.Has("cg") || (bytes != 4 && bytes != 8))) Fail("bytes of cp.async");
  if (o.operands.size() > 3) i.c = decoder.Source(o.operands[3], 4).at;
  i.more = {static_cast<uint32_t>(bytes)};
  i.run = StartCopy;
  return true;
}

}  // namespace

bool DecodeCopy(Decoder& decoder, const Operation& o, Instruction& i) {
  if (o.name != "cp" || o.Has("bulk") || o.Has("mbarrier")) return false;
  if (o.Has("commit_group")) {
    i.run = [](Warp& w, const Instruction&, Lanes lanes) {
      ForLanes(lanes, [&](int lane) { ++w.copy_group[static_cast<size_t>(lane)]; });
    };
    return true;
  }
  if (o.Has("wait_group")) {
    i.imm = static_cast<int64_t>(Decoder::Immediate(o.operands.at(0), 4));
    i.run = [](Warp& w, const Instruction& n, Lanes lanes) {
      w.FinishCopies(lanes, static_cast<uint32_t>(n.imm));
    };
    return true;
  }
  if (o.Has("wait_all")) {
    i.run = [](Warp& w, const Instruction&, Lanes lanes) { w.ArriveCopies(lanes); };
    return true;
  }
  return DecodeStart(decoder, o, i);
}

}  // namespace heed::interpreter
