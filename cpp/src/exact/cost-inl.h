// What a plan costs: the pairs that its rows see, and the memory that running it allocates.
#if defined(HEED_EXACT_COST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_COST_INL_H_
#undef HEED_EXACT_COST_INL_H_
#else
#define HEED_EXACT_COST_INL_H_
#endif

#include <algorithm>

#include "src/exact/keep/range.h"
#include "src/exact/plan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Keys between the first and the last one that a row sees.
inline int64_t KeysSeen(const Plan& plan, int64_t batch, Row row) {
  for (const auto& keep : plan.plugs.keep) {
    const KeyRange hull = keep->Hull(batch, row);
    row.keys.begin = std::max(row.keys.begin, hull.begin);
    row.keys.end = std::min(row.keys.end, hull.end);
  }
  return std::max<int64_t>(0, row.keys.end - row.keys.begin);
}

// Summed over all rows.
inline double PairsSeen(const Plan& plan) {
  const AttentionProblem& p = *plan.problem;
  double pairs = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t i = 0; i < p.q_len; ++i) {
      const int64_t position = i + p.position[static_cast<size_t>(b)];
      const KeyRange keys = VisibleKeys(p, b, i);
      if (plan.plugs.keep.empty()) {
        pairs += static_cast<double>(p.num_heads * (keys.end - keys.begin));
        continue;
      }
      for (int64_t h = 0; h < p.num_heads; ++h) {
        pairs += static_cast<double>(KeysSeen(plan, b, {h, i, position, keys}));
      }
    }
  }
  return pairs;
}

inline double Flops(const Plan& plan) {
  const AttentionProblem& p = *plan.problem;
  const double depth = static_cast<double>(plan.depth);
  const double pairs = PairsSeen(plan);
  double flops = 2 * pairs * (depth + static_cast<double>(p.head_dim_v));
  // Normalisers of whole rows keep their scores.
  if (plan.plugs.rows != nullptr) return flops;
  if (p.outputs.weights.has_value()) flops += 2 * pairs * depth;
  if (p.outputs.scores.has_value()) {
    const bool every_pair = p.outputs.score_stage != ScoreStage::kBiased;
    const double all = static_cast<double>(p.batch * p.num_heads * p.q_len * p.kv_len);
    flops += 2 * (every_pair ? all : pairs) * depth;
  }
  return flops;
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_COST_INL_H_
