#include "native_bench/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <utility>

#include "heed/registry.h"
#include "native_bench/shapes.h"
#include "native_bench/words.h"

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
  std::string seed = "1";
};

// What a kind of report measures when the line says nothing else.
struct Shape {
  const char* heads;
  const char* head_dims;
  const char* lengths;
};

// Options that every measurement reads.
constexpr char kMeasuring[] =
    "--filter --device --simd --clock --threads --reps --min-time --max-time --json --compare "
    "--tolerance --quiet";

struct ModeRow {
  Mode mode;
  const char* flag;
  const char* schema;          // of its report; empty: it measures nothing
  const char* reads;           // options beside those of kMeasuring
  std::optional<Shape> shape;  // the default of the line without it
  const char* help;
};

constexpr ModeRow kModes[] = {
    {Mode::kProducts,
     "--products",
     "heed-bench-products",
     "",
     {},
     "measure the matrix products of the layers instead of mechanisms, and stop"},
    {Mode::kDecode, "--decode", "heed-bench-decode",
     "--seed --verify-only --heads --head-dims --lengths",
     Shape{"32:8", "128", "1024,2048,4096,8192,16384,32768"},
     "measure one token over caches of 1024 to 32768 tokens instead, 32:8 heads of 128 unless "
     "given, and stop"},
    {Mode::kPatterns,
     "--patterns",
     "heed-bench-patterns",
     "--seed --verify-only --heads --head-dims",
     {},
     "measure whether the cost of keep patterns follows what they leave, and stop"},
    {Mode::kCurves, "--curves", "heed-bench-curves",
     "--seed --verify-only --heads --head-dims --lengths",
     Shape{"1", "64", "1024,2048,4096,8192,16384,32768,65536,131072"},
     "measure time and memory against length instead, 1024 to 131072 tokens of one head unless "
     "given, and stop"},
    {Mode::kApproximation, "--approximation", "heed-bench-approximation",
     "--seed --verify-only --heads --head-dims --lengths --causal --batch",
     Shape{"4", "64", "1024,4096"},
     "measure how far mechanisms are from the exact attention they stand in for, at 1024 and 4096 "
     "tokens unless given, and stop"},
    {Mode::kSteps, "--steps", "heed-bench-steps", "--seed --verify-only --heads --head-dims",
     Shape{"8", "64,128", "1"},
     "measure one token of every recurrent mechanism, 8 heads of 64 and 128 unless given, and "
     "stop"},
    {Mode::kBackward, "--backward", "heed-bench-backward",
     "--seed --verify-only --heads --head-dims --lengths --causal --batch --mechanisms --shapes "
     "--csv --markdown --html",
     Shape{"8", "64", "128,512,2048"},
     "measure gradients instead, at 128, 512 and 2048 tokens of 8 heads of 64 unless given, and "
     "stop"},
    {Mode::kFrom,
     "--from",
     "",
     "--html --json --compare --tolerance --quiet",
     {},
     "measure nothing: read this JSON report for --html and --compare"},
    {Mode::kList,
     "--list",
     "",
     "--filter --device --simd --clock --threads --reps --min-time --max-time --quiet --seed "
     "--verify-only --heads --head-dims --lengths --causal --batch --mechanisms --shapes --types "
     "--peers",
     {},
     "list mechanisms, peers, SIMD targets and cases, and stop"},
};

// Of every mode; null for that of a line without one.
const ModeRow* RowOf(Mode mode) {
  const auto* found = std::find_if(std::begin(kModes), std::end(kModes),
                                   [&](const ModeRow& row) { return row.mode == mode; });
  return found == std::end(kModes) ? nullptr : found;
}

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
  app.add_option("--seed", raw.seed, "seed of the random inputs")->capture_default_str();
  app.add_flag("--verify-only", options.verify_only, "check every peer, time none");
}

void AddModeFlags(CLI::App& app) {
  for (const ModeRow& row : kModes) {
    if (row.mode != Mode::kFrom) app.add_flag(row.flag, row.help);
  }
}

void AddOutputFlags(CLI::App& app, Options& options) {
  app.add_option("--json", options.json_path, "write the report as JSON; - is standard output");
  app.add_option("--csv", options.csv_path, "write the rows as CSV; - is standard output");
  app.add_option("--markdown", options.markdown_path,
                 "write the rows as a Markdown table; - is standard output");
  app.add_option("--html", options.html_path,
                 "write the report as one self-contained page; - is standard output");
  app.add_option("--from", options.from_path, RowOf(Mode::kFrom)->help);
  auto* compare =
      app.add_option("--compare", options.compare_path,
                     "an older JSON report: judge every row FASTER, SLOWER, SAME or NOISY");
  app.add_option("--tolerance", options.tolerance,
                 "relative difference of medians that --compare calls the same")
      ->capture_default_str()
      ->needs(compare)
      ->check(CLI::Range(0.0, 1.0));
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

[[noreturn]] void Refuse(const std::string& message) { throw Error(ErrorCode::kOption, message); }

void RefuseEmptyValues(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& value : option->results()) {
      if (value.empty()) Refuse(option->get_name() + ": is empty; expected a value");
    }
  }
}

// The mode that the line names. Modes exclude each other.
Mode ModeOf(const CLI::App& app) {
  const ModeRow* chosen = nullptr;
  for (const ModeRow& row : kModes) {
    if (app.count(row.flag) == 0) continue;
    if (chosen != nullptr) {
      Refuse(std::string(chosen->flag) + ": does not go with " + row.flag);
    }
    chosen = &row;
  }
  return chosen == nullptr ? Mode::kMechanisms : chosen->mode;
}

bool Reads(const ModeRow& row, const std::string& flag, const std::string& device) {
  if (flag == row.flag || HasWord(row.reads, flag)) return true;
  // On a CPU gradients are heed's alone, in float32.
  const bool of_device = flag == "--types" || flag == "--peers";
  if (row.mode == Mode::kBackward && device == "cuda" && of_device) return true;
  return *row.schema != '\0' && HasWord(kMeasuring, flag);
}

void RefuseUnread(const CLI::App& app, Mode mode, const std::string& device) {
  const ModeRow* row = RowOf(mode);
  if (row == nullptr) return;
  for (const CLI::Option* option : app.get_options()) {
    const std::string flag = option->get_name();
    if (option->count() > 0 && !Reads(*row, flag, device)) {
      Refuse(std::string(row->flag) + ": does not read " + flag);
    }
  }
}

// Two outputs in one place would spoil each other.
void RefuseSharedPaths(const Options& options) {
  const std::pair<const char*, const std::string*> outputs[] = {
      {"--json", &options.json_path},
      {"--csv", &options.csv_path},
      {"--markdown", &options.markdown_path},
      {"--html", &options.html_path}};
  for (const auto& [flag, path] : outputs) {
    for (const auto& [other, other_path] : outputs) {
      if (&path == &other_path || path->empty() || *path != *other_path) continue;
      Refuse(std::string(flag) + " and " + other + ": both write '" + *path + "'");
    }
  }
}

void FillShape(const CLI::App& app, const Shape& shape, RawLists& raw) {
  if (app.count("--heads") == 0) raw.heads = shape.heads;
  if (app.count("--head-dims") == 0) raw.head_dims = shape.head_dims;
  if (app.count("--lengths") == 0) raw.lengths = shape.lengths;
}

void ChooseMode(const CLI::App& app, RawLists& raw, Options& options) {
  RefuseEmptyValues(app);
  options.mode = ModeOf(app);
  RefuseUnread(app, options.mode, raw.device);
  RefuseSharedPaths(options);
  const ModeRow* row = RowOf(options.mode);
  if (row != nullptr && row->shape) FillShape(app, *row->shape, raw);
  if (options.mode == Mode::kFrom && options.html_path.empty() && options.compare_path.empty()) {
    Refuse("--from: wants --html or --compare beside it");
  }
}

// A cache and a curve have one length.
void RefuseTwoLengths(const Options& options) {
  if (options.mode != Mode::kDecode && options.mode != Mode::kCurves) return;
  for (const Lengths& lengths : options.grid.lengths) {
    if (lengths.q_len == lengths.kv_len) continue;
    Refuse("--lengths: '" + std::to_string(lengths.q_len) + "x" + std::to_string(lengths.kv_len) +
           "' has two lengths; " + RowOf(options.mode)->flag + " takes one");
  }
}

void RefuseFloat8(const Grid& grid) {
  if (std::find(grid.dtypes.begin(), grid.dtypes.end(), DType::kFloat8E4M3) == grid.dtypes.end())
    return;
  Refuse("--types: float8_e4m3 is for --device cuda");
}

// A GPU is measured with shorter samples, of events, and with what the line says beside that.
void FillDevice(const CLI::App& app, const RawLists& raw, Options& options) {
  if (raw.device != "cuda") return RefuseFloat8(options.grid);
  for (const char* flag :
       {"--products", "--decode", "--patterns", "--curves", "--approximation", "--steps"}) {
    if (app.count(flag) > 0) {
      Refuse(std::string("--device cuda: does not go with ") + flag);
    }
  }
  for (const char* flag : {"--clock", "--threads", "--simd"}) {
    if (app.count(flag) > 0) {
      Refuse(std::string("--device cuda: ") + flag + " is of the CPU");
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
  RefuseTwoLengths(options);
  grid.head_dims = ParseCounts("--head-dims", raw.head_dims);
  grid.heads = ParseHeads("--heads", raw.heads);
  grid.masks = ParseMasks("--causal", raw.causal);
  if (!raw.shapes.empty()) grid.shapes = FindShapes(ParseNames("--shapes", raw.shapes));
  grid.dtypes = ParseDTypes("--types", raw.dtypes);
  grid.threads = ParseThreads(raw.threads);
  if (raw.clock == "cpu") {
    options.plan.clock = Clock::kCpu;
    if (grid.threads != std::vector<int>{1}) {
      Refuse("--clock cpu: counts all threads together, so --threads is 1");
    }
  }
  options.seed = ParseSeed("--seed", raw.seed);
  CompileFilter(options.filter);  // throws before anything is measured
  if (!raw.peers.empty()) options.peers = ParseNames("--peers", raw.peers);
}

}  // namespace

std::string SchemaOf(Mode mode) {
  const ModeRow* row = RowOf(mode);
  return row == nullptr ? "heed-bench" : row->schema;
}

CommandLine ParseCommandLine(int argc, const char* const* argv) {
  CommandLine line;
  RawLists raw;
  CLI::App app(
      "heed-bench: checks every implementation of attention against a float64 reference, then "
      "times those that pass, interleaved, as a fraction of this machine's own FMA peak.",
      "heed-bench");
  app.footer(
      "Exit status: 0 all verified, 1 a verification failed or every row was refused, 2 the "
      "command line is wrong or a file cannot be read or written, 3 --compare found a SLOWER row.");
  AddGridFlags(app, raw, line.options);
  AddRunFlags(app, raw, line.options);
  AddModeFlags(app);
  AddOutputFlags(app, line.options);
  try {
    app.parse(argc, argv);
    ChooseMode(app, raw, line.options);
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
