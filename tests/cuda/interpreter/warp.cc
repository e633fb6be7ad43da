#include "warp.h"

#include <algorithm>
#include <cstring>

#include "block.h"

namespace heed::interpreter {
namespace {

// Registers take megabytes, which the system would hand out anew for each warp.
std::unique_ptr<char[]> NewRegisters(size_t bytes) {
  auto registers = std::make_unique_for_overwrite<char[]>(bytes + 64);
  std::memset(registers.get(), 0xff, bytes + 64);
  return registers;
}

[[noreturn]] void FailAt(const char* what, uint64_t address, uint32_t bytes, int lane) {
  Fail(std::string(what) + ": " + std::to_string(bytes) + " bytes at " + std::to_string(address) +
       " by lane " + std::to_string(lane));
}

void RequireAligned(uint64_t address, uint32_t bytes, int lane) {
  if (address % std::bit_floor(bytes) != 0) FailAt("misaligned", address, bytes, lane);
}

void Finish(const Copy& copy) {
  std::memcpy(copy.to, copy.from, copy.bytes);
  std::memset(copy.to + copy.bytes, 0, copy.zeros);
}

}  // namespace

Warp::Warp(Block& block, const Program& program, int index, Lanes lanes)
    : block_(block),
      program_(program),
      index_(index),
      alive_(lanes),
      registers_(NewRegisters(program.register_bytes)),
      local_(static_cast<size_t>(program.local_bytes) * kLanes, static_cast<char>(0xff)),
      fragments_{{lanes, 0}} {
  Preset();
}

void Warp::Restart(Lanes lanes) {
  alive_ = lanes;
  state_ = State::kRunning;
  fragments_ = {{lanes, 0}};
  if (block_.launch().lanes_apart) Part();
  copies.clear();
  copy_group.fill(0);
  readings_.clear();
  product_group = 0;
  fenced = false;
  registers_each = 0;
  Preset();
}

uint64_t Warp::Get(uint32_t at, int width, int lane) {
  switch (width) {
    case 1:
      return At<uint8_t>(at)[lane];
    case 2:
      return At<uint16_t>(at)[lane];
    case 4:
      return At<uint32_t>(at)[lane];
    default:
      return At<uint64_t>(at)[lane];
  }
}

void Warp::Set(uint32_t at, int width, int lane, uint64_t value) {
  switch (width) {
    case 1:
      At<uint8_t>(at)[lane] = static_cast<uint8_t>(value);
      break;
    case 2:
      At<uint16_t>(at)[lane] = static_cast<uint16_t>(value);
      break;
    case 4:
      At<uint32_t>(at)[lane] = static_cast<uint32_t>(value);
      break;
    default:
      At<uint64_t>(at)[lane] = value;
  }
}

void Warp::Preset() {
  using Source = heed::interpreter::Preset::Source;
  const Launch& launch = block_.launch();
  const Dimensions threads = launch.block, blocks = launch.grid, at = block_.index();
  for (const heed::interpreter::Preset& preset : program_.presets) {
    if (preset.width == 0) {  // a predicate
      *At<Lanes>(preset.at) = preset.value != 0 ? kAllLanes : 0;
      continue;
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint32_t thread = static_cast<uint32_t>(index_ * kLanes + lane);
      uint64_t value = preset.value;
      switch (preset.source) {
        case Source::kConstant:
          break;
        case Source::kThreadX:
          value = thread % threads.x;
          break;
        case Source::kThreadY:
          value = thread / threads.x % threads.y;
          break;
        case Source::kThreadZ:
          value = thread / threads.x / threads.y;
          break;
        case Source::kLane:
          value = static_cast<uint64_t>(lane);
          break;
        case Source::kWarp:
          value = static_cast<uint64_t>(index_);
          break;
        case Source::kBlockX:
          value = at.x;
          break;
        case Source::kBlockY:
          value = at.y;
          break;
        case Source::kBlockZ:
          value = at.z;
          break;
        case Source::kThreadsX:
          value = threads.x;
          break;
        case Source::kThreadsY:
          value = threads.y;
          break;
        case Source::kThreadsZ:
          value = threads.z;
          break;
        case Source::kBlocksX:
          value = blocks.x;
          break;
        case Source::kBlocksY:
          value = blocks.y;
          break;
        case Source::kBlocksZ:
          value = blocks.z;
          break;
        case Source::kDynamicShared:
          value += block_.dynamic_begin();
          break;
      }
      Set(preset.at, static_cast<int>(preset.width), lane, value);
    }
  }
}

char* Warp::Global(uint64_t address, uint32_t bytes, int lane) {
  RequireAligned(address, bytes, lane);
  if (generation_ != Generation() || !range_.Holds(address, bytes)) {
    range_ = FindRange(address);
    generation_ = Generation();
    if (!range_.Holds(address, bytes)) FailAt("outside of global memory", address, bytes, lane);
  }
  return reinterpret_cast<char*>(address);
}

char* Warp::Shared(uint64_t address, uint32_t bytes, int lane) {
  RequireAligned(address, bytes, lane);
  std::vector<char>& shared = block_.shared();
  if (address < kSharedBegin || address + bytes > shared.size()) {
    FailAt("outside of shared memory", address, bytes, lane);
  }
  return shared.data() + address;
}

char* Warp::Local(uint64_t address, uint32_t bytes, int lane) {
  RequireAligned(address, bytes, lane);
  if (address < kLocalBegin || address + bytes > kLocalBegin + program_.local_bytes) {
    FailAt("outside of local memory", address, bytes, lane);
  }
  return local_.data() + (address - kLocalBegin) + static_cast<size_t>(lane) * program_.local_bytes;
}

char* Warp::Param(uint64_t address, uint32_t bytes, int lane) {
  RequireAligned(address, bytes, lane);
  const std::vector<char>& params = block_.launch().params;
  if (address + bytes > params.size()) FailAt("outside of parameters", address, bytes, lane);
  return const_cast<char*>(params.data()) + address;
}

char* Warp::Generic(uint64_t address, uint32_t bytes, int lane) {
  const uint64_t offset = address & ~kWindowMask;
  switch (address & kWindowMask) {
    case kSharedWindow:
      return Shared(offset, bytes, lane);
    case kLocalWindow:
      return Local(offset, bytes, lane);
    case kParamWindow:
      return Param(offset, bytes, lane);
    default:
      return Global(address, bytes, lane);
  }
}

void Warp::SeeCopy(const Copy& copy) {
  block_.SeeWrite(*this, static_cast<uint64_t>(copy.to - block_.shared().data()),
                  copy.bytes + copy.zeros);
}

void Warp::FinishCopies(Lanes lanes, uint32_t pending) {
  std::erase_if(copies, [&](const Copy& copy) {
    if ((lanes >> copy.lane & 1) == 0) return false;
    if (copy.group + pending >= copy_group[static_cast<size_t>(copy.lane)]) return false;
    Finish(copy);
    SeeCopy(copy);
    return true;
  });
}

void Warp::ArriveCopies(Lanes lanes) {
  std::erase_if(copies, [&](const Copy& copy) {
    if ((lanes >> copy.lane & 1) == 0) return false;
    Finish(copy);
    SeeCopy(copy);
    return true;
  });
}

void Warp::Read(uint32_t address) {
  const uint32_t atom = address / Block::kAtom;
  if (!readings_.empty() && readings_.back().atom == atom) return;
  for (const Reading& reading : readings_) {
    if (reading.atom == atom && reading.group == product_group) return;
  }
  readings_.push_back({atom, product_group});
  block_.AddReader(atom, 1);
}

void Warp::FinishProducts(uint32_t pending) {
  std::erase_if(readings_, [&](const Reading& reading) {
    if (reading.group + pending >= product_group) return false;
    block_.AddReader(reading.atom, -1);
    return true;
  });
}

// The fragment at the lowest place runs next, with those that stand there too: so lanes that parted
// meet again where their ways do. False when all wait for another warp.
bool Warp::Pick() {
  const Fragment* best = nullptr;
  for (const Fragment& f : fragments_) {
    if (f.waits || f.yielded) continue;
    if (best == nullptr || f.pc < best->pc) best = &f;
  }
  if (best == nullptr) {
    bool yielded = false;
    for (Fragment& f : fragments_) {
      yielded |= f.yielded;
      f.yielded = false;
    }
    if (!yielded) Stuck();
    return false;
  }
  if (block_.launch().lanes_apart) {
    std::iter_swap(fragments_.begin(), fragments_.begin() + (best - fragments_.data()));
    limit_ = kNowhere;
    return true;
  }
  Fragment merged = {0, best->pc};
  std::erase_if(fragments_, [&](const Fragment& f) {
    if (f.pc != merged.pc) return false;
    merged.lanes |= f.lanes;
    return true;
  });
  limit_ = kNowhere;
  for (const Fragment& f : fragments_) {
    if (f.pc > merged.pc) limit_ = std::min(limit_, f.pc);
  }
  fragments_.insert(fragments_.begin(), merged);
  return true;
}

// With all that stand at the same place.
void Warp::Merge(Fragment& fragment) {
  for (size_t n = fragments_.size(); n-- > 1;) {
    if (fragments_[n].pc != fragment.pc) continue;
    fragment.lanes |= fragments_[n].lanes;
    fragments_.erase(fragments_.begin() + static_cast<std::ptrdiff_t>(n));
  }
}

// Each lane of the fragment that runs by itself.
void Warp::Part() {
  const Fragment whole = fragments_.front();
  const Lanes lowest = whole.lanes & -whole.lanes;
  fragments_.front().lanes = lowest;
  ForLanes(whole.lanes & ~lowest, [&](int lane) { fragments_.push_back({1u << lane, whole.pc}); });
}

Warp::State Warp::Run() {
  for (;;) {
    if (fragments_.empty()) return state_ = State::kDone;
    if (!Pick()) return state_ = State::kYielded;
    Step step = Step::kOn;
    Fragment& fragment = fragments_.front();
    while (step == Step::kOn) {
      step = RunOne(fragment);
      if (step == Step::kOn && fragment.pc >= limit_) step = Step::kPick;
    }
    if (step == Step::kLeave) return state_;
  }
}

Warp::Step Warp::RunOne(Fragment& fragment) {
  pc_ = fragment.pc;
  const Instruction& i = program_.code[pc_];
  const bool meets =
      i.kind == Kind::kAligned || i.kind == Kind::kMasked || i.kind == Kind::kBarrier;
  const bool apart = block_.launch().lanes_apart;
  if (apart && meets) Merge(fragment);
  Lanes lanes = fragment.lanes;
  if (i.guard != kNowhere) lanes &= i.negated ? ~*At<Lanes>(i.guard) : *At<Lanes>(i.guard);
  if (block_.launch().counts != nullptr) ++(*block_.launch().counts)[pc_];
  switch (i.kind) {
    case Kind::kPlain:
      if (lanes != 0) i.run(*this, i, lanes);
      break;
    case Kind::kBranch:
      return Branch(fragment, i, lanes);
    case Kind::kExit:
      if (lanes != 0) return Exit(fragment, lanes);
      break;
    case Kind::kAligned:
    case Kind::kMasked:
      if (lanes == 0) break;
      if (!AllHere(i, fragment, lanes)) return Step::kPick;
      i.run(*this, i, lanes);
      break;
    case Kind::kBarrier:
      if (lanes == 0) break;
      if (lanes != alive_) {
        fragment.waits = true;
        return Step::kPick;
      }
      if (block_.Arrive(*this, i, lanes)) {
        state_ = State::kBlocked;
        return Step::kLeave;
      }
      break;
    case Kind::kTry:
      if (lanes == 0) break;
      i.run(*this, i, lanes);
      if ((*At<Lanes>(i.d) & lanes) == lanes) break;
      ++fragment.pc;
      fragment.yielded = true;
      return Step::kPick;
  }
  ++fragment.pc;
  if (!apart || !meets) return Step::kOn;
  Part();
  return Step::kPick;
}

void Warp::Release() {
  const Instruction& i = current();
  Fragment& fragment = fragments_.front();
  if (i.d != kNowhere) {
    const uint32_t result = block_.Result(i, static_cast<uint32_t>(Get(i.a, 4, 0)));
    if (i.width_d == 0) {
      SetPredicate(i.d, fragment.lanes, result != 0 ? kAllLanes : 0);
    } else {
      ForLanes(fragment.lanes, [&](int lane) { At<uint32_t>(i.d)[lane] = result; });
    }
  }
  block_.Leave(*this, static_cast<uint32_t>(Get(i.a, 4, 0)));
  ++fragment.pc;
  state_ = State::kRunning;
  if (block_.launch().lanes_apart) Part();
}

Warp::Step Warp::Branch(Fragment& fragment, const Instruction& instruction, Lanes lanes) {
  const Lanes others = fragment.lanes & ~lanes;
  if (lanes == 0) {
    ++fragment.pc;
    return Step::kOn;
  }
  if (others == 0) {
    const bool back = instruction.target <= fragment.pc;
    fragment.pc = instruction.target;
    return back ? Step::kPick : Step::kOn;
  }
  fragment.lanes = others;
  ++fragment.pc;
  fragments_.push_back({lanes, instruction.target});
  return Step::kPick;
}

Warp::Step Warp::Exit(Fragment& fragment, Lanes lanes) {
  alive_ &= ~lanes;
  fragment.lanes &= ~lanes;
  ++fragment.pc;
  if (fragment.lanes == 0) fragments_.erase(fragments_.begin());
  for (Fragment& f : fragments_) f.waits = false;  // they may have waited for these
  return Step::kPick;
}

bool Warp::AllHere(const Instruction& instruction, const Fragment& fragment, Lanes lanes) {
  Lanes needed = alive_;
  if (instruction.kind == Kind::kMasked) {
    needed = 0;
    const uint32_t* masks = At<uint32_t>(instruction.c);
    ForLanes(lanes, [&](int lane) {
      if ((masks[lane] >> lane & 1) == 0) Fail("a lane is not in its own mask");
      needed |= masks[lane] & alive_;
    });
  }
  if ((needed & ~lanes) == 0) return true;
  if ((needed & ~lanes & fragment.lanes) != 0) Fail("a guard leaves out lanes that take part");
  fragments_.front().waits = true;
  return false;
}

void Warp::Stuck() {
  std::string text = "lanes of a warp wait for each other:";
  for (const Fragment& f : fragments_) {
    text += " [" + std::to_string(f.lanes) + " at " + std::string(program_.code[f.pc].text) + "]";
  }
  Fail(text);
}

}  // namespace heed::interpreter
