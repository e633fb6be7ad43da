#include "host_warp_group.h"

#include <algorithm>

namespace heed::testing {

std::string Turns::Run(int count, const std::function<void(int)>& body) {
  alive_.assign(static_cast<size_t>(count), true);
  locks_.resize(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int own = 0; own < count; ++own) {
    threads.emplace_back([this, own, &body] {
      std::unique_lock<std::mutex>& lock = locks_[static_cast<size_t>(own)];
      lock = std::unique_lock<std::mutex>(mutex_);
      try {
        changed_.wait(lock, [&] { return turn_ == own || !failure_.empty(); });
        if (failure_.empty()) body(own);
      } catch (const std::exception& error) {
        if (failure_.empty()) failure_ = error.what();
      }
      alive_[static_cast<size_t>(own)] = false;
      idle_ = 0;
      for (int n = 0; n < static_cast<int>(alive_.size()); ++n) {
        if (alive_[static_cast<size_t>(n)]) turn_ = n;
      }
      changed_.notify_all();
      lock.unlock();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failure_;
}

void Turns::Pass(int own) {
  const int count = static_cast<int>(alive_.size());
  for (int n = 1; n <= count; ++n) {
    turn_ = (own + n) % count;
    if (alive_[static_cast<size_t>(turn_)]) break;
  }
  changed_.notify_all();
  changed_.wait(locks_[static_cast<size_t>(own)],
                [&] { return turn_ == own || !failure_.empty(); });
}

void Turns::Until(int own, const std::function<bool()>& done) {
  while (!done()) {
    if (++idle_ > 2 * static_cast<int>(alive_.size())) {
      failure_ = "every group waits for another";
    } else {
      Pass(own);
    }
    if (!failure_.empty()) throw std::runtime_error(failure_);
  }
  idle_ = 0;
}

bool HostWarpGroup::Meet(Meeting& meeting, bool any) {
  meeting.joining.Join(agent_.clock);
  meeting.any = meeting.any || any;
  if (++meeting.arrived == meeting.expected) {
    meeting.released = std::exchange(meeting.joining, {});
    meeting.result = std::exchange(meeting.any, false);
    meeting.arrived = 0;
    ++meeting.held;
  } else {
    block_.turns.Until(index(), [&meeting, held = meeting.held] { return meeting.held > held; });
  }
  agent_.clock.Join(meeting.released);
  Sync();
  return meeting.result;
}

void HostWarpGroup::MaxOfGroup(Registers<int32_t, 4>& r) {
  for (int n = 0; n < 4; ++n) {
    int32_t largest = r(0, n);
    Each([&](int t) { largest = std::max(largest, r(t, n)); });
    Each([&](int t) { r(t, n) = largest; });
  }
  Sync();
}

void HostWarpGroup::InitBarrier(int barrier, int arrivals) {
  HostBarrier& b = block_.barriers.at(static_cast<size_t>(barrier));
  b.ready = true;
  b.arrivals = b.pending = arrivals;
}

HostBarrier& HostWarpGroup::BarrierAt(int barrier) {
  HostBarrier& b = block_.barriers.at(static_cast<size_t>(barrier));
  if (!b.ready) Complain("a barrier is used before it is initialised");
  return b;
}

void HostWarpGroup::CompletePhase(HostBarrier& barrier, int number) {
  if (barrier.pending < 0) Complain("a barrier has more arrivals than it expects");
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.pending = barrier.arrivals;
  barrier.released = std::exchange(barrier.joining, {});
  barrier.released[cuda::kMaxGroups + number] = barrier.phase;
  barrier.whole_released = barrier.whole_joining;
}

void HostWarpGroup::ArriveExpecting(int barrier, int bytes) {
  HostBarrier& b = BarrierAt(barrier);
  b.joining.Join(agent_.clock);
  agent_.Tick();
  b.bytes += bytes;
  --b.pending;
  CompletePhase(b, barrier);
}

void HostWarpGroup::ArriveWarps(int barrier) {
  HostBarrier& b = BarrierAt(barrier);
  b.joining.Join(agent_.clock);
  b.whole_joining[static_cast<size_t>(index())] = agent_.now();
  agent_.Tick();
  b.pending -= kThreads / kWarp;
  CompletePhase(b, barrier);
}

void HostWarpGroup::WaitForPhase(int barrier, uint32_t parity) {
  HostBarrier& b = BarrierAt(barrier);
  const auto complete = [&] { return b.phase % 2 != static_cast<int64_t>(parity); };
  block_.turns.Until(index(), [&] {
    if (complete()) return true;
    for (const auto& arrive : std::exchange(b.boxes, {})) arrive();
    CompletePhase(b, barrier);
    return complete();
  });
  agent_.clock.Join(b.released);
  agent_.synced = std::max(agent_.synced, b.whole_released[static_cast<size_t>(index())]);
}

// Byte `byte` of the row of a box that begins at `at`: 0 outside of the tensor.
static int ByteOfBox(const cuda::TileMap& map, std::array<int64_t, 4> at, int byte) {
  const int64_t size = ElementSize(map.dtype);
  at[0] += byte / size;
  int64_t offset = at[0] * size + byte % size;
  for (size_t n = 0; n < 4; ++n) {
    if (at[n] < 0 || at[n] >= static_cast<int64_t>(map.sizes[n])) return 0;
    if (n > 0) offset += at[n] * static_cast<int64_t>(map.strides[n - 1]);
  }
  return static_cast<unsigned char>(map.data[offset]);
}

void HostWarpGroup::LoadBox(int to, const Map& map, int barrier, int column, int row, int head,
                            int entry) {
  HostBarrier& b = BarrierAt(barrier);
  bool aligned = reinterpret_cast<uintptr_t>(map.data) % 16 == 0 && to % 128 == 0;
  for (const uint64_t stride : map.strides) aligned = aligned && stride % 16 == 0 && stride > 0;
  for (const uint64_t size : map.sizes) aligned = aligned && size > 0;
  if (!aligned || map.rows > 256) Complain("a tensor or a box that TMA does not take");
  const auto each = [&map, to](const auto& body) {
    for (int r = 0; r < static_cast<int>(map.rows); ++r) {
      for (int c = 0; c < 128; c += 2) {  // bytes: pairs of the smallest numbers
        const int first = kFirstByte + to + r * 128;
        const int chunk = c / 16 ^ first / 128 % 8;
        body(r, c, first + chunk * 16 + c % 16 - kFirstByte);
      }
    }
  };
  each(
      [&](int, int, int byte) { block_.memory.WriteLater(agent_, 0, byte, barrier, b.phase + 1); });
  // The group may be gone when the box arrives.
  b.boxes.push_back([memory = &block_.memory, each, &map, &b, column, row, head, entry] {
    each([&](int r, int c, int byte) {
      const int low = ByteOfBox(map, {column, row + r, head, entry}, c);
      const int high = ByteOfBox(map, {column, row + r, head, entry}, c + 1);
      memory->Arrive(byte, static_cast<uint16_t>(low | high << 8));
    });
    b.bytes -= static_cast<int64_t>(map.rows) * 128;
  });
}

void HostWarpGroup::LoadBytes(int to, const void* from, int bytes, int barrier) {
  HostBarrier& b = BarrierAt(barrier);
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0 || to % 16 != 0 || bytes % 16 != 0) {
    Complain("a bulk copy that is not of multiples of 16 bytes");
  }
  for (int byte = 0; byte < bytes; byte += 2) {
    block_.memory.WriteLater(agent_, 0, to + byte, barrier, b.phase + 1);
  }
  b.boxes.push_back([memory = &block_.memory, &b, to, from, bytes] {
    for (int byte = 0; byte < bytes; byte += 2) {
      uint16_t value;
      std::memcpy(&value, static_cast<const char*>(from) + byte, 2);
      memory->Arrive(to + byte, value);
    }
    b.bytes -= bytes;
  });
}

uint32_t HostWarpGroup::LoadWord(int thread, int at) {
  if (at % 4 != 0) Complain("a load of a word that is not aligned");
  return Load(thread, at) | uint32_t{Load(thread, at + 2)} << 16;
}

void HostWarpGroup::LoadPair(int thread, int at, uint32_t (&words)[2]) {
  if (at % 8 != 0) Complain("a load of two words that is not aligned");
  words[0] = LoadWord(thread, at);
  words[1] = LoadWord(thread, at + 4);
}

void HostWarpGroup::StoreWord(int thread, int at, uint32_t word) {
  if (at % 4 != 0) Complain("a store of a word that is not aligned");
  block_.memory.Write(agent_, thread, at, static_cast<uint16_t>(word));
  block_.memory.Write(agent_, thread, at + 2, static_cast<uint16_t>(word >> 16));
}

void HostWarpGroup::LoadChunk(int thread, int at, uint32_t (&pairs)[4]) {
  if (at % 16 != 0) Complain("a load of 16 bytes that is not aligned");
  for (int n = 0; n < 4; ++n) {
    pairs[n] = Load(thread, at + 4 * n) | uint32_t{Load(thread, at + 4 * n + 2)} << 16;
  }
}

void HostWarpGroup::StoreChunk(int thread, int at, const uint32_t (&pairs)[4]) {
  if (at % 16 != 0) Complain("a store of 16 bytes that is not aligned");
  for (int n = 0; n < 8; ++n) {
    const uint32_t pair = pairs[n / 2];
    block_.memory.Write(agent_, thread, at + 2 * n,
                        static_cast<uint16_t>(n % 2 == 0 ? pair : pair >> 16));
  }
}

void HostWarpGroup::CopyAsync(int thread, int at, const void* from) {
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0) {
    Complain("an asynchronous copy that is not aligned to 16 bytes");
  }
  std::array<uint32_t, 4> pairs;
  std::memcpy(pairs.data(), from, 16);
  StoreChunk(thread, at, {0x7fff7fffu, 0x7fff7fffu, 0x7fff7fffu, 0x7fff7fffu});
  open_group_.push_back([this, thread, at, pairs] {
    StoreChunk(thread, at, {pairs[0], pairs[1], pairs[2], pairs[3]});
  });
}

int HostWarpGroup::ByteAt(uint64_t descriptor, int offset) {
  const int start = static_cast<int>(descriptor & 0x3fff) * 16;
  const bool swizzled = descriptor >> 62 == 1;
  const uint64_t unused = descriptor & 0x3fffc000c000c000u;
  if (!swizzled || unused != 0) Complain("a matrix that is not of 128-byte swizzle");
  // The first row of a matrix is the first of a group of eight, or the base offset is not 0.
  if (start / 128 % 8 != 0) Complain("a matrix that begins within a group of eight rows");
  const int linear = start + offset;
  return (linear ^ linear / 128 % 8 * 16) - kFirstByte;
}

void HostWarpGroup::FinishProducts() {
  const std::vector<Product> done = std::move(committed_.front());
  committed_.erase(committed_.begin());
  for (const Product& product : done) product.run();
  const auto is_pending = [&](const std::vector<float>* sums) {
    bool pending = false;
    for (const auto& products : committed_) {
      for (const Product& product : products) pending = pending || product.sums == sums;
    }
    return pending;
  };
  for (auto place = accumulators_.begin(); place != accumulators_.end();) {
    Accumulators& taken = place->second;
    if (is_pending(&taken.sums)) {
      ++place;
      continue;
    }
    if (!taken.untouched()) Complain("sums of a product were touched before it was waited for");
    taken.put_back(taken.sums);
    place = accumulators_.erase(place);
  }
}

}  // namespace heed::testing
