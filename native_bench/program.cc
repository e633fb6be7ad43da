#include "native_bench/program.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "heed/registry.h"
#include "native_bench/approximation.h"
#include "native_bench/backward.h"
#include "native_bench/compare.h"
#include "native_bench/curves.h"
#include "native_bench/decode.h"
#include "native_bench/device_cases.h"
#include "native_bench/device_peer.h"
#include "native_bench/device_run.h"
#include "native_bench/html.h"
#include "native_bench/interrupt.h"
#include "native_bench/options.h"
#include "native_bench/outputs.h"
#include "native_bench/patterns.h"
#include "native_bench/peer.h"
#include "native_bench/products.h"
#include "native_bench/progress.h"
#include "native_bench/report.h"
#include "native_bench/run.h"
#include "native_bench/shapes.h"
#include "native_bench/simd_target.h"
#include "native_bench/steps.h"

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace heed::bench {
namespace {

using nlohmann::json;

constexpr int kExitWrong = 1;
constexpr int kExitUsage = 2;
constexpr int kExitSlower = 3;

bool IsTerminal(std::FILE* stream) {
#if defined(__unix__) || defined(__APPLE__)
  return isatty(fileno(stream)) != 0;
#else
  static_cast<void>(stream);
  return false;
#endif
}

template <class AnyPeer>
void ListPeer(const AnyPeer& peer) {
  const std::string details = peer.details();
  std::cout << "  " << peer.id << ": " << peer.summary;
  std::cout << (details.empty() ? "" : " [" + details + "]") << "\n";
}

void List(const Options& options) {
  std::cout << "mechanisms\n";
  for (const Mechanism& m : Mechanisms()) {
    std::cout << "  " << m.id << ": " << m.title << "\n";
  }
  std::cout << "peers\n";
  for (const Peer& peer : Peers()) ListPeer(peer);
  std::cout << "peers of --device cuda\n";
  for (const DevicePeer& peer : DevicePeers()) ListPeer(peer);
  std::cout << "named shapes\n";
  for (const NamedShape& row : NamedShapes()) {
    Case shape = row.shape;
    shape.mechanism = row.Name();
    std::cout << "  " << shape.Name() << ": " << row.source << "\n";
  }
  std::cout << "SIMD targets\n";
  for (const std::string& target : SupportedTargetNames()) std::cout << "  " << target << "\n";
  std::cout << "cases\n";
  const bool on_gpu = options.device == Device::kCuda;
  for (const Case& c : on_gpu ? DeviceCases(options) : MakeCases(options.grid, options.filter)) {
    std::cout << "  " << c.Name() << "\n";
  }
}

// A run as it goes on: a line on a terminal, rewritten in place, and a file of what is done, of
// which Ctrl-C tells.
class Watch {
 public:
  explicit Watch(const Options& options)
      : unfinished_(UnfinishedPath(options)), shows_(!options.quiet && IsTerminal(stderr)) {}
  ~Watch() {
    if (shows_) std::fprintf(stderr, "\r\x1b[K");
    SayWhenInterrupted("");
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  Progress progress() {
    return [this](const std::string& what, size_t done, size_t total) { Tell(what, done, total); };
  }

  template <class AnyReport>
  CheckpointOf<AnyReport> checkpoint() {
    if (unfinished_.empty()) return {};
    return [this](const AnyReport& report) {
      WriteOutputs(
          {{unfinished_, [&](std::ostream& out) { out << ToJson(report).dump(1) << "\n"; }}});
      written_ = true;
    };
  }

 private:
  void Tell(const std::string& what, size_t done, size_t total) {
    // Cases are done before they are written: those behind when the next one begins.
    if (std::exchange(written_, false)) kept_ = done;
    SayWhenInterrupted((shows_ ? "\n" : "") + KeptLine(unfinished_, kept_, total));
    if (!shows_) return;
    // What comes before the first case, such as measuring peaks, foretells nothing.
    if (done == 0) start_ = SecondsNow(Clock::kWall);
    const double elapsed = SecondsNow(Clock::kWall) - start_;
    std::fprintf(stderr, "\r\x1b[K%s", ProgressLine(what, done, total, elapsed).c_str());
    std::fflush(stderr);
  }

  std::string unfinished_;
  bool shows_;
  bool written_ = false;
  size_t kept_ = 0;
  double start_ = 0;
};

std::ostream& TableStream(const Options& options) {
  return TakesStandardOutput(options) ? std::cerr : std::cout;
}

Style TableStyle(const Options& options) {
  return IsTerminal(TakesStandardOutput(options) ? stderr : stdout) ? Style::kColour
                                                                    : Style::kPlain;
}

// What --compare names; null without it. Read, and known to be of the kind that is measured, before
// anything is.
json ReadOlder(const Options& options) {
  if (options.compare_path.empty()) return {};
  json older = ReadReport(options.compare_path);
  const std::string schema = SchemaOf(options.mode);
  if (!schema.empty()) {
    CheckKinds(older, {{"schema", schema}, {"schema_version", kJsonSchemaVersion}});
  }
  return older;
}

int JudgeByOlder(const Options& options, const json& report, const json& older) {
  if (older.is_null()) return 0;
  const Comparison comparison = Compare(older, report, options.tolerance);
  if (!options.quiet) {
    TableStream(options) << "\n";
    PrintComparison(TableStream(options), comparison, TableStyle(options));
  }
  return AnySlower(comparison) ? kExitSlower : 0;
}

// What is made of the JSON alone.
std::vector<Output> JsonOutputs(const Options& options, const json& report) {
  return {{options.json_path, [&](std::ostream& out) { out << report.dump(1) << "\n"; }},
          {options.html_path, [&](std::ostream& out) { PrintHtml(out, report); }}};
}

// Those of a report that has rows of columns.
template <class AnyReport>
std::vector<Output> RowOutputs(const Options& options, const AnyReport& report) {
  if constexpr (requires(std::ostream & out) {
                  PrintCsv(out, report);
                  PrintMarkdown(out, report);
                }) {
    return {{options.csv_path, [&](std::ostream& out) { PrintCsv(out, report); }},
            {options.markdown_path, [&](std::ostream& out) { PrintMarkdown(out, report); }}};
  } else {
    return {};
  }
}

template <class AnyReport>
bool AllRefused(const AnyReport& report) {
  if constexpr (requires { report.rows.front().status; }) {
    return std::all_of(report.rows.begin(), report.rows.end(),
                       [](const auto& row) { return row.status == Status::kRefused; });
  } else {
    return false;
  }
}

// Written, printed, judged. The files first: a reader of the table that goes away costs none, and
// what cannot be written costs no table.
template <class AnyReport, class Print>
int Finish(const Options& options, const AnyReport& report, const json& older, Print print) {
  const json object = ToJson(report);
  std::vector<Output> outputs = JsonOutputs(options, object);
  for (Output& output : RowOutputs(options, report)) outputs.push_back(std::move(output));
  std::exception_ptr failure;
  try {
    WriteOutputs(outputs);
    std::filesystem::remove(UnfinishedPath(options));
  } catch (const Error&) {
    failure = std::current_exception();
  }
  if (!options.quiet) print(TableStream(options));
  if (failure) std::rethrow_exception(failure);
  const int status = JudgeByOlder(options, object, older);
  if (AllRefused(report)) {
    std::fprintf(stderr, "heed-bench: every row was refused\n");
    return kExitWrong;
  }
  return AnyWrong(report) ? kExitWrong : status;
}

// A report of its own kind.
template <class OwnReport>
int RunOwn(const Options& options, const std::string& command,
           OwnReport (*measure)(const Options&, Report, const Progress&,
                                const CheckpointOf<OwnReport>&),
           void (*print)(std::ostream&, const OwnReport&)) {
  CheckWritable(options);
  const json older = ReadOlder(options);
  const OwnReport report = [&] {
    Watch watch(options);
    return measure(options, OpenReport(options, command), watch.progress(),
                   watch.template checkpoint<OwnReport>());
  }();
  return Finish(options, report, older, [&](std::ostream& out) {
    PrintContext(out, report.context);
    print(out, report);
  });
}

int RunMechanisms(const Options& options, const std::string& command) {
  CheckWritable(options);
  const json older = ReadOlder(options);
  const auto run = options.device == Device::kCuda ? RunDeviceBenchmark : RunBenchmark;
  const Report report = [&] {
    Watch watch(options);
    return run(options, command, watch.progress(), watch.checkpoint<Report>());
  }();
  return Finish(options, report, older, [&](std::ostream& out) {
    PrintContext(out, report);
    out << "\n";
    PrintTable(out, report, TableStyle(options));
  });
}

int Redraw(const Options& options) {
  CheckWritable(options);
  const json report = ReadReport(options.from_path), older = ReadOlder(options);
  if (!older.is_null()) CheckKinds(older, report);
  WriteOutputs(JsonOutputs(options, report));
  return JudgeByOlder(options, report, older);
}

std::string Command(int argc, const char* const* argv) {
  std::string command = "heed-bench";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  return command;
}

int Run(const Options& options, const std::string& command) {
  switch (options.mode) {
    case Mode::kMechanisms:
      return RunMechanisms(options, command);
    case Mode::kProducts:
      return RunOwn(options, command, MeasureProducts, PrintProducts);
    case Mode::kDecode:
      return RunOwn(options, command, MeasureDecode, PrintDecode);
    case Mode::kPatterns:
      return RunOwn(options, command, MeasurePatterns, PrintPatterns);
    case Mode::kCurves:
      return RunOwn(options, command, MeasureCurves, PrintCurves);
    case Mode::kApproximation:
      return RunOwn(options, command, MeasureApproximation, PrintApproximation);
    case Mode::kSteps:
      return RunOwn(options, command, MeasureSteps, PrintSteps);
    case Mode::kBackward: {
      const bool on_device = options.device == Device::kCuda;
      const auto measure = on_device ? MeasureDeviceBackward : MeasureBackward;
      return RunOwn(options, command, measure, PrintBackward);
    }
    case Mode::kFrom:
      return Redraw(options);
    case Mode::kList:
      List(options);
  }
  return 0;
}

}  // namespace

int RunProgram(int argc, const char* const* argv) {
  try {
    const CommandLine line = ParseCommandLine(argc, argv);
    const int status = line.exit_code ? *line.exit_code : Run(line.options, Command(argc, argv));
    FlushStandardOutput();
    return status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "heed-bench: %s\n", error.what());
    return kExitUsage;
  }
}

}  // namespace heed::bench
