// Timing: several implementations of one case, interleaved.
#ifndef HEED_NATIVE_BENCH_MEASURE_H_
#define HEED_NATIVE_BENCH_MEASURE_H_

#include <functional>
#include <span>
#include <vector>

#include "native_bench/statistics.h"

namespace heed::bench {

enum class Clock {
  kWall,
  kCpu,  // processor time of this process: of one thread alone, what an undisturbed run would take
  kCudaEvents,  // between two events in a stream of a GPU
};

// "wall", "cpu" or "cuda events".
const char* ClockName(Clock clock);

// Seconds since some moment, for the clocks of the host.
double SecondsNow(Clock clock);

struct MeasurePlan {
  Clock clock = Clock::kWall;
  int min_reps = 10;
  double min_seconds = 0.5;
  double max_seconds = 10;
};

// How many calls one sample holds, so that it lasts long enough for the clock: at least 1 ms.
int CallsPerSample(double seconds_per_call);

// Whether a peer that has `reps` samples over `seconds` needs another: until min_reps and
// min_seconds are both reached, or max_seconds is exceeded with at least one sample.
bool NeedsAnother(const MeasurePlan& plan, int reps, double seconds);

// Seconds that `calls` calls take together.
using Stopwatch = std::function<double(const std::function<void()>& call, int calls)>;
Stopwatch HostStopwatch(Clock clock);

// Seconds per call of each candidate by a stopwatch, HostStopwatch(plan.clock) unless given. Rounds
// run A B C, C B A, A B C, ...: whatever disturbs the machine for longer than a round disturbs all
// candidates alike, and none always follows the same neighbour. `warm_seconds[i]` is the duration
// of an earlier call of candidate i, its warm-up.
std::vector<Summary> MeasureInterleaved(std::span<const std::function<void()>> candidates,
                                        std::span<const double> warm_seconds,
                                        const MeasurePlan& plan, const Stopwatch& stopwatch = {});

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_MEASURE_H_
