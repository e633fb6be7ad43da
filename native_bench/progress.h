// What a terminal is told while a benchmark runs.
#ifndef HEED_NATIVE_BENCH_PROGRESS_H_
#define HEED_NATIVE_BENCH_PROGRESS_H_

#include <cstddef>
#include <string>

namespace heed::bench {

// "45 s", "3:20 min", "1:05 h".
std::string DurationText(double seconds);

// "12/40 gpt2:prefill/..., 3:20 min left". The rest is taken to go on as `elapsed_seconds` went for
// the `done` cases; nothing is said of it before the first case is done.
std::string ProgressLine(const std::string& what, size_t done, size_t total,
                         double elapsed_seconds);

// What Ctrl-C says of a run: "heed-bench: report.json.part holds 4 of 8 cases", as a line. Empty
// where nothing is kept.
std::string KeptLine(const std::string& path, size_t kept, size_t total);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_PROGRESS_H_
