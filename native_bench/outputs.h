// Where reports go: files, standard output, and the people in front of the terminal.
#ifndef HEED_NATIVE_BENCH_OUTPUTS_H_
#define HEED_NATIVE_BENCH_OUTPUTS_H_

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "native_bench/options.h"

namespace heed::bench {

// What goes to a path: "-" is standard output, an empty one nowhere.
struct Output {
  std::string path;
  std::function<void(std::ostream&)> print;
};

// Throws heed::Error(kOption) with the name of an output that cannot be written: before anything is
// measured. Changes no file, and leaves none that was not there.
void CheckWritable(const Options& options);

// Writes all of them, in order. Those that could not be written are named, after the others are
// written, by heed::Error(kOption).
void WriteOutputs(const std::vector<Output>& outputs);

// Throws heed::Error(kOption) where what was printed did not reach standard output.
void FlushStandardOutput();

// Whether an output takes standard output. Tables for people go to standard error then.
bool TakesStandardOutput(const Options& options);

// Where the JSON of a run that goes on stands; empty where the JSON goes to no file of its own.
std::string UnfinishedPath(const Options& options);

// A JSON report of any kind. Throws heed::Error(kOption), naming the path, for what is none.
nlohmann::json ReadReport(const std::string& path);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_OUTPUTS_H_
