// One block of query rows on its way back: computes the weights and the gradients of the scores
// again, tile by tile, and adds them up.
#if defined(HEED_GRADIENT_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_GRADIENT_BLOCK_INL_H_
#undef HEED_GRADIENT_BLOCK_INL_H_
#else
#define HEED_GRADIENT_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "src/exact/modify/alibi-inl.h"
#include "src/exact/modify/bias-inl.h"
#include "src/exact/modify/distance_bias-inl.h"
#include "src/exact/score_block-inl.h"
#include "src/exact/user_tile.h"
#include "src/gradient/pack-inl.h"
#include "src/gradient/plan-inl.h"
#include "src/gradient/products-inl.h"
#include "src/power.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sums over the rows of a part that belong to no key, one for each query head of the KV head.
struct HeadSums {
  std::span<double> slopes;
  std::span<double> sinks;
  std::span<double> curves;  // by distance, one after the other
  std::span<double> gates;   // by key, one after the other
  std::span<double> values;  // tables of relative values, one after the other
  double* params;            // of the score
  double* table;             // of the normaliser, one after the other
};

class GradientBlock : private ScoreBlock {
 public:
  // `tiles` are those of the unit.
  GradientBlock(const GradientPlan& plan, int64_t unit, int64_t block, const GradientTile* tiles,
                GradientScratch& scratch)
      : ScoreBlock(plan.plan, unit, block, scratch.forward),
        g_(plan),
        tiles_(tiles),
        own_(scratch),
        row_terms_{scratch.lse.get(), scratch.mean.get(), scratch.factor.get()} {
    capped_memory_ = scratch.capped.get();
    biased_memory_ = scratch.biased.get();
    PackRows();
    FillFactors();
  }

  // Adds to the sums of the part, and writes d_q.
  void Run(const PartSums& sums, const HeadSums& heads) {
    std::fill_n(own_.d_q.get(), num_rows_ * g_.k_cols, 0.0f);
    std::fill_n(own_.totals.get(), num_rows_, 0.0f);
    if (own_.terms.get() != nullptr) std::fill_n(own_.terms.get(), num_rows_ * g_.k_cols, 0.0f);
    if (g_.wants_q) table_queries_ = own_.table_queries.get();
    if (table_queries_ != nullptr) std::fill_n(table_queries_, num_rows_ * HeadDim(), 0.0f);
    sums_ = sums;
    heads_ = heads;
    if (!heads.gates.empty()) StartGates();
    ForEachGradient(&GradientBlock::AddTile);
    for (size_t r = 0; r < num_rows_ && !heads.gates.empty(); ++r) own_.gates[r].Finish();
    if (!heads.sinks.empty()) AddSinks(heads.sinks);
    if (g_.wants_q) WriteQueries(heads.params);
  }

  // Adds to d_bias only.
  void RunBias() { ForEachGradient(&GradientBlock::AddBias); }

 private:
  // What to do with a tile of scores, its keys and its first row. A pointer, so that the sockets
  // before it are compiled once.
  using Step = void (GradientBlock::*)(const ScoreTile&, const GradientTile&, size_t);

  // A tile of weights, whose keys are known, and what arrives at its scores.
  struct Differentiated {
    const ScoreTile& weights;
    const ScoreTile& d_scores;
    const float* capped;  // its scores after softcap, where there is one
    const GradientTile& keys;
    size_t r;  // its first row
  };
  using GradientStep = void (GradientBlock::*)(const Differentiated&);

  void ForEachTile(Step step) {
    for (size_t t = BeginTile(); t < EndTile(); ++t) {
      if (!seen_.MayMeet(t, 0, num_rows_)) continue;
      for (size_t r = 0; r < num_rows_; r += kScoreRows) {
        VisitScores(tiles_[t].keys, t, r,
                    [&](const ScoreTile& tile) { (this->*step)(tile, tiles_[t], r); });
      }
    }
  }

  void ForEachGradient(GradientStep step) {
    if (g_.plugs.rows != nullptr) return ForEachBuffered(step);
    gradient_step_ = step;
    ForEachTile(&GradientBlock::DifferentiateTile);
  }

  // The same for normalisers that need whole rows: row_block-inl.h.
  void ForEachBuffered(GradientStep step);
  void DifferentiateRows(size_t r);
  void FinishWeights(const ScoreTile& weights, const GradientTile& keys);

  void DifferentiateTile(const ScoreTile& tile, const GradientTile& keys, size_t r) {
    const ScoreTile d_scores = Differentiate(tile, keys, r);
    if (own_.biased.get() != nullptr) ApplySlopes(d_scores, own_.biased.get());
    (this->*gradient_step_)({tile, d_scores, own_.capped.get(), keys, r});
  }

  void AddTile(const Differentiated& tile) {
    const ScoreTile& d_scores = tile.d_scores;
    AddHeadSums(d_scores, heads_);
    for (size_t i = 0; i < d_scores.num_rows && !heads_.gates.empty(); ++i) {
      own_.gates[tile.r + i].Add(d_scores, d_scores.scores, i);
    }
    if (g_.owns_bias) AddBiasGradient(d_scores, d_scores.scores, g_.gradients().d_bias);
    if (g_.plugs.softcap != nullptr) {
      g_.plugs.softcap->Backward(d_scores, tile.capped, d_scores.scores);
    }
    if (g_.plugs.dropout != nullptr) g_.plugs.dropout->Apply(tile.weights);
    AddProducts(tile.weights, d_scores, tile.keys, sums_, tile.r);
  }

  void AddBias(const Differentiated& tile) {
    AddBiasGradient(tile.d_scores, tile.d_scores.scores, g_.gradients().d_bias);
  }

  // Scores of -inf are hidden, as in forward.
  void CountTile(const ScoreTile& tile, const GradientTile&, size_t r) {
    for (size_t i = 0; i < tile.num_rows; ++i) {
      const float* row = tile.row_scores(i);
      const auto hidden =
          std::count(row + tile.first, row + tile.last, -std::numeric_limits<float>::infinity());
      own_.factor.get()[r + i] +=
          static_cast<float>(static_cast<int64_t>(tile.last - tile.first) - hidden);
    }
  }

  // Packs d_out and the queries as rows, and finds what each row's scores are compared with.
  void PackRows() {
    for (size_t group = 0; group < num_rows_; group += kTileRows) {
      const size_t count = std::min(kTileRows, num_rows_ - group);
      const float* queries = scratch_.queries.get() + group * plan_.query_depth;
      UnpackToPanels(queries, count, count, plan_.depth, num_rows_,
                     own_.query_rows.get() + group * PanelCols());
      queries_finite_ = AllFinite(queries, count * plan_.depth) && queries_finite_;
      const float* rows[kTileRows];
      for (size_t i = 0; i < count; ++i) {
        rows[i] = StoredRow(g_.problem->d_out, group + i, own_.converted.get() + i * g_.DimV());
        if (HasLse(p_.options)) FillTerms(group + i, rows[i]);
      }
      TransposeRows(rows, count, g_.DimV(), own_.d_out.get() + group * g_.DimV(), count);
      d_out_finite_ = PackPanels(RowPointers{rows}, count, g_.DimV(), num_rows_,
                                 own_.d_out_rows.get() + group * PanelCols()) &&
                      d_out_finite_;
    }
  }

  // Row r of a tensor [batch, num_heads, q_len, ...] as floats, converted into `buffer` if need be.
  const float* StoredRow(const StoredTensor& tensor, size_t r, float* buffer) const {
    const Row& row = scratch_.rows[r];
    const void* stored = tensor.Row(batch_, row.head, row.query);
    if (tensor.dtype == DType::kFloat32) return static_cast<const float*>(stored);
    StoredRowToFloats(tensor.dtype, stored, 1.0f, static_cast<size_t>(tensor.shape[3]), buffer);
    return buffer;
  }

  void FillTerms(size_t r, const float* d_out) {
    const Row& row = scratch_.rows[r];
    const GradientProblem& problem = *g_.problem;
    const float* out = StoredRow(problem.out, r, own_.converted_too(plan_));
    const auto& d_lse = problem.gradients.d_lse;
    const float less = d_lse.has_value() ? d_lse(batch_, row.head, row.query, 0) : 0.0f;
    own_.mean.get()[r] = DotProduct(d_out, out, g_.DimV()) - less;
    own_.lse.get()[r] = Lse(r);
  }

  static float DotProduct(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, size_t count) {
    const DF d;
    VF sum = hn::Zero(d);
    size_t c = 0;
    for (; c + hn::Lanes(d) <= count; c += hn::Lanes(d)) {
      sum = Fma(hn::LoadU(d, a + c), hn::LoadU(d, b + c), sum);
    }
    if (c < count) {
      sum = Fma(hn::LoadN(d, a + c, count - c), hn::LoadN(d, b + c, count - c), sum);
    }
    return hn::ReduceSum(d, sum);
  }

  // 0 for an empty row, all of whose scores are hidden; NaN for one that is lost.
  float Lse(size_t r) const {
    const Row& row = scratch_.rows[r];
    const float lse = g_.problem->lse(batch_, row.head, row.query, 0);
    if (lse == -std::numeric_limits<float>::infinity()) return 0.0f;
    return std::isfinite(lse) ? lse : std::numeric_limits<float>::quiet_NaN();
  }

  // Weights of normalisers that look at how many keys a row sees.
  void FillFactors() {
    float* factor = own_.factor.get();
    std::fill_n(factor, num_rows_, 1.0f);
    const double power = g_.plugs.normalize == nullptr ? 0 : g_.plugs.normalize->LengthPower();
    if (power == 0) return;
    CountVisible(factor);
    for (size_t r = 0; r < num_rows_; ++r) {
      const double count = static_cast<double>(factor[r]);
      factor[r] = static_cast<float>(power == 1 ? 1 / count : Power(count, -power));
    }
  }

  // Where scores may be -inf, all are computed to be counted.
  void CountVisible(float* count) {
    if (plan_.plugs.keep.empty() && plan_.plugs.additive.empty()) {
      for (size_t r = 0; r < num_rows_; ++r) {
        const KeyRange& keys = scratch_.rows[r].keys;
        count[r] = static_cast<float>(keys.end - keys.begin);
      }
      return;
    }
    std::fill_n(count, num_rows_, 0.0f);
    ForEachTile(&GradientBlock::CountTile);
  }

  // Turns the tile's scores into weights and returns the gradients of the scores.
  ScoreTile Differentiate(const ScoreTile& tile, const GradientTile& keys, size_t r) {
    ScoreTile d_scores = tile;
    d_scores.scores = own_.d_scores.get();
    FillWeightGradients(keys, r, d_scores);
    if (MustSelect(keys)) NoteVisible(tile, tile.scores);
    g_.plugs.normalize->Apply(tile, d_scores.scores, row_terms_.From(r));
    return d_scores;
  }

  // From the gradients of scores to those of the scores before score_mod, which lie in `biased`.
  void ApplySlopes(const ScoreTile& d_scores, float* biased) const {
    ScoreTile slopes = d_scores;
    slopes.scores = biased;
    g_.gradients().score_mod_slope(UserTile(slopes).All(slopes));
    const size_t last = std::min(d_scores.last, d_scores.num_keys);
    for (size_t r = 0; r < d_scores.num_rows; ++r) {
      float* const row = d_scores.row_scores(r);
      for (size_t c = d_scores.first; c < last; ++c) {
        if (row[c] != 0) row[c] *= slopes.row_scores(r)[c];
      }
    }
  }

  // d_p_ij = d_out_i . v_j, through dropout.
  void FillWeightGradients(const GradientTile& keys, size_t r, const ScoreTile& to) const {
    FillDots(g_.DimV(), g_.DimV(), own_.d_out.get() + r * g_.DimV(), keys.values, to);
    if (g_.plugs.relative_values != nullptr) {
      const PanelRows d_out = {own_.d_out_rows.get(), num_rows_, plan_.v_cols};
      g_.plugs.relative_values->AddDots(to, d_out.From(r));
    }
    if (g_.plugs.dropout != nullptr) g_.plugs.dropout->Apply(to);
  }

  // Must products leave hidden cells out?
  bool MustSelect(const GradientTile& keys) const {
    return !keys.keys_finite || !queries_finite_ || !d_out_finite_;
  }

  void AddHeadSums(const ScoreTile& d_scores, const HeadSums& heads) const {
    for (size_t r = 0; r < d_scores.num_rows && !heads.slopes.empty(); ++r) {
      heads.slopes[Lane(d_scores.rows[r])] += AlibiSlopeGradient(d_scores, d_scores.scores, r);
    }
    for (size_t r = 0; r < d_scores.num_rows && !heads.curves.empty(); ++r) {
      double* const curve = heads.curves.data() + Lane(d_scores.rows[r]) * g_.CurveFloats();
      AddDistanceGradient(d_scores, d_scores.scores, r, g_.reach, curve);
    }
  }

  void StartGates() {
    for (size_t r = 0; r < num_rows_; ++r) {
      const Row& row = scratch_.rows[r];
      const int64_t last = LastGate(p_, batch_, row);
      own_.gates[r] = GateSums(heads_.gates.data() + Lane(row) * g_.GateFloats(), last);
    }
  }

  // A sink has the weight e^(sink - lse) and no value: its d_p is 0.
  void AddSinks(std::span<double> sums) const {
    for (size_t r = 0; r < num_rows_; ++r) {
      const Row& row = scratch_.rows[r];
      const float lse = g_.problem->lse(batch_, row.head, row.query, 0);
      if (lse == -std::numeric_limits<float>::infinity()) continue;
      const float sink = p_.options.sinks[static_cast<size_t>(row.head)];
      if (std::isinf(sink)) continue;
      const double weight = std::exp(static_cast<double>(sink) - static_cast<double>(lse));
      sums[Lane(row)] -= weight * static_cast<double>(own_.mean.get()[r]);
    }
  }

  size_t HeadDim() const { return static_cast<size_t>(p_.head_dim); }

  // Which of the query heads of the KV head it is.
  size_t Lane(const Row& row) const { return static_cast<size_t>(row.head % p_.group); }

  void AddProducts(const ScoreTile& weights, const ScoreTile& d_scores, const GradientTile& keys,
                   const PartSums& sums, size_t r) {
    const size_t key = static_cast<size_t>(weights.key_begin);
    const PanelRows d_out = PanelRows{own_.d_out_rows.get(), num_rows_, plan_.v_cols}.From(r);
    if (g_.wants_v) {
      const uint8_t* visible = scratch_.visible.get();
      float* to = sums.v + key * plan_.v_cols;
      d_out_finite_ ? AddRows(weights, d_out, to) : AddVisibleRows(weights, visible, d_out, to);
    }
    if (!heads_.values.empty()) {
      g_.plugs.relative_values->AddSums(weights, d_out, heads_.values.data());
    }
    const ScoreGradient& score = *g_.plugs.score;
    if (score.HasPairs()) return AddPairs(d_scores, keys, sums, r);
    AddScoreProducts(d_scores, keys, sums, r);
    if (score.HasTerms()) AddTerms(d_scores, keys, sums, r);
    if (score.NeedsTotals()) AddTotals(d_scores, sums, r);
  }

  void AddScoreProducts(const ScoreTile& d_scores, const GradientTile& keys, const PartSums& sums,
                        size_t r) {
    const size_t key = static_cast<size_t>(d_scores.key_begin);
    const uint8_t* visible = scratch_.visible.get();
    if (g_.wants_k) {
      const PanelRows queries = PanelRows{own_.query_rows.get(), num_rows_, g_.k_cols}.From(r);
      float* to = sums.k + key * g_.k_cols;
      queries_finite_ ? AddRows(d_scores, queries, to)
                      : AddVisibleRows(d_scores, visible, queries, to);
    }
    if (g_.wants_q) {
      const PanelRows rows = {keys.key_rows, plan_.TileKeys(), g_.k_cols};
      float* to = own_.d_q.get() + r * g_.k_cols;
      keys.keys_finite ? AddKeys(d_scores, rows, to) : AddVisibleKeys(d_scores, visible, rows, to);
    }
  }

  void AddPairs(const ScoreTile& d_scores, const GradientTile& keys, const PartSums& sums,
                size_t r) const {
    const PanelRows queries = PanelRows{own_.query_rows.get(), num_rows_, g_.k_cols}.From(r);
    const PanelRows rows = {keys.key_rows, plan_.TileKeys(), g_.k_cols};
    const size_t key = static_cast<size_t>(d_scores.key_begin);
    float* d_queries = g_.wants_q ? own_.d_q.get() + r * g_.k_cols : nullptr;
    float* d_keys = g_.wants_k ? sums.k + key * g_.k_cols : nullptr;
    g_.plugs.score->AddPairs(d_scores, queries, rows, {d_queries, d_keys, heads_.params});
  }

  void AddTerms(const ScoreTile& d_scores, const GradientTile& keys, const PartSums& sums,
                size_t r) const {
    const PanelRows rows = {keys.key_rows, plan_.TileKeys(), g_.k_cols};
    const size_t key = static_cast<size_t>(d_scores.key_begin);
    float* d_queries = g_.wants_q ? own_.terms.get() + r * g_.k_cols : nullptr;
    float* d_keys = g_.wants_k ? sums.k + key * g_.k_cols : nullptr;
    g_.plugs.score->AddTerms(d_scores, scratch_.queries.get() + r * plan_.query_depth, rows,
                             {d_queries, d_keys, heads_.params, own_.row.get()});
  }

  void AddTotals(const ScoreTile& d_scores, const PartSums& sums, size_t r) {
    const size_t last = std::min(d_scores.last, d_scores.num_keys);
    for (size_t i = 0; i < d_scores.num_rows; ++i) {
      const float* HWY_RESTRICT row = d_scores.row_scores(i);
      float total = 0;
      for (size_t c = d_scores.first; c < last; ++c) total += row[c];
      own_.totals.get()[r + i] += total;
      if (!g_.wants_k) continue;
      float* HWY_RESTRICT to = sums.totals + d_scores.key_begin;
      for (size_t c = d_scores.first; c < last; ++c) to[c] += row[c];
    }
  }

  void WriteQueries(double* params) {
    const StoredOutput& d_q = g_.gradients().d_q;
    float* row = own_.row.get();
    for (size_t r = 0; r < num_rows_; ++r) {
      const Row& at = scratch_.rows[r];
      const float* sums = own_.d_q.get() + r * g_.k_cols;
      const float* terms = own_.terms.get();
      if (terms != nullptr) terms += r * g_.k_cols;
      const auto is_zero = [](float x) { return x == 0; };
      const bool none = std::all_of(sums, sums + plan_.depth, is_zero) &&
                        (terms == nullptr || std::all_of(terms, terms + plan_.depth, is_zero));
      if (none && own_.totals.get()[r] == 0) {
        std::fill_n(row, p_.head_dim, 0.0f);
      } else {
        const float* q = StoredRow(p_.q, r, own_.converted.get());
        g_.plugs.score->Query(at, q, {sums, own_.totals.get()[r], terms}, row, params);
      }
      if (!d_q.has_value()) continue;
      for (size_t t = 0; t < HeadDim() && table_queries_ != nullptr; ++t) {
        row[t] += table_queries_[r * HeadDim() + t];
      }
      FloatsToStoredRow(row, static_cast<size_t>(d_q.shape[3]), d_q.dtype,
                        d_q.Row(batch_, at.head, at.query));
    }
  }

  const GradientPlan& g_;
  const GradientTile* tiles_;
  GradientScratch& own_;
  GradientRows row_terms_;
  PartSums sums_{};
  HeadSums heads_{};
  float* table_queries_ = nullptr;  // nullptr: no table, or nobody wants d_q
  GradientStep gradient_step_ = nullptr;
  bool queries_finite_ = true;
  bool d_out_finite_ = true;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_GRADIENT_BLOCK_INL_H_
