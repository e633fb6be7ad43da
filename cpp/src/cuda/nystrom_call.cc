// Nystrom attention on the device: three calls of attention and, between them, products of the
// landmarks' matrices.
#include <algorithm>
#include <utility>
#include <vector>

#include "src/compose/compose_problem.h"
#include "src/cuda/low_rank_calls.h"
#include "src/cuda/plan.h"
#include "src/cuda/step_calls.h"
#include "src/cuda/step_checks.h"

namespace heed::cuda {
namespace {

// Sequences of one length, of which `tokens` count.
class NystromSteps {
 public:
  NystromSteps(ComposedSteps& steps, const NystromOptions& options)
      : steps_(steps), options_(options) {
    scaled_.scale = options.scale;
  }

  void Run(const TensorView<const float>& q, const TensorView<const float>& k,
           const TensorView<const float>& v, int64_t tokens, int64_t num_landmarks,
           const NystromOutputs& out) {
    if (tokens <= num_landmarks) {
      RunExact(q, k, v, tokens, out);
    } else {
      RunLandmarks(q, heed::RowsOf(k, 0, tokens), heed::RowsOf(v, 0, tokens), num_landmarks, out);
    }
    if (options_.depthwise_conv.has_value()) Convolve(v, tokens, out.output);
  }

 private:
  void RunExact(const TensorView<const float>& q, const TensorView<const float>& k,
                const TensorView<const float>& v, int64_t tokens, const NystromOutputs& out) {
    const std::vector<int32_t> lengths(static_cast<size_t>(q.shape[0]),
                                       static_cast<int32_t>(tokens));
    AttentionOptions options = scaled_;
    options.key_lengths = lengths;
    steps_.Attend(q, k, v, options, {.output = out.output, .weights = out.weights});
    if (!out.residual.has_value()) return;
    // Nothing times nothing.
    Multiply(1, ColumnsOf(out.residual, 0, 0), ColumnsOf(out.residual, 0, 0), 0, {}, out.residual);
  }

  void RunLandmarks(const TensorView<const float>& q, const TensorView<const float>& k,
                    const TensorView<const float>& v, int64_t num, const NystromOutputs& out) {
    const auto [batch, heads, q_len, dim] = q.shape;
    const int64_t tokens = k.shape[2], dim_v = v.shape[3];
    const bool weighs = out.weights.has_value();
    const TensorView<float> queries = Means(q, heads, tokens, num);
    const TensorView<float> keys = Means(k, heads, tokens, num);
    const TensorView<float> a = steps_.Allocate({batch, heads, num, num});
    const TensorView<float> read = steps_.Allocate({batch, heads, num, dim_v});
    const TensorView<float> values = steps_.Allocate({batch, heads, num, dim_v});
    TensorView<float> from{}, to{};
    if (weighs) from = steps_.Allocate({batch, heads, num, tokens});
    if (weighs) to = steps_.Allocate({batch, heads, q_len, num});

    const TensorView<float> nothing = Contiguous(a.data, batch, heads, num, 0);
    steps_.Attend(queries, keys, Planned(nothing.shape), scaled_,
                  {.output = nothing, .weights = a});
    steps_.Attend(queries, k, v, scaled_, {.output = read, .weights = from});
    const TensorView<float> inverse = Invert(a, out.residual);
    Multiply(1, inverse, read, 0, {}, values);
    steps_.Attend(q, keys, values, scaled_, {.output = out.output, .weights = to});
    if (weighs) WriteWeights(to, inverse, from, out.weights);
  }

  // The paper's iteration, of third order: z <- z (13 - az (15 - az (7 - az))) / 4.
  TensorView<float> Invert(const TensorView<float>& a, const TensorView<float>& residual) {
    TensorView<float> z = steps_.Allocate(a.shape), left = steps_.Allocate(a.shape);
    const TensorView<float> az = steps_.Allocate(a.shape), next = steps_.Allocate(a.shape);
    MatrixParams params{};
    params.a = RowsOf(TensorView<const float>(a));
    params.out = RowsOf(z);
    params.batch = static_cast<int32_t>(a.shape[0]);
    params.heads = static_cast<int32_t>(a.shape[1]);
    params.size = static_cast<int32_t>(a.shape[2]);
    steps_.Run(InverseParams{params});
    for (int64_t n = 0; n < options_.iterations; ++n) {
      Multiply(1, a, z, 0, {}, az);
      Multiply(-1, az, az, 7, az, left);
      Multiply(-1, az, left, 15, az, next);
      Multiply(-0.25f, z, next, 3.25f, z, left);
      std::swap(z, left);
    }
    if (!residual.has_value()) return z;
    Multiply(1, a, z, 0, {}, az);
    Multiply(1, az, a, 0, {}, next);
    params.other = RowsOf(TensorView<const float>(next));
    params.out = RowsOf(residual);
    steps_.Run(ResidualParams{params});
    return z;
  }

  void WriteWeights(const TensorView<float>& to, const TensorView<float>& inverse,
                    const TensorView<float>& from, const TensorView<float>& weights) {
    const int64_t tokens = from.shape[3], kv_len = weights.shape[3];
    const TensorView<float> inverted = steps_.Allocate(from.shape);
    Multiply(1, inverse, from, 0, {}, inverted);
    Multiply(1, to, inverted, 0, {}, ColumnsOf(weights, 0, tokens));
    const TensorView<float> behind = ColumnsOf(weights, tokens, kv_len - tokens);
    Multiply(1, ColumnsOf(to, 0, 0), behind, 0, {}, behind);  // zeros
  }

  // to = factor a b + addend_factor addend.
  void Multiply(float factor, const TensorView<float>& a, const TensorView<float>& b,
                float addend_factor, const TensorView<float>& addend, const TensorView<float>& to) {
    MultiplyParams params = ProductOf(a, b, to);
    params.addend = NumbersOf(addend);
    params.factor = factor;
    params.addend_factor = addend_factor;
    steps_.Run(params);
  }

  // Means of segments of the first `tokens` tokens, for query heads.
  TensorView<float> Means(const TensorView<const float>& rows, int64_t heads, int64_t tokens,
                          int64_t num) {
    const TensorView<float> to = steps_.Allocate({rows.shape[0], heads, num, rows.shape[3]});
    MeanParams params{};
    params.tokens = RowsOf(rows);
    params.out = RowsOf(to);
    params.batch = static_cast<int32_t>(to.shape[0]);
    params.heads = static_cast<int32_t>(heads);
    params.group = static_cast<int32_t>(heads / std::max<int64_t>(rows.shape[1], 1));
    params.rows = static_cast<int32_t>(num);
    params.width = static_cast<int32_t>(rows.shape[3]);
    params.len = static_cast<int32_t>(tokens);
    steps_.Run(params);
    return to;
  }

  void Convolve(const TensorView<const float>& v, int64_t tokens, const TensorView<float>& output) {
    const TensorView<const float>& taps = options_.depthwise_conv;
    ConvolveParams params{};
    params.v = RowsOf(v);
    params.taps = {taps.data, {0, taps.shape[2] == 1 ? 0 : taps.strides[2], 0}};
    params.out = RowsOf(output);
    params.batch = static_cast<int32_t>(output.shape[0]);
    params.heads = static_cast<int32_t>(output.shape[1]);
    params.group = static_cast<int32_t>(output.shape[1] / std::max<int64_t>(v.shape[1], 1));
    params.rows = static_cast<int32_t>(output.shape[2]);
    params.width = static_cast<int32_t>(output.shape[3]);
    params.len = static_cast<int32_t>(tokens);
    params.num_taps = static_cast<int32_t>(taps.shape[3]);
    steps_.Run(params);
  }

  ComposedSteps& steps_;
  const NystromOptions& options_;
  AttentionOptions scaled_;
};

}  // namespace

NystromCall::NystromCall(const TensorView<const float>& q, const TensorView<const float>& k,
                         const TensorView<const float>& v, const NystromOptions& options,
                         const NystromOutputs& outputs)
    : q_(q),
      k_(k),
      v_(v),
      options_(options),
      outputs_(outputs),
      problem_(ValidateNystromCall(q, k, v, options, outputs)) {
  AttentionOptions scaled;
  scaled.scale = options.scale;
  ValidateForDevice(StoredTensor(q), StoredTensor(k), StoredTensor(v), scaled,
                    {.output = outputs.output, .weights = outputs.weights}, {});
  CheckEveryStep(*this);
}

void NystromCall::Run(ComposedSteps& steps) const {
  NystromSteps nystrom(steps, options_);
  const AttentionProblem& p = problem_.tokens;
  if (options_.key_lengths.empty()) {
    return nystrom.Run(q_, k_, v_, p.kv_len, problem_.num_landmarks, outputs_);
  }
  for (int64_t b = 0; b < p.batch; ++b) {
    const NystromOutputs entry = {EntryOf(outputs_.output, b), EntryOf(outputs_.weights, b),
                                  EntryOf(outputs_.residual, b)};
    nystrom.Run(EntryOf(q_, b), EntryOf(k_, b), EntryOf(v_, b), p.KeyLength(b, 0),
                problem_.num_landmarks, entry);
    steps.Release();
  }
}

}  // namespace heed::cuda
