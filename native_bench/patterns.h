// heed-bench --patterns: does the cost of a keep pattern follow what it leaves?
#ifndef HEED_NATIVE_BENCH_PATTERNS_H_
#define HEED_NATIVE_BENCH_PATTERNS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "heed/request.h"
#include "native_bench/cases.h"
#include "native_bench/draw.h"
#include "native_bench/report.h"
#include "native_bench/run.h"

namespace heed::bench {

// One keep rule at one length. Rules of a group are timed in turn.
struct PatternCase {
  std::string group;
  std::string mechanism;
  int64_t length = 0;
  std::vector<NamedParam> params = {};
  // Random blocks: so many tokens each, and which fraction of every row of blocks is visible.
  int64_t block = 0;
  double density = 0;

  // "block_sparse/64/10%/l4096", "window/causal/l8192".
  std::string Name() const;
};

struct PatternRow {
  PatternCase shape;
  Verdict verdict;  // of the same rule on a short sequence
  Summary seconds;
  double flop = 0;
  double visible = 0;  // of all pairs of query and key
  // Time over what dense attention would take for as many pairs: 1 is the ideal.
  double over_dense = 0;
};

// How time grows with length: time ~ length^exponent, fitted to a group.
struct Growth {
  std::string group;
  double exponent = 0;
};

struct PatternReport {
  Report context;
  Heads heads = {};
  int64_t head_dim = 0;
  std::vector<PatternRow> rows = {};
  std::vector<Growth> growths = {};
};

// Random blocks at 5 to 50 %, windows of 256 keys on each side at 4096 to 65536 tokens, Longformer
// and BigBird; every group begins with dense attention, to 4096 tokens or as many as its blocks
// have. A group stays whole when one of its names matches the regular expression `filter`.
std::vector<PatternCase> PatternCases(const std::string& filter);

// The tensors of a case, and its request.
class PatternProblem {
 public:
  PatternProblem(const PatternCase& c, const Heads& heads, int64_t head_dim, uint64_t seed);
  const Request& request() const { return request_; }
  const OwnedTensor& v() const { return inputs_[2]; }
  const OwnedTensor& output() const { return output_; }

 private:
  void AddBlocks(const PatternCase& c, uint64_t seed);

  std::vector<OwnedTensor> inputs_;
  OwnedTensor output_;
  Request request_;
};

// The slope of a line through (log x, log y). At least two different x, all positive.
double Exponent(const std::vector<double>& x, const std::vector<double>& y);

// Verifies every rule and times those that are right, by the options' first heads, head size and
// thread count. `context` is OpenReport()'s.
PatternReport MeasurePatterns(const Options& options, Report context, const Progress& progress,
                              const CheckpointOf<PatternReport>& checkpoint = {});

// Whether any rule missed its bound: then none is timed.
bool AnyWrong(const PatternReport& report);

void PrintPatterns(std::ostream& out, const PatternReport& report);
nlohmann::json ToJson(const PatternReport& report);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_PATTERNS_H_
