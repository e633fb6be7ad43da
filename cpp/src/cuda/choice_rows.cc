// Mechanisms by name whose queries choose keys by their scores, on the device: block mixture,
// Quest, indexed; and the policies of caches, streaming and heavy hitters. What is chosen is
// written as words of 64 keys, of which exact attention passes over those that are not there.
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

// Products of some queries with the vectors of blocks.
void ScoreBlocks(ComposedSteps& steps, const TensorView<const float>& queries,
                 const TensorView<float>& vectors, double* scores) {
  DotScoreParams params{};
  const auto [batch, heads, len, width] = queries.shape;
  params.queries = RowsOf(queries);
  params.vectors = RowsOf(TensorView<const float>(vectors));
  params.scores = scores;
  SetHeads(queries.shape, params);
  params.group = Narrow(heads / std::max<int64_t>(vectors.shape[1], 1));
  params.len = Narrow(len);
  params.count = Narrow(vectors.shape[2]);
  params.width = Narrow(width);
  steps.Run(params);
}

// Attention to the blocks that queries choose by their products with `vectors`.
void AttendToBlocks(ComposedSteps& steps, const ComposedRequest& r, const AttentionOptions& options,
                    const AttentionProblem& p, int64_t block, int64_t most,
                    const TensorView<const float>& queries, const TensorView<float>& vectors,
                    const AttentionOutputs& outputs) {
  const Choice choice = {block, most, 0, 1, p.num_heads, p.num_heads};
  const SeenRules seen = Chosen(steps, p, choice, [&](const ScoreRows& rows) {
    ScoreBlocks(steps, heed::RowsOf(queries, rows.first, rows.count), vectors, rows.scores);
  });
  steps.Attend(r.q, r.k, r.v, options, outputs, seen);
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
  AttendToBlocks(steps, r, options, p, o.page_size, o.top_pages, SplitBySign(steps, r.q), bounds,
                 FloatOutputs(r, outputs));
}

void ScoreKeys(ComposedSteps& steps, const IndexTensors& index, const ScoreRows& rows) {
  const TensorView<const float> queries = heed::RowsOf(index.q, rows.first, rows.count);
  IndexScoreParams params{};
  params.queries = RowsOf(queries);
  params.weights = RowsOf(heed::RowsOf(index.weights, rows.first, rows.count));
  params.keys = RowsOf(index.k);
  params.scores = rows.scores;
  params.batch = Narrow(queries.shape[0]);
  params.index_heads = Narrow(queries.shape[1]);
  params.len = Narrow(rows.count);
  params.count = Narrow(index.k.shape[2]);
  params.width = Narrow(queries.shape[3]);
  steps.Run(params);
}

void RunIndexedRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                   ComposedSteps& steps) {
  const ComposedRequest r = ReadComposed(reader);
  const IndexTensors index = ReadIndex(reader);
  const IndexedOptions o = ReadIndexed(reader, r);
  const AttentionProblem p = ProblemOf(r, o.attention);
  const SeenRules seen = Chosen(steps, p, {.most = o.top_k},
                                [&](const ScoreRows& rows) { ScoreKeys(steps, index, rows); });
  steps.Attend(r.q, r.k, r.v, o.attention, FloatOutputs(r, outputs), seen);
}

// Policies of caches.

void RunStreamingRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                     ComposedSteps& steps) {
  const ComposedRequest r = ReadCausal(reader);
  const StreamingOptions o = ReadStreaming(reader, r);
  AttentionOptions options = ValidateStreaming(o, r.q.shape[0]);
  const AttentionProblem p = ProblemOf(r, options);
  SeenRules seen;
  if (o.sink_tokens > 0) {
    StreamKeepParams params{};
    params.kept = NewKeptRows(steps, {p.batch, 1, p.q_len, p.kv_len}, 1,
                              WordsOfBlocks(1, o.sink_tokens) + WordsOfRun(o.recent_tokens));
    params.positions = SendRules(steps, p).positions;
    params.recent = o.recent_tokens;
    params.sinks = o.sink_tokens;
    params.batch = Narrow(p.batch);
    params.kv_len = Narrow(p.kv_len);
    steps.Run(params);
    options.window.reset();
    seen = params.kept.seen();
  }
  steps.Attend(r.q, r.k, r.v, options, FloatOutputs(r, outputs), seen);
}

void RunHeavyHitterRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                       ComposedSteps& steps) {
  const ComposedRequest r = ReadComposed(reader);
  const HeavyHitterOptions o = ReadHeavyHitter(reader, r);
  const AttentionOptions options = ValidateHeavyHitter(r.q, r.k, r.v, o);
  const AttentionProblem p = ProblemOf(r, options);
  HeavyKeepParams params{};
  params.q = RowsOf(r.q);
  params.k = RowsOf(r.k);
  params.sinks = steps.SendArray(o.sinks);
  params.lengths = SendRules(steps, p).lengths;
  params.kept = NewKeptRows(steps, {p.batch, p.num_kv_heads, p.q_len, p.kv_len}, p.num_heads,
                            o.heavy_tokens + WordsOfRun(o.recent_tokens));
  params.held = steps.AllocateArray<uint8_t>({p.batch, p.num_kv_heads, 1, p.kv_len});
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
  steps.Attend(r.q, r.k, r.v, options, FloatOutputs(r, outputs), params.kept.seen());
}

constexpr DeviceRow kRows[] = {{"block_mixture", PlanBlockMixture, RunBlockMixtureRow},
                               {"quest", PlanQuest, RunQuestRow},
                               {"indexed", PlanIndexed, RunIndexedRow},
                               {"streaming", PlanStreaming, RunStreamingRow},
                               {"heavy_hitter", PlanHeavyHitter, RunHeavyHitterRow}};

}  // namespace

std::span<const DeviceRow> ChoiceRows() { return kRows; }

}  // namespace heed::cuda
