#include "native_bench/cuda/peaks.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>

#include "native_bench/cuda/kernels.h"
#if defined(HEED_BENCH_CUBLAS)
#include "native_bench/cuda/cublaslt.h"
#endif

namespace heed::bench {
namespace {

constexpr int kRuns = 10;

int Attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  Require(cudaGetDevice(&device));
  Require(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

// Units of work a second, in billions; `work` puts it into the stream and says how much it is.
double HighestRate(EventStopwatch& stopwatch, const std::function<double()>& work) {
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    double amount = 0;
    const double seconds = stopwatch.Warm([&] { amount = work(); }, 1);
    best = std::max(best, amount / seconds * 1e-9);
  }
  return best;
}

#if defined(HEED_BENCH_CUBLAS)
constexpr int64_t kSize = 8192;

FmaPeak MeasureCublas(EventStopwatch& stopwatch, DType dtype) {
  const size_t bytes = static_cast<size_t>(kSize * kSize * ElementSize(dtype));
  const DeviceBytes a(bytes), b(bytes), c(bytes);
  FillNormal(a.get(), dtype, kSize * kSize, 1);
  FillNormal(b.get(), dtype, kSize * kSize, 2);
  const double rate =
      HighestRate(stopwatch, [&] { return CublasFlops(dtype, a.get(), b.get(), c.get(), kSize); });
  return {.target = "cublas", .gflops = rate, .dtype = DTypeName(dtype)};
}

// Nothing where cuBLASLt has no such product, or fails: no row needs it.
std::optional<FmaPeak> MeasureCublasLt(EventStopwatch& stopwatch) try {
  constexpr DType kType = DType::kFloat8E4M3;
  const Float8Product product(kSize);
  const size_t count = static_cast<size_t>(kSize * kSize);
  const DeviceBytes a(count), b(count), c(2 * count);
  FillNormal(a.get(), kType, kSize * kSize, 1);
  FillNormal(b.get(), kType, kSize * kSize, 2);
  const double rate =
      HighestRate(stopwatch, [&] { return product.Run(a.get(), b.get(), c.get()); });
  return FmaPeak{.target = "cublaslt", .gflops = rate, .dtype = DTypeName(kType)};
} catch (const std::runtime_error&) {
  return std::nullopt;
}
#endif

std::string VersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string BusId(const cudaDeviceProp& device) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.0", device.pciDomainID, device.pciBusID,
                device.pciDeviceID);
  return text.data();
}

}  // namespace

std::vector<FmaPeak> MeasureDevicePeaks(EventStopwatch& stopwatch) {
  const int processors = Attribute(cudaDevAttrMultiProcessorCount);
  const bool is_hopper = Attribute(cudaDevAttrComputeCapabilityMajor) == 9;
  const DeviceBytes sums(sizeof(float) * static_cast<size_t>(ProbeFloats(processors)));
  float* sum = static_cast<float*>(sums.get());
  std::vector<FmaPeak> peaks;
  const auto add = [&](const char* target, DType dtype, const std::function<double()>& work) {
    peaks.push_back(
        {.target = target, .gflops = HighestRate(stopwatch, work), .dtype = DTypeName(dtype)});
  };
  add("fma", DType::kFloat32, [&] { return RunFma(processors, 1 << 16, sum); });
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    add("mma.sync", dtype, [&] { return RunMma(dtype, processors, 1 << 14, sum); });
    if (is_hopper) add("wgmma", dtype, [&] { return RunWgmma(dtype, processors, 1 << 13, sum); });
#if defined(HEED_BENCH_CUBLAS)
    peaks.push_back(MeasureCublas(stopwatch, dtype));
#endif
  }
  if (is_hopper) {
    constexpr DType kType = DType::kFloat8E4M3;
    add("wgmma", kType, [&] { return RunWgmma(kType, processors, 1 << 13, sum); });
  }
#if defined(HEED_BENCH_CUBLAS)
  if (const auto peak = MeasureCublasLt(stopwatch)) peaks.push_back(*peak);
#endif
  return peaks;
}

StreamRate MeasureDeviceStream(EventStopwatch& stopwatch) {
  constexpr size_t kBytes = size_t{1} << 30;
  const DeviceBytes from(kBytes), to(kBytes), sums(sizeof(float) * kReadBlocks);
  FillNormal(from.get(), DType::kFloat32, kBytes / sizeof(float), 1);
  StreamRate rate;
  rate.read_gbps = HighestRate(stopwatch, [&] {
    ReadBytes(from.get(), kBytes, static_cast<float*>(sums.get()));
    return static_cast<double>(kBytes);
  });
  rate.copy_gbps = HighestRate(stopwatch, [&] {
    Require(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice));
    return 2.0 * kBytes;
  });
  return rate;
}

Gpu DescribeGpu() {
  int device = 0, runtime = 0, driver = 0;
  cudaDeviceProp properties;
  Require(cudaGetDevice(&device));
  Require(cudaGetDeviceProperties(&properties, device));
  Require(cudaRuntimeGetVersion(&runtime));
  Require(cudaDriverGetVersion(&driver));
  Gpu gpu;
  gpu.name = properties.name;
  gpu.runtime = VersionText(runtime);
  gpu.compute_capability =
      std::to_string(properties.major) + "." + std::to_string(properties.minor);
  gpu.multiprocessors = properties.multiProcessorCount;
  gpu.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  gpu.l2_bytes = static_cast<int64_t>(L2Bytes());
  gpu.bus_id = BusId(properties);
  const GpuReading reading = ReadGpu(gpu.bus_id);
  gpu.driver = reading.driver.empty() ? "for CUDA " + VersionText(driver) : reading.driver;
  gpu.max_sm_mhz = reading.max_sm_mhz;
  gpu.power_limit_w = reading.power_limit_w;
  gpu.missing = reading.missing;
  return gpu;
}

}  // namespace heed::bench
