#include "native_bench/probes.h"

#include <algorithm>
#include <barrier>
#include <functional>
#include <memory>
#include <new>
#include <thread>

#include "native_bench/probe_kernels.h"
#include "native_bench/simd_target.h"

namespace heed::bench {
namespace {

// Seconds from the moment all threads are ready until the last one has done `work(thread)`.
double TimeTogether(int threads, Clock clock, const std::function<void(int)>& work) {
  double start = 0;
  std::barrier ready(threads, [&start, clock]() noexcept { start = SecondsNow(clock); });
  std::vector<std::jthread> helpers;
  const auto body = [&](int thread) {
    ready.arrive_and_wait();
    work(thread);
  };
  for (int thread = 1; thread < threads; ++thread) helpers.emplace_back(body, thread);
  body(0);
  helpers.clear();
  return SecondsNow(clock) - start;
}

// Where results go that nothing reads.
volatile float sink;

double FmaGflops(int threads, int64_t rounds, Clock clock) {
  std::vector<FmaRun> runs(static_cast<size_t>(threads));
  const double seconds = TimeTogether(threads, clock, [&](int thread) {
    runs[static_cast<size_t>(thread)] = RunFmaChains(rounds);
  });
  double flops = 0;
  for (const FmaRun& run : runs) {
    flops += run.flops;
    sink = run.sum;
  }
  return flops / seconds * 1e-9;
}

struct StreamArrays {
  static constexpr int64_t kCount = int64_t{64} << 18;  // 64 MiB of floats
  struct Release {
    void operator()(float* data) const { ::operator delete[](data, std::align_val_t{64}); }
  };
  static std::unique_ptr<float[], Release> Make(float value) {
    void* memory = ::operator new[](kCount * sizeof(float), std::align_val_t{64});
    std::unique_ptr<float[], Release> data(static_cast<float*>(memory));
    std::fill_n(data.get(), kCount, value);
    return data;
  }
  std::unique_ptr<float[], Release> a = Make(0), b = Make(1), c = Make(2);
};

}  // namespace

FmaPeak MeasureFmaPeak(const std::string& target, int threads, Clock clock) {
  constexpr int64_t kRounds = 1'000'000;  // 14 million multiply-adds: about 2 ms
  constexpr int kRepetitions = 60;
  ForceTarget(target);
  FmaPeak peak = {.target = target, .threads = threads};
  for (int i = 0; i < kRepetitions; ++i) {
    peak.gflops = std::max(peak.gflops, FmaGflops(threads, kRounds, clock));
  }
  UseBestTarget();
  return peak;
}

StreamRate MeasureStream(int threads, Clock clock) {
  constexpr int kRepetitions = 6;
  const StreamArrays arrays;
  const int64_t part = StreamArrays::kCount / threads / 256 * 256;
  StreamRate rate = {.threads = threads};
  const double elements = static_cast<double>(part) * threads;
  for (int i = 0; i < kRepetitions; ++i) {
    const double read = TimeTogether(threads, clock, [&](int thread) {
      sink = ReadArray(arrays.b.get() + thread * part, part);
    });
    rate.read_gbps = std::max(rate.read_gbps, 4e-9 * elements / read);
    const double triad = TimeTogether(threads, clock, [&](int thread) {
      const int64_t first = thread * part;
      TriadArrays(arrays.a.get() + first, arrays.b.get() + first, arrays.c.get() + first, 0.5f,
                  part);
    });
    rate.triad_gbps = std::max(rate.triad_gbps, 12e-9 * elements / triad);
  }
  return rate;
}

}  // namespace heed::bench
