#include "src/layers/backward_classifier.h"

#include <algorithm>
#include <cmath>

#include "heed/linear.h"
#include "src/layers/attention_classifier.h"
#include "src/layers/backward_rows.h"
#include "src/linear/backward_linear.h"
#include "src/message.h"
#include "src/parallel/pieces.h"

namespace heed {
namespace {

// From what arrives at the pooled rows to what arrives at the rows that were pooled.
class PoolPass {
 public:
  PoolPass(const OwnedHeads& h, const AttentionClassifierWeights& w,
           const AttentionClassifierOptions& o, ThreadPool& pool)
      : h_(h.view), w_(w), o_(o), pool_(pool), pooled_(h_.shape[0], 1, 1, h_.shape[3]) {
    weights_.resize(static_cast<size_t>(h_.shape[0] * h_.shape[2]));
    PoolEntries(h_, w_, o_, pooled_.data(), pool_);
  }

  // [1, 1, batch, dim].
  TensorView<float> pooled() const { return Batch(pooled_); }
  static TensorView<float> Batch(const OwnedHeads& rows) {
    return MatrixView(rows.data(), rows.view.shape[0], rows.view.shape[3]);
  }

  void Backward(const OwnedHeads& d_pooled, const OwnedHeads& d_h, std::span<float> d_pool_query) {
    const int64_t entries = h_.shape[2] > 0 ? h_.shape[0] : 0;  // without tokens nothing arrives
    pool_.Run(entries, [&](int64_t b, int) {
      std::fill_n(RowOf(d_h.view, b * h_.shape[2]), h_.shape[2] * h_.shape[3], 0.0f);
      if (ClassifierLength(o_, b, h_.shape[2]) > 0) {
        Entry(b, &d_pooled.view(b, 0, 0, 0), d_h.view);
      }
    });
    if (d_pool_query.empty()) return;
    Clear(d_pool_query, &pool_);
    // weights_ now holds what arrives at the scores.
    AddColumnSums(h_.shape[0] * h_.shape[2], h_.shape[3], &pool_, d_pool_query.data(),
                  [&](int64_t row, int64_t c) {
                    const double d_score = weights_[static_cast<size_t>(row)];
                    return d_score == 0 ? 0 : d_score * static_cast<double>(RowOf(h_, row)[c]);
                  });
  }

 private:
  void Entry(int64_t b, const float* d, const TensorView<float>& d_h) {
    const int64_t dim = h_.shape[3];
    if (o_.pooling == Pooling::kFirst)
      return static_cast<void>(std::copy_n(d, dim, &d_h(b, 0, 0, 0)));
    if (o_.pooling == Pooling::kMax) return Maxima(b, d, d_h);
    const size_t length = static_cast<size_t>(ClassifierLength(o_, b, h_.shape[2]));
    const std::span<double> weights(weights_.data() + b * h_.shape[2], length);
    FillPoolWeights(h_, b, w_, o_.pooling, weights);
    for (size_t i = 0; i < length; ++i) {
      for (int64_t c = 0; c < dim; ++c) {
        d_h(b, 0, static_cast<int64_t>(i), c) = static_cast<float>(weights[i] * d[c]);
      }
    }
    if (o_.pooling == Pooling::kAttention) Scores(b, d, weights, d_h);
  }

  // To the first of the largest.
  void Maxima(int64_t b, const float* d, const TensorView<float>& d_h) const {
    for (int64_t c = 0; c < h_.shape[3]; ++c) {
      int64_t best = 0;
      for (int64_t i = 1; i < ClassifierLength(o_, b, h_.shape[2]); ++i) {
        const float largest = h_(b, 0, best, c), element = h_(b, 0, i, c);
        if (std::isnan(largest)) break;
        if (element > largest || std::isnan(element)) best = i;
      }
      d_h(b, 0, best, c) = d[c];
    }
  }

  // Through the softmax of pooling by attention: weights become what arrives at the scores.
  void Scores(int64_t b, const float* d, std::span<double> weights,
              const TensorView<float>& d_h) const {
    const auto along = [&](size_t i) {
      const float* row = &h_(b, 0, static_cast<int64_t>(i), 0);
      double sum = 0;
      for (int64_t c = 0; c < h_.shape[3]; ++c) sum += static_cast<double>(d[c]) * row[c];
      return sum;
    };
    double mean = 0;
    for (size_t i = 0; i < weights.size(); ++i) mean += weights[i] * along(i);
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] *= along(i) - mean;
      for (int64_t c = 0; c < h_.shape[3]; ++c) {
        d_h(b, 0, static_cast<int64_t>(i), c) +=
            static_cast<float>(weights[i] * w_.pool_query[static_cast<size_t>(c)]);
      }
    }
  }

  const TensorView<float> h_;
  const AttentionClassifierWeights& w_;
  const AttentionClassifierOptions& o_;
  ThreadPool& pool_;
  const OwnedHeads pooled_;
  ScratchVector<double> weights_;  // of every row
};

// Sums of the rows that read a row of the tables.
void TablesBackward(const TensorView<const int32_t>& tokens, const AttentionClassifierOptions& o,
                    const OwnedHeads& d_x, const AttentionClassifierGradients& to,
                    ThreadPool& pool) {
  const auto& [batch, one, len, dim] = d_x.view.shape;
  const int64_t count = batch * len, row_len = len;
  const auto add = [&](const TensorView<float>& table, const auto& place) {
    if (!table.has_value()) return;
    Clear({table.data, static_cast<size_t>(table.size())}, &pool);
    AddToTable(
        count, table.shape[3], &pool, table.data,
        [&](int64_t n) {
          const int64_t b = n / row_len, i = n % row_len;
          return i < ClassifierLength(o, b, row_len) ? place(b, i) : -1;
        },
        [&](int64_t n) { return [d = RowOf(d_x.view, n)](int64_t c) { return d[c]; }; });
  };
  add(to.d_embedding, [&](int64_t b, int64_t i) { return int64_t{tokens(0, 0, b, i)}; });
  add(to.d_position_table, [](int64_t, int64_t i) { return i; });
}

}  // namespace

void AttentionClassifierBackward(const TensorView<const int32_t>& tokens,
                                 const AttentionClassifierWeights& w,
                                 const AttentionClassifierOptions& o,
                                 const TensorView<const float>& d_output,
                                 const AttentionClassifierGradients& to, ThreadPool& pool) {
  const int64_t batch = tokens.shape[2], len = tokens.shape[3];
  const int64_t dim = w.embedding.shape[3], width = w.w_class.shape[3];
  const OwnedHeads x(batch, 1, len, dim), h(batch, 1, len, width);
  EmbedTokens(tokens, w, o, x.view, pool);
  const MultiHeadShape shape =
      ValidateMultiHead(x.view, x.view, x.view, w.attention, o.attention, false);
  MultiHeadPass attention(shape, x.view, x.view, x.view, w.attention, o.attention, pool);
  attention.WriteOutput(h.view);
  PoolPass pooling(h, w, o, pool);
  const OwnedHeads d_pooled(batch, 1, 1, width), d_h(batch, 1, len, width), d_x(batch, 1, len, dim);
  LinearBackward(pooling.pooled(), w.w_class, d_output,
                 {PoolPass::Batch(d_pooled), to.d_w_class, to.d_b_class}, pool);
  pooling.Backward(d_pooled, d_h, to.d_pool_query);
  SelfAttentionBackward(attention, d_h.view, to.attention, d_x, pool);
  TablesBackward(tokens, o, d_x, to, pool);
}

}  // namespace heed
