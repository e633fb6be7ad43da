// A warp and the block around it, while they run.
#ifndef HEED_TESTS_CUDA_INTERPRETER_WARP_H_
#define HEED_TESTS_CUDA_INTERPRETER_WARP_H_

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "memory.h"
#include "program.h"

namespace heed::interpreter {

class Block;

// 16 bytes, or fewer, that cp.async copies when they are waited for.
struct Copy {
  int lane;
  uint32_t group;
  char* to;
  const char* from;
  uint32_t bytes, zeros;
};

class Warp {
 public:
  enum class State { kRunning, kYielded, kBlocked, kDone };

  Warp(Block& block, const Program& program, int index, Lanes lanes);

  // At the first instruction, with what the block's index presets.
  void Restart(Lanes lanes);
  // Goes on until all lanes wait or are done.
  State Run();
  // The barrier at which it was blocked is complete; `result` goes to the lanes' registers.
  void Release();

  template <class T>
  T* At(uint32_t at) {
    return reinterpret_cast<T*>(registers_.get() + at);
  }
  // A number of a lane in a register of so many bytes.
  uint64_t Get(uint32_t at, int width, int lane);
  // [a + imm]. Of a register of 32 bits the sum has as many: its offset may take it past 2^32.
  uint64_t AddressOf(const Instruction& i, int lane) {
    const uint64_t address = Get(i.a, i.width_a, lane) + static_cast<uint64_t>(i.imm);
    return i.width_a == 4 ? static_cast<uint32_t>(address) : address;
  }
  void Set(uint32_t at, int width, int lane, uint64_t value);
  void SetPredicate(uint32_t at, Lanes lanes, Lanes values) {
    if (at == kNowhere) return;
    Lanes& all = *At<Lanes>(at);
    all = (all & ~lanes) | (values & lanes);
  }

  // Where the bytes at an address lie on the host, checked.
  char* Global(uint64_t address, uint32_t bytes, int lane);
  char* Shared(uint64_t address, uint32_t bytes, int lane);
  char* Local(uint64_t address, uint32_t bytes, int lane);
  char* Param(uint64_t address, uint32_t bytes, int lane);
  char* Generic(uint64_t address, uint32_t bytes, int lane);

  Block& block() { return block_; }
  int index() const { return index_; }
  Lanes alive() const { return alive_; }
  State state() const { return state_; }
  const Instruction& current() const { return program_.code[pc_]; }

  // cp.async
  std::vector<Copy> copies;
  std::array<uint32_t, kLanes> copy_group{};
  // All groups but the last `pending`, and all that were started.
  void FinishCopies(Lanes lanes, uint32_t pending);
  void ArriveCopies(Lanes lanes);

  int registers_each = 0;  // as setmaxnreg said
  // wgmma: what products in flight read, until they are waited for.
  void Read(uint32_t address);
  // All groups of products but the last `pending` are done.
  void FinishProducts(uint32_t pending);
  uint32_t product_group = 0;
  bool fenced = false;

 private:
  struct Reading {
    uint32_t atom, group;
  };
  struct Fragment {
    Lanes lanes;
    uint32_t pc;
    bool waits = false, yielded = false;
  };
  enum class Step { kOn, kPick, kLeave };

  void Preset();
  bool Pick();
  void Merge(Fragment& fragment);
  void Part();
  Step RunOne(Fragment& fragment);
  Step Branch(Fragment& fragment, const Instruction& instruction, Lanes lanes);
  Step Exit(Fragment& fragment, Lanes lanes);
  bool AllHere(const Instruction& instruction, const Fragment& fragment, Lanes lanes);
  void SeeCopy(const Copy& copy);
  [[noreturn]] void Stuck();

  Block& block_;
  const Program& program_;
  int index_;
  Lanes alive_;
  State state_ = State::kRunning;
  std::unique_ptr<char[]> registers_;
  std::vector<char> local_;
  std::vector<Fragment> fragments_;  // the first one runs
  uint32_t limit_ = kNowhere;        // where it meets another one
  uint32_t pc_ = 0;
  std::vector<Reading> readings_;
  Range range_;
  uint64_t generation_ = 0;
};

}  // namespace heed::interpreter

#endif  // HEED_TESTS_CUDA_INTERPRETER_WARP_H_
