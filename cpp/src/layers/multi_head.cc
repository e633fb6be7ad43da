// MultiHead(): projections around Attention().
#include "src/layers/multi_head.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "heed/linear.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/parallel/worker_scratch.h"
#include "src/power.h"
#include "src/view_checks.h"

namespace heed {
namespace {

size_t Count(int64_t a, int64_t b, int64_t c) {
  int64_t count = 0;
  if (__builtin_mul_overflow(a, b, &count) || __builtin_mul_overflow(count, c, &count) ||
      count > std::numeric_limits<ptrdiff_t>::max() / static_cast<ptrdiff_t>(sizeof(float))) {
    Fail(ErrorCode::kMemory, "the projections are more than can be addressed");
  }
  return static_cast<size_t>(count);
}

class MultiHeadCall {
 public:
  MultiHeadCall(const MultiHeadShape& shape, const MultiHeadWeights& weights,
                const MultiHeadOptions& options, const MultiHeadOutputs& outputs, ThreadPool& pool)
      : s_(shape), w_(weights), o_(options), out_(outputs), pool_(pool) {
    const bool averaged = out_.weights.has_value() && out_.weights.shape[1] != s_.num_heads;
    average_ = averaged && s_.num_heads > 0;
    if (w_.w_o.has_value()) heads_ = Rows(heads_memory_, s_.q_len, s_.num_heads * s_.head_dim_v);
    if (!w_.w_o.has_value()) heads_ = out_.output;
    lse_ = out_.lse;
    if (s_.extra > 0 && !lse_.has_value()) {
      lse_memory_ = AlignedFloats(Count(s_.batch, s_.num_heads, s_.q_len));
      lse_ = Contiguous(lse_memory_.get(), s_.batch, s_.num_heads, s_.q_len, 1);
    }
    weights_ = out_.weights;
    if (average_) {
      const int64_t columns = s_.kv_len + s_.extra;
      pairs_memory_ = AlignedFloats(
          Count(static_cast<int64_t>(Count(s_.batch, s_.num_heads, s_.q_len)), columns, 1));
      weights_ = Contiguous(pairs_memory_.get(), s_.batch, s_.num_heads, s_.q_len, columns);
    }
  }

  void Attend(const ProjectedHeads& projected) {
    const TensorView<float> heads = SplitHeads(heads_, s_.num_heads, s_.head_dim_v);
    AttentionOutputs outputs;
    outputs.output = heads;
    outputs.lse = lse_;
    outputs.weights = weights_;
    outputs.weights.shape[3] = s_.kv_len;
    Attention(projected.q.view, projected.k.view, projected.v.view, o_.attention, outputs, &pool_);
    if (s_.extra > 0) AddExtraKeys(projected.q.view, heads);
  }

  // Of what Attend() left.
  void WriteOutput() {
    if (!o_.head_mask.empty()) MaskHeads(SplitHeads(heads_, s_.num_heads, s_.head_dim_v));
    if (average_) AverageWeights();
    if (w_.w_o.has_value()) Linear(heads_, FlatCols(w_.w_o), w_.b_o, out_.output, &pool_);
  }

 private:
  // New rows [batch, 1, len, dim]. Empty tensors get a pointer too: absent means something else.
  TensorView<float> Rows(AlignedFloats& memory, int64_t len, int64_t dim) const {
    memory = AlignedFloats(std::max<size_t>(1, Count(s_.batch, len, dim)));
    return Contiguous(memory.get(), s_.batch, 1, len, dim);
  }

  template <class Body>
  void ForEachHead(Body&& body) const {
    pool_.Run(s_.batch * s_.num_heads,
              [&](int64_t index, int) { body(index / s_.num_heads, index % s_.num_heads); });
  }

  // The extra keys join each row's softmax through its lse, exactly, whatever the keep rules are.
  void AddExtraKeys(const TensorView<float>& q, const TensorView<float>& heads) const {
    DryRun* const dry = DryRun::Current();
    if (dry != nullptr && !w_.bias_k.empty()) {
      dry->AddFlops(2 * static_cast<double>(s_.batch * s_.num_heads * s_.q_len) *
                    static_cast<double>(s_.head_dim + s_.head_dim_v));
    }
    ForEachHead([&](int64_t b, int64_t h) {
      for (int64_t i = 0; i < s_.q_len; ++i) AddExtraKeysToRow(q, heads, b, h, i);
    });
  }

  void AddExtraKeysToRow(const TensorView<float>& q, const TensorView<float>& heads, int64_t b,
                         int64_t h, int64_t i) const {
    const int64_t kv_head = h / (s_.num_heads / s_.num_kv_heads);
    const bool has_bias = !w_.bias_k.empty();
    double lse = lse_(b, h, i, 0);
    // With the extra keys the row is not empty, so its sink counts.
    const std::span<const float> sinks = o_.attention.sinks;
    if (lse == -HUGE_VAL && !sinks.empty()) lse = sinks[static_cast<size_t>(h)];
    const double bias_score = has_bias
                                  ? ExtraKeyScore(s_, w_, o_.attention, &q(b, h, i, 0), kv_head)
                                  : -std::numeric_limits<double>::infinity();
    const double zero_score = o_.add_zero_attn ? 0 : -std::numeric_limits<double>::infinity();
    // Not std::max: a NaN must stay, and no term may be infinity minus infinity.
    double top = lse;
    if (bias_score > top || std::isnan(bias_score)) top = bias_score;
    if (zero_score > top) top = zero_score;
    const auto part = [top](double s) { return s == -HUGE_VAL ? 0 : std::exp(s - top); };
    const double sum = part(lse) + part(bias_score) + part(zero_score);
    const double kept = part(lse) / sum;
    const double bias_weight = part(bias_score) / sum;
    for (int64_t d = 0; d < s_.head_dim_v; ++d) {
      float& element = heads(b, h, i, d);
      double blended = lse == -HUGE_VAL ? 0 : kept * element;
      if (has_bias) blended += bias_weight * w_.bias_v[kv_head * s_.head_dim_v + d];
      element = static_cast<float>(blended);
    }
    lse_(b, h, i, 0) = static_cast<float>(top + std::log(sum));
    if (!weights_.has_value()) return;
    for (int64_t j = 0; j < s_.kv_len; ++j) {
      float& weight = weights_(b, h, i, j);
      if (weight != 0) weight = static_cast<float>(kept * weight);
    }
    int64_t column = s_.kv_len;
    if (has_bias) weights_(b, h, i, column++) = static_cast<float>(bias_weight);
    if (o_.add_zero_attn) weights_(b, h, i, column) = static_cast<float>(part(zero_score) / sum);
  }

  void MaskHeads(const TensorView<float>& heads) const {
    ForEachHead([&](int64_t b, int64_t h) {
      const float factor = o_.head_mask[static_cast<size_t>(h)];
      if (factor == 1) return;
      for (int64_t i = 0; i < s_.q_len; ++i) {
        for (int64_t d = 0; d < s_.head_dim_v; ++d) {
          float& element = heads(b, h, i, d);
          element = factor == 0 ? 0 : factor * element;
        }
      }
    });
  }

  void AverageWeights() const {
    pool_.Run(s_.batch * s_.q_len, [&](int64_t index, int) {
      const int64_t b = index / s_.q_len;
      const int64_t i = index % s_.q_len;
      for (int64_t j = 0; j < s_.kv_len + s_.extra; ++j) {
        double sum = 0;
        for (int64_t h = 0; h < s_.num_heads; ++h) sum += weights_(b, h, i, j);
        out_.weights(b, 0, i, j) = static_cast<float>(sum / static_cast<double>(s_.num_heads));
      }
    });
  }

  const MultiHeadShape& s_;
  const MultiHeadWeights& w_;
  const MultiHeadOptions& o_;
  const MultiHeadOutputs& out_;
  ThreadPool& pool_;
  bool average_ = false;
  AlignedFloats heads_memory_, lse_memory_, pairs_memory_;
  TensorView<float> heads_, lse_, weights_;
};

void CheckOutputs(const MultiHeadShape& s, const MultiHeadOutputs& out) {
  CheckOutput("output", out.output, {s.batch, 1, s.q_len, s.out_dim}, "[batch, 1, q_len, out_dim]");
  if (out.lse.has_value()) {
    CheckOutput("lse", out.lse, {s.batch, s.num_heads, s.q_len, 1}, "[batch, num_heads, q_len, 1]");
  }
  if (!out.weights.has_value()) return;
  const int64_t heads = out.weights.shape[1] == 1 ? 1 : s.num_heads;
  CheckOutput("weights", out.weights, {s.batch, heads, s.q_len, s.kv_len + s.extra},
              "[batch, num_heads or 1, q_len, kv_len + extra keys]");
}

}  // namespace

ProjectedHeads::ProjectedHeads(const MultiHeadShape& s, const MultiHeadWeights& w,
                               const TensorView<const float>& query,
                               const TensorView<const float>& key,
                               const TensorView<const float>& value, ThreadPool& pool)
    : q(s.batch, s.num_heads, s.q_len, s.head_dim),
      k(s.batch, s.num_kv_heads, s.kv_len, s.head_dim),
      v(s.batch, s.num_kv_heads, s.kv_len, s.head_dim_v) {
  Linear(query, FlatRows(w.w_q), w.b_q, RowsOf(q), &pool);
  Linear(key, FlatRows(w.w_k), w.b_k, RowsOf(k), &pool);
  Linear(value, FlatRows(w.w_v), w.b_v, RowsOf(v), &pool);
}

void AttendHeads(const MultiHeadShape& shape, const MultiHeadWeights& weights,
                 const MultiHeadOptions& options, const ProjectedHeads& projected,
                 const MultiHeadOutputs& outputs, ThreadPool& pool) {
  MultiHeadCall(shape, weights, options, outputs, pool).Attend(projected);
}

void FinishMultiHead(const MultiHeadShape& shape, const MultiHeadWeights& weights,
                     const MultiHeadOptions& options, const ProjectedHeads& projected,
                     const MultiHeadOutputs& outputs, ThreadPool& pool) {
  MultiHeadCall call(shape, weights, options, outputs, pool);
  call.Attend(projected);
  call.WriteOutput();
}

double HeadScale(const MultiHeadShape& s, const AttentionOptions& options) {
  return options.scale.value_or(1 / std::sqrt(static_cast<double>(s.head_dim)));
}

double ExtraKeyScore(const MultiHeadShape& s, const MultiHeadWeights& w,
                     const AttentionOptions& options, const float* q, int64_t kv_head) {
  const float* k = w.bias_k.data() + kv_head * s.head_dim;
  double dot = 0;
  for (int64_t d = 0; d < s.head_dim; ++d) dot += static_cast<double>(q[d]) * k[d];
  const double score = HeadScale(s, options) * dot;
  return options.softcap ? *options.softcap * Tanh(score / *options.softcap) : score;
}

void MultiHead(TensorView<const float> query, TensorView<const float> key,
               TensorView<const float> value, const MultiHeadWeights& weights,
               const MultiHeadOptions& options, const MultiHeadOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("multi-head attention", [&] {
    const MultiHeadShape shape =
        ValidateMultiHead(query, key, value, weights, options, outputs.lse.has_value());
    CheckOutputs(shape, outputs);
    OutputSpans({{"output", outputs.output}, {"lse", outputs.lse}, {"weights", outputs.weights}})
        .ApartFrom("query", query)
        .ApartFrom("key", key)
        .ApartFrom("value", value)
        .ApartFrom(weights)
        .ApartFrom(options);
    if (shape.batch == 0 || shape.q_len == 0) return;
    ThreadPool& threads = pool != nullptr ? *pool : DefaultThreadPool();
    MultiHeadCall call(shape, weights, options, outputs, threads);
    call.Attend(ProjectedHeads(shape, weights, query, key, value, threads));
    call.WriteOutput();
  });
}

}  // namespace heed
