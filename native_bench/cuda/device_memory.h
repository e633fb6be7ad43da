// Memory of the GPU, and a stopwatch of its events.
#ifndef HEED_NATIVE_BENCH_CUDA_DEVICE_MEMORY_H_
#define HEED_NATIVE_BENCH_CUDA_DEVICE_MEMORY_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>

#include "native_bench/measure.h"

namespace heed::bench {

// Throws std::bad_alloc when the device is out of memory, std::runtime_error for other errors.
void Require(cudaError_t error);

// Uninitialised bytes in device memory.
class DeviceBytes {
 public:
  explicit DeviceBytes(size_t size);
  ~DeviceBytes();
  DeviceBytes(DeviceBytes&& other) noexcept;
  DeviceBytes& operator=(DeviceBytes&&) = delete;

  void* get() const { return data_; }
  size_t size() const { return size_; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

// Measures calls that put work into the default stream.
class EventStopwatch {
 public:
  EventStopwatch();
  ~EventStopwatch();
  EventStopwatch(const EventStopwatch&) = delete;
  EventStopwatch& operator=(const EventStopwatch&) = delete;

  // Seconds between an event before the calls and one after them, on the device.
  double Warm(const std::function<void()>& call, int calls);
  // The same after twice the size of the L2 cache was written, kFlushes times: the device is busy
  // for longer than the host takes to send the call, so the time of sending it is not seen.
  double Cold(const std::function<void()>& call, int calls);
  // Seconds that the host takes to send a call to an idle device: the median of some. Where it is
  // longer than the device takes, calls back to back are as slow as it is.
  double Sending(const std::function<void()>& call);

 private:
  static constexpr int kFlushes = 8;  // 800 MB where L2 has 50: some 200 microseconds

  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
  DeviceBytes flush_;
};

// Bytes of the current device's L2 cache.
size_t L2Bytes();

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_CUDA_DEVICE_MEMORY_H_
