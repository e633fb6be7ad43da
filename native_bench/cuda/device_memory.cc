#include "native_bench/cuda/device_memory.h"

#include <chrono>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "native_bench/statistics.h"

namespace heed::bench {

void Require(cudaError_t error) {
  if (error == cudaSuccess) return;
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // the device goes on; what is left behind would be the next call's error
    throw std::bad_alloc();
  }
  throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

DeviceBytes::DeviceBytes(size_t size) : size_(size) {
  if (size > 0) Require(cudaMalloc(&data_, size));
}

DeviceBytes::~DeviceBytes() { cudaFree(data_); }

DeviceBytes::DeviceBytes(DeviceBytes&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

size_t L2Bytes() {
  int device = 0, bytes = 0;
  Require(cudaGetDevice(&device));
  Require(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device));
  return static_cast<size_t>(bytes);
}

EventStopwatch::EventStopwatch() : flush_(2 * L2Bytes()) {
  Require(cudaEventCreate(&start_));
  Require(cudaEventCreate(&stop_));
}

EventStopwatch::~EventStopwatch() {
  cudaEventDestroy(start_);
  cudaEventDestroy(stop_);
}

double EventStopwatch::Warm(const std::function<void()>& call, int calls) {
  Require(cudaEventRecord(start_));
  for (int i = 0; i < calls; ++i) call();
  Require(cudaEventRecord(stop_));
  Require(cudaEventSynchronize(stop_));
  float milliseconds = 0;
  Require(cudaEventElapsedTime(&milliseconds, start_, stop_));
  return static_cast<double>(milliseconds) * 1e-3;
}

double EventStopwatch::Cold(const std::function<void()>& call, int calls) {
  double seconds = 0;
  for (int i = 0; i < calls; ++i) {
    for (int n = 0; n < kFlushes; ++n) {
      Require(cudaMemsetAsync(flush_.get(), 0, flush_.size()));
    }
    seconds += Warm(call, 1);
  }
  return seconds;
}

double EventStopwatch::Sending(const std::function<void()>& call) {
  std::vector<double> seconds(21);
  for (double& sample : seconds) {
    Require(cudaDeviceSynchronize());
    const auto start = std::chrono::steady_clock::now();
    call();
    sample = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  Require(cudaDeviceSynchronize());
  return Summarize(seconds).median;
}

}  // namespace heed::bench
