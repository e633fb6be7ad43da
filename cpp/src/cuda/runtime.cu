#include <cstdint>
#include <optional>
#include <string>

#include "src/cuda/device_pools.h"
#include "src/cuda/runtime.h"
#include "src/cuda/stream_slots.h"
#include "src/message.h"

namespace heed::cuda {
namespace {

__device__ Fault first_fault;

// Zeros when CUDA loads the module, also after cudaDeviceReset(); one array a device.
__device__ uint32_t split_counters[kStreamSlots][kCountersOfSlot];

constexpr const char* kNeeded =
    "a GPU of compute capability 8.0 or newer and a driver for this build's CUDA";

std::string VersionText(int version) {
  return Join("{}.{}", {version / 1000, version % 1000 / 10});
}

int CurrentDeviceNumber() {
  int device = 0;
  ThrowOnError(cudaGetDevice(&device), "asking for the current device");
  return device;
}

// Neither the map nor its pools are ever destroyed: a call may come from a destructor that runs as
// the program ends, and the driver, which then takes all memory back, may be gone before it.
DevicePools<cudaMemPool_t>& ScratchPools() {
  static auto& pools = *new DevicePools<cudaMemPool_t>;
  return pools;
}

// While another stream may be captured in a mode that forbids "unsafe" calls.
class RelaxedCapture {
 public:
  RelaxedCapture() {
    ThrowOnError(cudaThreadExchangeStreamCaptureMode(&mode_), "asking to make what a call needs");
  }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

cudaError_t MakePool(int device, cudaMemPool_t& pool) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  const cudaError_t error = cudaMemPoolCreate(&pool, &properties);
  if (error != cudaSuccess) return error;
  uint64_t kept = kKeptScratchBytes;
  const cudaError_t refused =
      cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept);
  if (refused != cudaSuccess) cudaMemPoolDestroy(pool);
  return refused;
}

cudaMemPool_t NewPool(int device) {
  const RelaxedCapture relaxed;
  cudaMemPool_t pool = nullptr;
  const cudaError_t error = MakePool(device, pool);
  if (error == cudaErrorNotSupported) {
    cudaGetLastError();
    Fail(ErrorCode::kUnsupported,
         "device {} or its driver has no memory pools (cudaDevAttrMemoryPoolsSupported is 0), from "
         "which heed::cuda takes scratch memory",
         {device});
  }
  ThrowOnError(error, "making a pool of scratch memory");
  return pool;
}

}  // namespace

void ThrowOnError(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // told here: the next call would find it again at its launch
  const bool memory = error == cudaErrorMemoryAllocation;
  Fail(memory ? ErrorCode::kMemory : ErrorCode::kUnsupported, "CUDA: {} while {} ({})",
       {cudaGetErrorString(error), doing, cudaGetErrorName(error)});
}

Availability Available() {
  int count = 0, device = 0, driver = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();  // not sticky: the next call may succeed
    return {false, Join("no CUDA device ({})", {cudaGetErrorString(error)}), kNeeded};
  }
  cudaDeviceProp properties;
  ThrowOnError(cudaGetDevice(&device), "asking for the current device");
  ThrowOnError(cudaGetDeviceProperties(&properties, device), "asking what the device is");
  ThrowOnError(cudaDriverGetVersion(&driver), "asking for the driver's version");
  const std::string found =
      Join("{}, compute capability {}.{}, driver for CUDA {}",
           {properties.name, properties.major, properties.minor, VersionText(driver)});
  return {properties.major >= 8, found, properties.major >= 8 ? "" : kNeeded};
}

Device CurrentDevice() {
  int device = 0, major = 0, minor = 0, processors = 0, shared_bytes = 0;
  const auto ask = [&](int& value, cudaDeviceAttr attribute) {
    return cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess;
  };
  const bool known = cudaGetDevice(&device) == cudaSuccess &&
                     ask(major, cudaDevAttrComputeCapabilityMajor) &&
                     ask(minor, cudaDevAttrComputeCapabilityMinor) &&
                     ask(processors, cudaDevAttrMultiProcessorCount) &&
                     ask(shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  if (!known || major < 8) {
    cudaGetLastError();
    const Availability state = Available();
    Fail(ErrorCode::kUnsupported, "heed::cuda found {}; it needs {}", {state.found, kNeeded});
  }
  return {processors, shared_bytes, major == 9 && minor == 0};
}

Fault* DeviceFault() {
  void* address = nullptr;
  ThrowOnError(cudaGetSymbolAddress(&address, first_fault), "asking for the record of faults");
  return static_cast<Fault*>(address);
}

cudaMemPool_t ScratchPool() {
  const int device = CurrentDeviceNumber();
  return ScratchPools().Of(device, [&] { return NewPool(device); });
}

void ReleaseMemory() {
  CurrentDevice();
  const std::optional<cudaMemPool_t> pool = ScratchPools().Find(CurrentDeviceNumber());
  if (pool.has_value()) {
    ThrowOnError(cudaMemPoolTrimTo(*pool, 0), "giving scratch memory back");
  }
}

DeviceMemory::DeviceMemory(size_t bytes, Stream stream) : stream_(stream) {
  if (bytes == 0) return;
  void* data = nullptr;
  // No pool keeps the memory of a graph.
  const cudaError_t error = IsCaptured(stream)
                                ? cudaMallocAsync(&data, bytes, stream)
                                : cudaMallocFromPoolAsync(&data, bytes, ScratchPool(), stream);
  ThrowOnError(error, "allocating scratch memory");
  data_ = static_cast<char*>(data);
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) cudaFreeAsync(data_, stream_);
}

bool IsCaptured(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ThrowOnError(cudaStreamIsCapturing(stream, &status), "asking whether the stream is captured");
  return status != cudaStreamCaptureStatusNone;
}

SideStream::SideStream(Stream stream) : stream_(stream) {
  const RelaxedCapture relaxed;
  int least = 0, greatest = 0;
  ThrowOnError(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities");
  ThrowOnError(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
  const cudaError_t error = cudaStreamCreateWithPriority(&side_, cudaStreamNonBlocking, greatest);
  if (error != cudaSuccess) cudaEventDestroy(event_);
  ThrowOnError(error, "making a stream");
}

// Both are gone once what they were used for is done.
SideStream::~SideStream() {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;  // as RelaxedCapture, which may throw
  const bool is_relaxed = cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess;
  if (cudaEventRecord(event_, side_) == cudaSuccess) cudaStreamWaitEvent(stream_, event_, 0);
  cudaStreamDestroy(side_);
  cudaEventDestroy(event_);
  if (is_relaxed) cudaThreadExchangeStreamCaptureMode(&mode);
}

void SideStream::Follow() {
  ThrowOnError(cudaEventRecord(event_, stream_), "marking a place in a stream");
  ThrowOnError(cudaStreamWaitEvent(side_, event_, 0), "waiting for a stream");
}
void SideStream::Rejoin() {
  ThrowOnError(cudaEventRecord(event_, side_), "marking a place in a stream");
  ThrowOnError(cudaStreamWaitEvent(stream_, event_, 0), "waiting for a stream");
}

uint32_t* CountersOf(Stream stream, int64_t count) {
  // The runtime does not say whether threads' own default streams differ in their ids.
  if (count == 0 || count > kCountersOfSlot || stream == cudaStreamPerThread) return nullptr;
  if (IsCaptured(stream)) return nullptr;
  static StreamSlots slots;
  unsigned long long id = 0;
  ThrowOnError(cudaStreamGetId(stream, &id), "asking which stream it is");
  const int64_t slot = slots.Of(id);
  if (slot < 0) return nullptr;
  void* address = nullptr;
  ThrowOnError(cudaGetSymbolAddress(&address, split_counters), "asking for the counters");
  return static_cast<uint32_t*>(address) + slot * kCountersOfSlot;
}

void Check(Stream stream) {
  CurrentDevice();
  ThrowOnError(cudaStreamSynchronize(stream), "running kernels");
  Fault fault;
  ThrowOnError(cudaMemcpyFromSymbol(&fault, first_fault, sizeof(Fault)), "reading the fault");
  if (fault.kind == 0) return;
  const Fault none;
  ThrowOnError(cudaMemcpyToSymbol(first_fault, &none, sizeof(Fault)), "clearing the fault");
  Fail(ErrorCode::kRange, FaultText(fault));
}

}  // namespace heed::cuda
