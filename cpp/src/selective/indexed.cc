// Indexed attention: a small indexer scores every key, each query attends to the best ones.
#include <algorithm>
#include <vector>

#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/exact/attention_spans.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/selective/choose.h"
#include "src/selective/dots.h"
#include "src/selective/selective_problem.h"
#include "src/view_checks.h"

namespace heed {
namespace {

class Indexer final : public Chooser {
 public:
  Indexer(const AttentionProblem& p, const IndexTensors& index, ThreadPool& pool)
      : p_(p),
        index_(index),
        stride_(RoundUp(static_cast<size_t>(p.kv_len), static_cast<size_t>(DotPanels::kPanel))) {
    constexpr int64_t kKeys = 64 * DotPanels::kPanel;
    const int64_t dim = index.k.shape[3], parts = (p.kv_len + kKeys - 1) / kKeys;
    for (int64_t b = 0; b < p.batch; ++b) keys_.emplace_back(p.kv_len, dim);
    pool.Run(p.batch * parts, [&](int64_t task, int) {
      const int64_t b = task / parts, first = task % parts * kKeys;
      const DotPanels& keys = keys_[static_cast<size_t>(b)];
      for (int64_t j = first; j < std::min(p.kv_len, first + kKeys); ++j) {
        for (int64_t d = 0; d < dim; ++d) keys.at(j, d) = index.k(b, 0, j, d);
      }
      if (task % parts == parts - 1) keys.FillGap();
    });
    products_.resize(static_cast<size_t>(pool.NumThreads()),
                     ScratchVector<double>(kDotRows * stride_));
  }

  int64_t Candidates(int64_t batch, int64_t query) const override {
    const int64_t length = p_.KeyLength(batch, query);
    if (!p_.options.causal) return length;
    return std::clamp<int64_t>(p_.Position(batch, query) + 1, 0, length);
  }

  void Score(int64_t batch, int64_t, int64_t first, size_t num_rows, int64_t count, int worker,
             double* scores, size_t stride) const override {
    double* const products = products_[static_cast<size_t>(worker)].data();
    for (size_t r = 0; r < num_rows; ++r) std::fill_n(scores + r * stride, count, 0.0);
    for (int64_t h = 0; h < index_.q.shape[1]; ++h) {
      const float* rows[kDotRows] = {};
      for (size_t r = 0; r < num_rows; ++r) {
        rows[r] = index_.q.data + batch * index_.q.strides[0] + h * index_.q.strides[1] +
                  (first + static_cast<int64_t>(r)) * index_.q.strides[2];
      }
      ExactDots(rows, num_rows, keys_[static_cast<size_t>(batch)], count, products, stride_);
      for (size_t r = 0; r < num_rows; ++r) {
        const double weight = index_.weights(batch, h, first + static_cast<int64_t>(r), 0);
        Add(weight, products + r * stride_, count, scores + r * stride);
      }
    }
    for (size_t r = 0; r < num_rows; ++r) {
      for (int64_t j = 0; j < count; ++j)
        scores[r * stride + j] = Comparable(scores[r * stride + j]);
    }
  }

  double Flops() const override {
    return 2 * static_cast<double>(index_.q.shape[1] * index_.q.shape[3]);
  }

 private:
  // scores += weight * relu(product), products rounded to float32: then theirs are exact.
  static void Add(double weight, const double* products, int64_t count, double* scores) {
    for (int64_t j = 0; j < count; ++j) {
      const double product = static_cast<float>(products[j]);
      scores[j] += weight * (product < 0 ? 0 : product);
    }
  }

  const AttentionProblem& p_;
  const IndexTensors& index_;
  size_t stride_;
  std::vector<DotPanels> keys_;
  mutable std::vector<ScratchVector<double>> products_;
};

}  // namespace

void ValidateIndexed(const TensorView<const float>& q, const TensorView<const float>& k,
                     const IndexTensors& index, const IndexedOptions& o) {
  CheckCount("top_k", o.top_k);
  CheckKeepRules(o.attention);
  CheckInput("index_q", index.q);
  CheckInput("index_k", index.k);
  CheckPresent("index_weights", index.weights);
  const int64_t batch = q.shape[0], heads = index.q.shape[1], dim = index.q.shape[3];
  CheckShape("index_q", index.q.shape, {batch, heads, q.shape[2], dim},
             "[batch, index_heads, q_len, index_dim]");
  CheckShape("index_k", index.k.shape, {batch, 1, k.shape[2], dim},
             "[batch, 1, kv_len, index_dim]");
  CheckShape("index_weights", index.weights.shape, {batch, heads, q.shape[2], 1},
             "[batch, index_heads, q_len, 1]");
}

void IndexedAttention(TensorView<const float> q, TensorView<const float> k,
                      TensorView<const float> v, const IndexTensors& index,
                      const IndexedOptions& options, const AttentionOutputs& outputs,
                      ThreadPool* pool) {
  WithMemoryErrors("indexed attention", [&] {
    ValidateIndexed(q, k, index, options);
    AttentionProblem p = ValidateComposed(q, k, v, options.attention, outputs);
    SpansOf(outputs)
        .ApartFrom("index.q", index.q)
        .ApartFrom("index.k", index.k)
        .ApartFrom("index.weights", index.weights);
    const Indexer indexer(p, index, PoolOrDefault(pool));
    AttendToChosen(p, indexer, {1, 1, options.top_k, p.kv_len}, pool);
  });
}

void KeepIndexed(const IndexTensors& index, const IndexedOptions& options, AttentionProblem& p,
                 ThreadPool* pool) {
  const Indexer indexer(p, index, PoolOrDefault(pool));
  KeepChosen(p, indexer, {1, 1, options.top_k, p.kv_len}, pool);
}

}  // namespace heed
