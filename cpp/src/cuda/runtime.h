// The CUDA runtime as the library uses it: errors as heed::Error, scratch memory, what the
// current device is. Only in builds with CUDA.
#ifndef HEED_SRC_CUDA_RUNTIME_H_
#define HEED_SRC_CUDA_RUNTIME_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "heed/cuda.h"
#include "src/cuda/fault.h"

namespace heed::cuda {

// Throws Error(kMemory | kUnsupported) for anything but success.
void ThrowOnError(cudaError_t error, const char* doing);

struct Device {
  int64_t processors;  // multiprocessors
  int shared_bytes;    // that a block may have
  bool is_hopper;      // compute capability 9.0: what sm_90a is compiled for
};

// Throws Error(kUnsupported) with what was found when there is no usable device.
Device CurrentDevice();

// Where kernels of the current device record a fault.
Fault* DeviceFault();

bool IsCaptured(Stream stream);

// `count` counters for a kernel of the stream, which are 0 and which it leaves at 0, so that its
// next kernel finds them so. They are part of the module: 1024 for each of the first 256 streams
// that ask (stream_slots.h). nullptr when count is 0 or more than that; for later streams and
// cudaStreamPerThread; and for a captured stream, whose graph may run beside it and would share
// them.
uint32_t* CountersOf(Stream stream, int64_t count);

// Where scratch of the current device comes from: a pool of the library's own, made at the first
// need. The pool from which others allocate, and what that keeps, stay as they are.
//
// It outlives cudaDeviceReset(): memory of pools is that of the device, not of a context
// (cuCtxDestroy: "not associated with any CUDA context"), and is not given back by a reset
// (cudaDeviceReset: "will not destroy memory allocations by [...] cudaMallocFromPoolAsync()").
cudaMemPool_t ScratchPool();

// Memory in the stream's order: allocated and freed as kernels are, so that nothing waits. A
// captured stream makes nodes of both, whose memory belongs to the graph.
class DeviceMemory {
 public:
  DeviceMemory(size_t bytes, Stream stream);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  char* get() const { return data_; }  // nullptr for 0 bytes

 private:
  char* data_ = nullptr;
  Stream stream_;
};

// A second stream for part of a call, of the greatest priority: its kernels come before those of
// the call's own, if that has a lower one, where both wait for room. Not for a captured stream. The
// call's stream waits for it at the latest when this is destroyed, so memory in the order of the
// call's stream must live longer.
class SideStream {
 public:
  explicit SideStream(Stream stream);
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;
  Stream get() const { return side_; }
  void Follow();  // what comes next here waits for all that is on the call's stream by now
  void Rejoin();  // and the other way round

 private:
  Stream stream_, side_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_RUNTIME_H_
