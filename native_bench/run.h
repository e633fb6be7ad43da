// The run: verify every peer on every case, time those that are right.
#ifndef HEED_NATIVE_BENCH_RUN_H_
#define HEED_NATIVE_BENCH_RUN_H_

#include <functional>
#include <string>
#include <vector>

#include "native_bench/options.h"
#include "native_bench/peer.h"
#include "native_bench/report.h"

namespace heed::bench {

// Told what is being done next: "probing", a case's name, ..., with `done` of `total` cases behind.
using Progress = std::function<void(const std::string& what, size_t done, size_t total)>;

// All that is known before anything runs. The SIMD target is the one that the options force.
Report OpenReport(const Options& options, const std::string& command,
                  const std::vector<Peer>& peers);

// Throws heed::Error(kOption) for unknown peers, mechanisms or targets, before anything is
// measured.
Report RunBenchmark(const Options& options, const std::string& command, const Progress& progress);

// Whether any row is kWrong.
bool AnyWrong(const Report& report);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_RUN_H_
