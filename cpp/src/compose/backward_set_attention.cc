// Gradients of Set Transformer blocks: back through norms, the feed-forward layer and multi-head
// attention.
#include "src/compose/backward_set_attention.h"

#include <algorithm>

#include "heed/linear.h"
#include "src/compose/backward_rows.h"
#include "src/compose/rows.h"
#include "src/compose/set_attention.h"
#include "src/compose/set_attention_request.h"
#include "src/gradient/backward_views.h"
#include "src/gradient/request.h"
#include "src/layers/transformer_block.h"
#include "src/linear/backward_linear.h"
#include "src/rows/backward_activation.h"
#include "src/rows/backward_norm.h"

namespace heed {

std::span<float> WantedNumbers(const ComposedBackward& call, std::string_view name) {
  return VectorOf(FindTensor(call.gradients, name));
}

TensorView<float> AsRows(const TensorView<float>& leading) {
  return {leading.data,
          {leading.shape[1], 1, leading.shape[2], leading.shape[3]},
          {leading.strides[1], 0, leading.strides[2], leading.strides[3]}};
}

void CrossBackward(MultiHeadPass& pass, const TensorView<const float>& d_output,
                   MultiHeadGradients to, const TensorView<float>& d_y, ThreadPool& pool) {
  const OwnedTensor d_value(d_y.shape);
  to.d_key = d_y;
  to.d_value = d_value.view();
  pass.Backward(d_output, to);
  AddRows(d_value.view(), d_y, pool);
}

namespace {

// Where the gradients of a block's parameters go.
struct SetBlockGradients {
  MultiHeadGradients attention;
  LinearGradients feed_forward;  // without d_x
  NormGradients norm1, norm2;    // without d_x
};

// One block, forward again and back.
class SetBlockPass {
 public:
  // Arguments are validated, and outlive it.
  SetBlockPass(const TensorView<const float>& x, const TensorView<const float>& y,
               const SetBlockWeights& weights, const SetBlockOptions& options, ThreadPool& pool)
      : x_(x),
        y_(y),
        w_(weights),
        o_(options),
        pool_(pool),
        attention_(ValidateMultiHead(x, y, y, weights.attention, options.attention, false), x, y, y,
                   weights.attention, options.attention, pool),
        sum_(x.shape),
        hidden_(x.shape),
        linear_(x.shape),
        last_(x.shape) {
    attention_.WriteOutput(sum_.view());
    AddRows(IsProjected() ? attention_.ProjectedQuery() : x, sum_.view(), pool);
    Norm(sum_, 1, hidden_);
    Linear(hidden_.view(), w_.w_ff, w_.b_ff, linear_.view(), &pool);
    ForEachRow(x.shape, pool, [&](int64_t b, int64_t h, int64_t i) {
      for (int64_t d = 0; d < x_.shape[3]; ++d) {
        const float f = linear_.view()(b, h, i, d);
        last_.view()(b, h, i, d) = (f < 0 ? 0.0f : f) + hidden_.view()(b, h, i, d);
      }
    });
  }

  // The block's output.
  OwnedTensor Output() const {
    OwnedTensor output(x_.shape);
    Norm(last_, 2, output);
    return output;
  }

  // d_x and d_y are contiguous.
  void Backward(const TensorView<const float>& d_output, const SetBlockGradients& to,
                const TensorView<float>& d_x, const TensorView<float>& d_y) {
    const OwnedTensor d_last = NormGradient(last_, 2, d_output, to.norm2);
    const OwnedTensor d_linear(x_.shape), d_hidden(x_.shape);
    ActivateBackward(Activation::kRelu, linear_.view().data, d_last.view().data, x_.size(),
                     d_linear.view().data, &pool_);
    LinearGradients feed_forward = to.feed_forward;
    feed_forward.d_x = d_hidden.view();
    LinearBackward(hidden_.view(), w_.w_ff, d_linear.view(), feed_forward, pool_);
    AddRows(d_last.view(), d_hidden.view(), pool_);
    const OwnedTensor d_sum = NormGradient(sum_, 1, d_hidden.view(), to.norm1);
    MultiHeadGradients attention = to.attention;
    attention.d_query = d_x;
    if (IsProjected()) attention.d_projected_query = d_sum.view();
    CrossBackward(attention_, d_sum.view(), attention, d_y, pool_);
    if (!IsProjected()) AddRows(d_sum.view(), d_x, pool_);
  }

 private:
  bool IsProjected() const { return o_.residual == SetResidual::kProjected; }

  void Norm(const OwnedTensor& from, int which, const OwnedTensor& to) const {
    if (!o_.norm) return SumOver(from.view(), to.view(), pool_);
    const RowNorm norm = {*o_.norm, o_.epsilon, which == 1 ? w_.norm1_weight : w_.norm2_weight,
                          which == 1 ? w_.norm1_bias : w_.norm2_bias};
    norm(from.view(), to.view(), pool_);
  }

  OwnedTensor NormGradient(const OwnedTensor& from, int which, const TensorView<const float>& d_to,
                           NormGradients to) const {
    OwnedTensor d_from(x_.shape);
    to.d_x = d_from.view();
    if (o_.norm) {
      const RowNormOptions options = {which == 1 ? w_.norm1_weight : w_.norm2_weight,
                                      which == 1 ? w_.norm1_bias : w_.norm2_bias, o_.epsilon};
      NormBackward(*o_.norm, options, from.view(), d_to, to, &pool_);
    } else {
      SumOver(d_to, d_from.view(), pool_);
    }
    return d_from;
  }

  const TensorView<const float> x_, y_;
  const SetBlockWeights& w_;
  const SetBlockOptions& o_;
  ThreadPool& pool_;
  MultiHeadPass attention_;
  OwnedTensor sum_, hidden_, linear_, last_;
};

// Views of what is wanted of block n.
SetBlockGradients WantedOfBlock(const ComposedBackward& call, const InducedSetRequest& r,
                                int64_t n) {
  const int64_t heads = r.weights[0].attention.w_q.shape[1], dim = r.x.shape[3];
  const int64_t matrices = MatricesOf(r.options), last = matrices - 1;
  SetBlockGradients to;
  const TensorView<float> all = call.Wanted("set_weights");
  if (all.has_value()) {
    to.attention.d_w_q = HeadsOfBlock(all, n, 0, heads);
    to.attention.d_w_k = HeadsOfBlock(all, n, 1, heads);
    to.attention.d_w_v = HeadsOfBlock(all, n, 2, heads);
    if (HasOutputMatrix(r.options)) to.attention.d_w_o = OutputOfBlock(all, n, heads);
    to.feed_forward.d_weight = HeadsOfBlock(all, n, last, 1);
  }
  const std::span<float> biases = WantedNumbers(call, "set_biases");
  to.attention.d_b_q = RowOfBlock(biases, matrices, n, 0, dim);
  to.attention.d_b_k = RowOfBlock(biases, matrices, n, 1, dim);
  to.attention.d_b_v = RowOfBlock(biases, matrices, n, 2, dim);
  if (HasOutputMatrix(r.options)) to.attention.d_b_o = RowOfBlock(biases, matrices, n, 3, dim);
  to.feed_forward.d_bias = RowOfBlock(biases, matrices, n, last, dim);
  const std::span<float> factors = WantedNumbers(call, "norm_weights");
  const std::span<float> shifts = WantedNumbers(call, "norm_biases");
  to.norm1.d_scale = RowOfBlock(factors, 2, n, 0, dim);
  to.norm2.d_scale = RowOfBlock(factors, 2, n, 1, dim);
  to.norm1.d_bias = RowOfBlock(shifts, 2, n, 0, dim);
  to.norm2.d_bias = RowOfBlock(shifts, 2, n, 1, dim);
  return to;
}

void OneBlockBackward(const ComposedBackward& call, const InducedSetRequest& r,
                      const TensorView<const float>& d_output) {
  const bool self = r.block == SetBlock::kSab;
  const TensorView<const float> queries = self ? r.x : RowsOfBatch(r.inducing, r.x.shape[0]);
  SetBlockPass pass(queries, r.x, r.weights[0], r.options, call.pool);
  const OwnedTensor d_queries(queries.shape), d_x(r.x.shape);
  pass.Backward(d_output, WantedOfBlock(call, r, 0), d_queries.view(), d_x.view());
  if (self) AddRows(d_queries.view(), d_x.view(), call.pool);
  SumOver(d_x.view(), AsRows(call.Wanted("x")), call.pool);
  if (!self) SumOver(d_queries.view(), call.Wanted("inducing"), call.pool);
}

void TwoBlocksBackward(const ComposedBackward& call, const InducedSetRequest& r,
                       const TensorView<const float>& d_output) {
  const TensorView<const float> inducing = RowsOfBatch(r.inducing, r.x.shape[0]);
  const SetBlockOptions options = OptionsOfSecond(r.options);
  SetBlockPass first(inducing, r.x, r.weights[0], r.options, call.pool);
  const OwnedTensor between = first.Output();
  SetBlockPass second(r.x, between.view(), r.weights[1], options, call.pool);
  const OwnedTensor d_x(r.x.shape), d_between(inducing.shape);
  second.Backward(d_output, WantedOfBlock(call, r, 1), d_x.view(), d_between.view());
  const OwnedTensor d_inducing(inducing.shape), as_keys(r.x.shape);
  first.Backward(d_between.view(), WantedOfBlock(call, r, 0), d_inducing.view(), as_keys.view());
  AddRows(as_keys.view(), d_x.view(), call.pool);
  SumOver(d_x.view(), AsRows(call.Wanted("x")), call.pool);
  SumOver(d_inducing.view(), call.Wanted("inducing"), call.pool);
}

}  // namespace

void InducedSetBackward(const ComposedBackward& call) {
  const InducedSetRequest r = ReadInducedSet(call.reader);
  for (const char* name : {"norm_weights", "norm_biases"}) {  // sums, and 0 without norms
    ClearRows(call.Wanted(name), call.pool);
  }
  const TensorView<const float> d_output = call.d_rows();
  if (r.block == SetBlock::kIsab) {
    TwoBlocksBackward(call, r, d_output);
  } else {
    OneBlockBackward(call, r, d_output);
  }
}

}  // namespace heed
