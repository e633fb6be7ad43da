#include "native_bench/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "heed/registry.h"
#include "native_bench/shapes.h"

namespace heed::bench {
namespace {

// Lists as typed, parsed after CLI11 has taken the line apart.
struct RawLists {
  std::string mechanisms = "scaled_dot_product";
  std::string lengths = "128,512,1024,2048";
  std::string head_dims = "64";
  std::string heads = "8";
  std::string causal = "both";
  std::string shapes;
  std::string dtypes = "float32";
  std::string threads = "1";
  std::string peers;
  std::string clock = "wall";
  std::string device = "cpu";
};

void AddGridFlags(CLI::App& app, RawLists& raw, Options& options) {
  app.add_option("--mechanisms", raw.mechanisms, "ids of --list, or all")->capture_default_str();
  auto* lengths =
      app.add_option("--lengths", raw.lengths, "sequence lengths; 1x4096 is q_len x kv_len")
          ->capture_default_str();
  auto* head_dims =
      app.add_option("--head-dims", raw.head_dims, "sizes of one head")->capture_default_str();
  auto* heads = app.add_option("--heads", raw.heads, "query heads; 32:8 has 8 key/value heads")
                    ->capture_default_str();
  app.add_option("--batch", options.grid.batch, "batch entries")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  auto* causal = app.add_option("--causal", raw.causal, "no, yes or both")->capture_default_str();
  app.add_option("--shapes", raw.shapes,
                 "named shapes of models instead: gpt2, llama3-8b:decode, ... of --list, or all")
      ->excludes(lengths, head_dims, heads, causal);
  app.add_option("--types", raw.dtypes,
                 "storage of q, k, v: float32, float16, bfloat16; on a GPU also float8_e4m3")
      ->capture_default_str();
  app.add_option("--threads", raw.threads, "thread counts")->capture_default_str();
  app.add_option("--filter", options.filter, "keep cases whose name matches a regular expression");
}

void AddRunFlags(CLI::App& app, RawLists& raw, Options& options) {
  app.add_option("--peers", raw.peers, "implementations to compare (default: all of this build)");
  app.add_option("--device", raw.device,
                 "cpu, or cuda: heed::cuda and its peers on the current GPU, with cases of its own "
                 "unless an axis is given")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--simd", options.simd, "force a Highway target (AVX2, SSE4, EMU128, ...)");
  app.add_option("--clock", raw.clock,
                 "wall, or cpu: processor time, for one thread on a busy machine")
      ->capture_default_str()
      ->check(CLI::IsMember({"wall", "cpu"}));
  app.add_option("--reps", options.plan.min_reps, "repetitions, at least")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  app.add_option("--min-time", options.plan.min_seconds, "seconds per peer and case, at least")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 3600.0));
  app.add_option("--max-time", options.plan.max_seconds,
                 "seconds after which a slow peer gets no further repetition")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  app.add_option("--seed", options.seed, "seed of the random inputs")->capture_default_str();
  app.add_flag("--products", options.products,
               "measure the matrix products of the layers instead of mechanisms, and stop");
  app.add_flag("--decode", options.decode,
               "measure one token over caches of 1024 to 32768 tokens instead, 32:8 heads of 128 "
               "unless given, and stop");
  app.add_flag("--patterns", options.patterns,
               "measure whether the cost of keep patterns follows what they leave, and stop");
  app.add_flag("--curves", options.curves,
               "measure time and memory against length instead, 1024 to 131072 tokens of one head "
               "unless given, and stop");
  app.add_flag("--approximation", options.approximation,
               "measure how far mechanisms are from the exact attention they stand in for, at 1024 "
               "and 4096 tokens unless given, and stop");
  app.add_flag(
      "--steps", options.steps,
      "measure one token of every recurrent mechanism, 8 heads of 64 and 128 unless given, "
      "and stop");
  app.add_flag("--backward", options.backward,
               "measure gradients instead, at 128, 512 and 2048 tokens of 8 heads of 64 unless "
               "given, and stop");
  app.add_flag("--verify-only", options.verify_only, "check every peer, time none");
}

void AddOutputFlags(CLI::App& app, Options& options) {
  app.add_option("--json", options.json_path, "write the report as JSON; - is standard output");
  app.add_option("--csv", options.csv_path, "write the rows as CSV; - is standard output");
  app.add_option("--markdown", options.markdown_path,
                 "write the rows as a Markdown table; - is standard output");
  app.add_option("--html", options.html_path,
                 "write the report as one self-contained page; - is standard output");
  app.add_option("--from", options.from_path,
                 "measure nothing: read this JSON report for --html and --compare");
  app.add_option("--compare", options.compare_path,
                 "an older JSON report: judge every row FASTER, SLOWER, SAME or NOISY");
  app.add_option("--tolerance", options.tolerance,
                 "relative difference of medians that --compare calls the same")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_flag("--list", options.list, "list mechanisms, peers, SIMD targets and cases, and stop");
  app.add_flag("--quiet", options.quiet, "no progress, no table");
}

std::vector<int> ParseThreads(const std::string& text) {
  std::vector<int> threads;
  for (int64_t count : ParseCounts("--threads", text)) {
    if (count > 1024) throw Error(ErrorCode::kOption, "--threads: at most 1024");
    threads.push_back(static_cast<int>(count));
  }
  return threads;
}

// What a kind of report measures when the line says nothing else; empty leaves the default.
struct Shape {
  const char* heads;
  const char* head_dims;
  const char* lengths;
};
constexpr Shape kDecodeShape = {"32:8", "128", "1024,2048,4096,8192,16384,32768"};
constexpr Shape kCurveShape = {"1", "64", "1024,2048,4096,8192,16384,32768,65536,131072"};
constexpr Shape kApproximationShape = {"4", "64", "1024,4096"};
constexpr Shape kStepShape = {"8", "64,128", "1"};
constexpr Shape kBackwardShape = {"8", "64", "128,512,2048"};

void FillShape(const CLI::App& app, const Shape& shape, RawLists& raw) {
  if (app.count("--heads") == 0) raw.heads = shape.heads;
  if (app.count("--head-dims") == 0) raw.head_dims = shape.head_dims;
  if (app.count("--lengths") == 0) raw.lengths = shape.lengths;
}

void RefuseFloat8(const Grid& grid) {
  if (std::find(grid.dtypes.begin(), grid.dtypes.end(), DType::kFloat8E4M3) == grid.dtypes.end())
    return;
  throw Error(ErrorCode::kOption, "--types: float8_e4m3 is for --device cuda");
}

// A GPU is measured with shorter samples, of events, and with what the line says beside that.
void FillDevice(const CLI::App& app, const RawLists& raw, Options& options) {
  if (raw.device != "cuda") return RefuseFloat8(options.grid);
  for (const char* flag :
       {"--products", "--decode", "--patterns", "--curves", "--approximation", "--steps"}) {
    if (app.count(flag) > 0) {
      throw Error(ErrorCode::kOption, std::string("--device cuda: does not go with ") + flag);
    }
  }
  for (const char* flag : {"--clock", "--threads", "--simd"}) {
    if (app.count(flag) > 0) {
      throw Error(ErrorCode::kOption, std::string("--device cuda: ") + flag + " is of the CPU");
    }
  }
  options.device = Device::kCuda;
  options.plan.clock = Clock::kCudaEvents;
  if (app.count("--min-time") == 0) options.plan.min_seconds = 0.02;
  if (app.count("--max-time") == 0) options.plan.max_seconds = 1;
  options.own_cases = true;
  for (const char* axis : {"--mechanisms", "--lengths", "--head-dims", "--heads", "--batch",
                           "--causal", "--shapes", "--types"}) {
    if (app.count(axis) > 0) options.own_cases = false;
  }
}

void ParseLists(const RawLists& raw, Options& options) {
  Grid& grid = options.grid;
  if (raw.mechanisms == "all") {
    for (const Mechanism& m : Mechanisms()) grid.mechanisms.emplace_back(m.id);
  } else {
    grid.mechanisms = ParseNames("--mechanisms", raw.mechanisms);
  }
  grid.lengths = ParseLengths("--lengths", raw.lengths);
  grid.head_dims = ParseCounts("--head-dims", raw.head_dims);
  grid.heads = ParseHeads("--heads", raw.heads);
  grid.masks = ParseMasks("--causal", raw.causal);
  if (!raw.shapes.empty()) grid.shapes = FindShapes(ParseNames("--shapes", raw.shapes));
  grid.dtypes = ParseDTypes("--types", raw.dtypes);
  grid.threads = ParseThreads(raw.threads);
  if (raw.clock == "cpu") {
    options.plan.clock = Clock::kCpu;
    if (grid.threads != std::vector<int>{1}) {
      throw Error(ErrorCode::kOption,
                  "--clock cpu: counts all threads together, so --threads is 1");
    }
  }
  if (!raw.peers.empty()) options.peers = ParseNames("--peers", raw.peers);
}

}  // namespace

CommandLine ParseCommandLine(int argc, const char* const* argv) {
  CommandLine line;
  RawLists raw;
  CLI::App app(
      "heed-bench: checks every implementation of attention against a float64 reference, then "
      "times those that pass, interleaved, as a fraction of this machine's own FMA peak.",
      "heed-bench");
  app.footer(
      "Exit status: 0 all verified, 1 a verification failed, 2 the command line is wrong or a file "
      "cannot be read or written, 3 --compare found a SLOWER row.");
  AddGridFlags(app, raw, line.options);
  AddRunFlags(app, raw, line.options);
  AddOutputFlags(app, line.options);
  try {
    app.parse(argc, argv);
    if (line.options.decode) FillShape(app, kDecodeShape, raw);
    if (line.options.curves) FillShape(app, kCurveShape, raw);
    if (line.options.approximation) FillShape(app, kApproximationShape, raw);
    if (line.options.steps) FillShape(app, kStepShape, raw);
    if (line.options.backward) FillShape(app, kBackwardShape, raw);
    ParseLists(raw, line.options);
    FillDevice(app, raw, line.options);
  } catch (const CLI::ParseError& error) {
    line.exit_code = app.exit(error) == 0 ? 0 : 2;
  } catch (const Error& error) {
    line.exit_code = app.exit(CLI::ValidationError(error.what())) == 0 ? 0 : 2;
  }
  return line;
}

}  // namespace heed::bench
