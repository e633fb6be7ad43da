// The device: modules that the program registered, their kernels and variables, and launches, which
// run at once, one block after the other.
#ifndef HEED_TESTS_CUDA_INTERPRETER_DEVICE_H_
#define HEED_TESTS_CUDA_INTERPRETER_DEVICE_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "block.h"
#include "decoder.h"
#include "program.h"
#include "ptx_module.h"

namespace heed::interpreter {

// What the environment says of the device.
struct Settings {
  int major = 8, minor = 0;       // HEED_PTX_CAPABILITY=90 for 9.0
  int processors = 4;             // HEED_PTX_PROCESSORS
  bool late_copies = true;        // HEED_PTX_COPIES=early
  bool priority_early = false;    // HEED_PTX_STREAMS=early
  bool last_block_first = false;  // HEED_PTX_BLOCKS=reversed
  bool finds_races = false;       // HEED_PTX_RACES=1
  bool lanes_apart = false;       // HEED_PTX_LANES=apart
  std::string_view ignored;       // HEED_PTX_IGNORE: how an opcode begins
  bool traces = false;            // HEED_PTX_TRACE=1: launches are told
  bool counts = false;            // HEED_PTX_COUNTS=1: and how often instructions ran
  int shared_bytes() const { return major >= 9 ? 227 << 10 : 163 << 10; }  // of a block, at most
  static const Settings& Get();
};

struct LoadedModule {
  std::string_view text;
  bool parsed = false;
  Module module;
  Decoder::Globals globals;

  // Many programs need few modules: a module is parsed when it is needed.
  void Parse();
};

struct Kernel {
  LoadedModule* loaded = nullptr;
  std::string name;
  std::unique_ptr<Program> program;  // once it has been launched
  uint32_t dynamic_limit = 48 << 10;
};

struct LaunchRequest {
  Kernel* kernel;
  Dimensions grid, block;
  uint32_t dynamic_bytes;
  std::vector<char> params;
};

class Device {
 public:
  static Device& Get();

  LoadedModule* Load(const void* fat_binary);
  void AddKernel(LoadedModule* loaded, const void* host, const char* name);
  void AddVariable(LoadedModule* loaded, const void* host, const char* name);
  Kernel* KernelOf(const void* host);
  void* VariableOf(const void* host);

  // Parameters are copied. What a GPU refuses is an error of the call.
  cudaError_t Prepare(Kernel* kernel, dim3 grid, dim3 block, void** arguments, size_t dynamic_bytes,
                      LaunchRequest& request);
  // What goes wrong is said, and found by the next call that waits.
  void Run(const LaunchRequest& request);
  // The error of kernels since the last time, which a GPU would keep.
  cudaError_t TakeError();

 private:
  const Program& ProgramOf(Kernel& kernel);

  std::vector<std::unique_ptr<LoadedModule>> modules_;
  std::unordered_map<const void*, std::unique_ptr<Kernel>> kernels_;
  std::unordered_map<const void*, std::pair<LoadedModule*, std::string>> variables_;
  cudaError_t error_ = cudaSuccess;
};

// Held by every call of the runtime.
std::recursive_mutex& RuntimeMutex();

}  // namespace heed::interpreter

#endif  // HEED_TESTS_CUDA_INTERPRETER_DEVICE_H_
