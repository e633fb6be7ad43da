// What a plan costs: the pairs that its rows see, and their FLOPs.
#if defined(HEED_EXACT_COST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_COST_INL_H_
#undef HEED_EXACT_COST_INL_H_
#else
#define HEED_EXACT_COST_INL_H_
#endif

#include <algorithm>
#include <memory>
#include <vector>

#include "src/exact/keep/range.h"
#include "src/exact/plan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Rows that ask the keep plugs together.
inline constexpr size_t kCostRows = 64;

// Keys that the rows of a head see, cell by cell.
inline int64_t CellsSeen(const AttentionProblem& p, const KeepPlugs& plugs, int64_t batch,
                         const Row* rows, size_t count) {
  KeyRange hull = {p.kv_len, 0};
  for (size_t i = 0; i < count; ++i) {
    if (rows[i].keys.begin == rows[i].keys.end) continue;
    hull.begin = std::min(hull.begin, rows[i].keys.begin);
    hull.end = std::max(hull.end, rows[i].keys.end);
  }
  int64_t seen = 0;
  const int64_t step = static_cast<int64_t>(kTileKeys);
  for (int64_t key = hull.begin / step * step; key < hull.end; key += step) {
    const KeepTile tile = {batch, rows, count, key,
                           static_cast<size_t>(std::min(step, hull.end - key))};
    const bool meets = std::all_of(plugs.begin(), plugs.end(),
                                   [&](const auto& keep) { return keep->MayMeet(tile); });
    if (!meets) continue;
    KeyBits bits[kCostRows];
    for (size_t i = 0; i < count; ++i) {
      const ColumnRange columns = VisibleColumns(rows[i], key, tile.num_keys);
      bits[i].SetRange(columns.begin, columns.end);
    }
    for (const auto& keep : plugs) keep->Narrow(tile, bits);
    for (size_t i = 0; i < count; ++i) seen += bits[i].Count();
  }
  return seen;
}

// Summed over the rows of a head of a batch entry.
inline double CellsOfHead(const AttentionProblem& p, const KeepPlugs& plugs, int64_t batch,
                          int64_t head) {
  Row rows[kCostRows];
  double pairs = 0;
  const int64_t step = static_cast<int64_t>(kCostRows);
  for (int64_t first = 0; first < p.q_len; first += step) {
    const size_t count = static_cast<size_t>(std::min(step, p.q_len - first));
    for (size_t r = 0; r < count; ++r) {
      const int64_t i = first + static_cast<int64_t>(r);
      rows[r] = {head, i, p.Position(batch, i), VisibleKeys(p, batch, i)};
      NarrowToHulls(plugs, batch, rows[r]);
    }
    pairs += static_cast<double>(CellsSeen(p, plugs, batch, rows, count));
  }
  return pairs;
}

// Summed over all rows.
inline double PairsSeen(const AttentionProblem& p, const KeepPlugs& plugs) {
  double pairs = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    if (!plugs.empty()) {
      for (int64_t h = 0; h < p.num_heads; ++h) pairs += CellsOfHead(p, plugs, b, h);
      continue;
    }
    for (int64_t i = 0; i < p.q_len; ++i) {
      const KeyRange keys = VisibleKeys(p, b, i);
      pairs += static_cast<double>(p.num_heads * (keys.end - keys.begin));
    }
  }
  return pairs;
}

inline double Flops(const Plan& plan) {
  const AttentionProblem& p = *plan.problem;
  // Pairs count as what they are pairs of.
  const double depth =
      MultipliesPairs(p) ? static_cast<double>(p.head_dim) : static_cast<double>(plan.depth);
  const double pairs = PairsSeen(p, plan.plugs.keep);
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
