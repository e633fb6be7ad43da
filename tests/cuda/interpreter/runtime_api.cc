// Functions of the CUDA runtime about memory, the device, kernels and errors.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "device.h"
#include "memory.h"
#include "streams.h"
#include "tensor_maps.h"

struct CUmemPoolHandle_st {
  size_t reserved = 0;  // all that was ever taken, until it is given back
};

using namespace heed::interpreter;
using Lock = std::lock_guard<std::recursive_mutex>;

namespace {

bool InDevice(const void* pointer, size_t bytes) {
  const uint64_t address = reinterpret_cast<uint64_t>(pointer);
  return bytes == 0 || FindRange(address).Holds(address, bytes);
}

cudaError_t CheckedCopy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (InDevice(to, bytes) != to_device || InDevice(from, bytes) != from_device) {
    if (bytes != 0) return cudaErrorInvalidValue;
  }
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

// An array of so many bytes, or an error.
cudaError_t AllocateInto(void** pointer, size_t bytes) {
  *pointer = bytes == 0 ? nullptr : Allocate(bytes);
  return Note(bytes != 0 && *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

}  // namespace

extern "C" {

cudaError_t cudaGetLastError() { return TakeLast(); }
const char* cudaGetErrorName(cudaError_t error) {
  static thread_local char text[32];
  std::snprintf(text, sizeof(text), "cudaError %d", static_cast<int>(error));
  return text;
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof(*properties));
  std::strcpy(properties->name, "PTX interpreter");
  properties->major = Settings::Get().major;
  properties->minor = Settings::Get().minor;
  properties->multiProcessorCount = Settings::Get().processors;
  properties->totalGlobalMem = size_t{8} << 30;
  properties->sharedMemPerBlockOptin = static_cast<size_t>(Settings::Get().shared_bytes());
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const Settings& settings = Settings::Get();
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = settings.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = settings.minor;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = settings.processors;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = settings.shared_bytes();
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:
      *value = 1 << 20;
      return cudaSuccess;
    default:
      return Note(cudaErrorInvalidValue);
  }
}
// What is allocated stays, as memory of pools does.
cudaError_t cudaDeviceReset() { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() {
  const Lock lock(RuntimeMutex());
  CatchUpAll();
  return Note(AnyIsCaptured() ? cudaErrorStreamCaptureUnsupported : Device::Get().TakeError());
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  const Lock lock(RuntimeMutex());
  if (AnyIsCaptured()) return Note(cudaErrorStreamCaptureUnsupported);
  return AllocateInto(pointer, bytes);
}
cudaError_t cudaFree(void* pointer) {
  const Lock lock(RuntimeMutex());
  if (pointer == nullptr) return cudaSuccess;
  if (AnyIsCaptured()) return Note(cudaErrorStreamCaptureUnsupported);
  CatchUpAll();
  return Free(pointer) ? Note(Device::Get().TakeError()) : Note(cudaErrorInvalidValue);
}
// Memory of a graph stays where it is.
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) {
  const Lock lock(RuntimeMutex());
  return AllocateInto(pointer, bytes);
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  *pool = new CUmemPoolHandle_st;
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  delete pool;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const Lock lock(RuntimeMutex());
  if (attribute != cudaMemPoolAttrReservedMemCurrent) return Note(cudaErrorInvalidValue);
  *static_cast<uint64_t*>(value) = pool->reserved;
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
  const Lock lock(RuntimeMutex());
  pool->reserved = std::min(pool->reserved, bytes);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  static CUmemPoolHandle_st of_all;
  *pool = &of_all;
  return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  const Lock lock(RuntimeMutex());
  if (IsCaptured(stream)) return Note(cudaErrorStreamCaptureUnsupported);  // heed never does
  pool->reserved += bytes;
  return cudaMallocAsync(pointer, bytes, stream);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  const Lock lock(RuntimeMutex());
  const Range range = FindRange(reinterpret_cast<uint64_t>(pointer));
  if (range.bytes == 0) return Note(cudaErrorInvalidValue);
  if (IsCaptured(stream)) {
    DoOn(stream, [=] { std::memset(pointer, 0xff, range.bytes); });
  } else {
    CatchUp(stream);
    Free(pointer);
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const Lock lock(RuntimeMutex());
  if (AnyIsCaptured()) return Note(cudaErrorStreamCaptureImplicit);
  CatchUpAll();
  const cudaError_t error = Device::Get().TakeError();
  return Note(error != cudaSuccess ? error : CheckedCopy(to, from, bytes, kind));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const Lock lock(RuntimeMutex());
  if (!IsCaptured(stream)) {
    CatchUp(stream);
    return Note(CheckedCopy(to, from, bytes, kind));
  }
  DoOn(stream, [=] { CheckedCopy(to, from, bytes, kind); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  const Lock lock(RuntimeMutex());
  if (!InDevice(to, bytes)) return Note(cudaErrorInvalidValue);
  DoOn(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}
cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  *address = Device::Get().VariableOf(symbol);
  return Note(*address == nullptr ? cudaErrorInvalidSymbol : cudaSuccess);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset,
                                 cudaMemcpyKind kind) {
  const char* from = static_cast<char*>(Device::Get().VariableOf(symbol));
  return from == nullptr ? Note(cudaErrorInvalidSymbol)
                         : cudaMemcpy(to, from + offset, bytes, kind);
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                               cudaMemcpyKind kind) {
  char* to = static_cast<char*>(Device::Get().VariableOf(symbol));
  return to == nullptr ? Note(cudaErrorInvalidSymbol) : cudaMemcpy(to + offset, from, bytes, kind);
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  const Lock lock(RuntimeMutex());
  Kernel* kernel = Device::Get().KernelOf(function);
  if (kernel == nullptr) return Note(cudaErrorInvalidDeviceFunction);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return Note(cudaErrorInvalidValue);
  if (value < 0 || value > Settings::Get().shared_bytes()) return Note(cudaErrorInvalidValue);
  kernel->dynamic_limit = static_cast<uint32_t>(value);
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool known = std::strcmp(name, "cuTensorMapEncodeTiled") == 0;
  *function = known ? reinterpret_cast<void*>(&EncodeTiled) : nullptr;
  *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

}  // extern "C"
