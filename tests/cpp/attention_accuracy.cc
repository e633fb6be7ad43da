#include "attention_accuracy.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "heed/reference.h"
#include "score_size.h"

namespace heed::testing {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// A kernel's value, for the condition of its sum.
double KernelValue(Kernel kernel, double u) {
  switch (kernel) {
    case Kernel::kBoxcar:
      return u <= 1 ? 1 : 0;
    case Kernel::kTriangular:
      return std::max(0.0, 1 - u);
    case Kernel::kEpanechnikov:
      return std::max(0.0, 1 - u * u);
    default:
      return 1;
  }
}

// The largest |q.e| of the row, and the largest step from one position to the next.
struct CopeLogits {
  double size = 0, step = 0;
};

CopeLogits CopeLogitsOf(const AttentionCase& c, int64_t b, int64_t h, int64_t i) {
  CopeLogits logits;
  const Buffer<float>& table = c.tensors.at("cope_table").buffer;
  const Extents& shape = table.shape();
  double before = 0;
  for (int64_t p = 0; p < shape[2]; ++p) {
    double sum = 0, size = 0;
    for (int64_t d = 0; d < shape[3]; ++d) {
      const double term = c.q(b, h, i, d) * table(0, shape[1] == 1 ? 0 : h, p, d);
      sum += term;
      size += std::abs(term);
    }
    logits.size = std::max(logits.size, size);
    if (p > 0) logits.step = std::max(logits.step, std::abs(sum - before));
    before = sum;
  }
  return logits;
}

// What normalisers other than softmax and kernel sums multiply errors of scores by, as
// docs/accuracy.md says. `weights` are the oracle's.
double Condition(const AttentionCase& c, std::span<const double> scores,
                 std::span<const double> weights) {
  double sum = 0, roots = 0, support = 0, slope = 0, visible = 0;
  for (size_t j = 0; j < scores.size(); ++j) {
    if (scores[j] == kMinusInfinity || !std::isfinite(weights[j])) continue;
    sum += weights[j];
    roots += std::sqrt(weights[j]);
    support += weights[j] > 0 ? 1 : 0;
    slope += std::max(0.0, scores[j]);
    visible += 1;
  }
  const double per_key = std::pow(visible, -c.scalars.length_power);
  switch (c.scalars.normalize) {
    case Normalize::kSigmoid:
      return std::max(1.0, sum);
    case Normalize::kRelu:
      return std::max({1.0, sum, visible * per_key});
    case Normalize::kReluSquared:
      return std::max({1.0, sum, 2 * slope * per_key});
    case Normalize::kSparsemax:
      return std::max(1.0, support);
    case Normalize::kEntmax15:
      return 2 * std::max(1.0, roots);
    case Normalize::kStickBreaking:
      return 4;
    default:
      return 1;
  }
}

// Errors of all gates that a position adds up reach its logit.
void AddPositions(const AttentionCase& c, std::span<const double> scores, int64_t b, int64_t h,
                  int64_t i, RowBound& bound) {
  if (c.scalars.normalize != Normalize::kCope) return;
  double gates = 0;
  for (const double score : scores) {
    if (std::isfinite(score)) gates += 1 / (1 + std::exp(-score));
  }
  const double farthest = static_cast<double>(c.tensors.at("cope_table").buffer.shape()[2] - 1);
  const CopeLogits logits = CopeLogitsOf(c, b, h, i);
  bound.max_logit += logits.size;
  bound.condition = 1 + std::min(gates, farthest + 1) * logits.step;
}

// The largest finite |v| of each key of [batch, num_kv_heads, kv_len].
std::vector<double> LargestValues(const AttentionCase& c) {
  std::vector<double> largest;
  for (int64_t b = 0; b < c.sizes.batch; ++b) {
    for (int64_t h = 0; h < c.sizes.num_kv_heads; ++h) {
      for (int64_t j = 0; j < c.sizes.kv_len; ++j) {
        double most = 0;
        for (int64_t d = 0; d < c.sizes.head_dim_v; ++d) {
          const double v = std::abs(c.v(b, h, j, d));
          if (std::isfinite(v)) most = std::max(most, v);
        }
        largest.push_back(most);
      }
    }
  }
  return largest;
}

// What the bounds of all rows of a case share.
struct CaseSizes {
  explicit CaseSizes(const AttentionCase& c) : scores(c), values(LargestValues(c)) {
    const auto at = c.tensors.find("relative_values");
    if (at != c.tensors.end()) relative_values = LargestOf(at->second.buffer);
  }
  ScoreSizes scores;
  std::vector<double> values;
  double relative_values = 0;
};

RowBound BoundOf(const AttentionCase& c, const CaseSizes& sizes, std::span<const double> scores,
                 std::span<const double> weights, int64_t b, int64_t h, int64_t i) {
  RowBound bound;
  double mass = 0, count = 0;
  const int64_t kv_head = h / (c.sizes.num_heads / c.sizes.num_kv_heads);
  const int64_t first_value = (b * c.sizes.num_kv_heads + kv_head) * c.sizes.kv_len;
  for (int64_t j = 0; j < c.sizes.kv_len; ++j) {
    const double score = scores[static_cast<size_t>(j)];
    if (score == kMinusInfinity) continue;
    bound.max_v = std::max(bound.max_v, sizes.values[static_cast<size_t>(first_value + j)]);
    const double logit = sizes.scores(b, h, i, j);
    if (std::isfinite(logit)) bound.max_logit = std::max(bound.max_logit, logit);
    if (c.scalars.normalize == Normalize::kKernelSum && std::isfinite(score)) {
      const double kernel = KernelValue(c.scalars.kernel, std::sqrt(-2 * score));
      mass += kernel;
      count += kernel > 0 ? 1 : 0;
    }
  }
  bound.condition = Condition(c, scores, weights);
  bound.max_v += sizes.relative_values;
  if (mass > 0) bound.condition = std::max(1.0, count / mass);
  AddPositions(c, scores, b, h, i, bound);
  // What dropout keeps is multiplied by this, and so are errors.
  bound.max_v /= 1 - c.scalars.dropout.p;
  return bound;
}

// One bound per element: `of(row)` for each of its `row_len` elements.
template <typename Of>
std::vector<double> Spread(size_t rows, int64_t row_len, Of&& of) {
  std::vector<double> bounds;
  for (size_t row = 0; row < rows; ++row) {
    bounds.insert(bounds.end(), static_cast<size_t>(row_len), of(row));
  }
  return bounds;
}

}  // namespace

// Errors of logits grow with the logits: |delta p| <= 2 p |delta s|. Up to 16 they are within
// kAttentionMaxError.
double RowBound::Weight() const {
  return kAttentionMaxError * std::max(1.0, max_logit / 16) * condition;
}
double RowBound::Output() const { return Weight() * max_v + FLT_MIN; }
// A single score has no weighted mean around it that would level its error.
double RowBound::Score() const { return kAttentionMaxError * std::max(1.0, max_logit / 4); }
// The lse of a peaked row is hardly more than its largest score.
double RowBound::Lse(double lse) const { return Score() * condition + FLT_EPSILON * std::abs(lse); }

Values RunOracle(const AttentionCase& c) {
  Request request = c.request();
  if (HasLse(c)) request.params.push_back({"return_lse", true});
  request.params.push_back({"return_weights", true});
  request.params.push_back({"return_scores", std::string("biased")});
  return RunOracle(request);
}

std::vector<RowBound> RowBounds(const AttentionCase& c, const Values& expected) {
  std::vector<RowBound> bounds;
  const CaseSizes sizes(c);
  const std::span<const double> scores = expected.at("scores");
  const std::span<const double> weights = expected.at("weights");
  const size_t kv_len = static_cast<size_t>(c.sizes.kv_len);
  for (int64_t b = 0; b < c.sizes.batch; ++b) {
    for (int64_t h = 0; h < c.sizes.num_heads; ++h) {
      for (int64_t i = 0; i < c.sizes.q_len; ++i) {
        const size_t row = bounds.size() * kv_len;
        bounds.push_back(
            BoundOf(c, sizes, scores.subspan(row, kv_len), weights.subspan(row, kv_len), b, h, i));
      }
    }
  }
  return bounds;
}

void ExpectWithin(std::span<const float> actual, std::span<const double> expected,
                  std::span<const double> bounds, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  ASSERT_EQ(bounds.size(), expected.size()) << what;
  double worst_ratio = 1;
  size_t worst = expected.size();
  size_t wrong = 0;
  for (size_t n = 0; n < expected.size(); ++n) {
    const double a = actual[n], e = expected[n];
    // Beyond what its type can store: any size of the right sign.
    if (std::isinf(bounds[n]) && a * e > 0) continue;
    const bool same_class = std::isfinite(e) ? std::isfinite(a)
                            : std::isnan(e)  ? std::isnan(a)
                                             : a == e;
    double ratio = std::isfinite(e) && std::isfinite(a) ? std::abs(a - e) / bounds[n] : 0;
    if (!same_class) ratio = std::numeric_limits<double>::infinity();
    if (ratio > 1) ++wrong;
    if (ratio > worst_ratio) {
      worst_ratio = ratio;
      worst = n;
    }
  }
  if (worst == expected.size()) return;
  ADD_FAILURE() << what << ": " << wrong << " of " << expected.size() << " are wrong; worst is ["
                << worst << "] = " << actual[worst] << ", expected " << expected[worst]
                << ", error " << std::abs(actual[worst] - expected[worst]) << ", allowed "
                << bounds[worst];
}

void ExpectResultsMatch(const AttentionCase& c, const Results& results, const Values& expected) {
  ExpectResultsMatch(c, results, expected, RowBounds(c, expected));
}

void ExpectResultsMatch(const AttentionCase& c, const Results& results, const Values& expected,
                        const std::vector<RowBound>& rows) {
  const std::string text = " of " + c.Describe();
  ExpectWithin(results.output.Elements(), expected.at("output"),
               Spread(rows.size(), c.sizes.head_dim_v, [&](size_t r) { return rows[r].Output(); }),
               "output" + text);
  if (results.lse.has_value()) {
    const std::vector<double>& lse = expected.at("lse");
    ExpectWithin(results.lse.Elements(), lse,
                 Spread(rows.size(), 1, [&](size_t r) { return rows[r].Lse(lse[r]); }),
                 "lse" + text);
  }
  if (results.weights.has_value()) {
    ExpectWithin(results.weights.Elements(), expected.at("weights"),
                 Spread(rows.size(), c.sizes.kv_len, [&](size_t r) { return rows[r].Weight(); }),
                 "weights" + text);
  }
  if (results.scores.has_value()) {
    ExpectWithin(results.scores.Elements(), expected.at("scores"),
                 Spread(rows.size(), c.sizes.kv_len, [&](size_t r) { return rows[r].Score(); }),
                 "scores" + text);
  }
}

void ExpectMatchesReference(const AttentionCase& c) {
  const Values expected = RunOracle(c);
  const std::vector<RowBound> rows = RowBounds(c, expected);
  const bool lse = HasLse(c);
  ExpectResultsMatch(c, RunAttention(c, {.lse = lse}), expected, rows);
  ExpectResultsMatch(c,
                     RunAttention(c, {.lse = lse, .weights = true, .scores = ScoreStage::kBiased}),
                     expected, rows);
}

}  // namespace heed::testing
