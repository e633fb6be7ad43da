// heed-bench --compare: two reports of one kind, row by row.
#ifndef HEED_NATIVE_BENCH_COMPARE_H_
#define HEED_NATIVE_BENCH_COMPARE_H_

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "native_bench/report.h"

namespace heed::bench {

enum class Change {
  kFaster,
  kSlower,
  kSame,   // the medians differ by no more than the tolerance, and both runs were steady
  kNoisy,  // the runs scatter too much to tell
};

// "FASTER", "SLOWER", "SAME", "NOISY".
const char* ChangeName(Change change);

// The milliseconds of one row of a report.
struct Times {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
};

// Faster or slower: the medians differ by more than `tolerance` of the older one, and nine tenths
// of the samples of one run lie beyond nine tenths of the other's (their p10 to p90 do not
// overlap). Medians that differ while the samples overlap are noise; so are medians that agree when
// p10 to p90 of either run spans more than four tolerances of its median.
Change Judge(const Times& older, const Times& newer, double tolerance);

struct ComparedRow {
  std::string name;  // case and peer
  Times older;
  Times newer;
  Change change = Change::kSame;
};

struct Comparison {
  std::vector<ComparedRow> rows;        // in the order of the newer report
  std::vector<std::string> only_older;  // names of rows timed in one report only
  std::vector<std::string> only_newer;
  std::vector<std::string> differences;  // of machine, clock and peaks: reasons to doubt a verdict
};

// Throws heed::Error(kOption) when the reports are of different schemas or versions, or are none.
// Of a report that is yet to be measured these two fields are enough.
void CheckKinds(const nlohmann::json& older, const nlohmann::json& newer);

// Both are parsed JSON reports. Throws heed::Error(kOption) when they are of different schemas or
// versions, are none, or share no timed row.
Comparison Compare(const nlohmann::json& older, const nlohmann::json& newer, double tolerance);

bool AnySlower(const Comparison& comparison);

// One line a row, then a count of every verdict, and what speaks against them.
void PrintComparison(std::ostream& out, const Comparison& comparison, Style style);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_COMPARE_H_
