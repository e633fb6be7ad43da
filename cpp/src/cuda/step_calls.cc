#include "src/cuda/step_calls.h"

#include <limits>
#include <vector>

#include "heed/linear.h"
#include "src/cuda/grid.h"
#include "src/message.h"
#include "src/split_mix.h"

namespace heed::cuda {
namespace {

// The numbers of a view, with strides of 0 where it broadcasts.
DevicePairs<float> Spread(const TensorView<const float>& view) {
  DevicePairs<float> numbers = NumbersOf(view);
  for (size_t axis = 0; axis < 4; ++axis) {
    if (view.shape[axis] == 1) numbers.strides[axis] = 0;
  }
  return numbers;
}

}  // namespace

int32_t Narrow(int64_t extent) {
  if (extent > std::numeric_limits<int32_t>::max()) {
    Fail(ErrorCode::kUnsupported,
         "a step of the call has an extent of {}; on the GPU it is at most {}",
         {extent, std::numeric_limits<int32_t>::max()});
  }
  return static_cast<int32_t>(extent);
}

MultiplyParams ProductOf(const TensorView<const float>& a, const TensorView<const float>& b,
                         const TensorView<float>& out) {
  MultiplyParams params{};
  params.a = NumbersOf(a);
  params.b = NumbersOf(b);
  for (size_t axis = 0; axis < 2; ++axis) {
    if (a.shape[axis] == 1) params.a.strides[axis] = 0;
    if (b.shape[axis] == 1) params.b.strides[axis] = 0;
  }
  params.out = RowsOf(out);
  params.factor = 1;
  SetHeads(out.shape, params);
  params.rows = Narrow(out.shape[2]);
  params.cols = Narrow(out.shape[3]);
  params.inner = Narrow(a.shape[3]);
  return params;
}

MapParams MapOf(MapOp op, const MapInputs& inputs, const TensorView<float>& out) {
  MapParams params{};
  params.op = op;
  params.x = Spread(inputs.x);
  params.y = Spread(inputs.y);
  params.z = Spread(inputs.z);
  params.factor = inputs.factor;
  params.out = RowsOf(out);
  SetHeads(out.shape, params);
  params.rows = Narrow(out.shape[2]);
  params.cols = Narrow(out.shape[3]);
  return params;
}

void Copy(ComposedSteps& steps, const TensorView<const float>& from, const TensorView<float>& to) {
  steps.Run(MapOf(MapOp::kScale, {.x = from, .factor = 1}, to));
}

void Fill(ComposedSteps& steps, float value, const TensorView<float>& to) {
  steps.Run(MapOf(MapOp::kFill, {.factor = value}, to));
}

void Linear(ComposedSteps& steps, const TensorView<const float>& x,
            const TensorView<const float>& weight, std::span<const float> bias,
            const TensorView<float>& to) {
  MultiplyParams params = ProductOf(x, TransposedView(weight), to);
  if (!bias.empty()) {
    params.addend = Spread(RowView(steps.SendArray(bias), to.shape[3]));
    params.addend_factor = 1;
  }
  steps.Run(params);
}

void Normalise(ComposedSteps& steps, NormParams norm, const TensorView<const float>& x,
               const TensorView<float>& to) {
  norm.x = RowsOf(x);
  norm.out = RowsOf(to);
  SetHeads(to.shape, norm);
  norm.rows = Narrow(to.shape[2]);
  norm.width = Narrow(to.shape[3]);
  steps.Run(norm);
}

void SumValues(ComposedSteps& steps, const TensorView<const float>& weights,
               const TensorView<const float>& scores, const TensorView<const float>& v,
               const TensorView<float>& to) {
  SumValuesParams params{};
  params.weights = RowsOf(weights);
  params.scores = RowsOf(scores);
  params.v = RowsOf(v);
  params.out = RowsOf(to);
  SetHeads(to.shape, params);
  params.group = Narrow(v.shape[1] > 0 ? to.shape[1] / v.shape[1] : 1);
  params.len = Narrow(to.shape[2]);
  params.kv_len = Narrow(v.shape[2]);
  params.width = Narrow(to.shape[3]);
  steps.Run(params);
}

KeptRows NewKeptRows(ComposedSteps& steps, const Extents& lists, int64_t heads,
                     int64_t most_words) {
  const auto [batch, num_lists, len, kv_len] = lists;
  KeptRows rows{};
  rows.room = std::min(most_words, CeilDiv(kv_len, 64));
  rows.lists = Narrow(num_lists);
  rows.copies = num_lists > 1 ? Narrow(heads / num_lists) : 1;
  rows.len = Narrow(len);
  Narrow(batch * num_lists * len);  // an id each
  rows.ids = steps.AllocateArray<int32_t>({batch, num_lists, rows.copies, len});
  rows.starts = steps.AllocateArray<int64_t>({batch, num_lists, len, 1});
  rows.ends = steps.AllocateArray<int64_t>({batch, num_lists, len, 1});
  rows.tiles = steps.AllocateArray<int32_t>({batch, num_lists, len, rows.room});
  rows.words = steps.AllocateArray<uint64_t>({batch, num_lists, len, rows.room});
  return rows;
}

TokenRules SendRules(ComposedSteps& steps, const AttentionProblem& p) {
  TokenRules rules{};
  std::vector<int32_t> lengths(p.options.key_lengths.begin(), p.options.key_lengths.end());
  if (lengths.empty()) lengths.assign(static_cast<size_t>(p.batch), Narrow(p.kv_len));
  rules.lengths_per_query = lengths.size() != static_cast<size_t>(p.batch);
  rules.lengths = steps.SendArray(std::span<const int32_t>(lengths));
  rules.positions = steps.SendArray(std::span<const int64_t>(p.position));
  return rules;
}

TensorView<const float> DrawNormals(ComposedSteps& steps, uint64_t seed, const Extents& shape) {
  SplitMix64 generator(seed);
  std::vector<float> numbers(static_cast<size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
  for (float& number : numbers) number = generator.Normal();
  const float* sent = steps.SendArray(std::span<const float>(numbers));
  return Contiguous(sent, shape[0], shape[1], shape[2], shape[3]);
}

TensorView<float> RawScores(ComposedSteps& steps, const TensorView<const float>& q,
                            const TensorView<const float>& k, const AttentionOptions& options) {
  AttentionOptions all;
  all.scale = options.scale;
  const TensorView<float> scores = steps.Allocate({q.shape[0], q.shape[1], q.shape[2], k.shape[2]});
  AttentionOutputs outputs;
  outputs.output = NoColumns(scores, q.shape);
  outputs.scores = scores;
  outputs.score_stage = ScoreStage::kRaw;
  steps.Attend(q, k, ColumnsOf(k, 0, 0), all, outputs);
  return scores;
}

TensorView<const float> Repeated(ComposedSteps& steps, const TensorView<const float>& rows,
                                 int64_t num_heads) {
  const auto [batch, kv_heads, len, width] = rows.shape;
  if (kv_heads == num_heads || kv_heads == 0) return rows;
  const TensorView<float> all = steps.Allocate({batch, num_heads, len, width});
  const int64_t group = num_heads / kv_heads;
  for (int64_t n = 0; n < group; ++n) Copy(steps, rows, MembersOf(all, n, group));
  return all;
}

}  // namespace heed::cuda
