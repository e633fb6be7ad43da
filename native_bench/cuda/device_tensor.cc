#include "device_tensor.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace heed::bench {
namespace {

void StoreElement(DType dtype, char* to, float x) {
  if (dtype == DType::kFloat32) std::memcpy(to, &x, sizeof(x));
  const uint16_t bits = dtype == DType::kFloat16 ? ToFloat16(x).bits : ToBFloat16(x).bits;
  if (dtype != DType::kFloat32) std::memcpy(to, &bits, sizeof(bits));
}

}  // namespace

void Require(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

DeviceTensor::DeviceTensor(DType dtype, const Extents& shape, std::mt19937& random)
    : dtype_(dtype),
      shape_(shape),
      strides_({shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}) {
  const size_t size = static_cast<size_t>(ElementSize(dtype));
  host_.resize(static_cast<size_t>(shape[0] * strides_[0]) * size);
  std::normal_distribution<float> normal;
  for (size_t at = 0; at < host_.size(); at += size) {
    StoreElement(dtype, host_.data() + at, normal(random));
  }
  Require(cudaMalloc(&device_, host_.size()));
  Require(cudaMemcpy(device_, host_.data(), host_.size(), cudaMemcpyHostToDevice));
}

DeviceTensor::~DeviceTensor() { cudaFree(device_); }

void DeviceTensor::Fetch() {
  Require(cudaMemcpy(host_.data(), device_, host_.size(), cudaMemcpyDeviceToHost));
}

float DeviceTensor::operator[](size_t i) const {
  if (dtype_ == DType::kFloat32) return reinterpret_cast<const float*>(host_.data())[i];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(host_.data())[i];
  return dtype_ == DType::kFloat16 ? ToFloat(Float16{bits}) : ToFloat(BFloat16{bits});
}

std::vector<float> Time(int warm, int runs, const std::function<void()>& call) {
  for (int n = 0; n < warm; ++n) call();
  cudaEvent_t start, stop;
  Require(cudaEventCreate(&start));
  Require(cudaEventCreate(&stop));
  std::vector<float> times(static_cast<size_t>(runs));
  for (float& time : times) {
    Require(cudaEventRecord(start));
    call();
    Require(cudaEventRecord(stop));
    Require(cudaEventSynchronize(stop));
    Require(cudaEventElapsedTime(&time, start, stop));
  }
  Require(cudaEventDestroy(start));
  Require(cudaEventDestroy(stop));
  std::sort(times.begin(), times.end());
  return times;
}

double CopyBandwidth() {
  constexpr size_t kBytes = size_t{1} << 30;
  void *from = nullptr, *to = nullptr;
  Require(cudaMalloc(&from, kBytes));
  Require(cudaMalloc(&to, kBytes));
  const std::vector<float> times =
      Time(3, 20, [&] { Require(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice)); });
  Require(cudaFree(from));
  Require(cudaFree(to));
  return 2.0 * kBytes / (static_cast<double>(times[times.size() / 2]) * 1e-3);
}

}  // namespace heed::bench
