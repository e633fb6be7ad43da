// The run of --device cuda: verify every peer on every case, time those that are right.
#ifndef HEED_NATIVE_BENCH_DEVICE_RUN_H_
#define HEED_NATIVE_BENCH_DEVICE_RUN_H_

#include <string>

#include "heed/cuda.h"
#include "native_bench/options.h"
#include "native_bench/report.h"
#include "native_bench/run.h"

namespace heed::bench {

// Throws heed::Error(kUnsupported), with what was found and what is needed, where no GPU can be
// used, and heed::Error(kOption) as RunBenchmark() does.
Report RunDeviceBenchmark(const Options& options, const std::string& command,
                          const Progress& progress, const Checkpoint& checkpoint = {});

// The error of a machine or a build without a usable GPU.
[[noreturn]] void RefuseDevice(const cuda::Availability& state);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_DEVICE_RUN_H_
