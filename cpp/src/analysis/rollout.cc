// heed::Rollout and heed::MultiHop: products of whole attention matrices with a few vectors.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "heed/analysis.h"
#include "src/analysis/column_totals.h"
#include "src/analysis/weights_problem.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/parallel/worker_scratch.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// Rows that go through a layer together: each costs as many additions as there are weights.
constexpr int64_t kSeries = 16;

class Mixtures final : public WeightVisitor {
 public:
  Mixtures(ColumnTotals& totals, const TensorView<const float>& rows, int64_t first, float factor)
      : totals_(totals), rows_(rows), first_(first), factor_(factor) {}
  void Visit(const ScoreTile& tile, int64_t part) override {
    totals_.AddMixtures(tile, part, rows_, first_, factor_);
  }

 private:
  ColumnTotals& totals_;
  const TensorView<const float>& rows_;
  int64_t first_;
  float factor_;
};

// to = rows (residual I + (1 - residual) mean_h A_h), for rows [first, first + kSeries).
void ApplyLayer(const AttentionProblem& p, double residual, const TensorView<const float>& rows,
                int64_t first, TensorView<float> to, ThreadPool* pool) {
  WeightVisit visit;
  visit.queries = {0, p.q_len};
  visit.keys = {0, p.kv_len};
  visit.parts = NumParts(p);
  const int64_t count = std::min(kSeries, rows.shape[2] - first);
  ColumnTotals totals(p, visit.parts, count);
  const double share = (1 - residual) / static_cast<double>(std::max<int64_t>(1, p.num_heads));
  Mixtures mixtures(totals, rows, first, 1.0f);
  visit.visitor = &mixtures;
  VisitWeights(p, visit, pool);
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t n = 0; n < count; ++n) {
      for (int64_t j = 0; j < p.kv_len; ++j) {
        const double kept = residual * static_cast<double>(rows(b, 0, first + n, j));
        to(b, 0, first + n, j) = static_cast<float>(kept + share * totals.OfMixture(b, n, j));
      }
    }
  }
}

void Copy(const TensorView<const float>& from, const TensorView<float>& to) {
  if (to.size() == 0) return;
  for (int64_t b = 0; b < to.shape[0]; ++b) {
    for (int64_t h = 0; h < to.shape[1]; ++h) {
      for (int64_t i = 0; i < to.shape[2]; ++i) {
        std::copy_n(&from(b, h, i, 0), to.shape[3], &to(b, h, i, 0));
      }
    }
  }
}

std::vector<AttentionProblem> ValidateLayers(std::span<const RolloutLayer> layers,
                                             const TensorView<const float>& start) {
  std::vector<AttentionProblem> problems;
  for (size_t n = 0; n < layers.size(); ++n) {
    problems.push_back(ValidateWeights(layers[n].q, layers[n].k, layers[n].options, false));
    const AttentionProblem& p = problems.back();
    const std::string name = "layers[" + std::to_string(n) + "]";
    CheckSquare(p, name + " of a rollout");
    if (p.batch != start.shape[0] || p.q_len != start.shape[3]) {
      Fail(ErrorCode::kShape,
           "{} has batch {} and len {}; start has shape {} ([batch, 1, rows, len])",
           {name, p.batch, p.q_len, start.shape});
    }
  }
  return problems;
}

// k with one head for each query head: [batch, num_heads, len, head_dim].
StoredTensor SpreadHeads(const AttentionProblem& p, std::vector<char>& memory) {
  if (p.group == 1 || p.k.size() == 0) return p.k;
  const int64_t row_bytes = p.head_dim * ElementSize(p.k.dtype);
  memory.resize(static_cast<size_t>(p.batch * p.num_heads * p.kv_len * row_bytes));
  char* to = memory.data();
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.num_heads; ++h) {
      for (int64_t j = 0; j < p.kv_len; ++j, to += row_bytes) {
        std::memcpy(to, p.k.Row(b, h / p.group, j), static_cast<size_t>(row_bytes));
      }
    }
  }
  const int64_t head = p.kv_len * p.head_dim;
  return {memory.data(),
          p.k.dtype,
          {p.batch, p.num_heads, p.kv_len, p.head_dim},
          {p.num_heads * head, head, p.head_dim, 1}};
}

}  // namespace

void Rollout(std::span<const RolloutLayer> layers, double residual, TensorView<const float> start,
             TensorView<float> output, ThreadPool* pool) {
  WithMemoryErrors("the rollout", [&] {
    if (!(residual >= 0 && residual <= 1)) {
      Fail(ErrorCode::kRange, "residual = {}; it lies in [0, 1]", {residual});
    }
    CheckInput("start", start);
    if (start.shape[1] != 1) {
      Fail(ErrorCode::kShape, "start has shape {}; expected [batch, 1, rows, len]", {start.shape});
    }
    const std::vector<AttentionProblem> problems = ValidateLayers(layers, start);
    if (!output.has_value()) Fail(ErrorCode::kOption, "output is missing");
    CheckOutput("output", output, start.shape, "the shape of start");
    const OutputSpans outputs({{"output", output}});
    outputs.ApartFrom("start", start);
    for (const AttentionProblem& p : problems) CheckApart(outputs, p);
    const auto [batch, one, rows, len] = start.shape;
    std::vector<float> memory(static_cast<size_t>(start.size()));
    const auto from = Contiguous(memory.data(), batch, one, rows, len);
    Copy(start, output);
    for (size_t n = problems.size(); n-- > 0;) {
      Copy(output, from);
      for (int64_t first = 0; first < rows; first += kSeries) {
        ApplyLayer(problems[n], residual, from, first, output, pool);
      }
    }
  });
}

void MultiHop(const StoredTensor& q, const StoredTensor& k, const AttentionOptions& options,
              int64_t hops, TensorView<const float> x, TensorView<float> output, ThreadPool* pool) {
  WithMemoryErrors("multi-hop attention", [&] {
    const AttentionProblem p = ValidateWeights(q, k, options, false);
    CheckSquare(p, "multi-hop attention");
    if (hops < 0) Fail(ErrorCode::kRange, "hops = {}; it must be >= 0", {hops});
    CheckInput("x", x);
    CheckShape("x", x.shape, {p.batch, p.num_heads, p.q_len, x.shape[3]},
               "[batch, num_heads, len, dim]");
    if (!output.has_value()) Fail(ErrorCode::kOption, "output is missing");
    CheckAnalysisOutput("output", output, x.shape, "the shape of x");
    const OutputSpans outputs({{"output", output}});
    CheckApart(outputs, p);
    outputs.ApartFrom("x", x);
    std::vector<char> keys;
    const StoredTensor spread = SpreadHeads(p, keys);
    std::vector<float> memory(hops > 1 ? static_cast<size_t>(x.size()) : 0);
    const auto between = Contiguous(memory.data(), x.shape[0], x.shape[1], x.shape[2], x.shape[3]);
    if (hops == 0) Copy(x, output);
    // The last hop writes to `output`; before it, hops alternate between the two.
    TensorView<const float> from = x;
    AttentionOptions kept = options;
    kept.dropout = {};  // weights are those before it
    for (int64_t hop = 0; hop < hops; ++hop) {
      const TensorView<float> to = (hops - hop) % 2 == 1 ? output : between;
      Attention(q, spread, StoredTensor(from), kept, {.output = to}, pool);
      from = to;
    }
  });
}

}  // namespace heed
