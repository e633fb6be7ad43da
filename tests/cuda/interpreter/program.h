// A kernel as it is executed: instructions of a warp, whose operands are places in its registers.
//
// A register of b32 is an array of 32 numbers of 4 bytes, one a lane, others likewise; a predicate
// is one word with a bit a lane. Constants and special registers are registers too, filled when a
// warp starts.
#ifndef HEED_TESTS_CUDA_INTERPRETER_PROGRAM_H_
#define HEED_TESTS_CUDA_INTERPRETER_PROGRAM_H_

#include <bit>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace heed::interpreter {

using Lanes = uint32_t;  // a bit a lane
inline constexpr int kLanes = 32;
inline constexpr Lanes kAllLanes = 0xffffffffu;
inline constexpr uint32_t kNowhere = 0xffffffffu;

class Warp;
struct Instruction;
using Handler = void (*)(Warp&, const Instruction&, Lanes);

// What goes wrong in a kernel: on a GPU an error of the launch, or an undefined result.
class Fault : public std::runtime_error {
  using std::runtime_error::runtime_error;
};
[[noreturn]] inline void Fail(const std::string& what) { throw Fault(what); }

enum class Kind : uint8_t {
  kPlain,
  kBranch,
  kExit,
  kAligned,  // by all lanes of the warp together
  kMasked,   // by the lanes of the mask in register `c`
  kBarrier,  // of the block
  kTry,      // leaves lanes in register `d` for which the event has not come
};

struct Instruction {
  Handler run = nullptr;
  Kind kind = Kind::kPlain;
  bool negated = false;       // the guard
  bool negated_c = false;     // a predicate in `c`
  uint32_t guard = kNowhere;  // a predicate
  uint32_t d = kNowhere, a = kNowhere, b = kNowhere, c = kNowhere;
  uint32_t target = 0;               // of a branch
  uint8_t width_d = 0, width_a = 0;  // bytes of a register, where it may differ from the type's
  int64_t imm = 0, offset_b = 0;
  std::vector<uint32_t> more;  // further registers
  std::shared_ptr<void> extra;
  std::string_view text;
};

// What a register holds when a warp starts.
struct Preset {
  enum class Source {
    kConstant,
    kThreadX,
    kThreadY,
    kThreadZ,
    kLane,
    kWarp,
    kBlockX,
    kBlockY,
    kBlockZ,
    kThreadsX,
    kThreadsY,
    kThreadsZ,
    kBlocksX,
    kBlocksY,
    kBlocksZ,
    kDynamicShared
  };
  Source source;
  uint32_t at;
  uint32_t width;
  uint64_t value = 0;
};

struct Program {
  std::string name;
  std::vector<Instruction> code;
  std::vector<Preset> presets;
  uint32_t register_bytes = 0;
  uint32_t local_bytes = 0;   // of a thread
  uint32_t shared_bytes = 0;  // of static variables
  uint32_t param_bytes = 0;
  uint32_t max_threads = 0;
  uint32_t dynamic_align = 16;
  std::vector<uint32_t> param_offsets, param_sizes;
};

// Addresses. Those of global memory are the host's; others lie in windows that no host address is
// in. Shared memory begins with 1 KiB of the system, as on sm_90, so that address 0 is a fault.
inline constexpr uint64_t kSharedWindow = 1ull << 56, kLocalWindow = 2ull << 56,
                          kParamWindow = 3ull << 56, kWindowMask = 0xffull << 56;
inline constexpr uint32_t kSharedBegin = 1024, kLocalBegin = 1024;

template <class F>
inline void ForLanes(Lanes lanes, F&& f) {
  if (lanes == kAllLanes) {
#pragma GCC ivdep
    for (int lane = 0; lane < kLanes; ++lane) f(lane);
  } else {
    for (Lanes rest = lanes; rest != 0; rest &= rest - 1) f(std::countr_zero(rest));
  }
}

}  // namespace heed::interpreter

#endif  // HEED_TESTS_CUDA_INTERPRETER_PROGRAM_H_
