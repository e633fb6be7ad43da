// heed::Erasure: what a row would be without each of its keys.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "heed/analysis.h"
#include "src/analysis/weights_problem.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// One row of weights, its values, and its output in double. Memory of one worker.
class ErasedRow {
 public:
  ErasedRow(const AttentionProblem& p, const TensorView<const float>& v)
      : p_(p),
        v_(v),
        weights_(static_cast<size_t>(p.kv_len)),
        output_(static_cast<size_t>(p.head_dim_v)),
        without_(output_.size()) {}

  // Takes a row of final weights [kv_len]; `sink` is the weight of the sink.
  void Start(int64_t b, int64_t h, const float* weights, double sink) {
    b_ = b;
    kv_head_ = h / p_.group;
    sink_ = sink;
    std::copy_n(weights, p_.kv_len, weights_.begin());
    AddUp(-1, output_);
  }

  // The output without key j.
  const std::vector<double>& Without(int64_t j) {
    const double weight = Weight(j);
    if (weight == 0) return output_;
    if (weight > 0.5) {
      // At most one key of a row: 1 - p and o - p v would cancel.
      const double rest = AddUp(j, without_) + sink_;
      for (double& x : without_) x = rest > 0 ? x / rest : 0;
      return without_;
    }
    const float* v = Values(j);
    const double scale = 1 / (1 - weight);
    for (size_t d = 0; d < output_.size(); ++d) {
      without_[d] = (output_[d] - weight * static_cast<double>(v[d])) * scale;
    }
    return without_;
  }

  // |o - o_without_j|.
  double Change(int64_t j) {
    if (Weight(j) == 0) return 0;  // also in a row that NaN has spoilt
    const std::vector<double>& without = Without(j);
    double sum = 0;
    for (size_t d = 0; d < output_.size(); ++d) {
      sum += (output_[d] - without[d]) * (output_[d] - without[d]);
    }
    return std::sqrt(sum);
  }

 private:
  double Weight(int64_t j) const { return static_cast<double>(weights_[static_cast<size_t>(j)]); }
  const float* Values(int64_t j) const { return &v_(b_, kv_head_, j, 0); }

  // The weighted sum of all values but one, and the sum of their weights. Keys of weight 0 are left
  // out: hidden values may be anything.
  double AddUp(int64_t left_out, std::vector<double>& sum) const {
    std::fill(sum.begin(), sum.end(), 0.0);
    double mass = 0;
    for (int64_t j = 0; j < p_.kv_len; ++j) {
      const double weight = Weight(j);
      if (weight == 0 || j == left_out) continue;
      mass += weight;
      if (sum.empty()) continue;
      const float* v = Values(j);
      for (size_t d = 0; d < sum.size(); ++d) sum[d] += weight * static_cast<double>(v[d]);
    }
    return mass;
  }

  const AttentionProblem& p_;
  TensorView<const float> v_;
  int64_t b_ = 0;
  int64_t kv_head_ = 0;
  double sink_ = 0;
  std::vector<float> weights_;
  std::vector<double> output_;
  std::vector<double> without_;
};

void CheckQueries(const AttentionProblem& p, int64_t begin, int64_t end) {
  if (begin >= 0 && begin <= end && end <= p.q_len) return;
  Fail(ErrorCode::kRange, "queries = [{}, {}); expected a range within [0, {})",
       {begin, end, p.q_len});
}

void CheckShares(const AttentionProblem& p) {
  if (p.options.prob_mod) {
    Fail(ErrorCode::kUnsupported,
         "erasure with prob_mod: it needs weights that are shares of a sum, as the normaliser "
         "leaves them");
  }
  switch (p.options.normalize) {
    case Normalize::kSoftmax:
    case Normalize::kSoftmax1:
    case Normalize::kKernelSum:
    case Normalize::kAverage:
      return;
    default:
      Fail(ErrorCode::kUnsupported,
           "erasure needs weights that are shares of a sum: normalize softmax, softmax1, "
           "kernel_sum or average");
  }
}

// Does something beside the keys have a share of the denominator?
bool HasSink(const AttentionProblem& p) {
  return !p.options.sinks.empty() || p.options.normalize == Normalize::kSoftmax1;
}

void CheckErasureOutputs(const AttentionProblem& p, int64_t num_queries,
                         const ErasureOutputs& out) {
  CheckAnalysisOutput("change", out.change, {p.batch, p.num_heads, num_queries, p.kv_len},
                      "[batch, num_heads, q_end - q_begin, kv_len]");
  CheckAnalysisOutput("without", out.without, {p.batch, p.num_heads, p.kv_len, p.head_dim_v},
                      "[batch, num_heads, kv_len, head_dim_v]");
  CheckApart(OutputSpans({{"change", out.change}, {"without", out.without}}), p);
  if (out.without.has_value() && num_queries != 1) {
    Fail(ErrorCode::kShape, "without is the output of one query; the range has {}", {num_queries});
  }
}

// The share of the denominator that the sink of a row has.
double SinkWeight(const AttentionProblem& p, const TensorView<float>& lse, int64_t b, int64_t h,
                  int64_t i) {
  if (!HasSink(p)) return 0;
  const double sink =
      p.options.sinks.empty() ? 0 : static_cast<double>(p.options.sinks[static_cast<size_t>(h)]);
  const double log_sum = static_cast<double>(lse(b, h, i, 0));
  return std::isinf(log_sum) ? 0 : std::exp(sink - log_sum);
}

void WriteWithout(ErasedRow& row, const ErasureOutputs& out, int64_t b, int64_t h) {
  for (int64_t j = 0; j < out.without.shape[2]; ++j) {
    const std::vector<double>& without = row.Without(j);
    for (size_t d = 0; d < without.size(); ++d) {
      out.without(b, h, j, static_cast<int64_t>(d)) = static_cast<float>(without[d]);
    }
  }
}

void EraseRows(const AttentionProblem& p, const TensorView<const float>& v,
               const TensorView<float>& weights, const TensorView<float>& lse, int64_t q_begin,
               const ErasureOutputs& out, ThreadPool& pool) {
  const int64_t queries = weights.shape[2];
  std::vector<ErasedRow> rows(static_cast<size_t>(pool.NumThreads()), ErasedRow(p, v));
  pool.Run(p.batch * p.num_heads * queries, [&](int64_t index, int worker) {
    const int64_t i = index % queries;
    const int64_t h = index / queries % p.num_heads;
    const int64_t b = index / queries / p.num_heads;
    ErasedRow& row = rows[static_cast<size_t>(worker)];
    row.Start(b, h, &weights(b, h, i, 0), SinkWeight(p, lse, b, h, q_begin + i));
    for (int64_t j = 0; j < p.kv_len && out.change.has_value(); ++j) {
      out.change(b, h, i, j) = static_cast<float>(row.Change(j));
    }
    if (out.without.has_value()) WriteWithout(row, out, b, h);
  });
}

}  // namespace

void Erasure(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
             const AttentionOptions& options, int64_t q_begin, int64_t q_end,
             const ErasureOutputs& out, ThreadPool* pool) {
  WithMemoryErrors("erasure", [&] {
    AttentionProblem p = ValidateAttentionInputs(q, k, v, options, false);
    CheckShares(p);
    if (p.options.relative_values.has_value()) {
      Fail(ErrorCode::kUnsupported, "erasure with relative_values: what a key gives is not v");
    }
    CheckQueries(p, q_begin, q_end);
    const int64_t num_queries = q_end - q_begin;
    CheckErasureOutputs(p, num_queries, out);
    AttentionProblem without_values = ValidateWeights(q, k, options, false);
    std::vector<float> lse_memory, weights_memory, values_memory;
    TensorView<float> lse;
    if (HasSink(p)) lse = Allocate(lse_memory, {p.batch, p.num_heads, p.q_len, 1});
    without_values.outputs.lse = lse;
    // Rows become changes in place, where changes are asked for.
    TensorView<float> weights = out.change;
    if (!weights.has_value()) {
      weights = Allocate(weights_memory, {p.batch, p.num_heads, num_queries, p.kv_len});
    }
    WriteWeights(without_values, {q_begin, q_end, 0, p.kv_len}, {}, weights, pool);
    EraseRows(p, FloatValues(v, values_memory), weights, lse, q_begin, out, PoolOrDefault(pool));
  });
}

}  // namespace heed
