// Multi-head latent attention by name, on the device.
#include <cmath>

#include "heed/linear.h"
#include "src/cuda/layer_steps.h"
#include "src/cuda/request_rows.h"
#include "src/layers/latent.h"
#include "src/layers/multi_head.h"
#include "src/layers/multi_head_request.h"
#include "src/layers/request.h"

namespace heed::cuda {
namespace {

class LatentSteps {
 public:
  LatentSteps(ComposedSteps& steps, const LatentRequest& request)
      : steps_(steps),
        w_(request.weights),
        o_(request.options),
        x_(request.x),
        s_(ValidateMultiHeadLatent(x_, w_, o_, request.return_lse)),
        attention_(o_.latent.attention) {
    if (!attention_.scale) {
      attention_.scale = 1 / std::sqrt(static_cast<double>(s_.nope_dim + s_.rope_dim));
    }
  }

  void Run(const AttentionOutputs& outputs) {
    const TensorView<float> latent = Compressed(w_.w_dkv, w_.norm_kv_weight);
    const TensorView<const float> a =
        w_.w_dq.has_value() ? TensorView<const float>(Compressed(w_.w_dq, w_.norm_q_weight)) : x_;
    const TensorView<float> q = Heads(s_.num_heads, s_.nope_dim + s_.rope_dim);
    Multiply(a, w_.w_uq, ColumnsOf(q, 0, s_.nope_dim));
    TensorView<float> k_rope;
    if (w_.w_kr.has_value()) {
      const TensorView<float> q_rope = ColumnsOf(q, s_.nope_dim, s_.rope_dim);
      Multiply(a, w_.w_qr, q_rope);
      k_rope = Compressed(w_.w_kr, {});
      Rotate(q_rope);
      Rotate(k_rope);
    }
    const TensorView<float> heads = Heads(s_.num_heads, s_.head_dim_v);
    AttentionOutputs attended = outputs;
    attended.output = heads;
    const bool naive = o_.latent.form == LatentForm::kNaive;
    naive ? AttendNaive(q, latent, k_rope, attended) : AttendAbsorbed(q, latent, k_rope, attended);
    const int64_t width = s_.num_heads * s_.head_dim_v;
    const TensorView<float> rows = Contiguous(heads.data, s_.batch, 1, s_.len, width);
    const TensorView<const float> w_o = {
        w_.w_o.data, {1, 1, s_.out_dim, width}, {0, 0, w_.w_o.strides[1], 1}};
    Linear(steps_, rows, w_o, {}, outputs.output);
  }

 private:
  // Heads of a row lie side by side.
  TensorView<float> Heads(int64_t heads, int64_t dim) {
    return SplitHeads(steps_.Allocate({s_.batch, 1, s_.len, heads * dim}), heads, dim);
  }

  // x times a matrix, normalised where there are factors.
  TensorView<float> Compressed(const TensorView<const float>& weight,
                               std::span<const float> factors) {
    const TensorView<float> rows = steps_.Allocate({s_.batch, 1, s_.len, weight.shape[2]});
    Linear(steps_, x_, weight, {}, rows);
    if (!factors.empty()) NormRows(steps_, {Norm::kRms, o_.epsilon, factors, {}}, rows, rows);
    return rows;
  }

  // to = rows weight^T, head by head.
  void Multiply(const TensorView<const float>& rows, const TensorView<const float>& weight,
                const TensorView<float>& to) {
    steps_.Run(ProductOf(rows, TransposedView(weight), to));
  }

  void Rotate(const TensorView<float>& rows) {
    if (!o_.rope) return;
    RotateRows(steps_, ValidateRope(rows, *o_.rope, RotationOf(o_)), rows);
  }

  void AttendNaive(const TensorView<float>& q, const TensorView<float>& latent,
                   const TensorView<float>& k_rope, const AttentionOutputs& outputs) {
    const TensorView<float> k = Heads(s_.num_heads, s_.nope_dim + s_.rope_dim);
    const TensorView<float> v = Heads(s_.num_heads, s_.head_dim_v);
    Multiply(latent, w_.w_uk, ColumnsOf(k, 0, s_.nope_dim));
    if (s_.rope_dim > 0) Copy(steps_, k_rope, ColumnsOf(k, s_.nope_dim, s_.rope_dim));
    Multiply(latent, w_.w_uv, v);
    steps_.Attend(q, k, v, attention_, outputs);
  }

  void AttendAbsorbed(const TensorView<float>& q, const TensorView<float>& latent,
                      const TensorView<float>& k_rope, AttentionOutputs outputs) {
    const int64_t width = s_.kv_rank + s_.rope_dim;
    const TensorView<float> queries = Heads(s_.num_heads, width), keys = Heads(1, width);
    const TensorView<float> found = Heads(s_.num_heads, s_.kv_rank);
    const TensorView<float> to = outputs.output;
    const auto nope = ColumnsOf(q, 0, s_.nope_dim);
    steps_.Run(ProductOf(nope, w_.w_uk, ColumnsOf(queries, 0, s_.kv_rank)));
    Copy(steps_, latent, ColumnsOf(keys, 0, s_.kv_rank));
    if (s_.rope_dim > 0) {
      Copy(steps_, ColumnsOf(q, s_.nope_dim, s_.rope_dim),
           ColumnsOf(queries, s_.kv_rank, s_.rope_dim));
      Copy(steps_, k_rope, ColumnsOf(keys, s_.kv_rank, s_.rope_dim));
    }
    outputs.output = found;
    steps_.Attend(queries, keys, latent, attention_, outputs);
    Multiply(found, w_.w_uv, to);
  }

  ComposedSteps& steps_;
  const LatentWeights& w_;
  const MultiHeadLatentOptions& o_;
  const TensorView<const float>& x_;
  LatentShape s_;
  AttentionOptions attention_;
};

void RunLatentRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                  ComposedSteps& steps) {
  const LatentRequest r = ReadLatent(reader);
  AttentionOutputs out;
  out.output = RowsOutput(outputs, "output");
  if (r.return_lse) out.lse = OutputView(outputs, "lse");
  if (r.return_weights) out.weights = OutputView(outputs, "weights");
  LatentSteps(steps, r).Run(out);
}

constexpr DeviceRow kRows[] = {{"multi_head_latent", PlanMultiHeadLatent, RunLatentRow}};

}  // namespace

std::span<const DeviceRow> LatentRows() { return kRows; }

}  // namespace heed::cuda
