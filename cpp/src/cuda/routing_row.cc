// Routing attention by name, on the device: clusters take queries and keys, attend within
// themselves, and a query averages what they give.
#include <algorithm>
#include <vector>

#include "src/cuda/plan.h"
#include "src/cuda/request_rows.h"
#include "src/cuda/step_calls.h"
#include "src/selective/request.h"
#include "src/selective/router.h"
#include "src/selective/selective_problem.h"

namespace heed::cuda {
namespace {

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
    const int32_t* seen = CountSeen(queries, keys);
    AttentionOutputs within;
    within.output = steps_.Allocate({p_.batch, heads, queries.count, p_.head_dim_v});
    if (outputs.weights.has_value()) {
      within.weights = steps_.Allocate({p_.batch, heads, queries.count, keys.count});
    }
    SeenRules rules;
    rules.row_lengths = seen;
    steps_.Attend(EachAlone(RowsOfMembers(r_.q, queries)), EachAlone(RowsOfMembers(r_.k, keys)),
                  EachAlone(RowsOfMembers(r_.v, keys)), inner,
                  {.output = EachAlone(within.output), .weights = EachAlone(within.weights)},
                  rules);
    Average(queries, keys, seen, within, outputs);
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

  // Clusters as batch entries: their rows have lengths of their own.
  static TensorView<float> EachAlone(const TensorView<float>& rows) {
    const auto [batch, heads, len, width] = rows.shape;
    return Contiguous(rows.data, batch * heads, 1, len, width);
  }

  // How many keys the queries of the clusters see, [batch, heads, clusters, rows].
  const int32_t* CountSeen(const Taken& queries, const Taken& keys) {
    ClusterLengthParams params{};
    const int64_t clusters = p_.num_heads * o_.num_clusters;
    params.queries = queries.members;
    params.keys = keys.members;
    params.positions = o_.causal ? rules_.positions : nullptr;
    params.seen = steps_.AllocateArray<int32_t>({p_.batch, clusters, queries.count, 1});
    params.batch = Narrow(p_.batch);
    params.heads = Narrow(clusters);
    params.rows = Narrow(queries.count);
    params.cols = Narrow(keys.count);
    steps_.Run(params);
    return params.seen;
  }

  void Average(const Taken& queries, const Taken& keys, const int32_t* seen,
               const AttentionOutputs& within, const AttentionOutputs& outputs) {
    ClusterMeanParams params{};
    params.query_places = queries.places;
    params.key_places = keys.places;
    params.seen = seen;
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

constexpr DeviceRow kRows[] = {{"routing", PlanRouting, RunRoutingRow}};

}  // namespace

std::span<const DeviceRow> RoutingRows() { return kRows; }

}  // namespace heed::cuda
