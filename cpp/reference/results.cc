#include "results.h"

#include <algorithm>
#include <utility>

#include "softmax.h"

namespace heed::reference {
namespace {

Result MakeResult(const char* name, int rank, Extents shape) {
  int64_t count = 1;
  for (int axis = 0; axis < rank; ++axis) count *= shape[axis];
  return {name, rank, shape, std::vector<double>(count)};
}

}  // namespace

ExactResults::ExactResults(const Request& request, const Qkv& qkv)
    : qkv_(qkv),
      relative_(request, qkv),
      wants_lse_(ReadFlag(request, "return_lse")),
      wants_weights_(ReadFlag(request, "return_weights")),
      score_stage_(ReadWord(request, "return_scores", {"raw", "capped", "biased"}).value_or("")) {
  const Extents pairs{qkv.batch, qkv.num_heads, qkv.q_len, qkv.kv_len};
  output_ = MakeResult("output", 4, {qkv.batch, qkv.num_heads, qkv.q_len, qkv.head_dim_v});
  if (wants_lse_) lse_ = MakeResult("lse", 3, {qkv.batch, qkv.num_heads, qkv.q_len});
  if (wants_weights_) weights_ = MakeResult("weights", 4, pairs);
  if (wants_scores()) scores_ = MakeResult("scores", 4, pairs);
}

void ExactResults::SetRow(int64_t b, int64_t h, int64_t i, const ScoreRow& scores,
                          std::span<const double> weights, std::span<const double> dropped,
                          double lse) {
  const int64_t row = (b * qkv_.num_heads + h) * qkv_.q_len + i;
  if (lse != kMinusInfinity) Aggregate(b, h, i, scores, dropped);
  if (wants_lse_) lse_.values[row] = lse;
  if (wants_weights_) {
    std::ranges::replace_copy(weights, &weights_.values[row * qkv_.kv_len], kMinusInfinity, 0.0);
  }
  if (wants_scores()) {
    const std::vector<double>& stage = score_stage_ == "raw"      ? scores.raw
                                       : score_stage_ == "capped" ? scores.capped
                                                                  : scores.biased;
    std::ranges::copy(stage, &scores_.values[row * qkv_.kv_len]);
  }
}

void ExactResults::Aggregate(int64_t b, int64_t h, int64_t i, const ScoreRow& scores,
                             std::span<const double> weights) {
  const int64_t row = (b * qkv_.num_heads + h) * qkv_.q_len + i;
  const auto out = std::span(output_.values).subspan(row * qkv_.head_dim_v, qkv_.head_dim_v);
  for (int64_t j = 0; j < qkv_.kv_len; ++j) {
    // Left out, never multiplied: 0 * NaN is NaN.
    if (scores.biased[j] == kMinusInfinity || weights[j] == kMinusInfinity) continue;
    const auto v = qkv_.v.Row(b, qkv_.KvHead(h), j);
    const int64_t relative_row = relative_.has_values() ? relative_.Row(b, i, j) : 0;
    for (int64_t d = 0; d < qkv_.head_dim_v; ++d) {
      out[d] += weights[j] * (v[d] + relative_.Value(h, relative_row, d));
    }
  }
}

std::vector<Result> ExactResults::Take() {
  std::vector<Result> results;
  results.push_back(std::move(output_));
  if (wants_lse_) results.push_back(std::move(lse_));
  if (wants_weights_) results.push_back(std::move(weights_));
  if (wants_scores()) results.push_back(std::move(scores_));
  return results;
}

}  // namespace heed::reference
