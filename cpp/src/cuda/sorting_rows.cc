// Mechanisms by name that sort tokens or blocks before they attend, on the device: Reformer,
// Sinkhorn.
#include <algorithm>
#include <cmath>

#include "src/cuda/grid.h"
#include "src/cuda/plan.h"
#include "src/cuda/request_rows.h"
#include "src/cuda/step_calls.h"
#include "src/selective/reformer.h"
#include "src/selective/request.h"
#include "src/selective/selective_problem.h"
#include "src/selective/sorter.h"

namespace heed::cuda {
namespace {

// Reformer. Rounds are disjoint and merge to the softmax over what any of them brings together, so
// that one call of attention over that does.

// The buckets of all tokens in all rounds.
HashParams HashTokens(ComposedSteps& steps, const ReformerOptions& o, const AttentionProblem& p,
                      const TensorView<const float>& q) {
  HashParams hash{};
  hash.q = RowsOf(q);
  if (o.hash_buckets > 1) {
    const Extents shape = {1, o.hash_rounds, p.head_dim, o.hash_buckets / 2};
    const bool given = o.rotations.has_value();
    hash.rotations = NumbersOf(given ? o.rotations : DrawNormals(steps, o.seed, shape));
    hash.columns = Narrow(o.hash_buckets / 2);
  }
  hash.buckets = steps.AllocateArray<int32_t>({o.hash_rounds, p.batch, p.num_heads, p.q_len});
  hash.rounds = Narrow(o.hash_rounds);
  SetHeads({p.batch, p.num_heads}, hash);
  hash.len = Narrow(p.q_len);
  hash.width = Narrow(p.head_dim);
  steps.Run(hash);
  return hash;
}

// Where tokens stand among those of their buckets.
const HashPlaceOnDevice* PlaceTokens(ComposedSteps& steps, const ReformerOptions& o,
                                     const AttentionProblem& p, const HashParams& hash) {
  HashPlaceParams place{};
  place.buckets = hash.buckets;
  place.lengths = SendRules(steps, p).lengths;
  place.places =
      steps.AllocateArray<HashPlaceOnDevice>({o.hash_rounds, p.batch, p.num_heads, p.q_len});
  place.rounds = hash.rounds;
  SetHeads({p.batch, p.num_heads}, place);
  place.len = hash.len;
  place.chunk = Narrow(o.hash_chunk);
  steps.Run(place);
  return place.places;
}

// Which pairs hashing brings together.
SeenRules HashedPairs(ComposedSteps& steps, const ReformerOptions& o, const AttentionProblem& p,
                      const TensorView<const float>& q) {
  const HashParams hash = HashTokens(steps, o, p, q);
  HashKeepParams params{};
  params.places = PlaceTokens(steps, o, p, hash);
  // A round brings a token together with those of its chunk and the one before.
  const int64_t most = o.hash_rounds * 2 * std::min(o.hash_chunk, p.q_len);
  params.kept = NewKeptRows(steps, {p.batch, p.num_heads, p.q_len, p.q_len}, p.num_heads, most);
  params.causal = o.causal;
  params.rounds = hash.rounds;
  SetHeads({p.batch, p.num_heads}, params);
  params.len = hash.len;
  steps.Run(params);
  return params.kept.seen();
}

void RunReformerRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                    ComposedSteps& steps) {
  const ReformerRequest r = ReadReformer(reader);
  const ReformerOptions o = ValidateReformer(r.q, r.v, r.options);
  const AttentionOptions inner = InnerOptions(o);
  const AttentionProblem p = ValidateInputsForDevice(
      StoredTensor(r.q), StoredTensor(KeyShape(r.q, r.v)), StoredTensor(r.v), inner, false);
  const TensorView<float> keys = steps.Allocate(r.q.shape);
  NormParams unit{};
  unit.kind = NormKind::kUnit;
  Normalise(steps, unit, r.q, keys);
  const SeenRules seen = HashedPairs(steps, o, p, r.q);
  AttentionOutputs out;
  out.output = OutputView(outputs, "output");
  if (reader.Flag("return_lse")) out.lse = OutputView(outputs, "lse");
  if (reader.Flag("return_weights")) out.weights = OutputView(outputs, "weights");
  steps.Attend(r.q, keys, Repeated(steps, r.v, p.num_heads), inner, out, seen);
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
    const int64_t size = BlockTokens(o_, p_.q_len);
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
    steps_.Attend(queries, Sorted(r_.k), Sorted(r_.v), inner, {.output = within}, SeenRows());
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
    params.temperature = o_.sort_temperature;
    params.iterations = o_.sort_iterations;
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

  SeenRules SeenRows() {
    const int64_t heads = p_.num_heads * rules_.blocks, columns = 2 * int64_t{rules_.size};
    const KeptRows kept =
        NewKeptRows(steps_, {p_.batch, heads, rules_.size, columns}, heads, CeilDiv(columns, 64));
    steps_.Run(SortKeepParams{rules_, kept});
    return kept.seen();
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

constexpr DeviceRow kRows[] = {{"reformer", PlanReformer, RunReformerRow},
                               {"sinkhorn", PlanSinkhorn, RunSinkhornRow}};

}  // namespace

std::span<const DeviceRow> SortingRows() { return kRows; }

}  // namespace heed::cuda
