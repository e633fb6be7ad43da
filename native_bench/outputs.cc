#include "native_bench/outputs.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "heed/error.h"

namespace heed::bench {
namespace {

// Opening another kind of file, such as a pipe, may wait, or end what reads it.
bool IsFileOrNothing(const std::string& path) {
  return !std::filesystem::exists(path) || std::filesystem::is_regular_file(path);
}

void CheckPath(const std::string& path) {
  if (path.empty() || path == "-") return;
  const bool is_new = !std::filesystem::exists(path);
  const bool is_folder = std::filesystem::is_directory(path);
  if (!is_folder && !IsFileOrNothing(path)) return;
  const bool opens = !is_folder && std::ofstream(path, std::ios::app).is_open();
  if (!opens) throw Error(ErrorCode::kOption, "cannot write '" + path + "'");
  if (is_new) std::filesystem::remove(path);
}

// Printed as a whole first: a print that throws leaves a file as it was.
void Write(const Output& output) {
  if (output.path.empty()) return;
  std::ostringstream text;
  output.print(text);
  if (output.path == "-") {
    std::cout << text.str();
    return FlushStandardOutput();
  }
  std::ofstream file(output.path);
  file << text.str();
  file.close();
  if (!file) throw Error(ErrorCode::kOption, "cannot write '" + output.path + "'");
}

}  // namespace

void CheckWritable(const Options& options) {
  for (const std::string* path :
       {&options.json_path, &options.csv_path, &options.markdown_path, &options.html_path}) {
    CheckPath(*path);
  }
  CheckPath(UnfinishedPath(options));
}

void WriteOutputs(const std::vector<Output>& outputs) {
  std::string failures;
  for (const Output& output : outputs) {
    try {
      Write(output);
    } catch (const std::exception& error) {
      failures += (failures.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  if (!failures.empty()) throw Error(ErrorCode::kOption, failures);
}

void FlushStandardOutput() {
  if (!std::cout.flush()) throw Error(ErrorCode::kOption, "cannot write to standard output");
}

bool TakesStandardOutput(const Options& options) {
  const std::string* paths[] = {&options.json_path, &options.csv_path, &options.markdown_path,
                                &options.html_path};
  return std::any_of(std::begin(paths), std::end(paths),
                     [](const std::string* path) { return *path == "-"; });
}

std::string UnfinishedPath(const Options& options) {
  const std::string& path = options.json_path;
  if (path.empty() || path == "-" || !IsFileOrNothing(path)) return "";
  return path + ".part";
}

nlohmann::json ReadReport(const std::string& path) {
  const auto refuse = [&](const char* why) {
    throw Error(ErrorCode::kOption, "'" + path + "' " + why);
  };
  if (std::filesystem::is_directory(path)) refuse("is a folder; expected a JSON report");
  std::ifstream file(path);
  if (!file) refuse("cannot be read");
  nlohmann::json report = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object()) refuse("is not a JSON report that can be read");
  for (const char* key : {"schema", "schema_version"}) {
    if (!report.contains(key)) refuse("is no report of heed-bench: it has no schema and version");
  }
  return report;
}

}  // namespace heed::bench
