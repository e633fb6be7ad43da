// The command line of heed-bench.
#ifndef HEED_NATIVE_BENCH_OPTIONS_H_
#define HEED_NATIVE_BENCH_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "native_bench/cases.h"
#include "native_bench/measure.h"

namespace heed::bench {

// What is measured, if anything: one kind of report, or another thing to do.
enum class Mode {
  kMechanisms,  // what the line without a mode does
  kProducts,
  kDecode,
  kPatterns,
  kCurves,
  kApproximation,
  kSteps,
  kBackward,
  kFrom,
  kList
};

struct Options {
  Mode mode = Mode::kMechanisms;
  Grid grid;
  Device device = Device::kCpu;
  bool own_cases = false;  // no axis of the grid was given: a GPU has cases of its own
  std::string filter;
  std::vector<std::string> peers;  // ids; empty = every peer of this build
  std::string simd;                // a Highway target; empty = the best one
  uint64_t seed = 1;
  MeasurePlan plan;

  std::string json_path;      // empty = not written; "-" = standard output
  std::string csv_path;       // likewise
  std::string markdown_path;  // likewise
  std::string html_path;      // likewise
  std::string from_path;      // a JSON report to read instead of measuring
  std::string compare_path;   // an older JSON report to judge the new one by
  double tolerance = 0.05;    // relative difference of medians that --compare lets pass
  bool verify_only = false;
  bool quiet = false;
};

// What the program should do: go on with `options`, or stop with `exit_code` (0 after --help, 2 for
// a mistake; the text was printed).
struct CommandLine {
  Options options;
  std::optional<int> exit_code;
};

// Refuses what the line gives and its mode does not read.
CommandLine ParseCommandLine(int argc, const char* const* argv);

// `schema` in the JSON of what the mode measures; empty where it measures nothing.
std::string SchemaOf(Mode mode);

// Parsers of comma-separated lists, and of a number. `flag` is named in the error. Throw
// heed::Error(kOption) for an empty list or an item that is not what the list wants.
std::vector<int64_t> ParseCounts(std::string_view flag, std::string_view text);   // 64,128
std::vector<Lengths> ParseLengths(std::string_view flag, std::string_view text);  // 512,1x4096
std::vector<Heads> ParseHeads(std::string_view flag, std::string_view text);      // 8,32:8
std::vector<Mask> ParseMasks(std::string_view flag, std::string_view text);       // no,yes,both
std::vector<DType> ParseDTypes(std::string_view flag, std::string_view text);  // float32,bfloat16
std::vector<std::string> ParseNames(std::string_view flag, std::string_view text);
uint64_t ParseSeed(std::string_view flag, std::string_view text);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_OPTIONS_H_
