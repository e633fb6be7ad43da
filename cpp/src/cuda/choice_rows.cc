// Mechanisms by name whose queries choose keys by their scores, on the device: block mixture,
// Quest, indexed; and the policies of caches, streaming and heavy hitters. What is chosen is
// written as a keep matrix, which exact attention then reads.
#include <algorithm>

#include "src/compose/composed_request.h"
#include "src/cuda/choice_steps.h"
#include "src/cuda/grid.h"
#include "src/cuda/plan.h"
#include "src/cuda/request_rows.h"
#include "src/cuda/step_calls.h"
#include "src/selective/request.h"
#include "src/selective/selective_problem.h"

namespace heed::cuda {
namespace {

// Products of queries with the vectors of blocks.
const double* DotScores(ComposedSteps& steps, const TensorView<const float>& queries,
                        const TensorView<float>& vectors) {
  DotScoreParams params{};
  const auto [batch, heads, len, width] = queries.shape;
  params.queries = RowsOf(queries);
  params.vectors = RowsOf(TensorView<const float>(vectors));
  params.scores = steps.AllocateArray<double>({batch, heads, len, vectors.shape[2]});
  SetHeads(queries.shape, params);
  params.group = Narrow(heads / std::max<int64_t>(vectors.shape[1], 1));
  params.len = Narrow(len);
  params.count = Narrow(vectors.shape[2]);
  params.width = Narrow(width);
  steps.Run(params);
  return params.scores;
}

// Attention to the blocks that queries choose by their products with `vectors`.
void AttendToBlocks(ComposedSteps& steps, const ComposedRequest& r, AttentionOptions options,
                    const AttentionProblem& p, int64_t block, int64_t most,
                    const TensorView<const float>& queries, const TensorView<float>& vectors,
                    const AttentionOutputs& outputs) {
  const Choice choice = {block, most, 0, 1, p.num_heads, p.num_heads};
  options.keep = Chosen(steps, p, choice, DotScores(steps, queries, vectors));
  steps.Attend(r.q, r.k, r.v, options, outputs);
}

AttentionProblem ProblemOf(const ComposedRequest& r, const AttentionOptions& options) {
  return ValidateInputsForDevice(StoredTensor(r.q), StoredTensor(r.k), StoredTensor(r.v), options,
                                 false);
}

void RunBlockMixtureRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                        ComposedSteps& steps) {
  const ComposedRequest r = ReadComposed(reader);
  const BlockMixtureOptions o = ReadBlockMixture(reader, r);
  const AttentionProblem p = ProblemOf(r, o.attention);
  const int32_t block = AtMost(o.key_block, p.kv_len);
  const TensorView<float> means =
      steps.Allocate({p.batch, p.num_kv_heads, CeilDiv(p.kv_len, block), p.head_dim});
  MeanParams params{};
  params.tokens = RowsOf(r.k);
  params.out = RowsOf(means);
  SetHeads(means.shape, params);
  params.group = 1;
  params.rows = Narrow(means.shape[2]);
  params.width = Narrow(p.head_dim);
  params.block = block;
  params.len = Narrow(p.kv_len);
  params.lengths = steps.SendArray(o.attention.key_lengths);
  steps.Run(params);
  AttendToBlocks(steps, r, o.attention, p, o.key_block, o.top_blocks, r.q, means,
                 FloatOutputs(r, outputs));
}

// [max(q, 0), min(q, 0)], whose product with [maxima, minima] is the bound.
TensorView<float> SplitBySign(ComposedSteps& steps, const TensorView<const float>& q) {
  const auto [batch, heads, len, width] = q.shape;
  const TensorView<float> split = steps.Allocate({batch, heads, len, 2 * width});
  steps.Run(MapOf(MapOp::kPositive, {.x = q}, ColumnsOf(split, 0, width)));
  steps.Run(MapOf(MapOp::kNegative, {.x = q}, ColumnsOf(split, width, width)));
  return split;
}

void RunQuestRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                 ComposedSteps& steps) {
  const ComposedRequest r = ReadCausal(reader);
  const QuestOptions o = ReadQuest(reader, r);
  const AttentionOptions options = ValidateQuest(o, r.q.shape[0]);
  const AttentionProblem p = ProblemOf(r, options);
  const int32_t page = AtMost(o.page_size, p.kv_len);
  const TensorView<float> bounds =
      steps.Allocate({p.batch, p.num_kv_heads, CeilDiv(p.kv_len, page), 2 * p.head_dim});
  BoundsParams params{};
  params.keys = RowsOf(r.k);
  params.bounds = RowsOf(bounds);
  params.lengths = SendRules(steps, p).lengths;
  SetHeads(bounds.shape, params);
  params.pages = Narrow(bounds.shape[2]);
  params.width = Narrow(p.head_dim);
  params.page_size = page;
  steps.Run(params);
  AttendToBlocks(steps, r, options, p, o.page_size, o.pages, SplitBySign(steps, r.q), bounds,
                 FloatOutputs(r, outputs));
}

void RunIndexedRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                   ComposedSteps& steps) {
  const ComposedRequest r = ReadComposed(reader);
  const IndexTensors index = ReadIndex(reader);
  const IndexedOptions o = ReadIndexed(reader, r);
  const AttentionProblem p = ProblemOf(r, o.attention);
  IndexScoreParams params{};
  params.queries = RowsOf(index.q);
  params.weights = RowsOf(index.weights);
  params.keys = RowsOf(index.k);
  params.scores = steps.AllocateArray<double>({p.batch, 1, p.q_len, p.kv_len});
  params.batch = Narrow(p.batch);
  params.index_heads = Narrow(index.q.shape[1]);
  params.len = Narrow(p.q_len);
  params.count = Narrow(p.kv_len);
  params.width = Narrow(index.q.shape[3]);
  steps.Run(params);
  AttentionOptions options = o.attention;
  options.keep = Chosen(steps, p, {.most = o.top_k}, params.scores);
  steps.Attend(r.q, r.k, r.v, options, FloatOutputs(r, outputs));
}

// Policies of caches.

void RunStreamingRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                     ComposedSteps& steps) {
  const ComposedRequest r = ReadCausal(reader);
  const StreamingOptions o = ReadStreaming(reader, r);
  AttentionOptions options = ValidateStreaming(o, r.q.shape[0]);
  const AttentionProblem p = ProblemOf(r, options);
  if (o.sink_tokens > 0) {
    const TensorView<uint8_t> keep = KeepMatrix(steps, {p.batch, 1, p.q_len, p.kv_len});
    StreamKeepParams params{};
    params.keep = keep.data;
    params.positions = SendRules(steps, p).positions;
    params.recent = o.recent_tokens;
    params.sinks = o.sink_tokens;
    params.batch = Narrow(p.batch);
    params.len = Narrow(p.q_len);
    params.kv_len = Narrow(p.kv_len);
    steps.Run(params);
    options.window.reset();
    options.keep = keep;
  }
  steps.Attend(r.q, r.k, r.v, options, FloatOutputs(r, outputs));
}

void RunHeavyHitterRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                       ComposedSteps& steps) {
  const ComposedRequest r = ReadComposed(reader);
  const HeavyHitterOptions o = ReadHeavyHitter(reader, r);
  AttentionOptions options = ValidateHeavyHitter(r.q, r.k, r.v, o);
  const AttentionProblem p = ProblemOf(r, options);
  const TensorView<uint8_t> keep = KeepMatrix(steps, {p.batch, p.num_heads, p.q_len, p.kv_len});
  HeavyKeepParams params{};
  params.q = RowsOf(r.q);
  params.k = RowsOf(r.k);
  params.sinks = steps.SendArray(o.sinks);
  params.lengths = SendRules(steps, p).lengths;
  params.keep = keep.data;
  params.sums = steps.AllocateArray<double>({p.batch, p.num_kv_heads, 1, p.kv_len});
  params.scores = steps.Allocate({p.batch, p.num_kv_heads, 1, p.kv_len}).data;
  params.scale = p.scale;
  params.softcap = static_cast<float>(o.softcap.value_or(0));
  params.recent = o.recent_tokens;
  params.heavy = o.heavy_tokens;
  params.batch = Narrow(p.batch);
  params.heads = Narrow(p.num_kv_heads);
  params.group = Narrow(p.group);
  params.len = Narrow(p.q_len);
  params.width = Narrow(p.head_dim);
  steps.Run(params);
  options.keep = keep;
  steps.Attend(r.q, r.k, r.v, options, FloatOutputs(r, outputs));
}

constexpr DeviceRow kRows[] = {{"block_mixture", PlanBlockMixture, RunBlockMixtureRow},
                               {"quest", PlanQuest, RunQuestRow},
                               {"indexed", PlanIndexed, RunIndexedRow},
                               {"streaming", PlanStreaming, RunStreamingRow},
                               {"heavy_hitter", PlanHeavyHitter, RunHeavyHitterRow}};

}  // namespace

std::span<const DeviceRow> ChoiceRows() { return kRows; }

}  // namespace heed::cuda
