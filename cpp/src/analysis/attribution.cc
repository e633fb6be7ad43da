// heed::Attribution: gradient times attention.
#include <algorithm>
#include <utility>
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

// Weights become terms in place, tile by tile; terms are summed or written.
class Terms final : public WeightVisitor {
 public:
  Terms(const AttentionProblem& p, TensorView<const float> v, TensorView<const float> d_out,
        AttributionTerms terms, const WeightsRange& range, TensorView<float> pairs,
        ColumnTotals* columns)
      : p_(p),
        v_(v),
        d_out_(d_out),
        terms_(terms),
        range_(range),
        pairs_(pairs),
        columns_(columns) {}

  void Visit(const ScoreTile& tile, int64_t part) override {
    const size_t begin = Column(tile, range_.k_begin);
    const size_t end = std::max(begin, Column(tile, range_.k_end));
    const float* rows[kMaxTileRows];
    for (size_t r = 0; r < tile.num_rows; ++r) {
      rows[r] = &d_out_(tile.batch, tile.rows[r].head, tile.rows[r].query, 0);
    }
    const int64_t kv_head = tile.rows[0].head / p_.group;
    MultiplyByDots(tile, begin, end, rows,
                   {&v_(tile.batch, kv_head, tile.key_begin, 0), v_.strides[2],
                    static_cast<size_t>(v_.shape[3])});
    for (size_t r = 0; r < tile.num_rows; ++r) Finish(tile, r, begin, end);
    if (columns_ != nullptr) columns_->AddHeads(tile, part);
  }

 private:
  // The column of a key, within those of the tile that are keys.
  static size_t Column(const ScoreTile& tile, int64_t key) {
    const int64_t last = static_cast<int64_t>(std::min(tile.last, tile.num_keys));
    const int64_t first = std::min(static_cast<int64_t>(tile.first), last);
    return static_cast<size_t>(std::clamp(key - tile.key_begin, first, last));
  }

  // What is not in the range counts as 0.
  void Finish(const ScoreTile& tile, size_t r, size_t begin, size_t end) const {
    float* row = tile.row_scores(r);
    std::fill(row + tile.first, row + std::max(begin, tile.first), 0.0f);
    std::fill(row + end, row + std::max(end, tile.last), 0.0f);
    if (terms_ == AttributionTerms::kPositive) {
      // NaN is not below 0, and stays.
      for (size_t c = begin; c < end; ++c) row[c] = row[c] < 0.0f ? 0.0f : row[c];
    }
    if (!pairs_.has_value() || begin >= end) return;
    const int64_t key = tile.key_begin + static_cast<int64_t>(begin) - range_.k_begin;
    std::copy(row + begin, row + end,
              &pairs_(tile.batch, tile.rows[r].head, tile.rows[r].query - range_.q_begin, key));
  }

  const AttentionProblem& p_;
  TensorView<const float> v_, d_out_;
  AttributionTerms terms_;
  WeightsRange range_;
  TensorView<float> pairs_;
  ColumnTotals* columns_;
};

void CheckAttribution(const AttentionProblem& p, const TensorView<const float>& d_out,
                      AttributionTerms terms, const WeightsRange& range,
                      const AttributionOutputs& out) {
  CheckEnum("terms", terms, AttributionTerms::kPositive);
  if (p.options.relative_values.has_value()) {
    Fail(ErrorCode::kUnsupported, "attribution with relative_values: what a key gives is not v");
  }
  CheckInput("d_out", d_out);
  CheckShape("d_out", d_out.shape, {p.batch, p.num_heads, p.q_len, p.head_dim_v},
             "[batch, num_heads, q_len, head_dim_v]");
  CheckRange(p, range);
  CheckAnalysisOutput("column_sums", out.column_sums, {p.batch, p.num_heads, p.kv_len, 1},
                      "[batch, num_heads, kv_len, 1]");
  CheckAnalysisOutput(
      "pairs", out.pairs,
      {p.batch, p.num_heads, range.q_end - range.q_begin, range.k_end - range.k_begin},
      "[batch, num_heads, q_end - q_begin, k_end - k_begin]");
  const OutputSpans outputs({{"column_sums", out.column_sums}, {"pairs", out.pairs}});
  CheckApart(outputs, p);
  outputs.ApartFrom("d_out", d_out);
}

}  // namespace

void Attribution(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                 TensorView<const float> d_out, const AttentionOptions& options,
                 AttributionTerms terms, const WeightsRange& range, const AttributionOutputs& out,
                 ThreadPool* pool) {
  WithMemoryErrors("attribution", [&] {
    CheckAttribution(ValidateAttentionInputs(q, k, v, options, false), d_out, terms, range, out);
    const AttentionProblem p = ValidateWeights(q, k, options, false);
    std::vector<float> memory;
    const int64_t parts = NumParts(p);
    const bool sums = out.column_sums.has_value();
    ColumnTotals columns(p, parts, sums ? ColumnTotals::kPerHead : 0);
    Terms visitor(p, FloatValues(v, memory), d_out, terms, range, out.pairs,
                  sums ? &columns : nullptr);
    WeightVisit visit;
    visit.visitor = &visitor;
    visit.queries = {range.q_begin, range.q_end};
    visit.keys = {range.k_begin, range.k_end};
    visit.parts = parts;
    Clear(out.pairs);
    const bool any = range.q_begin < range.q_end && range.k_begin < range.k_end;
    if (any && v.shape[3] > 0) VisitWeights(p, visit, pool);
    if (sums) columns.Write(out.column_sums);
  });
}

}  // namespace heed
