// The shared memory of an emulated block of several warp groups. Each 16-bit cell knows who touched
// it last, and each group what it knows of the others (vector clocks): an access that is not
// ordered after the one it conflicts with, by a barrier that both took part in, is a complaint,
// whatever order the emulation happens to run groups in.
#ifndef HEED_TESTS_CUDA_HOST_SHARED_MEMORY_H_
#define HEED_TESTS_CUDA_HOST_SHARED_MEMORY_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/cuda/hopper_layout.h"

namespace heed::testing {

// What has happened: of each group its own count, of each barrier the phases that TMA filled.
struct Clock {
  static constexpr int kCount = cuda::kMaxGroups + cuda::kMaxBarriers;
  std::array<int64_t, kCount> at{};

  int64_t& operator[](int who) { return at[static_cast<size_t>(who)]; }
  int64_t operator[](int who) const { return at[static_cast<size_t>(who)]; }
  void Join(const Clock& other) {
    for (size_t n = 0; n < at.size(); ++n) at[n] = std::max(at[n], other.at[n]);
  }
};

// A warp group as memory knows it.
struct Agent {
  int group = 0;
  Clock clock;
  int64_t synced = -1;  // what its threads did up to here, all of them know
  int64_t fences = 0;   // of the asynchronous proxy

  int64_t now() const { return clock[group]; }
  void Tick() { ++clock[group]; }
};

inline constexpr int kAllThreads = -1;

class HostSharedMemory {
 public:
  HostSharedMemory(int bytes, std::array<Agent, cuda::kMaxGroups>* agents)
      : cells_(static_cast<size_t>(bytes / 2)), agents_(agents) {}

  const std::string& complaint() const { return complaint_; }
  void Complain(const std::string& what) {
    if (complaint_.empty()) complaint_ = what;
  }

  // By a thread, or by wgmma for all of a group: `async`.
  uint16_t Read(const Agent& agent, int thread, int byte, bool async = false) {
    Cell& cell = At(byte);
    if (cell.writer >= 0 &&
        !Knows(agent, thread, cell.writer, cell.writer_thread, cell.write_time)) {
      Complain(At("is read before it is known to be written", agent, byte));
    }
    if (async && cell.generic && (*agents_)[Index(cell.writer)].fences == cell.write_fences) {
      Complain(At("is read by wgmma without a proxy fence after its write", agent, byte));
    }
    const size_t own = Index(agent.group);
    const bool first = cell.read_time[own] != agent.now();
    cell.reader[own] = first || cell.reader[own] == thread ? thread : kAllThreads;
    cell.read_time[own] = agent.now();
    return cell.value;
  }

  void Write(const Agent& agent, int thread, int byte, uint16_t value) {
    Cell& cell = MarkWrite(agent, thread, byte);
    cell.writer = agent.group;
    cell.writer_thread = thread;
    cell.write_time = agent.now();
    cell.write_fences = agent.fences;
    cell.generic = true;
    cell.value = value;
  }

  // A thread of `agent` has TMA write the cell in phase `phase` of a barrier. Until it has, the
  // number there is NaN.
  void WriteLater(const Agent& agent, int thread, int byte, int barrier, int64_t phase) {
    Cell& cell = MarkWrite(agent, thread, byte);
    cell.writer = cuda::kMaxGroups + barrier;
    cell.write_time = phase;
    cell.generic = false;
    cell.value = kPoison;
  }
  void Arrive(int byte, uint16_t value) { At(byte).value = value; }

 private:
  static constexpr uint16_t kPoison = 0x7fff;  // NaN in both types
  struct Cell {
    uint16_t value = kPoison;
    bool generic = false;
    int writer = -1;  // a group, or kMaxGroups + a barrier whose TMA it was
    int writer_thread = 0;
    int64_t write_time = 0;
    int64_t write_fences = 0;
    std::array<int, cuda::kMaxGroups> reader{};
    std::array<int64_t, cuda::kMaxGroups> read_time = {-1, -1, -1, -1};
  };

  static size_t Index(int n) { return static_cast<size_t>(n); }
  static std::string At(const char* what, const Agent& agent, int byte) {
    return "byte " + std::to_string(byte) + " of shared memory " + what + ", by group " +
           std::to_string(agent.group);
  }
  Cell& At(int byte) {
    if (byte % 2 != 0) Complain("shared memory is used at an odd byte");
    return cells_.at(Index(byte / 2));
  }

  // Does the thread know of what `who` did at `time`?
  static bool Knows(const Agent& agent, int thread, int who, int who_thread, int64_t time) {
    if (who != agent.group) return time <= agent.clock[who];
    return time <= agent.synced || (thread == who_thread && thread != kAllThreads);
  }

  Cell& MarkWrite(const Agent& agent, int thread, int byte) {
    Cell& cell = At(byte);
    if (cell.writer >= 0 &&
        !Knows(agent, thread, cell.writer, cell.writer_thread, cell.write_time)) {
      Complain(At("is written twice without a barrier between", agent, byte));
    }
    for (int group = 0; group < cuda::kMaxGroups; ++group) {
      const int64_t time = cell.read_time[Index(group)];
      if (time >= 0 && !Knows(agent, thread, group, cell.reader[Index(group)], time)) {
        Complain(At("is written before it is known to be read", agent, byte));
      }
    }
    return cell;
  }

  std::vector<Cell> cells_;
  std::array<Agent, cuda::kMaxGroups>* agents_;
  std::string complaint_;
};

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_HOST_SHARED_MEMORY_H_
