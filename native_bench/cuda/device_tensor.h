// Random tensors in device memory, and a stopwatch of CUDA events.
#ifndef HEED_NATIVE_BENCH_CUDA_DEVICE_TENSOR_H_
#define HEED_NATIVE_BENCH_CUDA_DEVICE_TENSOR_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <random>
#include <vector>

#include "heed/tensor.h"

namespace heed::bench {

// Throws std::runtime_error.
void Require(cudaError_t error);

// Contiguous [batch, heads, len, dim] on the host and on the device.
class DeviceTensor {
 public:
  // ~ N(0, 1), rounded to the type.
  DeviceTensor(DType dtype, const Extents& shape, std::mt19937& random);
  ~DeviceTensor();
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  StoredTensor device() const { return {device_, dtype_, shape_, strides_}; }
  StoredTensor host() const { return {host_.data(), dtype_, shape_, strides_}; }
  StoredOutput output() { return {device_, dtype_, shape_, strides_}; }

  void Fetch();
  // Element i of the host's copy.
  float operator[](size_t i) const;
  size_t bytes() const { return host_.size(); }

 private:
  DType dtype_;
  Extents shape_, strides_;
  std::vector<char> host_;
  void* device_ = nullptr;
};

// Milliseconds of each of `runs` calls on the default stream, after `warm` that do not count,
// ascending.
std::vector<float> Time(int warm, int runs, const std::function<void()>& call);

// Bytes a second that a copy within the device moves, read and written.
double CopyBandwidth();

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_CUDA_DEVICE_TENSOR_H_
