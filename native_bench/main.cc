// heed-bench: accuracy first, speed second. See README.md in this folder.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

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
#include "native_bench/options.h"
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

// One line on a terminal, rewritten in place; nothing elsewhere.
Progress MakeProgress(const Options& options) {
  if (options.quiet || !IsTerminal(stderr)) return [](const std::string&, size_t, size_t) {};
  return [start = 0.0](const std::string& what, size_t done, size_t total) mutable {
    // What comes before the first case, such as measuring peaks, foretells nothing.
    if (done == 0) start = SecondsNow(Clock::kWall);
    const double elapsed = SecondsNow(Clock::kWall) - start;
    std::fprintf(stderr, "\r\x1b[K%s", ProgressLine(what, done, total, elapsed).c_str());
    std::fflush(stderr);
  };
}

// Calls `print(stream)` for a file, or standard output for "-". Nothing for an empty path.
template <typename Print>
void WriteTo(const std::string& path, Print print) {
  if (path.empty()) return;
  if (path == "-") return print(std::cout);
  std::ofstream file(path);
  print(file);
  file.close();
  if (!file) throw Error(ErrorCode::kOption, "cannot write '" + path + "'");
}

// Where the JSON of a run that goes on stands; empty where the JSON goes to no file of its own.
std::string UnfinishedPath(const Options& options) {
  const std::filesystem::path path = options.json_path;
  if (path.empty() || path == "-") return "";
  const bool own = !std::filesystem::exists(path) || std::filesystem::is_regular_file(path);
  return own ? path.string() + ".part" : "";
}

Checkpoint MakeCheckpoint(const Options& options) {
  return [path = UnfinishedPath(options)](const Report& report) {
    WriteTo(path, [&](std::ostream& out) { out << ToJson(report).dump(1) << "\n"; });
  };
}

Style TerminalStyle() { return IsTerminal(stdout) ? Style::kColour : Style::kPlain; }

nlohmann::json ReadReport(const std::string& path) {
  std::ifstream file(path);
  nlohmann::json report = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object()) {
    throw Error(ErrorCode::kOption, "'" + path + "' is not a JSON report that can be read");
  }
  return report;
}

// Everything that is made of the JSON. `older` is what --compare names; null without it.
int WriteJson(const Options& options, const nlohmann::json& report, const nlohmann::json& older) {
  WriteTo(options.json_path, [&](std::ostream& out) { out << report.dump(1) << "\n"; });
  WriteTo(options.html_path, [&](std::ostream& out) { PrintHtml(out, report); });
  if (older.is_null()) return 0;
  const Comparison comparison = Compare(older, report, options.tolerance);
  if (!options.quiet) {
    std::cout << "\n";
    PrintComparison(std::cout, comparison, TerminalStyle());
  }
  return AnySlower(comparison) ? kExitSlower : 0;
}

// Read before anything is measured, so that a wrong name costs no time.
nlohmann::json ReadOlder(const Options& options) {
  return options.compare_path.empty() ? nlohmann::json() : ReadReport(options.compare_path);
}

int Write(const Options& options, const Report& report, const nlohmann::json& older) {
  if (!options.quiet) {
    PrintContext(std::cout, report);
    std::cout << "\n";
    PrintTable(std::cout, report, TerminalStyle());
  }
  WriteTo(options.csv_path, [&](std::ostream& out) { PrintCsv(out, report); });
  WriteTo(options.markdown_path, [&](std::ostream& out) { PrintMarkdown(out, report); });
  const int status = WriteJson(options, ToJson(report), older);
  return AnyWrong(report) ? kExitWrong : status;
}

// A report of its own kind: measured, printed, written, judged. Those that have rows of columns are
// written as CSV and Markdown too.
template <typename OwnReport>
int Finish(const Options& options, const std::string& command,
           OwnReport (*measure)(const Options&, Report, const Progress&),
           void (*print)(std::ostream&, const OwnReport&)) {
  constexpr bool kHasRows = requires(std::ostream & out, const OwnReport& report) {
    PrintCsv(out, report);
    PrintMarkdown(out, report);
  };
  if (!kHasRows && !(options.csv_path + options.markdown_path + options.html_path).empty()) {
    throw Error(ErrorCode::kOption, "a report of this kind is written by --json only");
  }
  const nlohmann::json older = ReadOlder(options);
  const OwnReport report = measure(options, OpenReport(options, command), MakeProgress(options));
  if (!options.quiet) {
    if (IsTerminal(stderr)) std::fprintf(stderr, "\r\x1b[K");
    PrintContext(std::cout, report.context);
    print(std::cout, report);
  }
  if constexpr (kHasRows) {
    WriteTo(options.csv_path, [&](std::ostream& out) { PrintCsv(out, report); });
    WriteTo(options.markdown_path, [&](std::ostream& out) { PrintMarkdown(out, report); });
  }
  const int status = WriteJson(options, ToJson(report), older);
  return AnyWrong(report) ? kExitWrong : status;
}

std::string Command(int argc, char** argv) {
  std::string command = "heed-bench";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  return command;
}

int Main(int argc, char** argv) {
  const CommandLine line = ParseCommandLine(argc, argv);
  if (line.exit_code) return *line.exit_code;
  if (line.options.list) {
    List(line.options);
    return 0;
  }
  const Options& options = line.options;
  if (!options.from_path.empty()) {
    if (options.html_path.empty() && options.compare_path.empty()) {
      throw Error(ErrorCode::kOption, "--from: wants --html or --compare beside it");
    }
    return WriteJson(options, ReadReport(options.from_path), ReadOlder(options));
  }
  const std::string command = Command(argc, argv);
  if (options.products) return Finish(options, command, MeasureProducts, PrintProducts);
  if (options.patterns) return Finish(options, command, MeasurePatterns, PrintPatterns);
  if (options.decode) return Finish(options, command, MeasureDecode, PrintDecode);
  if (options.curves) return Finish(options, command, MeasureCurves, PrintCurves);
  if (options.steps) return Finish(options, command, MeasureSteps, PrintSteps);
  const bool on_device = options.device == Device::kCuda;
  if (options.backward) {
    const auto measure = on_device ? MeasureDeviceBackward : MeasureBackward;
    return Finish(options, command, measure, PrintBackward);
  }
  if (options.approximation) {
    return Finish(options, command, MeasureApproximation, PrintApproximation);
  }
  const nlohmann::json older = ReadOlder(options);
  const auto run = on_device ? RunDeviceBenchmark : RunBenchmark;
  const Report report = run(options, command, MakeProgress(options), MakeCheckpoint(options));
  if (!options.quiet && IsTerminal(stderr)) std::fprintf(stderr, "\r\x1b[K");
  const int status = Write(options, report, older);
  std::filesystem::remove(UnfinishedPath(options));
  return status;
}

}  // namespace
}  // namespace heed::bench

int main(int argc, char** argv) {
  try {
    return heed::bench::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "heed-bench: %s\n", error.what());
    return heed::bench::kExitUsage;
  }
}
