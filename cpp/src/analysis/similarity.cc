// heed::HeadSimilarity: the maps of all heads side by side, a panel of rows at a time.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "heed/analysis.h"
#include "src/analysis/tile_sums.h"
#include "src/analysis/weights_problem.h"
#include "src/memory_errors.h"
#include "src/parallel/worker_scratch.h"
#include "src/view_checks.h"

namespace heed {
namespace {

constexpr int64_t kPanelFloats = int64_t{1} << 20;
constexpr int64_t kMinPanelRows = 8;
constexpr int64_t kMaxPanelRows = 96;

// Sums over all rows for a pair of heads.
struct PairTotals {
  double product = 0;
  double squared_difference = 0;
  double jensen_shannon = 0;
};

class HeadPairs {
 public:
  HeadPairs(const AttentionProblem& p, const HeadSimilarityOutputs& asked) : p_(p), asked_(asked) {
    totals_.resize(static_cast<size_t>(p.batch * p.num_heads * p.num_heads));
  }

  PairTotals& At(int64_t b, int64_t g, int64_t h) {
    return totals_[static_cast<size_t>((b * p_.num_heads + g) * p_.num_heads + h)];
  }

  // Adds rows of weights [batch, num_heads, rows, kv_len]; every pair is one task.
  void Add(const TensorView<float>& weights, ThreadPool& pool) {
    pool.Run(p_.batch * p_.num_heads * p_.num_heads, [&](int64_t index, int) {
      const int64_t h = index % p_.num_heads;
      const int64_t g = index / p_.num_heads % p_.num_heads;
      const int64_t b = index / p_.num_heads / p_.num_heads;
      if (g <= h) AddPair(weights, b, g, h);
    });
  }

 private:
  void AddPair(const TensorView<float>& weights, int64_t b, int64_t g, int64_t h) {
    PairTotals& total = At(b, g, h);
    const size_t count = static_cast<size_t>(p_.kv_len);
    for (int64_t i = 0; i < weights.shape[2]; ++i) {
      const float* of_g = &weights(b, g, i, 0);
      const float* of_h = &weights(b, h, i, 0);
      if (asked_.cosine.has_value()) total.product += SumProducts(of_g, of_h, count);
      if (asked_.frobenius.has_value()) {
        total.squared_difference += SumSquaredDifferences(of_g, of_h, count);
      }
      if (asked_.jensen_shannon.has_value()) {
        total.jensen_shannon += SumJensenShannon(of_g, of_h, count);
      }
    }
  }

  const AttentionProblem& p_;
  const HeadSimilarityOutputs& asked_;
  std::vector<PairTotals> totals_;
};

int64_t PanelRows(const AttentionProblem& p) {
  const int64_t row = std::max<int64_t>(1, p.batch * p.num_heads * p.kv_len);
  return std::clamp(kPanelFloats / row, kMinPanelRows, kMaxPanelRows);
}

double Cosine(double product, double of_g, double of_h) {
  if (of_g == 0 || of_h == 0) return 0;
  return product / (std::sqrt(of_g) * std::sqrt(of_h));
}

void Write(HeadPairs& pairs, const AttentionProblem& p, const HeadSimilarityOutputs& out, int64_t b,
           int64_t g, int64_t h) {
  const PairTotals& pair = pairs.At(b, std::min(g, h), std::max(g, h));
  if (out.cosine.has_value()) {
    const double of_g = pairs.At(b, g, g).product;
    const double of_h = pairs.At(b, h, h).product;
    out.cosine(b, g, h, 0) = static_cast<float>(Cosine(pair.product, of_g, of_h));
  }
  if (out.frobenius.has_value()) {
    out.frobenius(b, g, h, 0) = static_cast<float>(std::sqrt(pair.squared_difference));
  }
  if (out.jensen_shannon.has_value()) {
    const double rows = static_cast<double>(std::max<int64_t>(1, p.q_len));
    out.jensen_shannon(b, g, h, 0) = static_cast<float>(pair.jensen_shannon / rows);
  }
}

}  // namespace

void HeadSimilarity(const StoredTensor& q, const StoredTensor& k, const AttentionOptions& options,
                    const HeadSimilarityOutputs& out, ThreadPool* pool) {
  WithMemoryErrors("head similarity", [&] {
    const AttentionProblem p = ValidateWeights(q, k, options, false);
    const Extents shape = {p.batch, p.num_heads, p.num_heads, 1};
    const std::string text = "[batch, num_heads, num_heads, 1]";
    CheckAnalysisOutput("cosine", out.cosine, shape, text);
    CheckAnalysisOutput("frobenius", out.frobenius, shape, text);
    CheckAnalysisOutput("jensen_shannon", out.jensen_shannon, shape, text);
    CheckApart(OutputSpans({{"cosine", out.cosine},
                            {"frobenius", out.frobenius},
                            {"jensen_shannon", out.jensen_shannon}}),
               p);
    HeadPairs pairs(p, out);
    const int64_t step = PanelRows(p);
    const int64_t most = std::min(step, p.q_len);
    const AlignedFloats panel(static_cast<size_t>(p.batch * p.num_heads * most * p.kv_len));
    for (int64_t first = 0; first < p.q_len && p.kv_len > 0; first += step) {
      const int64_t end = std::min(first + step, p.q_len);
      const auto weights = Contiguous(panel.get(), p.batch, p.num_heads, end - first, p.kv_len);
      WriteWeights(p, {first, end, 0, p.kv_len}, {}, weights, pool);
      pairs.Add(weights, PoolOrDefault(pool));
    }
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t g = 0; g < p.num_heads; ++g) {
        for (int64_t h = 0; h < p.num_heads; ++h) Write(pairs, p, out, b, g, h);
      }
    }
  });
}

}  // namespace heed
