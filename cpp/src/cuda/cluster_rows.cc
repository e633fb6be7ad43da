// Mechanisms by name that gather tokens before they attend, on the device: routing, Reformer,
// Sinkhorn.
#include <algorithm>
#include <cmath>
#include <vector>

#include "src/cuda/grid.h"
#include "src/cuda/plan.h"
#include "src/cuda/request_rows.h"
#include "src/cuda/step_calls.h"
#include "src/low_rank/problem.h"
#include "src/selective/reformer.h"
#include "src/selective/request.h"
#include "src/selective/router.h"
#include "src/selective/selective_problem.h"
#include "src/selective/sorter.h"
#include "src/split_mix.h"

namespace heed::cuda {
namespace {

// Normal numbers by a seed, as the CPU draws them, on the device.
TensorView<const float> DrawNormals(ComposedSteps& steps, uint64_t seed, const Extents& shape) {
  SplitMix64 generator(seed);
  std::vector<float> numbers(static_cast<size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
  for (float& number : numbers) number = generator.Normal();
  const float* sent = steps.SendArray(std::span<const float>(numbers));
  return Contiguous(sent, shape[0], shape[1], shape[2], shape[3]);
}

// Routing attention.

class RoutingSteps {
 public:
  RoutingSteps(ComposedSteps& steps, const RoutingRequest& request, const RoutingOptions& options)
      : steps_(steps),
        r_(request),
        o_(options),
        p_(ValidateInputsForDevice(StoredTensor(r_.q), StoredTensor(r_.k), StoredTensor(r_.v),
                                   AttentionOf(o_), false)),
        rules_(SendRules(steps, p_)),
        centroids_(o_.centroids) {
    if (centroids_.has_value()) return;
    centroids_ = DrawNormals(steps, o_.seed, {1, p_.num_heads, o_.num_clusters, p_.head_dim});
  }

  void Run(const AttentionOutputs& outputs) {
    const std::vector<int32_t> all(static_cast<size_t>(p_.batch), Narrow(p_.q_len));
    const Taken queries = Take(r_.q, steps_.SendArray(std::span<const int32_t>(all)));
    const Taken keys = Take(r_.k, rules_.lengths);
    const int64_t heads = p_.num_heads * o_.num_clusters;
    AttentionOptions inner;
    inner.scale = o_.scale;
    const TensorView<uint8_t> keep =
        KeepMatrix(steps_, {p_.batch, heads, queries.count, keys.count});
    HideLaterKeys(queries, keys, keep);
    inner.keep = keep;
    AttentionOutputs within;
    within.output = steps_.Allocate({p_.batch, heads, queries.count, p_.head_dim_v});
    if (outputs.weights.has_value()) within.weights = steps_.Allocate(keep.shape);
    steps_.Attend(RowsOfMembers(r_.q, queries), RowsOfMembers(r_.k, keys),
                  RowsOfMembers(r_.v, keys), inner, within);
    Average(queries, keys, keep, within, outputs);
  }

 private:
  // What the clusters of all heads take.
  struct Taken {
    int32_t *members, *places;
    int64_t count;
  };

  Taken Take(const TensorView<const float>& tokens, const int32_t* lengths) {
    const int64_t len = tokens.shape[2], clusters = o_.num_clusters;
    const Extents pairs = {p_.batch, p_.num_heads, clusters, len};
    ClusterScoreParams score{};
    score.tokens = RowsOf(tokens);
    score.centroids = RowsOf(centroids_);
    score.scores = steps_.AllocateArray<double>(pairs);
    SetHeads(pairs, score);
    score.group = GroupOf(tokens);
    score.clusters = Narrow(clusters);
    score.len = Narrow(len);
    score.width = Narrow(tokens.shape[3]);
    steps_.Run(score);
    Taken taken{};
    taken.count = std::min(o_.cluster_tokens, len);
    taken.members = steps_.AllocateArray<int32_t>({pairs[0], pairs[1], clusters, taken.count});
    taken.places = steps_.AllocateArray<int32_t>(pairs);
    MemberParams params{};
    params.scores = score.scores;
    params.lengths = lengths;
    params.members = taken.members;
    params.places = taken.places;
    SetHeads(pairs, params);
    params.clusters = score.clusters;
    params.len = score.len;
    params.count = Narrow(taken.count);
    steps_.Run(params);
    return taken;
  }

  int32_t GroupOf(const TensorView<const float>& tokens) const {
    return Narrow(p_.num_heads / std::max<int64_t>(tokens.shape[1], 1));
  }

  TensorView<float> RowsOfMembers(const TensorView<const float>& tokens, const Taken& taken) {
    const TensorView<float> out =
        steps_.Allocate({p_.batch, p_.num_heads * o_.num_clusters, taken.count, tokens.shape[3]});
    MemberRowParams params{};
    params.tokens = RowsOf(tokens);
    params.members = taken.members;
    params.out = RowsOf(out);
    params.batch = Narrow(p_.batch);
    params.heads = Narrow(p_.num_heads);
    params.group = GroupOf(tokens);
    params.clusters = Narrow(o_.num_clusters);
    params.count = Narrow(taken.count);
    params.width = Narrow(tokens.shape[3]);
    steps_.Run(params);
    return out;
  }

  void HideLaterKeys(const Taken& queries, const Taken& keys, const TensorView<uint8_t>& keep) {
    ClusterKeepParams params{};
    params.queries = queries.members;
    params.keys = keys.members;
    params.positions = o_.causal ? rules_.positions : nullptr;
    params.keep = keep.data;
    SetHeads(keep.shape, params);
    params.rows = Narrow(queries.count);
    params.cols = Narrow(keys.count);
    steps_.Run(params);
  }

  void Average(const Taken& queries, const Taken& keys, const TensorView<uint8_t>& keep,
               const AttentionOutputs& within, const AttentionOutputs& outputs) {
    ClusterMeanParams params{};
    params.query_places = queries.places;
    params.key_places = keys.places;
    params.keep = keep.data;
    params.within = RowsOf(TensorView<const float>(within.output));
    params.within_weights = RowsOf(TensorView<const float>(within.weights));
    params.output = RowsOf(outputs.output);
    params.weights = RowsOf(outputs.weights);
    params.batch = Narrow(p_.batch);
    params.heads = Narrow(p_.num_heads);
    params.clusters = Narrow(o_.num_clusters);
    params.len = Narrow(p_.q_len);
    params.kv_len = Narrow(p_.kv_len);
    params.rows = Narrow(queries.count);
    params.cols = Narrow(keys.count);
    params.width = Narrow(p_.head_dim_v);
    steps_.Run(params);
  }

  ComposedSteps& steps_;
  const RoutingRequest& r_;
  const RoutingOptions& o_;
  AttentionProblem p_;
  TokenRules rules_;
  TensorView<const float> centroids_;
};

void RunRoutingRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                   ComposedSteps& steps) {
  const RoutingRequest r = ReadRouting(reader);
  const RoutingOptions o = ValidateRouting(r.q, r.k, r.v, r.options);
  AttentionOutputs out;
  out.output = OutputView(outputs, "output");
  if (reader.Flag("return_weights")) out.weights = OutputView(outputs, "weights");
  RoutingSteps(steps, r, o).Run(out);
}

// Reformer. Rounds are disjoint and merge to the softmax over what any of them brings together, so
// that one call of attention with that as its keep matrix does.

// Which pairs hashing brings together.
TensorView<const uint8_t> HashedPairs(ComposedSteps& steps, const ReformerOptions& o,
                                      const AttentionProblem& p, const TensorView<const float>& q) {
  const Extents tokens = {o.hash_rounds, p.batch, p.num_heads, p.q_len};
  HashParams hash{};
  hash.q = RowsOf(q);
  if (o.num_buckets > 1) {
    const Extents shape = {1, o.hash_rounds, p.head_dim, o.num_buckets / 2};
    hash.rotations =
        NumbersOf(o.rotations.has_value() ? o.rotations : DrawNormals(steps, o.seed, shape));
    hash.columns = Narrow(o.num_buckets / 2);
  }
  hash.buckets = steps.AllocateArray<int32_t>(tokens);
  hash.rounds = Narrow(o.hash_rounds);
  hash.batch = Narrow(p.batch);
  hash.heads = Narrow(p.num_heads);
  hash.len = Narrow(p.q_len);
  hash.width = Narrow(p.head_dim);
  steps.Run(hash);
  HashPlaceParams place{};
  place.buckets = hash.buckets;
  place.lengths = SendRules(steps, p).lengths;
  place.places = steps.AllocateArray<HashPlaceOnDevice>(tokens);
  place.rounds = hash.rounds, place.batch = hash.batch, place.heads = hash.heads;
  place.len = hash.len;
  place.chunk = Narrow(o.hash_chunk);
  steps.Run(place);
  const TensorView<uint8_t> keep = KeepMatrix(steps, {p.batch, p.num_heads, p.q_len, p.q_len});
  HashKeepParams params{};
  params.places = place.places;
  params.keep = keep.data;
  params.causal = o.causal;
  params.rounds = hash.rounds, params.batch = hash.batch, params.heads = hash.heads;
  params.len = hash.len;
  steps.Run(params);
  return keep;
}

void RunReformerRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                    ComposedSteps& steps) {
  const ReformerRequest r = ReadReformer(reader);
  const ReformerOptions o = ValidateReformer(r.q, r.v, r.options);
  AttentionOptions inner = InnerOptions(o);
  const AttentionProblem p = ValidateInputsForDevice(
      StoredTensor(r.q), StoredTensor(KeyShape(r.q, r.v)), StoredTensor(r.v), inner, false);
  const TensorView<float> keys = steps.Allocate(r.q.shape);
  NormParams unit{};
  unit.kind = NormKind::kUnit;
  Normalise(steps, unit, r.q, keys);
  inner.keep = HashedPairs(steps, o, p, r.q);
  AttentionOutputs out;
  out.output = OutputView(outputs, "output");
  if (reader.Flag("return_lse")) out.lse = OutputView(outputs, "lse");
  if (reader.Flag("return_weights")) out.weights = OutputView(outputs, "weights");
  steps.Attend(r.q, keys, Repeated(steps, r.v, p.num_heads), inner, out);
}

// Sinkhorn attention.

class SinkhornSteps {
 public:
  SinkhornSteps(ComposedSteps& steps, const SinkhornRequest& request)
      : steps_(steps),
        r_(request),
        o_(request.options),
        p_(ValidateInputsForDevice(StoredTensor(r_.q), StoredTensor(r_.k), StoredTensor(r_.v),
                                   AttentionOf(o_), false)) {
    // A block beyond all tokens is one that no length fills.
    const int64_t size = std::min(o_.key_block, p_.q_len + 1);
    rules_.lengths = SendRules(steps, p_).lengths;
    rules_.causal = o_.causal;
    rules_.batch = Narrow(p_.batch);
    rules_.heads = Narrow(p_.num_heads);
    rules_.group = Narrow(p_.group);
    rules_.size = Narrow(size);
    rules_.blocks = Narrow(CeilDiv(p_.q_len, size));
    rules_.logs =
        steps.AllocateArray<double>({p_.batch, p_.num_heads, rules_.blocks, rules_.blocks});
  }

  void Run(const TensorView<float>& output) {
    Balance();
    const int64_t size = rules_.size, heads = p_.num_heads * rules_.blocks;
    const TensorView<float> queries = steps_.Allocate({p_.batch, heads, size, p_.head_dim});
    const TensorView<float> within = steps_.Allocate({p_.batch, heads, size, p_.head_dim_v});
    CopyQueries(queries);
    AttentionOptions inner;
    inner.scale = o_.scale;
    inner.keep = SeenRows();
    steps_.Attend(queries, Sorted(r_.k), Sorted(r_.v), inner, {.output = within});
    Copy(steps_, heed::RowsOf(Whole(within), 0, p_.q_len), output);
  }

 private:
  // Blocks of a head as its tokens, some behind the last.
  TensorView<float> Whole(const TensorView<float>& blocks) const {
    return Contiguous(blocks.data, p_.batch, p_.num_heads, rules_.blocks * int64_t{rules_.size},
                      blocks.shape[3]);
  }

  void Balance() {
    BalanceParams params{};
    params.rules = rules_;
    params.q = RowsOf(r_.q);
    params.k = RowsOf(r_.k);
    params.logits = NumbersOf(o_.sort_logits);
    params.means = steps_.AllocateArray<double>(
        {p_.batch, p_.num_heads, 2 * int64_t{rules_.blocks}, p_.head_dim});
    params.scale = o_.scale.value_or(1 / std::sqrt(static_cast<double>(p_.head_dim)));
    params.temperature = o_.temperature;
    params.iterations = o_.iterations;
    params.width = Narrow(p_.head_dim);
    steps_.Run(params);
  }

  // Zeros stand beyond the length.
  void CopyQueries(const TensorView<float>& queries) {
    Fill(steps_, 0, queries);
    MapParams copy =
        MapOf(MapOp::kScale, {.x = r_.q, .factor = 1}, heed::RowsOf(Whole(queries), 0, p_.q_len));
    copy.row_lengths = rules_.lengths;
    steps_.Run(copy);
  }

  TensorView<float> Sorted(const TensorView<const float>& tokens) {
    const TensorView<float> out = steps_.Allocate(
        {p_.batch, p_.num_heads * rules_.blocks, 2 * int64_t{rules_.size}, tokens.shape[3]});
    SortRowParams params{};
    params.rules = rules_;
    params.tokens = RowsOf(tokens);
    params.out = RowsOf(out);
    params.width = Narrow(tokens.shape[3]);
    steps_.Run(params);
    return out;
  }

  TensorView<const uint8_t> SeenRows() {
    const TensorView<uint8_t> keep = KeepMatrix(
        steps_, {p_.batch, p_.num_heads * rules_.blocks, rules_.size, 2 * int64_t{rules_.size}});
    steps_.Run(SortKeepParams{rules_, keep.data});
    return keep;
  }

  ComposedSteps& steps_;
  const SinkhornRequest& r_;
  const SinkhornOptions& o_;
  AttentionProblem p_;
  SortRules rules_{};
};

void RunSinkhornRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                    ComposedSteps& steps) {
  const SinkhornRequest r = ReadSinkhorn(reader);
  SinkhornSteps(steps, r).Run(OutputView(outputs, "output"));
}

constexpr DeviceRow kRows[] = {{"routing", PlanRouting, RunRoutingRow},
                               {"reformer", PlanReformer, RunReformerRow},
                               {"sinkhorn", PlanSinkhorn, RunSinkhornRow}};

}  // namespace

std::span<const DeviceRow> ClusterRows() { return kRows; }

}  // namespace heed::cuda
