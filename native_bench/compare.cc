#include "native_bench/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "heed/error.h"

namespace heed::bench {
namespace {

using nlohmann::json;
using NamedTimes = std::vector<std::pair<std::string, Times>>;

void AddTimed(const std::string& name, const json& entry, NamedTimes& times) {
  const auto ms = entry.find("ms");
  if (ms == entry.end() || !ms->is_object()) return;  // wrong, refused or only verified
  times.push_back({name, {ms->at("median"), ms->at("p10"), ms->at("p90")}});
}

// Every timed row by a name that finds it again in another report of the same kind.
NamedTimes TimedRows(const json& report) {
  NamedTimes times;
  for (const json& row : report.value("rows", json::array())) {
    std::string name = row.at("case");
    if (row.contains("peer")) name += " " + row.at("peer").get<std::string>();
    AddTimed(name, row, times);
  }
  for (const json& curve : report.value("curves", json::array())) {
    const std::string name =
        curve.at("mechanism").get<std::string>() + "/" + curve.at("mask").get<std::string>();
    for (const json& point : curve.at("points")) {
      AddTimed(name + "/l" + std::to_string(point.at("length").get<int64_t>()), point, times);
    }
  }
  return times;
}

const Times* FindTimes(const NamedTimes& times, const std::string& name) {
  const auto found =
      std::find_if(times.begin(), times.end(), [&](const auto& row) { return row.first == name; });
  return found == times.end() ? nullptr : &found->second;
}

// The text at a path such as "/machine/cpu_model"; empty when it is not there.
std::string TextAt(const json& report, const char* path) {
  const json::json_pointer pointer(path);
  if (!report.contains(pointer)) return "";
  const json& value = report.at(pointer);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Peaks of the same target and threads that differ by more than the tolerance.
void ComparePeaks(const json& older, const json& newer, double tolerance,
                  std::vector<std::string>& differences) {
  const json::json_pointer path("/probes/fma");
  if (!older.contains(path) || !newer.contains(path)) return;
  for (const json& now : newer.at(path)) {
    for (const json& then : older.at(path)) {
      const auto differ = [&](const char* key) {
        return then.value(key, json()) != now.value(key, json());
      };
      if (differ("target") || differ("threads") || differ("place") || differ("dtype")) continue;
      const double ratio = now.at("gflops").get<double>() / then.at("gflops").get<double>();
      if (std::abs(ratio - 1) <= tolerance) continue;
      std::array<char, 160> text;
      std::snprintf(text.data(), text.size(), "FMA peak %s, threads %d: %.1f, now %.1f GFLOP/s",
                    now.at("target").get<std::string>().c_str(), now.at("threads").get<int>(),
                    then.at("gflops").get<double>(), now.at("gflops").get<double>());
      differences.push_back(text.data());
    }
  }
}

std::vector<std::string> Differences(const json& older, const json& newer, double tolerance) {
  std::vector<std::string> differences;
  for (const char* path :
       {"/machine/cpu_model", "/machine/gpu/name", "/machine/gpu/driver", "/machine/simd/chosen",
        "/build/compiler", "/build/flags", "/plan/clock"}) {
    const std::string then = TextAt(older, path), now = TextAt(newer, path);
    if (then != now) differences.push_back(std::string(path + 1) + ": " + then + ", now " + now);
  }
  ComparePeaks(older, newer, tolerance, differences);
  return differences;
}

size_t CountOf(const Comparison& comparison, Change change) {
  return static_cast<size_t>(
      std::count_if(comparison.rows.begin(), comparison.rows.end(),
                    [&](const ComparedRow& row) { return row.change == change; }));
}

const char* ColourOf(Change change) {
  switch (change) {
    case Change::kFaster:
      return "\x1b[32m";
    case Change::kSlower:
      return "\x1b[31m";
    case Change::kNoisy:
      return "\x1b[33m";
    case Change::kSame:
      break;
  }
  return "";
}

}  // namespace

const char* ChangeName(Change change) {
  switch (change) {
    case Change::kFaster:
      return "FASTER";
    case Change::kSlower:
      return "SLOWER";
    case Change::kSame:
      return "SAME";
    case Change::kNoisy:
      break;
  }
  return "NOISY";
}

Change Judge(const Times& older, const Times& newer, double tolerance) {
  const auto spread = [](const Times& times) { return (times.p90 - times.p10) / times.median; };
  if (std::abs(newer.median - older.median) <= tolerance * older.median) {
    const bool steady = std::max(spread(older), spread(newer)) <= 4 * tolerance;
    return steady ? Change::kSame : Change::kNoisy;
  }
  if (newer.p90 < older.p10) return Change::kFaster;
  if (newer.p10 > older.p90) return Change::kSlower;
  return Change::kNoisy;
}

void CheckKinds(const json& older, const json& newer) {
  for (const char* key : {"schema", "schema_version"}) {
    if (!older.contains(key) || !newer.contains(key)) {
      throw Error(ErrorCode::kOption,
                  std::string("--compare: a report without '") + key + "' is none of heed-bench");
    }
    if (older.at(key) != newer.at(key)) {
      throw Error(ErrorCode::kOption, std::string("--compare: ") + key + " is " +
                                          older.at(key).dump() + " and " + newer.at(key).dump() +
                                          "; expected two of one kind");
    }
  }
}

Comparison Compare(const json& older, const json& newer, double tolerance) {
  CheckKinds(older, newer);
  const NamedTimes before = TimedRows(older), after = TimedRows(newer);
  Comparison comparison;
  for (const auto& [name, times] : after) {
    const Times* then = FindTimes(before, name);
    if (then == nullptr) {
      comparison.only_newer.push_back(name);
    } else {
      comparison.rows.push_back({name, *then, times, Judge(*then, times, tolerance)});
    }
  }
  for (const auto& [name, times] : before) {
    if (FindTimes(after, name) == nullptr) comparison.only_older.push_back(name);
  }
  if (comparison.rows.empty()) {
    throw Error(ErrorCode::kOption, "--compare: the reports have no timed row in common");
  }
  comparison.differences = Differences(older, newer, tolerance);
  return comparison;
}

bool AnySlower(const Comparison& comparison) { return CountOf(comparison, Change::kSlower) > 0; }

void PrintComparison(std::ostream& out, const Comparison& comparison, Style style) {
  size_t width = 0;
  for (const ComparedRow& row : comparison.rows) width = std::max(width, row.name.size());
  for (const ComparedRow& row : comparison.rows) {
    std::array<char, 120> text;
    std::snprintf(text.data(), text.size(), "  %10.4f ms  %10.4f ms  %+7.1f %%  ", row.older.median,
                  row.newer.median, 100 * (row.newer.median / row.older.median - 1));
    const bool colour = style == Style::kColour;
    out << row.name << std::string(width - row.name.size(), ' ') << text.data()
        << (colour ? ColourOf(row.change) : "") << ChangeName(row.change)
        << (colour ? "\x1b[0m\n" : "\n");
  }
  for (Change change : {Change::kFaster, Change::kSlower, Change::kSame, Change::kNoisy}) {
    out << ChangeName(change) << " " << CountOf(comparison, change)
        << (change == Change::kNoisy ? "\n" : ", ");
  }
  const size_t unmatched = comparison.only_older.size() + comparison.only_newer.size();
  if (unmatched > 0) {
    out << comparison.only_older.size() << " rows only in the older report, "
        << comparison.only_newer.size() << " only in the newer\n";
  }
  for (const std::string& difference : comparison.differences) {
    out << "not alike: " << difference << "\n";
  }
}

}  // namespace heed::bench
