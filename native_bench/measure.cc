#include "native_bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <numeric>

namespace heed::bench {
double SecondsNow(Clock clock) {
  if (clock == Clock::kCpu) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

const char* ClockName(Clock clock) {
  if (clock == Clock::kCudaEvents) return "cuda events";
  return clock == Clock::kCpu ? "cpu" : "wall";
}

Stopwatch HostStopwatch(Clock clock) {
  return [clock](const std::function<void()>& call, int calls) {
    const double start = SecondsNow(clock);
    for (int i = 0; i < calls; ++i) call();
    return SecondsNow(clock) - start;
  };
}

int CallsPerSample(double seconds_per_call) {
  constexpr double kSampleSeconds = 1e-3;
  constexpr double kMostCalls = 1e5;
  return static_cast<int>(
      std::clamp(std::ceil(kSampleSeconds / std::max(seconds_per_call, 1e-9)), 1.0, kMostCalls));
}

bool NeedsAnother(const MeasurePlan& plan, int reps, double seconds) {
  if (reps == 0) return true;
  if (seconds > plan.max_seconds) return false;
  return reps < plan.min_reps || seconds < plan.min_seconds;
}

std::vector<Summary> MeasureInterleaved(std::span<const std::function<void()>> candidates,
                                        std::span<const double> warm_seconds,
                                        const MeasurePlan& plan, const Stopwatch& stopwatch) {
  const Stopwatch sample = stopwatch ? stopwatch : HostStopwatch(plan.clock);
  std::vector<std::vector<double>> samples(candidates.size());
  std::vector<double> spent(candidates.size());
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (bool any = true; any; std::reverse(order.begin(), order.end())) {
    any = false;
    for (size_t i : order) {
      if (!NeedsAnother(plan, static_cast<int>(samples[i].size()), spent[i])) continue;
      const int calls = CallsPerSample(warm_seconds[i]);
      const double seconds = sample(candidates[i], calls);
      samples[i].push_back(seconds / calls);
      spent[i] += seconds;
      any = true;
    }
  }
  std::vector<Summary> summaries;
  for (const std::vector<double>& s : samples) summaries.push_back(Summarize(s));
  return summaries;
}

}  // namespace heed::bench
