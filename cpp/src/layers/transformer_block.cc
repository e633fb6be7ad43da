#include "src/layers/transformer_block.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "heed/linear.h"
#include "heed/rows.h"
#include "src/layers/multi_head.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/parallel/worker_scratch.h"
#include "src/rows/activation.h"
#include "src/view_checks.h"

namespace heed {
namespace {

void CheckVector(std::string_view name, std::span<const float> values, int64_t expected) {
  if (values.empty() || values.size() == static_cast<size_t>(expected)) return;
  Fail(ErrorCode::kShape, "{} has {} values; expected {}", {name, values.size(), expected});
}

// New rows like x, [batch, 1, len, dim].
TensorView<float> NewRows(AlignedFloats& memory, const TensorView<const float>& x, int64_t dim) {
  const int64_t rows = x.shape[0] * x.shape[2];
  int64_t count = 0;
  if (__builtin_mul_overflow(rows, dim, &count) ||
      count > std::numeric_limits<ptrdiff_t>::max() / 4) {
    Fail(ErrorCode::kMemory, "the rows of the block are more than can be addressed");
  }
  memory = AlignedFloats(std::max<size_t>(1, static_cast<size_t>(count)));
  return Contiguous(memory.get(), x.shape[0], 1, x.shape[2], dim);
}

template <class T>
std::span<T> Row(const TensorView<T>& view, int64_t index) {
  const int64_t b = index / view.shape[2];
  const int64_t i = index % view.shape[2];
  return {view.data + b * view.strides[0] + i * view.strides[2],
          static_cast<size_t>(view.shape[3])};
}

class BlockCall {
 public:
  BlockCall(const TransformerBlockWeights& weights, const TransformerBlockOptions& options,
            ThreadPool& pool)
      : w_(weights),
        o_(options),
        pool_(pool),
        norm1_{o_.norm, o_.epsilon, w_.norm1_weight, w_.norm1_bias},
        norm2_{o_.norm, o_.epsilon, w_.norm2_weight, w_.norm2_bias} {}

  void Run(const TensorView<const float>& x, const TensorView<float>& output) {
    AlignedFloats y_memory, normed_memory;
    const TensorView<float> y = NewRows(y_memory, x, x.shape[3]);
    const TensorView<float> normed = NewRows(normed_memory, x, x.shape[3]);
    const bool pre = o_.order == NormOrder::kPre;
    if (pre) norm1_(x, normed, pool_);
    Attend(pre ? TensorView<const float>(normed) : x, y);
    Add(y, x);
    if (!pre) norm1_(y, y, pool_);
    if (pre) norm2_(y, normed, pool_);
    FeedForward(pre ? normed : y, output);
    Add(output, y);
    if (!pre) norm2_(output, output, pool_);
  }

 private:
  template <class Body>
  void ForEachRow(const TensorView<const float>& like, Body&& body) {
    pool_.Run(like.shape[0] * like.shape[2], [&](int64_t index, int) { body(index); });
  }

  void Attend(const TensorView<const float>& x, const TensorView<float>& to) {
    MultiHeadOutputs outputs;
    outputs.output = to;
    MultiHead(x, x, x, w_.attention, o_.attention, outputs, &pool_);
  }

  void Add(const TensorView<float>& to, const TensorView<const float>& x) {
    ForEachRow(x, [&](int64_t index) {
      const std::span<float> sum = Row(to, index);
      const std::span<const float> row = Row(x, index);
      for (size_t d = 0; d < row.size(); ++d) sum[d] += row[d];
    });
  }

  void FeedForward(const TensorView<float>& x, const TensorView<float>& to) {
    const int64_t ff_dim = w_.w_up.shape[2];
    AlignedFloats up_memory, gate_memory;
    const TensorView<float> up = NewRows(up_memory, x, ff_dim);
    Linear(x, w_.w_up, w_.b_up, up, &pool_);
    TensorView<float> gate = up;
    if (w_.w_gate.has_value()) {
      gate = NewRows(gate_memory, x, ff_dim);
      Linear(x, w_.w_gate, w_.b_gate, gate, &pool_);
    }
    Activate(o_.activation, gate.data, gate.size(), gate.data, &pool_);
    if (w_.w_gate.has_value()) {
      ForEachRow(up, [&](int64_t index) {
        const std::span<float> hidden = Row(up, index);
        const std::span<const float> gates = Row(TensorView<const float>(gate), index);
        for (size_t d = 0; d < hidden.size(); ++d) hidden[d] *= gates[d];
      });
    }
    Linear(up, w_.w_down, w_.b_down, to, &pool_);
  }

  const TransformerBlockWeights& w_;
  const TransformerBlockOptions& o_;
  ThreadPool& pool_;
  const RowNorm norm1_, norm2_;
};

}  // namespace

void RowNorm::operator()(const TensorView<const float>& x, const TensorView<float>& to,
                         ThreadPool& pool) const {
  const RowNormOptions options = {weight, bias, epsilon};
  if (norm == Norm::kLayer) {
    LayerNorm(x, options, to, {}, &pool);
  } else {
    RmsNorm(x, options, to, &pool);
  }
}

void ValidateTransformerBlock(TensorView<const float> x, const TransformerBlockWeights& w,
                              const TransformerBlockOptions& o) {
  CheckEnum("norm", o.norm, Norm::kRms);
  CheckEnum("order", o.order, NormOrder::kPost);
  CheckEnum("activation", o.activation, Activation::kRelu);
  const MultiHeadShape s = ValidateMultiHead(x, x, x, w.attention, o.attention, false);
  const int64_t dim = x.shape[3];
  if (s.out_dim != dim) {
    Fail(ErrorCode::kShape, "the attention gives {} values a row; expected embed_dim = {}",
         {s.out_dim, dim});
  }
  CheckPresent("w_up", w.w_up);
  CheckPresent("w_down", w.w_down);
  const int64_t ff_dim = w.w_up.shape[2];
  CheckShape("w_up", w.w_up.shape, {1, 1, ff_dim, dim}, "[1, 1, ff_dim, embed_dim]");
  CheckShape("w_down", w.w_down.shape, {1, 1, dim, ff_dim}, "[1, 1, embed_dim, ff_dim]");
  if (w.w_gate.has_value()) {
    CheckPresent("w_gate", w.w_gate);
    CheckShape("w_gate", w.w_gate.shape, {1, 1, ff_dim, dim}, "[1, 1, ff_dim, embed_dim]");
  } else if (!w.b_gate.empty()) {
    Fail(ErrorCode::kOption, "b_gate is given without w_gate");
  }
  CheckVector("norm1_weight", w.norm1_weight, dim);
  CheckVector("norm1_bias", w.norm1_bias, dim);
  CheckVector("norm2_weight", w.norm2_weight, dim);
  CheckVector("norm2_bias", w.norm2_bias, dim);
  CheckVector("b_up", w.b_up, ff_dim);
  CheckVector("b_gate", w.b_gate, ff_dim);
  CheckVector("b_down", w.b_down, dim);
  if (!(o.epsilon > 0) || !std::isfinite(o.epsilon)) {
    Fail(ErrorCode::kRange, "epsilon = {}; it must be positive and finite", {o.epsilon});
  }
}

void TransformerBlock(TensorView<const float> x, const TransformerBlockWeights& weights,
                      const TransformerBlockOptions& options, TensorView<float> output,
                      ThreadPool* pool) {
  WithMemoryErrors("a transformer block", [&] {
    ValidateTransformerBlock(x, weights, options);
    CheckOutput("output", output, x.shape, "[batch, 1, len, embed_dim]");
    OutputSpans({{"output", output}})
        .ApartFrom("x", x)
        .ApartFrom(weights)
        .ApartFrom(options.attention);
    if (x.size() == 0) return;
    BlockCall(weights, options, pool != nullptr ? *pool : DefaultThreadPool()).Run(x, output);
  });
}

}  // namespace heed
