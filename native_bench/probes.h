// What this machine can do at most, measured in this process: the denominators of every fraction.
#ifndef HEED_NATIVE_BENCH_PROBES_H_
#define HEED_NATIVE_BENCH_PROBES_H_

#include <string>
#include <vector>

#include "native_bench/measure.h"

namespace heed::bench {

struct FmaPeak {
  std::string target;  // Highway's name of the instruction set; on a GPU the instruction
  int threads = 1;
  double gflops = 0;  // a multiply-add counts 2; all threads together
  // What is multiplied: on a GPU each type has a peak of its own. Empty: float32, the peak of every
  // row.
  std::string dtype = {};
};

struct StreamRate {
  int threads = 1;
  double read_gbps = 0;   // sum of an array far larger than the caches
  double triad_gbps = 0;  // a = b + s c with non-temporal stores, 12 bytes an element; CPU only
  double copy_gbps = 0;   // bytes read and written by a copy; GPU only
};

// The highest of repeated runs of 14 independent multiply-add chains held in registers. Takes about
// 0.2 s. Forces `target` meanwhile and restores the best target afterwards.
FmaPeak MeasureFmaPeak(const std::string& target, int threads, Clock clock = Clock::kWall);

// The highest of repeated passes over 64 MiB arrays, each thread on its own part. Processor time is
// that of one thread, like a row's.
StreamRate MeasureStream(int threads, Clock clock = Clock::kWall);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_PROBES_H_
