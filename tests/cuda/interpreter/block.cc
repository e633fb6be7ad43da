#include "block.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace heed::interpreter {
namespace {

constexpr uint64_t kMark = 0x9E3779B97F4A7C15;  // what shared memory holds where an mbarrier is

Lanes LanesOf(uint32_t threads, size_t warp) {
  const uint32_t left = threads - static_cast<uint32_t>(warp) * kLanes;
  return left >= kLanes ? kAllLanes : (1u << left) - 1;
}

// Dynamic shared memory is aligned as it is declared, and no better.
uint32_t DynamicBegin(const Program& program) {
  const uint32_t align = program.dynamic_align;
  const uint32_t begin = (kSharedBegin + program.shared_bytes + align - 1) / align * align;
  return begin % (2 * align) == 0 ? begin + align : begin;
}

}  // namespace

Block::Block(const Launch& launch)
    : launch_(launch), dynamic_begin_(DynamicBegin(*launch.program)) {
  shared_.resize(dynamic_begin_ + launch.dynamic_bytes);
  unfenced_.resize(shared_.size() / 16 + 1);
  unfenced_of_.resize(threads());
  readers_.resize(shared_.size() / kAtom + 1);
  if (launch.finds_races) races_ = std::make_unique<Races>(shared_.size());
  for (const Instruction& i : launch.program->code) {
    has_async_ |= i.text.find("wgmma") != std::string_view::npos ||
                  i.text.find("cp.async.bulk") != std::string_view::npos;
  }
  for (size_t n = 0; n * kLanes < threads(); ++n) {
    warps_.push_back(
        std::make_unique<Warp>(*this, *launch.program, static_cast<int>(n), LanesOf(threads(), n)));
  }
}

void Block::Run(Dimensions index) {
  index_ = index;
  std::memset(shared_.data(), 0xff, shared_.size());
  barriers_ = {};
  phases_.clear();
  if (races_ != nullptr) races_->Restart();
  std::fill(unfenced_.begin(), unfenced_.end(), 0);
  std::fill(readers_.begin(), readers_.end(), 0);
  for (std::vector<uint32_t>& own : unfenced_of_) own.clear();
  for (size_t n = 0; n < warps_.size(); ++n) warps_[n]->Restart(LanesOf(threads(), n));
  for (;;) {
    const uint64_t before = events_;
    bool done = true;
    for (const auto& warp : warps_) {
      if (warp->state() == Warp::State::kDone) continue;
      done = false;
      if (warp->state() == Warp::State::kBlocked) continue;
      try {
        if (warp->Run() != Warp::State::kYielded) ++events_;
      } catch (const Fault& fault) {
        throw Fault(std::string(fault.what()) + "\n  warp " + std::to_string(warp->index()) + ": " +
                    std::string(warp->current().text));
      }
      if (warp->state() == Warp::State::kDone) FinishBarriers();
      for (Warp* released : released_) released->Release();
      released_.clear();
    }
    if (done) break;
    if (events_ != before) continue;
    if (copies_.empty()) Fail("all wait, and nothing comes: " + Places());
    copies_.front()();
    copies_.pop_front();
    ++events_;
  }
  if (!copies_.empty()) Fail("the block ends before its copies have come");
}

std::string Block::Places() const {
  std::string text;
  for (const auto& warp : warps_) {
    if (warp->state() == Warp::State::kDone) continue;
    text += "\n  warp " + std::to_string(warp->index()) + ": " + std::string(warp->current().text);
  }
  return text;
}

uint32_t Block::AliveThreads() const {
  uint32_t count = 0;
  for (const auto& warp : warps_) count += static_cast<uint32_t>(std::popcount(warp->alive()));
  return count;
}

bool Block::Arrive(Warp& warp, const Instruction& i, Lanes lanes) {
  const auto action = static_cast<BarrierAction>(i.imm);
  const uint32_t id = warp.At<uint32_t>(i.a)[std::countr_zero(lanes)];
  if (id >= barriers_.size()) Fail("there is no barrier " + std::to_string(id));
  Barrier& barrier = barriers_[id];
  const uint32_t expected = i.b == kNowhere ? 0 : warp.At<uint32_t>(i.b)[std::countr_zero(lanes)];
  if (expected % kLanes != 0) Fail("a barrier of half a warp");
  if (barrier.arrived > 0 && barrier.expected != expected) Fail("warps differ about a barrier");
  barrier.expected = expected;
  if (i.c != kNowhere) {
    const Lanes values = *warp.At<Lanes>(i.c);
    barrier.trues += static_cast<uint32_t>(std::popcount((i.negated_c ? ~values : values) & lanes));
  }
  // Threads that are not in a full warp, or have ended, count as arrived with it.
  barrier.arrived += expected == 0 ? static_cast<uint32_t>(std::popcount(lanes)) : kLanes;
  ++events_;
  if (races_ != nullptr) races_->Arrive(static_cast<size_t>(warp.index()), id);
  const bool complete = barrier.arrived >= (expected == 0 ? AliveThreads() : expected);
  if (action != BarrierAction::kArrive) barrier.waiting.push_back(&warp);
  if (complete) Complete(barrier, id);
  return action != BarrierAction::kArrive;
}

void Block::Complete(Barrier& barrier, uint32_t id) {
  if (races_ != nullptr) races_->Complete(id);
  if (barrier.expected != 0 && barrier.arrived > barrier.expected) Fail("too many at a barrier");
  barrier.result_trues = barrier.trues;
  barrier.result_threads = barrier.arrived;
  barrier.arrived = barrier.trues = 0;
  released_.insert(released_.end(), barrier.waiting.begin(), barrier.waiting.end());
  barrier.waiting.clear();
}

// Threads that have ended are no longer waited for.
void Block::FinishBarriers() {
  for (uint32_t id = 0; id < barriers_.size(); ++id) {
    Barrier& barrier = barriers_[id];
    if (barrier.arrived > 0 && barrier.expected == 0 && barrier.arrived >= AliveThreads()) {
      Complete(barrier, id);
    }
  }
}

void Block::Leave(const Warp& warp, uint32_t id) {
  if (races_ != nullptr) races_->Leave(static_cast<size_t>(warp.index()), id);
}

uint32_t Block::Result(const Instruction& i, uint32_t id) const {
  const Barrier& barrier = barriers_[id];
  switch (static_cast<BarrierAction>(i.imm)) {
    case BarrierAction::kOr:
      return barrier.result_trues != 0;
    case BarrierAction::kAnd:
      return barrier.result_trues == barrier.result_threads;
    default:
      return barrier.result_trues;
  }
}

PhaseBarrier& Block::PhaseAt(uint32_t address) {
  const auto found = phases_.find(address);
  if (found == phases_.end()) Fail("no mbarrier at " + std::to_string(address));
  uint64_t mark;
  std::memcpy(&mark, shared_.data() + address, sizeof(mark));
  if (mark != kMark) Fail("an mbarrier was overwritten");
  return found->second;
}

void Block::InitPhase(uint32_t address, uint32_t expected) {
  if (address % 8 != 0 || address < kSharedBegin || address + 8 > shared_.size()) {
    Fail("an mbarrier at " + std::to_string(address));
  }
  if (expected == 0 || expected >= 1u << 20) Fail("an mbarrier of so many arrivals");
  std::memcpy(shared_.data() + address, &kMark, sizeof(kMark));
  phases_[address] = {.expected = expected, .pending = expected};
}

void Block::TurnPhase(PhaseBarrier& barrier, uint32_t address) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  if (races_ != nullptr) races_->Complete(address);
  ++barrier.phase;
  barrier.pending = barrier.expected;
  ++events_;
}

void Block::ArriveAtPhase(const Warp& warp, uint32_t address, uint32_t count, int64_t bytes) {
  PhaseBarrier& barrier = PhaseAt(address);
  if (count > barrier.pending) Fail("more arrivals at an mbarrier than it expects");
  barrier.bytes += bytes;
  if (barrier.bytes >= 1 << 20) Fail("an mbarrier expects too many bytes");
  barrier.pending -= count;
  if (races_ != nullptr) races_->Arrive(static_cast<size_t>(warp.index()), address);
  TurnPhase(barrier, address);
}

void Block::BytesCame(uint32_t address, int64_t bytes) {
  PhaseBarrier& barrier = PhaseAt(address);
  barrier.bytes -= bytes;
  if (races_ != nullptr) races_->CopyArrives(address);
  TurnPhase(barrier, address);
}

bool Block::PhaseIsOver(const Warp& warp, uint32_t address, uint32_t parity) {
  if ((PhaseAt(address).phase & 1) == parity) return false;
  Leave(warp, address);
  return true;
}

void Block::SeeRead(const Warp& warp, uint64_t address, uint32_t bytes) {
  if (races_ == nullptr) return;
  races_->Read(static_cast<size_t>(warp.index()), static_cast<uint32_t>(address), bytes);
}
void Block::SeeWrite(const Warp& warp, uint64_t address, uint32_t bytes) {
  if (races_ == nullptr) return;
  races_->Write(static_cast<size_t>(warp.index()), static_cast<uint32_t>(address), bytes);
}

void Block::Start(std::function<void()> copy) {
  if (launch_.late_copies) {
    copies_.push_back(std::move(copy));
  } else {
    copy();
  }
}

void Block::MarkStore(uint32_t address, uint32_t bytes, int thread) {
  for (uint32_t chunk = address / 16; chunk <= (address + bytes - 1) / 16; ++chunk) {
    unfenced_[chunk] = static_cast<int16_t>(thread + 1);
    std::vector<uint32_t>& own = unfenced_of_[static_cast<size_t>(thread)];
    if (own.empty() || own.back() != chunk) own.push_back(chunk);
  }
}

void Block::FenceProxy(int thread) {
  std::vector<uint32_t>& own = unfenced_of_[static_cast<size_t>(thread)];
  for (const uint32_t chunk : own) {
    if (unfenced_[chunk] == thread + 1) unfenced_[chunk] = 0;
  }
  own.clear();
}

void Block::RequireFenced(uint32_t address, uint32_t bytes) const {
  for (uint32_t chunk = address / 16; chunk <= (address + bytes - 1) / 16; ++chunk) {
    if (unfenced_[chunk] != 0) {
      Fail("wgmma or TMA meets what thread " + std::to_string(unfenced_[chunk] - 1) + " wrote at " +
           std::to_string(16 * chunk) + " without fence.proxy.async");
    }
  }
}

void Block::RequireUnread(uint32_t address, uint32_t bytes) const {
  for (uint32_t atom = address / kAtom; atom <= (address + bytes - 1) / kAtom; ++atom) {
    if (readers_[atom] != 0) {
      Fail("overwrites " + std::to_string(address) + ", which products in flight read");
    }
  }
}

void Block::CheckRegisters() const {
  int all = 0;
  for (const auto& warp : warps_) all += warp->registers_each * kLanes;
  if (all > 65536) Fail("more registers than a multiprocessor has");
}

}  // namespace heed::interpreter
