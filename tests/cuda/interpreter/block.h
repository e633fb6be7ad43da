// A thread block while it runs: its warps, one after the other until each waits, shared memory,
// barriers, and copies on their way.
#ifndef HEED_TESTS_CUDA_INTERPRETER_BLOCK_H_
#define HEED_TESTS_CUDA_INTERPRETER_BLOCK_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "program.h"
#include "races.h"
#include "warp.h"

namespace heed::interpreter {

struct Dimensions {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return static_cast<uint64_t>(x) * y * z; }
};

struct Launch {
  const Program* program;
  Dimensions grid, block;
  uint32_t dynamic_bytes;
  std::vector<char> params;
  bool late_copies = true;  // asynchronous copies arrive as late as they may, not at once
  bool finds_races = false;
  bool lanes_apart = false;  // lanes of a warp run one after the other, from meeting to meeting
  std::vector<uint64_t>* counts = nullptr;  // how often warps ran each instruction of the program
};

// What a barrier of the block does beyond waiting (Instruction::imm).
enum class BarrierAction : int64_t { kSync, kArrive, kOr, kAnd, kCount };

// An mbarrier, of which shared memory holds a mark.
struct PhaseBarrier {
  uint64_t phase = 0, mark = 0;
  uint32_t expected = 0, pending = 0;
  int64_t bytes = 0;  // to come
};

class Block {
 public:
  explicit Block(const Launch& launch);
  void Run(Dimensions index);

  const Launch& launch() const { return launch_; }
  const Dimensions& index() const { return index_; }
  uint32_t threads() const { return static_cast<uint32_t>(launch_.block.count()); }
  std::vector<char>& shared() { return shared_; }
  uint32_t dynamic_begin() const { return dynamic_begin_; }

  // A warp comes to a barrier. Whether it has to wait there.
  bool Arrive(Warp& warp, const Instruction& instruction, Lanes lanes);
  // The result of the complete barrier for the lanes of this warp.
  uint32_t Result(const Instruction& instruction, uint32_t id) const;

  // A warp goes on behind a complete barrier.
  void Leave(const Warp& warp, uint32_t id);

  // mbarrier
  void InitPhase(uint32_t address, uint32_t expected);
  void ArriveAtPhase(const Warp& warp, uint32_t address, uint32_t count, int64_t bytes);
  void BytesCame(uint32_t address, int64_t bytes);
  bool PhaseIsOver(const Warp& warp, uint32_t address, uint32_t parity);

  // Accesses of warps to shared memory, for whoever looks for races.
  void SeeRead(const Warp& warp, uint64_t address, uint32_t bytes);
  void SeeWrite(const Warp& warp, uint64_t address, uint32_t bytes);
  Races* races() { return races_.get(); }

  // Starts a copy, which comes now or late.
  void Start(std::function<void()> copy);

  // Who wrote the 16 bytes here by plain stores, without telling TMA and wgmma yet (fence.proxy).
  void MarkStore(uint32_t address, uint32_t bytes, int thread);
  void FenceProxy(int thread);
  void RequireFenced(uint32_t address, uint32_t bytes) const;
  // Fails when a product in flight of some warp reads these bytes.
  void RequireUnread(uint32_t address, uint32_t bytes) const;
  bool has_async() const { return has_async_; }
  // Products read atoms of shared memory, which no two tiles share.
  static constexpr uint32_t kAtom = 1024;
  void AddReader(uint32_t atom, int count) { readers_[atom] += count; }
  // Fails when the warps have taken more registers than there are.
  void CheckRegisters() const;

  Warp& warp(size_t n) { return *warps_[n]; }

 private:
  struct Barrier {
    uint32_t arrived = 0, expected = 0, trues = 0, result_trues = 0, result_threads = 0;
    std::vector<Warp*> waiting;
  };
  void Complete(Barrier& barrier, uint32_t id);
  void FinishBarriers();
  PhaseBarrier& PhaseAt(uint32_t address);
  void TurnPhase(PhaseBarrier& barrier, uint32_t address);
  std::string Places() const;
  uint32_t AliveThreads() const;

  const Launch& launch_;
  Dimensions index_;
  uint32_t dynamic_begin_;
  std::vector<char> shared_;
  std::vector<std::unique_ptr<Warp>> warps_;
  std::array<Barrier, 16> barriers_;
  std::vector<Warp*> released_;
  std::unique_ptr<Races> races_;
  std::map<uint32_t, PhaseBarrier> phases_;
  std::deque<std::function<void()>> copies_;
  std::vector<int16_t> unfenced_;                   // of each 16 bytes: 1 + the thread
  std::vector<std::vector<uint32_t>> unfenced_of_;  // of each thread
  std::vector<int> readers_;                        // of each atom
  bool has_async_ = false;
  uint64_t events_ = 0;
};

}  // namespace heed::interpreter

#endif  // HEED_TESTS_CUDA_INTERPRETER_BLOCK_H_
