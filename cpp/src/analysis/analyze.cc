// heed::Analyze and heed::WeightsTile.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "heed/analysis.h"
#include "src/analysis/column_totals.h"
#include "src/analysis/tile_sums.h"
#include "src/analysis/weights_problem.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const std::string kRowsText = "[batch, num_heads, q_len, 1]";

// What is known of every row so far. A row belongs to one thread, and its tiles come in order.
class RowTotals {
 public:
  RowTotals(const AttentionProblem& p, RowSumsAsked asked, int64_t top_k)
      : p_(p), asked_(asked), top_k_(static_cast<size_t>(top_k)) {
    const size_t rows = static_cast<size_t>(p.batch * p.num_heads * p.q_len);
    if (asked.entropy) entropy_.resize(rows);
    if (asked.distance) distance_.resize(rows);
    top_.resize(rows * top_k_, {0.0f, -1});
  }

  void Add(const ScoreTile& tile) {
    RowSums sums[kMaxTileRows];
    SumTileRows(tile, asked_, sums);
    for (size_t r = 0; r < tile.num_rows; ++r) {
      const size_t row = Index(tile.batch, tile.rows[r].head, tile.rows[r].query);
      if (asked_.entropy) entropy_[row] += static_cast<double>(sums[r].entropy);
      if (asked_.distance) distance_[row] += static_cast<double>(sums[r].distance);
      if (top_k_ == 0) continue;
      if (std::isnan(sums[r].weight)) {
        std::fill_n(&top_[row * top_k_], top_k_, Key{kNan, -1});
      } else if (sums[r].largest > Last(row).weight) {
        Offer(tile, r, row);
      }
    }
  }

  void Write(const AnalysisOutputs& out) const {
    for (int64_t b = 0; b < p_.batch; ++b) {
      for (int64_t h = 0; h < p_.num_heads; ++h) {
        for (int64_t i = 0; i < p_.q_len; ++i) WriteRow(out, b, h, i);
      }
    }
  }

 private:
  struct Key {
    float weight;
    int32_t index;
  };

  size_t Index(int64_t b, int64_t h, int64_t i) const {
    return static_cast<size_t>((b * p_.num_heads + h) * p_.q_len + i);
  }
  const Key& Last(size_t row) const { return top_[row * top_k_ + top_k_ - 1]; }

  // Takes the keys of a tile that are among the largest so far. Keys ascend, so a weight that was
  // there before keeps its place. A row that is lost to NaN stays so: nothing compares with NaN.
  void Offer(const ScoreTile& tile, size_t r, size_t row) {
    Key* top = &top_[row * top_k_];
    const float* weights = tile.row_scores(r);
    const size_t end = std::min(tile.last, tile.num_keys);
    for (size_t c = tile.first; c < end; ++c) {
      const float weight = weights[c];
      if (!(weight > top[top_k_ - 1].weight)) continue;
      size_t place = top_k_ - 1;
      for (; place > 0 && weight > top[place - 1].weight; --place) top[place] = top[place - 1];
      top[place] = {weight, static_cast<int32_t>(tile.key_begin + static_cast<int64_t>(c))};
    }
  }

  void WriteRow(const AnalysisOutputs& out, int64_t b, int64_t h, int64_t i) const {
    const size_t row = Index(b, h, i);
    if (asked_.entropy) out.entropy(b, h, i, 0) = static_cast<float>(entropy_[row]);
    if (asked_.distance) out.expected_distance(b, h, i, 0) = static_cast<float>(distance_[row]);
    if (top_k_ == 0) return;
    const Key* top = &top_[row * top_k_];
    if (out.max_weight.has_value()) out.max_weight(b, h, i, 0) = top->weight;
    if (out.max_index.has_value()) out.max_index(b, h, i, 0) = top->index;
    for (int64_t n = 0; n < static_cast<int64_t>(top_k_); ++n) {
      if (out.top_weights.has_value()) out.top_weights(b, h, i, n) = top[n].weight;
      if (out.top_indices.has_value()) out.top_indices(b, h, i, n) = top[n].index;
    }
  }

  const AttentionProblem& p_;
  RowSumsAsked asked_;
  size_t top_k_;
  std::vector<double> entropy_, distance_;
  std::vector<Key> top_;  // [rows][top_k]
};

class Statistics final : public WeightVisitor {
 public:
  Statistics(RowTotals* rows, ColumnTotals* columns) : rows_(rows), columns_(columns) {}
  void Visit(const ScoreTile& tile, int64_t part) override {
    if (rows_ != nullptr) rows_->Add(tile);
    if (columns_ != nullptr) columns_->AddHeads(tile, part);
  }

 private:
  RowTotals* rows_;
  ColumnTotals* columns_;
};

// The extent of the asked-for top weights; 1 when only the maximum is asked for.
int64_t TopK(const AnalysisOutputs& out) {
  const bool top = out.top_weights.has_value() || out.top_indices.has_value();
  const bool max = out.max_weight.has_value() || out.max_index.has_value();
  if (!top) return max ? 1 : 0;
  return out.top_weights.has_value() ? out.top_weights.shape[3] : out.top_indices.shape[3];
}

void CheckPositionsKnown(const AttentionProblem& p) {
  if (p.q_len == p.kv_len || p.options.query_offset.kind() != QueryOffset::Kind::kUnset) return;
  Fail(ErrorCode::kOption,
       "query_offset is needed: q_len = {} and kv_len = {} differ and expected_distance depends on "
       "positions",
       {p.q_len, p.kv_len});
}

void CheckAnalysisOutputs(const AttentionProblem& p, const TensorView<const float>& lse,
                          const AnalysisOutputs& out) {
  const Extents rows = {p.batch, p.num_heads, p.q_len, 1};
  const int64_t top_k = TopK(out);
  const bool any_top = out.top_weights.has_value() || out.top_indices.has_value();
  if (any_top && (top_k < 1 || top_k > p.kv_len)) {
    Fail(ErrorCode::kRange, "top_k = {}; it lies in [1, kv_len = {}]", {top_k, p.kv_len});
  }
  const Extents top = {p.batch, p.num_heads, p.q_len, top_k};
  const std::string top_text = "[batch, num_heads, q_len, top_k]";
  CheckAnalysisOutput("entropy", out.entropy, rows, kRowsText);
  CheckAnalysisOutput("top_weights", out.top_weights, top, top_text);
  CheckAnalysisOutput("top_indices", AsFloats(out.top_indices), top, top_text);
  CheckAnalysisOutput("max_weight", out.max_weight, rows, kRowsText);
  CheckAnalysisOutput("max_index", AsFloats(out.max_index), rows, kRowsText);
  CheckAnalysisOutput("expected_distance", out.expected_distance, rows, kRowsText);
  CheckAnalysisOutput("column_sums", out.column_sums, {p.batch, p.num_heads, p.kv_len, 1},
                      "[batch, num_heads, kv_len, 1]");
  CheckAnalysisOutput("lse", out.lse, rows, kRowsText);
  const OutputSpans outputs({{"entropy", out.entropy},
                             {"top_weights", out.top_weights},
                             {"top_indices", out.top_indices},
                             {"max_weight", out.max_weight},
                             {"max_index", out.max_index},
                             {"expected_distance", out.expected_distance},
                             {"column_sums", out.column_sums},
                             {"lse", out.lse}});
  CheckApart(outputs, p);
  outputs.ApartFrom("lse", lse);
  if (p.kv_len > std::numeric_limits<int32_t>::max()) {
    Fail(ErrorCode::kShape, "k has kv_len {}; indices of keys are 32-bit", {p.kv_len});
  }
  if (out.expected_distance.has_value()) CheckPositionsKnown(p);
}

void CheckLseUse(const AttentionProblem& p, TensorView<const float> lse,
                 const AnalysisOutputs& out) {
  CheckGivenLse(p, lse);
  if (lse.has_value() && out.lse.has_value()) {
    Fail(ErrorCode::kOption, "lse is both given and asked for");
  }
}

}  // namespace

void Analyze(const StoredTensor& q, const StoredTensor& k, const AttentionOptions& options,
             TensorView<const float> lse, const AnalysisOutputs& out, ThreadPool* pool) {
  WithMemoryErrors("the analysis", [&] {
    AttentionProblem p = ValidateWeights(q, k, options, lse.has_value() || out.lse.has_value());
    CheckLseUse(p, lse, out);
    CheckAnalysisOutputs(p, lse, out);
    p.outputs.lse = out.lse;
    const RowSumsAsked asked = {out.entropy.has_value(), out.expected_distance.has_value()};
    RowTotals rows(p, asked, TopK(out));
    const int64_t parts = NumParts(p);
    ColumnTotals columns(p, parts, out.column_sums.has_value() ? ColumnTotals::kPerHead : 0);
    const bool any_row = asked.entropy || asked.distance || TopK(out) > 0;
    Statistics statistics(any_row ? &rows : nullptr,
                          out.column_sums.has_value() ? &columns : nullptr);
    WeightVisit visit;
    visit.visitor = &statistics;
    visit.queries = {0, p.q_len};
    visit.keys = {0, p.kv_len};
    visit.lse = lse;
    visit.parts = parts;
    VisitWeights(p, visit, pool);
    if (any_row) rows.Write(out);
    if (out.column_sums.has_value()) columns.Write(out.column_sums);
  });
}

void WeightsTile(const StoredTensor& q, const StoredTensor& k, const AttentionOptions& options,
                 TensorView<const float> lse, const WeightsRange& range, TensorView<float> weights,
                 ThreadPool* pool) {
  WithMemoryErrors("a tile of weights", [&] {
    const AttentionProblem p = ValidateWeights(q, k, options, lse.has_value());
    CheckGivenLse(p, lse);
    CheckRange(p, range);
    if (!weights.has_value()) Fail(ErrorCode::kOption, "weights is missing");
    CheckAnalysisOutput(
        "weights", weights,
        {p.batch, p.num_heads, range.q_end - range.q_begin, range.k_end - range.k_begin},
        "[batch, num_heads, q_end - q_begin, k_end - k_begin]");
    const OutputSpans outputs({{"weights", weights}});
    CheckApart(outputs, p);
    outputs.ApartFrom("lse", lse);
    WriteWeights(p, range, lse, weights, pool);
  });
}

}  // namespace heed
