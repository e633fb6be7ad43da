#include "device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "counts.h"
#include "memory.h"

namespace heed::interpreter {
namespace {

// The container of nvcc, with --no-compress.
struct FatHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;
};
struct FatEntry {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t packed_bytes, unknown;
  uint16_t minor, major;
  uint32_t architecture;
};
constexpr uint32_t kFatMagic = 0xBA55ED50;
constexpr uint16_t kPtx = 1;

// The PTX for the newest architecture that the device is.
std::string_view FindPtx(const char* data) {
  FatHeader header;
  std::memcpy(&header, data, sizeof(header));
  if (header.magic != kFatMagic) Fail("no fat binary");
  const uint32_t own = static_cast<uint32_t>(10 * Settings::Get().major + Settings::Get().minor);
  std::string_view best;
  uint32_t best_architecture = 0;
  const char* at = data + header.header_bytes;
  for (const char* const end = at + header.bytes; at < end;) {
    FatEntry entry;
    std::memcpy(&entry, at, sizeof(entry));
    if (entry.kind == kPtx && entry.architecture <= own && entry.architecture > best_architecture) {
      best_architecture = entry.architecture;
      const char* const text = at + entry.header_bytes;
      best = {text, strnlen(text, entry.bytes)};
    }
    at += entry.header_bytes + entry.bytes;
  }
  return best;
}

void Initialize(const Variable& variable, char* to) {
  std::memset(to, 0, variable.bytes);
  const size_t width = BytesOfType(variable.type);
  for (const std::string_view value : SplitList(variable.values)) {
    const uint64_t number = Decoder::Immediate(value, static_cast<int>(width));
    std::memcpy(to, &number, width);
    to += width;
  }
}

const char* Environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

}  // namespace

const Settings& Settings::Get() {
  static const Settings settings = [] {
    Settings s;
    const int capability = std::atoi(Environment("HEED_PTX_CAPABILITY", "80"));
    s.major = capability / 10, s.minor = capability % 10;
    s.processors = std::atoi(Environment("HEED_PTX_PROCESSORS", "4"));
    s.late_copies = std::string_view(Environment("HEED_PTX_COPIES", "late")) != "early";
    s.priority_early = std::string_view(Environment("HEED_PTX_STREAMS", "late")) == "early";
    s.finds_races = std::string_view(Environment("HEED_PTX_RACES", "0")) == "1";
    s.lanes_apart = std::string_view(Environment("HEED_PTX_LANES", "")) == "apart";
    s.traces = std::string_view(Environment("HEED_PTX_TRACE", "0")) == "1";
    s.counts = std::string_view(Environment("HEED_PTX_COUNTS", "0")) == "1";
    s.ignored = Environment("HEED_PTX_IGNORE", "");
    s.last_block_first = std::string_view(Environment("HEED_PTX_BLOCKS", "")) == "reversed";
    return s;
  }();
  return settings;
}

std::recursive_mutex& RuntimeMutex() {
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

Device& Device::Get() {
  static auto* device = new Device;
  return *device;
}

void LoadedModule::Parse() {
  if (std::exchange(parsed, true)) return;
  module = ParseModule(text);
  for (const Variable& variable : module.variables) {
    if (variable.space == Variable::Space::kShared) continue;
    char* const memory = static_cast<char*>(Allocate(variable.bytes));
    Initialize(variable, memory);
    globals[variable.name] = reinterpret_cast<uint64_t>(memory);
  }
}

LoadedModule* Device::Load(const void* fat_binary) {
  modules_.push_back(std::make_unique<LoadedModule>());
  modules_.back()->text = FindPtx(static_cast<const char*>(fat_binary));
  return modules_.back().get();
}

void Device::AddKernel(LoadedModule* loaded, const void* host, const char* name) {
  auto kernel = std::make_unique<Kernel>();
  kernel->loaded = loaded;
  kernel->name = name;
  kernels_[host] = std::move(kernel);
}
void Device::AddVariable(LoadedModule* loaded, const void* host, const char* name) {
  variables_[host] = {loaded, name};
}

Kernel* Device::KernelOf(const void* host) {
  const auto found = kernels_.find(host);
  return found == kernels_.end() ? nullptr : found->second.get();
}
void* Device::VariableOf(const void* host) {
  const auto found = variables_.find(host);
  if (found == variables_.end()) return nullptr;
  auto& [loaded, name] = found->second;
  loaded->Parse();
  return reinterpret_cast<void*>(loaded->globals.at(name));
}

const Program& Device::ProgramOf(Kernel& kernel) {
  if (kernel.program == nullptr) {
    kernel.loaded->Parse();
    const Module& module = kernel.loaded->module;
    const auto function = module.functions.find(kernel.name);
    if (function == module.functions.end()) Fail("no kernel " + kernel.name);
    kernel.program = std::make_unique<Program>(
        Decoder(module, kernel.loaded->globals, Settings::Get().ignored).Decode(function->second));
  }
  return *kernel.program;
}

cudaError_t Device::Prepare(Kernel* kernel, dim3 grid, dim3 block, void** arguments,
                            size_t dynamic_bytes, LaunchRequest& request) {
  const auto refuse = [&](cudaError_t error, const char* why) {
    std::fprintf(stderr, "PTX interpreter: the launch of %s is refused: %s\n", kernel->name.c_str(),
                 why);
    return error;
  };
  const Program* program = nullptr;
  try {
    program = &ProgramOf(*kernel);
  } catch (const std::exception& error) {
    return refuse(cudaErrorInvalidPtx, error.what());
  }
  const uint64_t threads = static_cast<uint64_t>(block.x) * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64) {
    return refuse(cudaErrorInvalidConfiguration, "threads");
  }
  if (program->max_threads != 0 && threads > program->max_threads) {
    return refuse(cudaErrorInvalidValue, "more threads than its launch bounds");
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
      grid.z > 65535) {
    return refuse(cudaErrorInvalidConfiguration, "grid");
  }
  if (dynamic_bytes + program->shared_bytes > kernel->dynamic_limit) {
    return refuse(cudaErrorInvalidValue, "shared memory");
  }
  // 32764 bytes from sm_70 and CUDA 12.1 on.
  if (program->param_bytes > 32764) return refuse(cudaErrorInvalidValue, "parameters");
  request = {kernel,
             {grid.x, grid.y, grid.z},
             {block.x, block.y, block.z},
             static_cast<uint32_t>(dynamic_bytes),
             std::vector<char>(program->param_bytes)};
  for (size_t n = 0; n < program->param_offsets.size(); ++n) {
    std::memcpy(request.params.data() + program->param_offsets[n], arguments[n],
                program->param_sizes[n]);
  }
  return cudaSuccess;
}

void Device::Run(const LaunchRequest& request) {
  const Program& program = *request.kernel->program;
  std::vector<uint64_t> counts(Settings::Get().counts ? program.code.size() : 0);
  const Launch launch = {&program,
                         request.grid,
                         request.block,
                         request.dynamic_bytes,
                         request.params,
                         Settings::Get().late_copies,
                         Settings::Get().finds_races,
                         Settings::Get().lanes_apart,
                         counts.empty() ? nullptr : &counts};
  if (Settings::Get().traces) {
    std::fprintf(stderr, "PTX interpreter: %u x %u x %u blocks of %u threads, %u bytes: %s\n",
                 request.grid.x, request.grid.y, request.grid.z,
                 static_cast<unsigned>(request.block.count()), request.dynamic_bytes,
                 program.name.c_str());
  }
  Dimensions at{0, 0, 0};
  try {
    Block block(launch);
    const uint64_t count = request.grid.count();
    for (uint64_t n = 0; n < count; ++n) {
      const uint64_t index = Settings::Get().last_block_first ? count - 1 - n : n;
      at.x = static_cast<uint32_t>(index % request.grid.x);
      at.y = static_cast<uint32_t>(index / request.grid.x % request.grid.y);
      at.z = static_cast<uint32_t>(index / request.grid.x / request.grid.y);
      block.Run(at);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "PTX interpreter: block (%u, %u, %u) of %s: %s\n", at.x, at.y, at.z,
                 program.name.c_str(), error.what());
    error_ = cudaErrorLaunchFailure;
  }
  if (!counts.empty()) {
    const uint64_t warps = request.grid.count() * ((request.block.count() + kLanes - 1) / kLanes);
    std::fprintf(stderr, "PTX interpreter: %s", CountsText(program, counts, warps).c_str());
  }
}

cudaError_t Device::TakeError() { return std::exchange(error_, cudaSuccess); }

}  // namespace heed::interpreter
