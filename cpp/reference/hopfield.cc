// Modern Hopfield retrieval: state <- softmax(beta state k^T) k, and v instead of k at last.
//
// Source: Ramsauer et al. 2020, arXiv:2008.02217, equation 3; reading other values: equation 10.
#include <cmath>
#include <string>
#include <vector>

#include "inner.h"
#include "inputs.h"

namespace heed::reference::hopfield {
namespace {

// Moves row n of the states to where `newest` has it; returns how far that was.
double MoveRow(const std::vector<double>& newest, int64_t n, Array& states) {
  double sum = 0.0;
  for (int64_t d = 0; d < states.shape[3]; ++d) {
    const int64_t at = n * states.shape[3] + d;
    const double step = newest[at] - states.values[at];
    sum += step * step;
    states.values[at] = newest[at];
  }
  return std::sqrt(sum);
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const int64_t steps = ReadCount(request, "steps").value_or(1);
  const Qkv qkv = ReadQkv(request, steps == 1 ? WidthOfScore(request) : KeyWidth::kAsQueries);
  const double tolerance = ReadNumber(request, "tolerance").value_or(0.0);
  if (steps < 1 || steps > 1000000) {
    throw Error(ErrorCode::kRange, "steps is " + std::to_string(steps) + ": expected 1 to 1000000");
  }
  if (tolerance < 0.0) throw Error(ErrorCode::kRange, "tolerance must not be negative");

  Array states = qkv.q;
  std::vector<bool> resting(qkv.batch * qkv.num_heads * qkv.q_len, false);
  std::vector<std::string_view> own = {"steps", "tolerance", "return_lse", "return_weights",
                                       "relative_values"};
  if (!FindInput(request, "relative_keys") && !FindInput(request, "relative_queries")) {
    own.insert(own.end(), {"relative_rows", "relative_max_distance"});
  }
  for (int64_t step = 1; step < steps; ++step) {
    InnerRequest update(request, "attention", own);
    update.SetInput("q", states);
    update.SetInput("v", qkv.k);
    const std::vector<double> newest = update.Run();
    bool moved = false;
    for (size_t n = 0; n < resting.size(); ++n) {
      if (resting[n]) continue;
      resting[n] = !(MoveRow(newest, n, states) > tolerance);  // also when it is lost to NaN
      moved = moved || !resting[n];
    }
    if (!moved) break;
  }
  InnerRequest last(request, "attention", {"steps", "tolerance"});
  last.SetInput("q", states);
  return last.RunAll();
}

}  // namespace heed::reference::hopfield
