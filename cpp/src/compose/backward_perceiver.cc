// Gradients of the Perceiver's cross-attention: back through its feed-forward network, its
// attention and three norms.
#include "heed/linear.h"
#include "src/compose/backward_rows.h"
#include "src/compose/backward_set_attention.h"
#include "src/compose/rows.h"
#include "src/compose/set_attention_request.h"
#include "src/layers/transformer_block.h"
#include "src/linear/backward_linear.h"
#include "src/rows/activation.h"
#include "src/rows/backward_activation.h"
#include "src/rows/backward_norm.h"

namespace heed {
namespace {

// A layer norm with rows of its own.
struct NormedRows {
  const TensorView<const float> from;
  const RowNorm norm;
  const OwnedTensor rows;

  NormedRows(const TensorView<const float>& x, double epsilon, std::span<const float> weight,
             std::span<const float> bias, ThreadPool& pool)
      : from(x), norm{Norm::kLayer, epsilon, weight, bias}, rows(x.shape) {
    norm(x, rows.view(), pool);
  }

  // From what arrives at the rows to what arrives at `from`.
  OwnedTensor Backward(const TensorView<const float>& d_rows, std::span<float> d_weight,
                       std::span<float> d_bias, ThreadPool& pool) const {
    for (const std::span<float> sums : {d_weight, d_bias}) {  // they are added to
      ClearRows(Contiguous(sums.data(), 1, 1, 1, static_cast<int64_t>(sums.size())), pool);
    }
    OwnedTensor d_from(from.shape);
    NormBackward(norm.norm, {norm.weight, norm.bias, norm.epsilon}, from, d_rows,
                 {d_from.view(), d_weight, d_bias}, &pool);
    return d_from;
  }
};

class PerceiverBackwardPass {
 public:
  explicit PerceiverBackwardPass(const ComposedBackward& call)
      : call_(call),
        r_(ReadPerceiver(call.reader)),
        w_(r_.weights),
        queries_(r_.latents, r_.options.epsilon, w_.norm1_weight, w_.norm1_bias, call.pool),
        keys_(r_.input, r_.options.epsilon, w_.key_norm_weight, w_.key_norm_bias, call.pool),
        attention_(
            ValidateMultiHead(Queries(), Keys(), Keys(), w_.attention, r_.options.attention, false),
            Queries(), Keys(), Keys(), w_.attention, r_.options.attention, call.pool) {}

  void Run() {
    const OwnedTensor z(r_.latents.shape);
    attention_.WriteOutput(z.view());
    if (r_.options.query_residual) AddRows(r_.latents, z.view(), call_.pool);
    const OwnedTensor d_z = FeedForwardBackward(z);
    const OwnedTensor d_queries(r_.latents.shape), d_keys(r_.input.shape);
    CrossBackward(attention_, d_z.view(), WantedWeights(d_queries.view()), d_keys.view(),
                  call_.pool);
    const OwnedTensor d_latents = queries_.Backward(d_queries.view(), Numbers("norm1_weight"),
                                                    Numbers("norm1_bias"), call_.pool);
    if (r_.options.query_residual) AddRows(d_z.view(), d_latents.view(), call_.pool);
    SumOver(d_latents.view(), AsRows(call_.Wanted("latents")), call_.pool);
    const OwnedTensor d_input = keys_.Backward(d_keys.view(), Numbers("key_norm_weight"),
                                               Numbers("key_norm_bias"), call_.pool);
    SumOver(d_input.view(), AsRows(call_.Wanted("key")), call_.pool);
  }

 private:
  TensorView<const float> Queries() const { return queries_.rows.view(); }
  TensorView<const float> Keys() const { return keys_.rows.view(); }
  std::span<float> Numbers(std::string_view name) const { return WantedNumbers(call_, name); }

  // What arrives at z: past the network, and through it.
  OwnedTensor FeedForwardBackward(const OwnedTensor& z) const {
    const Extents& shape = z.view().shape;
    const NormedRows normed(z.view(), r_.options.epsilon, w_.norm2_weight, w_.norm2_bias,
                            call_.pool);
    const OwnedTensor up({shape[0], 1, shape[2], w_.w_up.shape[2]});
    const OwnedTensor hidden(up.view().shape), d_hidden(up.view().shape), d_normed(shape);
    Linear(normed.rows.view(), w_.w_up, w_.b_up, up.view(), &call_.pool);
    const int64_t count = up.view().size();
    Activate(r_.options.activation, up.view().data, count, hidden.view().data, &call_.pool);
    const TensorView<const float> d_output = call_.d_rows();
    LinearBackward(hidden.view(), w_.w_down, d_output,
                   {d_hidden.view(), call_.Wanted("w_down"), Numbers("b_down")}, call_.pool);
    ActivateBackward(r_.options.activation, up.view().data, d_hidden.view().data, count,
                     d_hidden.view().data, &call_.pool);
    LinearBackward(normed.rows.view(), w_.w_up, d_hidden.view(),
                   {d_normed.view(), call_.Wanted("w_up"), Numbers("b_up")}, call_.pool);
    OwnedTensor d_z = normed.Backward(d_normed.view(), Numbers("norm2_weight"),
                                      Numbers("norm2_bias"), call_.pool);
    AddRows(d_output, d_z.view(), call_.pool);
    return d_z;
  }

  MultiHeadGradients WantedWeights(const TensorView<float>& d_queries) const {
    MultiHeadGradients to;
    to.d_query = d_queries;
    to.d_w_q = call_.Wanted("w_q");
    to.d_w_k = call_.Wanted("w_k");
    to.d_w_v = call_.Wanted("w_v");
    to.d_w_o = call_.Wanted("w_o");
    to.d_b_q = Numbers("b_q");
    to.d_b_k = Numbers("b_k");
    to.d_b_v = Numbers("b_v");
    to.d_b_o = Numbers("b_o");
    to.attention = call_.WantedOptions();
    return to;
  }

  const ComposedBackward& call_;
  PerceiverRequest r_;
  const PerceiverWeights& w_;
  NormedRows queries_, keys_;
  MultiHeadPass attention_;
};

}  // namespace

void PerceiverBackward(const ComposedBackward& call) { PerceiverBackwardPass(call).Run(); }

}  // namespace heed
