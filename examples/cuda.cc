// Attention on an NVIDIA GPU: the same options as on the CPU, pointers to device memory, a stream.
// Checks the output against that of the CPU. Where no GPU can be used it says why, and exits
// with 2.
#include <cuda_runtime.h>
#include <heed/cuda.h>
#include <heed/heed.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <vector>

namespace {

constexpr int64_t kHeads = 8, kKvHeads = 2, kLen = 128, kDim = 64;

void Require(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// Floats in device memory, freed at the end of the program with everything else.
float* ToDevice(const std::vector<float>& host) {
  float* device = nullptr;
  Require(cudaMalloc(reinterpret_cast<void**>(&device), host.size() * sizeof(float)));
  Require(cudaMemcpy(device, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));
  return device;
}

std::vector<float> Random(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

template <class T>
auto Queries(T* data) {
  return heed::Contiguous(data, 1, kHeads, kLen, kDim);
}
template <class T>
auto Keys(T* data) {
  return heed::Contiguous(data, 1, kKvHeads, kLen, kDim);
}

}  // namespace

int main() {
  const heed::cuda::Availability gpu = heed::cuda::Available();
  if (!gpu.usable) {
    std::printf("no GPU: found %s; needed is %s\n", gpu.found.c_str(), gpu.needed.c_str());
    return 2;
  }
  const std::vector<float> q = Random(kHeads * kLen * kDim, 1);
  const std::vector<float> k = Random(kKvHeads * kLen * kDim, 2);
  const std::vector<float> v = Random(kKvHeads * kLen * kDim, 3);
  heed::AttentionOptions options;
  options.causal = true;

  cudaStream_t stream = nullptr;
  Require(cudaStreamCreate(&stream));
  const float *device_q = ToDevice(q), *device_k = ToDevice(k), *device_v = ToDevice(v);
  float* const device_output = ToDevice(std::vector<float>(q.size()));
  heed::cuda::Attention(Queries(device_q), Keys(device_k), Keys(device_v), options,
                        {.output = Queries(device_output)}, stream);
  heed::cuda::Check(stream);  // waits, and throws what a kernel found
  std::vector<float> output(q.size());
  Require(cudaMemcpy(output.data(), device_output, output.size() * sizeof(float),
                     cudaMemcpyDeviceToHost));

  std::vector<float> expected(q.size());
  heed::Attention(Queries(q.data()), Keys(k.data()), Keys(v.data()), options,
                  {.output = Queries(expected.data())});
  double error = 0;
  for (size_t n = 0; n < output.size(); ++n) {
    error = std::max(error, std::abs(double{output[n]} - double{expected[n]}));
  }
  std::printf("%s: differs from the CPU by at most %.1e\n", gpu.found.c_str(), error);
  return error < 1e-4 ? 0 : 1;
}
