#include "src/layers/attention_classifier.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "heed/linear.h"
#include "src/layers/multi_head.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/parallel/worker_scratch.h"
#include "src/view_checks.h"

namespace heed {
namespace {

constexpr float kStandIn = 0;

// [batch, 1, len, dim] of nothing: what validation needs.
TensorView<const float> Shaped(int64_t batch, int64_t len, int64_t dim) {
  return Contiguous<const float>(&kStandIn, batch, 1, len, dim);
}

void CheckTokens(const TensorView<const int32_t>& tokens, int64_t vocabulary,
                 const AttentionClassifierOptions& o) {
  for (int64_t b = 0; b < tokens.shape[2]; ++b) {
    for (int64_t i = 0; i < ClassifierLength(o, b, tokens.shape[3]); ++i) {
      const int32_t token = tokens(0, 0, b, i);
      if (token >= 0 && token < vocabulary) continue;
      Fail(ErrorCode::kRange, "tokens holds {}; they lie in [0, vocabulary = {})",
           {token, vocabulary});
    }
  }
}

}  // namespace

int64_t ClassifierLength(const AttentionClassifierOptions& o, int64_t b, int64_t len) {
  const auto& lengths = o.attention.attention.key_lengths;
  return lengths.empty() ? len : lengths[static_cast<size_t>(b)];
}

void EmbedTokens(const TensorView<const int32_t>& tokens, const AttentionClassifierWeights& w,
                 const AttentionClassifierOptions& o, const TensorView<float>& x,
                 ThreadPool& pool) {
  pool.Run(x.shape[0] * x.shape[2], [&](int64_t row, int) {
    const int64_t b = row / x.shape[2], i = row % x.shape[2];
    const bool read = i < ClassifierLength(o, b, x.shape[2]);
    const int64_t token = read ? tokens(0, 0, b, i) : 0;
    for (int64_t d = 0; d < x.shape[3]; ++d) {
      float value = read ? w.embedding(0, 0, token, d) : 0;
      if (read && w.position_table.has_value()) value += w.position_table(0, 0, i, d);
      x(b, 0, i, d) = value;
    }
  });
}

void FillPoolWeights(const TensorView<float>& h, int64_t b, const AttentionClassifierWeights& w,
                     Pooling pooling, std::span<double> weights) {
  std::fill(weights.begin(), weights.end(), 1.0 / static_cast<double>(weights.size()));
  if (pooling != Pooling::kAttention) return;
  double top = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < weights.size(); ++i) {
    double dot = 0;
    for (int64_t d = 0; d < h.shape[3]; ++d) {
      dot += static_cast<double>(h(b, 0, static_cast<int64_t>(i), d)) *
             w.pool_query[static_cast<size_t>(d)];
    }
    weights[i] = dot;
    top = std::max(top, dot);
  }
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - top);
  for (double& weight : weights) weight /= sum;
}

namespace {

void PoolMaxima(const TensorView<float>& h, int64_t b, int64_t length, float* to) {
  for (int64_t d = 0; d < h.shape[3]; ++d) {
    float largest = h(b, 0, 0, d);
    for (int64_t i = 1; i < length && !std::isnan(largest); ++i) {
      const float element = h(b, 0, i, d);
      if (element > largest || std::isnan(element)) largest = element;
    }
    to[d] = largest;
  }
}

bool Weighs(Pooling pooling) { return pooling == Pooling::kMean || pooling == Pooling::kAttention; }

// The rows of entry b become one; `weights` has as many values as rows, where pooling weighs them.
void Pool(const TensorView<float>& h, const AttentionClassifierWeights& w,
          const AttentionClassifierOptions& o, int64_t b, double* weights, float* to) {
  const int64_t dim = h.shape[3];
  const int64_t length = ClassifierLength(o, b, h.shape[2]);
  if (length == 0) {
    std::fill_n(to, dim, 0.0f);
    return;
  }
  if (o.pooling == Pooling::kFirst) {
    std::copy_n(&h(b, 0, 0, 0), dim, to);
    return;
  }
  if (o.pooling == Pooling::kMax) return PoolMaxima(h, b, length, to);
  FillPoolWeights(h, b, w, o.pooling, {weights, static_cast<size_t>(length)});
  for (int64_t d = 0; d < dim; ++d) {
    double sum = 0;
    for (int64_t i = 0; i < length; ++i) sum += weights[i] * h(b, 0, i, d);
    to[d] = static_cast<float>(sum);
  }
}

}  // namespace

void PoolEntries(const TensorView<float>& h, const AttentionClassifierWeights& w,
                 const AttentionClassifierOptions& o, float* pooled, ThreadPool& pool) {
  const int64_t batch = h.shape[0], len = h.shape[2], width = h.shape[3];
  ScratchVector<double> weights;
  if (Weighs(o.pooling)) weights.resize(static_cast<size_t>(batch * len));
  if (DryRun* dry = DryRun::Current()) {
    int64_t rows = 0;
    for (int64_t b = 0; b < batch; ++b) rows += ClassifierLength(o, b, len);
    const double products =
        (Weighs(o.pooling) ? 1 : 0) + (o.pooling == Pooling::kAttention ? 1 : 0);
    dry->AddFlops(2 * products * static_cast<double>(rows * width));
  }
  pool.Run(batch, [&](int64_t b, int) {
    Pool(h, w, o, b, weights.data() + (weights.empty() ? 0 : b * len), pooled + b * width);
  });
}

namespace {

AlignedFloats Rows(int64_t batch, int64_t len, int64_t dim) {
  int64_t count = 0;
  if (__builtin_mul_overflow(batch, len, &count) || __builtin_mul_overflow(count, dim, &count) ||
      count > std::numeric_limits<ptrdiff_t>::max() / 4) {
    Fail(ErrorCode::kMemory, "the rows of the classifier are more than can be addressed");
  }
  return AlignedFloats(static_cast<size_t>(std::max<int64_t>(1, count)));
}

}  // namespace

void ValidateAttentionClassifier(TensorView<const int32_t> tokens,
                                 const AttentionClassifierWeights& w,
                                 const AttentionClassifierOptions& o) {
  CheckPresent("tokens", tokens);
  const int64_t batch = tokens.shape[2];
  const int64_t len = tokens.shape[3];
  CheckShape("tokens", tokens.shape, {1, 1, batch, len}, "[1, 1, batch, len]");
  CheckInput("embedding", w.embedding);
  const int64_t dim = w.embedding.shape[3];
  CheckShape("embedding", w.embedding.shape, {1, 1, w.embedding.shape[2], dim},
             "[1, 1, vocabulary, embed_dim]");
  if (w.position_table.has_value()) {
    CheckInput("position_table", w.position_table);
    const int64_t most = std::max(len, w.position_table.shape[2]);
    CheckShape("position_table", w.position_table.shape, {1, 1, most, dim},
               "[1, 1, max_len, embed_dim], max_len >= len");
  }
  const TensorView<const float> x = Shaped(batch, len, dim);
  const MultiHeadShape s = ValidateMultiHead(x, x, x, w.attention, o.attention, false);
  if (o.attention.attention.key_lengths.size() > static_cast<size_t>(batch)) {
    Fail(ErrorCode::kUnsupported,
         "key_lengths must be one per batch entry: they bound the pooling");
  }
  CheckPresent("w_class", w.w_class);
  CheckShape("w_class", w.w_class.shape, {1, 1, w.w_class.shape[2], s.out_dim},
             "[1, 1, num_classes, out_dim], out_dim of the attention");
  if (!w.b_class.empty() && w.b_class.size() != static_cast<size_t>(w.w_class.shape[2])) {
    Fail(ErrorCode::kShape, "b_class has {} values; expected num_classes = {}",
         {w.b_class.size(), w.w_class.shape[2]});
  }
  CheckEnum("pooling", o.pooling, Pooling::kAttention);
  const bool wants_query = o.pooling == Pooling::kAttention;
  if (!wants_query && !w.pool_query.empty()) {
    Fail(ErrorCode::kOption, "pool_query is read only by pooling by attention");
  }
  if (wants_query && w.pool_query.size() != static_cast<size_t>(s.out_dim)) {
    Fail(w.pool_query.empty() ? ErrorCode::kOption : ErrorCode::kShape,
         "pool_query has {} values; expected {}", {w.pool_query.size(), s.out_dim});
  }
  CheckTokens(tokens, w.embedding.shape[2], o);
}

void AttentionClassifier(TensorView<const int32_t> tokens,
                         const AttentionClassifierWeights& weights,
                         const AttentionClassifierOptions& options, TensorView<float> output,
                         ThreadPool* pool) {
  WithMemoryErrors("an attention classifier", [&] {
    ValidateAttentionClassifier(tokens, weights, options);
    const int64_t batch = tokens.shape[2], len = tokens.shape[3];
    const int64_t num_classes = weights.w_class.shape[2], width = weights.w_class.shape[3];
    CheckOutput("output", output, {1, 1, batch, num_classes}, "[1, 1, batch, num_classes]");
    OutputSpans({{"output", output}})
        .ApartFrom("tokens", tokens)
        .ApartFrom(weights)
        .ApartFrom(options.attention);
    const int64_t dim = weights.embedding.shape[3];
    const AlignedFloats x_memory = Rows(batch, len, dim);
    const AlignedFloats h_memory = Rows(batch, len, width);
    const AlignedFloats pooled = Rows(batch, 1, width);
    const TensorView<float> x = Contiguous(x_memory.get(), batch, 1, len, dim);
    const TensorView<float> h = Contiguous(h_memory.get(), batch, 1, len, width);
    ThreadPool& threads = pool != nullptr ? *pool : DefaultThreadPool();
    EmbedTokens(tokens, weights, options, x, threads);
    MultiHeadOutputs outputs;
    outputs.output = h;
    MultiHead(x, x, x, weights.attention, options.attention, outputs, &threads);
    PoolEntries(h, weights, options, pooled.get(), threads);
    Linear(MatrixView<const float>(pooled.get(), batch, width), weights.w_class, weights.b_class,
           output, &threads);
  });
}

}  // namespace heed
