// The benchmark's own kernels: on a GPU, or on the interpreter of tests/cuda/interpreter.
#include "native_bench/cuda/kernels.h"

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "heed/dtype.h"
#include "native_bench/cuda/device_memory.h"
#include "native_bench/tests/cuda/needs_gpu.h"

namespace heed::bench {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

class BenchKernels : public NeedsGpu {};

template <class T>
DeviceBytes ToDevice(const std::vector<T>& host) {
  DeviceBytes device(host.size() * sizeof(T));
  Require(cudaMemcpy(device.get(), host.data(), device.size(), cudaMemcpyHostToDevice));
  return device;
}

template <class T>
std::vector<T> FromDevice(const DeviceBytes& device) {
  std::vector<T> host(device.size() / sizeof(T));
  Require(cudaMemcpy(host.data(), device.get(), host.size() * sizeof(T), cudaMemcpyDeviceToHost));
  return host;
}

std::vector<float> Floats(const DeviceBytes& device, DType dtype) {
  if (dtype == DType::kFloat32) return FromDevice<float>(device);
  std::vector<float> floats;
  if (dtype == DType::kFloat8E4M3) {
    for (uint8_t bits : FromDevice<uint8_t>(device)) floats.push_back(ToFloat(Float8E4M3{bits}));
    return floats;
  }
  for (uint16_t bits : FromDevice<uint16_t>(device)) {
    floats.push_back(dtype == DType::kFloat16 ? ToFloat(Float16{bits}) : ToFloat(BFloat16{bits}));
  }
  return floats;
}

double MeanOfPowers(const std::vector<float>& numbers, int power) {
  double sum = 0;
  for (float x : numbers) sum += std::pow(static_cast<double>(x), power);
  return sum / static_cast<double>(numbers.size());
}

std::vector<float> Drawn(DType dtype, int64_t count, uint64_t seed, const Scales& scales = {}) {
  const DeviceBytes device(static_cast<size_t>(count * ElementSize(dtype)));
  FillNormal(device.get(), dtype, count, seed, scales);
  return Floats(device, dtype);
}

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3};

TEST_F(BenchKernels, NumbersAreNormal) {
  constexpr int64_t kCount = 300'001;  // more than there are threads, and odd
  for (DType dtype : kTypes) {
    SCOPED_TRACE(DTypeName(dtype));
    const std::vector<float> numbers = Drawn(dtype, kCount, 7);
    EXPECT_NEAR(MeanOfPowers(numbers, 1), 0, 0.01);  // five deviations of the mean
    EXPECT_NEAR(MeanOfPowers(numbers, 2), 1, 0.02);
    EXPECT_NEAR(MeanOfPowers(numbers, 3), 0, 0.05);
    EXPECT_NEAR(MeanOfPowers(numbers, 4), 3, 0.1);
  }
}

TEST_F(BenchKernels, NumbersDependOnTheSeedAlone) {
  const std::vector<float> numbers = Drawn(DType::kFloat32, 1000, 7);
  EXPECT_EQ(numbers, Drawn(DType::kFloat32, 1000, 7));
  EXPECT_NE(numbers, Drawn(DType::kFloat32, 1000, 8));
  std::vector<float> rounded;
  for (float x : numbers) rounded.push_back(ToFloat(ToBFloat16(x)));
  EXPECT_EQ(Drawn(DType::kBFloat16, 1000, 7), rounded);
}

TEST_F(BenchKernels, ScalesDivideTheirNumbers) {
  const std::vector<float> each = {0.25f, 4};
  const DeviceBytes scales = ToDevice(each);
  const std::vector<float> numbers = Drawn(DType::kFloat32, 10, 7);
  std::vector<float> scaled = Drawn(DType::kFloat32, 10, 7, {static_cast<float*>(scales.get()), 5});
  for (size_t n = 0; n < scaled.size(); ++n) scaled[n] *= each[n / 5];
  EXPECT_EQ(scaled, numbers);
}

TEST_F(BenchKernels, SoftmaxIsThatOfFloat64) {
  constexpr int64_t kHeads = 3, kQueries = 4, kKeys = 301, kRows = kHeads * kQueries;
  const float scale = 0.7f;
  const DeviceBytes scores(static_cast<size_t>(kRows * kKeys) * sizeof(float));
  FillNormal(scores.get(), DType::kFloat32, kRows * kKeys, 3);
  const std::vector<float> s = FromDevice<float>(scores);
  for (bool causal : {false, true}) {
    std::vector<float> expected;
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t seen = causal ? kKeys - kQueries + row % kQueries + 1 : kKeys;
      const float* const begin = s.data() + row * kKeys;
      double sum = 0;
      for (int64_t j = 0; j < seen; ++j) sum += std::exp(static_cast<double>(scale) * begin[j]);
      for (int64_t j = 0; j < kKeys; ++j) {
        const double weight = std::exp(static_cast<double>(scale) * begin[j]) / sum;
        expected.push_back(j < seen ? static_cast<float>(weight) : 0);
      }
    }
    for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + (causal ? ", causal" : ""));
      const DeviceBytes weights(static_cast<size_t>(kRows * kKeys * ElementSize(dtype)));
      Softmax({.scores = static_cast<const float*>(scores.get()),
               .weights = weights.get(),
               .dtype = dtype,
               .rows = kRows,
               .q_len = kQueries,
               .kv_len = kKeys,
               .scale = scale,
               .causal = causal});
      const float bound = dtype == DType::kFloat32 ? 1e-7f : 2e-4f;
      EXPECT_THAT(Floats(weights, dtype), Pointwise(FloatNear(bound), expected));
    }
  }
}

TEST_F(BenchKernels, EveryByteIsRead) {
  constexpr size_t kCount = size_t{4} * 256 * kReadBlocks + 4 * 77;  // some read twice as much
  std::vector<float> numbers(kCount, 1);
  numbers.front() = 3, numbers.back() = 6;
  const DeviceBytes data = ToDevice(numbers), sums(sizeof(float) * kReadBlocks);
  ReadBytes(data.get(), data.size(), static_cast<float*>(sums.get()));
  double sum = 0;
  for (float part : FromDevice<float>(sums)) sum += part;
  EXPECT_EQ(sum, static_cast<double>(kCount) + 7);
}

// What the threads of a probe leave behind.
template <class Run>
std::vector<float> SumsOf(int blocks_each, const Run& run) {
  constexpr int kMultiprocessors = 1;
  const int threads = blocks_each * 256 * kMultiprocessors;
  EXPECT_LE(threads, ProbeFloats(kMultiprocessors));
  const DeviceBytes sums = ToDevice(std::vector<float>(static_cast<size_t>(threads), NAN));
  run(kMultiprocessors, static_cast<float*>(sums.get()));
  return FromDevice<float>(sums);
}

TEST_F(BenchKernels, MultiplyAddsAreNotLeftOut) {
  constexpr int kRounds = 21;
  double operations = 0;
  const std::vector<float> sums = SumsOf(4, [&](int multiprocessors, float* sum) {
    operations = RunFma(multiprocessors, kRounds, sum);
  });
  EXPECT_EQ(operations, 2.0 * 16 * kRounds * 4 * 256);
  for (size_t thread = 0; thread < sums.size(); ++thread) {
    const float lane = static_cast<float>(thread % 256);
    const float factor = 0.999f + 1e-7f * lane;
    double total = 0;
    for (int n = 0; n < 16; ++n) {
      float chain = lane + static_cast<float>(n);
      for (int round = 0; round < kRounds; ++round) chain = std::fma(chain, factor, 0.5f);
      total += chain;
    }
    ASSERT_NEAR(sums[thread], total, 1e-5 * total) << thread;
  }
}

// Sums of three products are three times those of one, but for a share that is rounded away: none
// is left out, none is another's.
template <class Run>
void ExpectSumsOfRounds(int blocks_each, float rounded_away, const Run& run) {
  std::vector<float> once =
      SumsOf(blocks_each, [&](int multiprocessors, float* sum) { run(multiprocessors, 1, sum); });
  const std::vector<float> thrice =
      SumsOf(blocks_each, [&](int multiprocessors, float* sum) { run(multiprocessors, 3, sum); });
  float largest = 0;
  for (float& x : once) largest = std::max(largest, std::abs(x *= 3));
  EXPECT_GT(largest, 1);
  EXPECT_THAT(thrice, Pointwise(FloatNear(rounded_away * largest), once));
}

TEST_F(BenchKernels, ProductsOfWarpsAreNotLeftOut) {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    SCOPED_TRACE(DTypeName(dtype));
    ExpectSumsOfRounds(4, 1e-4f, [&](int multiprocessors, int rounds, float* sum) {
      const double operations = RunMma(dtype, multiprocessors, rounds, sum);
      EXPECT_EQ(operations, 2.0 * 16 * 8 * 16 * 8 * rounds * 4 * 8);
    });
  }
}

TEST_F(BenchKernels, ProductsOfWarpGroupsAreNotLeftOut) {
  if (MajorCapability() != 9) GTEST_SKIP() << "wgmma is of compute capability 9.0";
  for (DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3}) {
    SCOPED_TRACE(DTypeName(dtype));
    const bool is_float8 = dtype == DType::kFloat8E4M3;
    const double depth = is_float8 ? 32 : 16;
    // Tensor cores keep 14 digits of sums of float8.
    ExpectSumsOfRounds(2, is_float8 ? 0.02f : 1e-4f,
                       [&](int multiprocessors, int rounds, float* sum) {
                         const double operations = RunWgmma(dtype, multiprocessors, rounds, sum);
                         EXPECT_EQ(operations, 2.0 * 64 * 64 * depth * 8 * rounds * 2 * 2);
                       });
  }
}

TEST_F(BenchKernels, AStopwatchMeasuresEveryCall) {
  EventStopwatch stopwatch;
  const DeviceBytes data(4096);
  int calls = 0;
  const auto call = [&] {
    ++calls;
    FillNormal(data.get(), DType::kFloat32, 1024, 1);
  };
  EXPECT_GT(stopwatch.Warm(call, 3), 0);
  EXPECT_EQ(calls, 3);
  EXPECT_GT(stopwatch.Cold(call, 2), 0);
  EXPECT_EQ(calls, 5);
  EXPECT_GT(stopwatch.Sending(call), 0);
  EXPECT_GT(calls, 5);
}

}  // namespace
}  // namespace heed::bench
