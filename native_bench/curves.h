// heed-bench --curves: time and memory against length, for exact attention and for everything that
// promises to grow more slowly.
#ifndef HEED_NATIVE_BENCH_CURVES_H_
#define HEED_NATIVE_BENCH_CURVES_H_

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "native_bench/report.h"
#include "native_bench/run.h"

namespace heed::bench {

// One length of one mechanism; as causal as the mechanism can be.
struct CurvePoint {
  int64_t length = 0;
  Summary seconds;
  Cost cost;
  double Rate() const { return seconds.median / static_cast<double>(length); }
};

struct Curve {
  Case shape;       // of the shortest length
  Verdict verdict;  // on a short sequence
  std::vector<CurvePoint> points = {};

  // Over the points from `kLinearFrom` tokens on; 0 when there are fewer than two.
  double Exponent() const;  // of time ~ length^exponent
  // The most time a token takes over what one takes at `kLinearFrom` tokens: 1 is linear.
  double OverLinear() const;
  // Scratch memory of the longest over that of the point at `kLinearFrom`: 1 is flat. 0 = unknown.
  double ScratchGrowth() const;
};
inline constexpr int64_t kLinearFrom = 4096;

struct CurveReport {
  Report context;
  std::vector<Curve> curves = {};
};

// Exact attention, and the rows of the families recurrent, low_rank and selective that take q, k
// and v.
std::vector<std::string> CurveMechanisms();

// The grid's lengths with its first heads, head size and thread count; only mechanisms whose name
// matches the filter. The lengths of a mechanism are timed in turn, and end where a call would take
// longer than the plan's max_seconds.
CurveReport MeasureCurves(const Options& options, Report context, const Progress& progress,
                          const CheckpointOf<CurveReport>& checkpoint = {});

bool AnyWrong(const CurveReport& report);
void PrintCurves(std::ostream& out, const CurveReport& report);
nlohmann::json ToJson(const CurveReport& report);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_CURVES_H_
