// What code made by nvcc calls before main() and at launches.
#include <cuda_runtime_api.h>

#include <vector>

#include "device.h"
#include "streams.h"

namespace {

using heed::interpreter::Device;
using heed::interpreter::Kernel;
using heed::interpreter::LoadedModule;

struct Wrapper {
  int magic, version;
  const void* data;
  void* more;
};

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  return reinterpret_cast<void**>(Device::Get().Load(static_cast<Wrapper*>(wrapper)->data));
}
void __cudaRegisterFatBinaryEnd(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, void*,
                            void*, void*, void*, int*) {
  Device::Get().AddKernel(reinterpret_cast<LoadedModule*>(handle), host, name);
}
void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t, int, int) {
  Device::Get().AddVariable(reinterpret_cast<LoadedModule*>(handle), host, name);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (configurations.empty()) return cudaErrorMissingConfiguration;
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid, *block = last.block, *shared = last.shared;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(Device::Get().KernelOf(host));
  return *kernel == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared, cudaStream_t stream) {
  return heed::interpreter::LaunchOn(stream, reinterpret_cast<Kernel*>(kernel), grid, block,
                                     arguments, shared);
}

}  // extern "C"
