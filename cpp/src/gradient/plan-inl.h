// The plan of one backward call: sizes, derivatives of the plugs and memory, fixed before any
// thread starts.
#if defined(HEED_GRADIENT_PLAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_GRADIENT_PLAN_INL_H_
#undef HEED_GRADIENT_PLAN_INL_H_
#else
#define HEED_GRADIENT_PLAN_INL_H_
#endif

#include <algorithm>
#include <memory>
#include <vector>

#include "src/exact/modify/forgetting-inl.h"
#include "src/exact/modify/softcap-inl.h"
#include "src/exact/normalize_gradient-inl.h"
#include "src/exact/plan-inl.h"
#include "src/exact/row_gradient-inl.h"
#include "src/exact/score_gradient-inl.h"
#include "src/exact/weights/dropout-inl.h"
#include "src/gradient/problem.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Derivatives of the sockets.
struct GradientPlugs {
  std::unique_ptr<ScoreGradient> score;
  std::unique_ptr<NormalizeGradient> normalize;         // of normalisers that stream
  std::unique_ptr<RowGradient> rows;                    // where whole rows are needed, or nullptr
  std::unique_ptr<Softcap> softcap;                     // nullptr: none
  std::unique_ptr<DropoutWeights> dropout;              // nullptr: none
  std::unique_ptr<ValueTermsGradient> relative_values;  // nullptr: none
};

GradientPlugs MakeGradientPlugs(const GradientProblem& g);

// The parts of it that some modules for the web have no room for: backward_plugs.cc.
std::unique_ptr<ScoreGradient> MakeAdditiveGradient(const AttentionProblem& p);
std::unique_ptr<ScoreGradient> MakeRelativeDotGradient(const AttentionProblem& p,
                                                       float packed_scale);
std::unique_ptr<ValueTermsGradient> MakeRelativeValuesGradient(const AttentionProblem& p);
std::unique_ptr<RowGradient> MakeCopeGradient(const AttentionProblem& p);
// nullptr for the gaussian kernel, which is softmax.
std::unique_ptr<RowGradient> MakeKernelSumGradient(const AttentionProblem& p);
// Around the derivative of the normaliser: `rows` or, where that is nullptr, `streaming`.
std::unique_ptr<RowGradient> MakeProbModGradient(const GradientProblem& g,
                                                 const NormalizeGradient* streaming,
                                                 std::unique_ptr<RowGradient> rows);

// Queries of a KV head are dealt to parts, so many tasks, each with sums of its own for keys and
// values: enough for many threads where there are few heads. Sums cost what 12 queries do.
inline constexpr int64_t kPartRows = 512;
inline constexpr int64_t kMostTasks = 8;

struct GradientPlan {
  const GradientProblem* problem;
  const Plan& plan;
  GradientPlugs plugs;
  size_t k_cols;      // depth of a packed key, rounded up to panels
  int64_t num_parts;  // of the blocks of a unit
  size_t params;      // numbers of the score's parameters, 0 when their gradients are not wanted
  bool wants_q, wants_k, wants_v;
  int64_t reach = -1;  // of gradients by distance; -1 when nobody wants them
  bool owns_bias;      // d_bias is wanted, and no two blocks share a cell of it

  GradientPlan(const GradientProblem& g, const Plan& forward)
      : problem(&g), plan(forward), plugs(MakeGradientPlugs(g)) {
    const AttentionGradients& to = g.gradients;
    k_cols = RoundUp(plan.depth, PanelCols());
    const int64_t tasks = std::max<int64_t>(1, kMostTasks / plan.num_units);
    num_parts = std::clamp<int64_t>(plan.rows / kPartRows, 1, tasks);
    params = WantsScoreParams(to) ? plugs.score->NumParams() : 0;
    const AttentionProblem& p = g.attention;
    if (to.d_distance_bias.has_value()) reach = (to.d_distance_bias.shape[3] - 1) / 2;
    if (to.d_bucket_bias.has_value()) reach = std::max(reach, p.options.bucket_max_distance);
    reach = std::min(reach, FarthestDistance(p));
    wants_q = to.d_q.has_value() || params > 0;
    wants_k = to.d_k.has_value() || params > 0;
    wants_v = to.d_v.has_value();
    owns_bias = to.d_bias.has_value() && !SharesBias(0) && !SharesBias(1) && !SharesBias(2);
  }

  const AttentionProblem& attention() const { return problem->attention; }
  const AttentionGradients& gradients() const { return problem->gradients; }

  // Does the bias broadcast over this extent?
  bool SharesBias(size_t axis) const {
    const TensorView<float>& d_bias = gradients().d_bias;
    return d_bias.strides[axis] == 0 && d_bias.shape[axis] > 1;
  }

  size_t TileKeyCols() const { return Plan::KeyCols(plan.TileKeys()); }
  size_t DimV() const { return static_cast<size_t>(attention().head_dim_v); }
  // Of a tile: keys packed for scores with the scratch of packing them, values packed in the same
  // way, and the keys once more as rows.
  size_t ValueFloats() const { return TileKeyCols() * DimV(); }
  size_t KeyRowFloats() const { return plan.TileKeys() * k_cols; }
  size_t TileFloats() const { return plan.KTileFloats() + ValueFloats() + KeyRowFloats(); }
  // Sums of a part, one row for each key.
  size_t SumCols() const {
    return (wants_k ? k_cols : 0) + (wants_v ? plan.v_cols : 0) + (NeedsTotals() ? 1 : 0);
  }
  size_t PartFloats() const {
    return RoundUp(static_cast<size_t>(attention().kv_len) * SumCols(), PanelCols());
  }
  // Sums of gates of a head.
  size_t GateFloats() const {
    return gradients().d_log_gates.has_value() ? static_cast<size_t>(attention().kv_len) : 0;
  }
  // Numbers of a table of relative values.
  size_t ValueTableFloats() const {
    return gradients().d_relative_values.has_value() ? plugs.relative_values->Size() : 0;
  }
  // Numbers of a table of the normaliser.
  size_t TableFloats() const {
    return gradients().d_cope_table.has_value() ? plugs.rows->TableSize() : 0;
  }
  // Numbers of a head by distance.
  size_t CurveFloats() const { return reach < 0 ? 0 : static_cast<size_t>(2 * reach + 1); }
  bool NeedsTotals() const { return wants_k && plugs.score->NeedsTotals(); }
};

// Keys and values of one tile.
struct GradientTile {
  PackedTile keys;  // without values
  float* values;    // [panel of keys][head_dim_v][PanelCols()]
  float* key_rows;  // [panel of dims][key][PanelCols()]
  bool keys_finite;
};

// The sums of a part: d_k and d_v before they are scaled.
struct PartSums {
  float* k;       // [kv_len][k_cols], nullptr when d_k is not wanted
  float* v;       // [kv_len][v_cols]
  float* totals;  // [kv_len], where the score needs them
};

// Memory of one worker.
struct GradientScratch {
  Scratch forward;
  AlignedFloats query_rows;  // [panel of dims][block rows][PanelCols()]
  AlignedFloats d_out;       // row groups, [head_dim_v][rows]
  AlignedFloats d_out_rows;  // [panel of dims][block rows][PanelCols()]
  AlignedFloats d_q;         // [block rows][k_cols]
  AlignedFloats terms;       // the same for terms beside the product, where the score has some
  AlignedFloats d_scores;    // of one score tile
  AlignedFloats capped;      // scores of it after softcap
  AlignedFloats biased;      // scores of it before score_mod
  // Only for normalisers that need whole rows (row_block-inl.h): d_scores, capped and biased lie in
  // a row buffer as the scores do.
  ScratchVector<ScoreTile> d_tiles;  // those in the buffer
  AlignedFloats row_scratch;         // what the plug asked for
  AlignedFloats table_queries;       // [block rows][head_dim], where the plug has a table
  AlignedFloats totals;  // gradients of scores, summed over each row; where the score needs them
  AlignedFloats lse, mean, factor;  // of the rows
  AlignedFloats converted;          // rows that are not floats where they lie
  AlignedFloats row;                // one row of d_q, d_k or d_v
  ScratchVector<GateSums> gates;    // of the rows, where gradients of gates are wanted

  explicit GradientScratch(const GradientPlan& g) : forward(g.plan, false) {
    const Plan& plan = g.plan;
    const size_t most = static_cast<size_t>(std::min(plan.rows, plan.block_rows));
    const bool buffered = g.plugs.rows != nullptr;
    const size_t tile = buffered ? plan.BufferFloats() : std::min(most, kScoreRows) * kTileKeys;
    query_rows = AlignedFloats(most * g.k_cols);
    d_out = AlignedFloats(most * g.DimV());
    d_out_rows = AlignedFloats(most * plan.v_cols);
    d_q = AlignedFloats(most * g.k_cols);
    if (g.plugs.score->HasTerms()) terms = AlignedFloats(most * g.k_cols);
    d_scores = AlignedFloats(tile);
    if (g.plugs.softcap != nullptr) capped = AlignedFloats(tile);
    if (g.attention().options.score_mod) biased = AlignedFloats(tile);
    const size_t rows = RoundUp(most, kScoreRows);
    lse = AlignedFloats(rows);
    mean = AlignedFloats(rows);
    factor = AlignedFloats(rows);
    totals = AlignedFloats(rows);
    converted = AlignedFloats(2 * PanelCols() * plan.LongestRow());
    if (g.GateFloats() > 0) gates.resize(rows);
    if (buffered) {
      d_tiles.reserve(plan.MostBufferedTiles());
      row_scratch = AlignedFloats(g.plugs.rows->ScratchFloats(plan.num_tiles));
      if (g.plugs.rows->TableSize() > 0) {
        table_queries = AlignedFloats(most * static_cast<size_t>(g.attention().head_dim));
      }
    }
    row = AlignedFloats(RoundUp(plan.LongestRow(), PanelCols()) + std::max(g.k_cols, plan.v_cols));
  }

  RowBuffers buffers() const { return {converted.get(), nullptr}; }
  float* converted_too(const Plan& plan) const {
    return converted.get() + PanelCols() * plan.LongestRow();
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_GRADIENT_PLAN_INL_H_
