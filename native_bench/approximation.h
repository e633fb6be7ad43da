// heed-bench --approximation: how far mechanisms that stand in for exact attention are from it.
#ifndef HEED_NATIVE_BENCH_APPROXIMATION_H_
#define HEED_NATIVE_BENCH_APPROXIMATION_H_

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "native_bench/problem.h"
#include "native_bench/report.h"
#include "native_bench/run.h"

namespace heed::bench {

// What queries, keys and values look like.
//   random:   independent normal numbers; every key matters about as much as any other
//   topics:   each token has one of a few topics, in runs; keys of a topic are alike, queries look
//             for their own topic or another, and its values are alike: what embeddings are like
//   needle:   random keys, and for every query one that fits far better than the others, anywhere
enum class Data { kRandom, kTopics, kNeedle };
inline constexpr std::array<Data, 3> kAllData = {Data::kRandom, Data::kTopics, Data::kNeedle};
const char* DataName(Data data);

struct ApproximationRow {
  Case shape;
  Mask mask;                 // what the row sees: causal without being asked, or as its case says
  std::string failure = {};  // why it could not be run; empty
  // Root mean square of output - exact over that of exact, by data: 0 is exact, 1 as wrong as
  // zeros.
  std::array<double, kAllData.size()> error = {};
  Summary seconds = {};
  double over_exact = 0;  // time over that of exact attention with the same mask
};

struct ApproximationReport {
  Report context;
  std::vector<ApproximationRow> rows = {};
};

// Rows of the registry that stand in for exact attention: capability "approximates".
std::vector<std::string> ApproximateMechanisms();

// Overwrites q, k and v of a problem.
void DrawData(Data data, const Problem& problem, uint64_t seed);

// The grid's lengths with its first query heads (not grouped), head size and thread count, and each
// mask that the mechanism has. Learned tensors are left out, or random where they must be given
// (linformer). Timed on random data, in turn with exact attention.
ApproximationReport MeasureApproximation(const Options& options, Report context,
                                         const Progress& progress,
                                         const CheckpointOf<ApproximationReport>& checkpoint = {});

// Whether any row failed.
bool AnyWrong(const ApproximationReport& report);
void PrintApproximation(std::ostream& out, const ApproximationReport& report);
nlohmann::json ToJson(const ApproximationReport& report);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_APPROXIMATION_H_
