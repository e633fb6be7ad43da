// Reformer: rounds of hashing, each one call of the exact loop over tokens sorted by bucket. A pair
// of tokens counts in the first round that brings it together, so that rounds are disjoint and
// merge by lse.
#include "src/selective/reformer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "heed/merge.h"
#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/exact/attention_spans.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/selective/selective_problem.h"
#include "src/split_mix.h"
#include "src/view_checks.h"

namespace heed {
namespace {

constexpr int64_t kMaxRounds = 1024, kMaxBuckets = int64_t{1} << 20;
constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// One round's rotations, as vectors.
void FillRotations(const ReformerOptions& o, int64_t round, SplitMix64& generator,
                   const DotPanels& rotations) {
  for (int64_t d = 0; d < rotations.dim(); ++d) {
    for (int64_t n = 0; n < rotations.count(); ++n) {
      const bool given = o.rotations.has_value();
      rotations.at(n, d) = given ? o.rotations(0, round, d, n) : generator.Normal();
    }
  }
  rotations.FillGap();
}

}  // namespace

Hashing HashAll(const ReformerOptions& o, const AttentionProblem& p,
                const TensorView<const float>& q, ThreadPool& pool) {
  Hashing hashing = {{p.batch, p.num_heads, p.q_len, 1}, o.causal, {}};
  // A dry run hashes nothing: there one bucket holds all tokens.
  const bool dry = DryRun::Current() != nullptr;
  const HashRule rule = {dry ? 1 : o.hash_buckets, o.hash_chunk};
  const DotPanels rotations(o.hash_buckets / 2, p.head_dim);
  std::vector<HashScratch> scratch;
  for (int w = 0; w < pool.NumThreads(); ++w) scratch.emplace_back(rule, p.q_len);
  SplitMix64 generator(o.seed);
  const size_t count = hashing.HeadStart(p.batch, 0);
  const auto hash_head = [&](HashRound& round, int64_t index, HashScratch& memory) {
    const int64_t b = index / p.num_heads, h = index % p.num_heads;
    TensorView<const float> head = q;
    head.data += b * q.strides[0] + h * q.strides[1];
    const size_t start = hashing.HeadStart(b, h);
    HashHead(head, p.KeyLength(b, 0), rotations, rule, memory, round.places.data() + start,
             round.tokens.data() + start);
  };
  for (int64_t n = 0; n < o.hash_rounds; ++n) {
    hashing.rounds.push_back({ScratchVector<HashPlace>(count), ScratchVector<int32_t>(count, -1)});
    HashRound& round = hashing.rounds.back();
    if (!dry) FillRotations(o, n, generator, rotations);
    pool.Run(p.batch * p.num_heads, [&](int64_t task, int worker) {
      hash_head(round, task, scratch[static_cast<size_t>(worker)]);
    });
    if (!dry) continue;
    for (int64_t task = 0; task < p.batch * p.num_heads; ++task) hash_head(round, task, scratch[0]);
    const double products = static_cast<double>(o.hash_buckets) * static_cast<double>(p.head_dim);
    DryRun::Current()->AddFlops(products * static_cast<double>(count));
  }
  return hashing;
}

double CopyUnit(const float* from, int64_t width, float* to) {
  double squares = 0;
  for (int64_t d = 0; d < width; ++d) squares += static_cast<double>(from[d]) * from[d];
  const double length = std::sqrt(squares);
  for (int64_t d = 0; d < width; ++d)
    to[d] = length == 0 ? 0 : static_cast<float>(from[d] / length);
  return length;
}

TensorView<const float> KeyShape(TensorView<const float> q, const TensorView<const float>& v) {
  q.shape[1] = v.shape[1];
  return q;
}

AttentionOptions InnerOptions(const ReformerOptions& o) {
  AttentionOptions inner;
  inner.scale = o.scale;
  inner.key_lengths = o.key_lengths;
  return inner;
}

namespace {

class Reformer {
 public:
  Reformer(const ReformerOptions& options, const AttentionProblem& p,
           const TensorView<const float>& q, const TensorView<const float>& v,
           const AttentionOutputs& outputs, ThreadPool& pool)
      : o_(options), p_(p), q_(q), v_(v), pool_(pool), hashing_(HashAll(options, p, q, pool)) {
    const Extents rows = {p.batch, p.num_heads, p.q_len, p.head_dim};
    const Extents out = {p.batch, p.num_heads, p.q_len, p.head_dim_v};
    const Extents lse = {p.batch, p.num_heads, p.q_len, 1};
    sorted_q_ = OwnedTensor(rows);
    sorted_k_ = OwnedTensor(rows);
    sorted_v_ = OwnedTensor(out);
    sorted_output_ = OwnedTensor(out);
    sorted_lse_ = OwnedTensor(lse);
    round_output_ = OwnedTensor(out);
    round_lse_ = OwnedTensor(lse);
    all_ = outputs;
    own_lse_ = outputs.lse.has_value() ? OwnedTensor() : OwnedTensor(lse);
    if (!all_.lse.has_value()) all_.lse = own_lse_.view();
    if (all_.weights.has_value()) sorted_weights_ = OwnedTensor(all_.weights.shape);
    inner_ = InnerOptions(options);
  }

  void Run() {
    if (DryRun* const dry = DryRun::Current()) {
      // What the last round knows of the earlier ones.
      const size_t earlier = static_cast<size_t>(o_.hash_rounds) - 1;
      const ScratchVector<int32_t> places(earlier * hashing_.HeadStart(p_.batch, 0));
      return dry->Repeat(o_.hash_rounds, [&] { Attend(0); });
    }
    for (size_t round = 0; round < hashing_.rounds.size(); ++round) {
      Attend(round);
      Join(round);
    }
    SeeThemselves();
  }

 private:
  // The tokens of a round in its order; those that do not exist are zeros behind all others.
  void Gather(size_t round) {
    ForEachRow(sorted_q_.view().shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
      float* const to_q = RowOf(sorted_q_.view(), b, h, i);
      float* const to_v = RowOf(sorted_v_.view(), b, h, i);
      if (i >= p_.KeyLength(b, 0)) {
        std::fill_n(to_q, p_.head_dim, 0.0f);
        return;
      }
      const int64_t token = hashing_.Token(round, b, h, i);
      std::copy_n(RowOf(q_, b, h, token), p_.head_dim, to_q);
      CopyUnit(to_q, p_.head_dim, RowOf(sorted_k_.view(), b, h, i));
      std::copy_n(RowOf(v_, b, h / p_.group, token), p_.head_dim_v, to_v);
    });
  }

  void Attend(size_t round) {
    Gather(round);
    AttentionOutputs outputs;
    outputs.output = sorted_output_.view();
    outputs.lse = sorted_lse_.view();
    outputs.weights = sorted_weights_.view();
    AttentionProblem p =
        ValidateComposed(sorted_q_.view(), sorted_k_.view(), sorted_v_.view(), inner_, outputs);
    p.chosen = std::make_shared<BucketKeep>(hashing_, round);
    RunProblem(p, &pool_);
  }

  // Brings a round's results back into the order of the tokens and joins them to those before.
  void Join(size_t round) {
    const bool first = round == 0;
    const TensorView<float> output = first ? all_.output : round_output_.view();
    const TensorView<float> lse = first ? all_.lse : round_lse_.view();
    ForEachRow(lse.shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
      const bool exists = i < p_.KeyLength(b, 0);
      const int64_t token = exists ? hashing_.Token(round, b, h, i) : i;
      std::copy_n(RowOf(sorted_output_.view(), b, h, i), p_.head_dim_v, RowOf(output, b, h, token));
      lse(b, h, token, 0) = sorted_lse_.view()(b, h, i, 0);
      if (all_.weights.has_value()) JoinWeights(round, b, h, i, token);
    });
    if (first) return;
    const PartialAttention states[] = {{all_.output, all_.lse}, {output, lse}};
    Merge(states, all_.output, all_.lse, &pool_);
  }

  void JoinWeights(size_t round, int64_t b, int64_t h, int64_t place, int64_t token) {
    float* const to = RowOf(all_.weights, b, h, token);
    if (round == 0) std::fill_n(to, p_.kv_len, 0.0f);
    const double before = round == 0 ? kMinusInf : all_.lse(b, h, token, 0);
    const double now = sorted_lse_.view()(b, h, place, 0);
    if (now == kMinusInf) return;
    const double both = std::max(before, now) + std::log1p(std::exp(-std::abs(before - now)));
    const double old_share = std::exp(before - both), share = std::exp(now - both);
    for (int64_t j = 0; j < p_.kv_len; ++j) to[j] = static_cast<float>(to[j] * old_share);
    const float* const from = RowOf(sorted_weights_.view(), b, h, place);
    const HashPlace& seen = hashing_.Place(round, b, h, token);
    for (int64_t j = seen.begin; j < seen.end; ++j) {
      to[hashing_.Token(round, b, h, j)] += static_cast<float>(from[j] * share);
    }
  }

  // Tokens that see nothing else.
  void SeeThemselves() {
    ForEachRow(all_.lse.shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
      if (i >= p_.KeyLength(b, 0) || all_.lse(b, h, i, 0) != kMinusInf) return;
      std::copy_n(RowOf(v_, b, h / p_.group, i), p_.head_dim_v, RowOf(all_.output, b, h, i));
      float* const unit = RowOf(sorted_k_.view(), b, h, i);
      const double length = CopyUnit(RowOf(q_, b, h, i), p_.head_dim, unit);
      all_.lse(b, h, i, 0) = static_cast<float>(static_cast<double>(p_.scale) * length);
      if (all_.weights.has_value()) all_.weights(b, h, i, i) = 1;
    });
  }

  const ReformerOptions& o_;
  const AttentionProblem& p_;
  const TensorView<const float>&q_, &v_;
  ThreadPool& pool_;
  Hashing hashing_;
  AttentionOptions inner_;
  AttentionOutputs all_;
  OwnedTensor sorted_q_, sorted_k_, sorted_v_, sorted_output_, sorted_lse_, sorted_weights_;
  OwnedTensor round_output_, round_lse_, own_lse_;
};

void CheckRotations(const ReformerOptions& o, int64_t head_dim) {
  CheckInput("rotations", o.rotations);
  const Extents shape = {1, o.hash_rounds, head_dim, o.hash_buckets / 2};
  CheckShape("rotations", o.rotations.shape, shape, "[1, hash_rounds, head_dim, hash_buckets / 2]");
}

}  // namespace

ReformerOptions ValidateReformer(const TensorView<const float>& q, const TensorView<const float>& v,
                                 const ReformerOptions& options) {
  ReformerOptions o = options;
  CheckCount("hash_rounds", o.hash_rounds, kMaxRounds);
  CheckCount("hash_chunk", o.hash_chunk, int64_t{1} << 30);
  const int64_t chunks = (q.shape[2] + o.hash_chunk - 1) / o.hash_chunk;
  if (o.hash_buckets == 0) {
    o.hash_buckets = chunks <= 1 ? 1 : std::min(kMaxBuckets, (chunks + 1) / 2 * 2);
  }
  CheckCount("hash_buckets", o.hash_buckets, kMaxBuckets);
  if (o.hash_buckets > 1 && o.hash_buckets % 2 != 0) {
    Fail(ErrorCode::kRange,
         "hash_buckets = {}; it must be 1 or even: each rotation has two opposite buckets",
         {o.hash_buckets});
  }
  if (q.shape[2] > std::numeric_limits<int32_t>::max()) {
    Fail(ErrorCode::kShape, "q has {} tokens; hashing counts them in 32 bits", {q.shape[2]});
  }
  if (o.rotations.has_value()) CheckRotations(o, q.shape[3]);
  CheckLengthsOfBatch(o.key_lengths, q.shape[0]);
  ValidateAttentionInputs(StoredTensor(q), StoredTensor(KeyShape(q, v)), StoredTensor(v),
                          InnerOptions(o), false);
  return o;
}

void ReformerAttention(TensorView<const float> q, TensorView<const float> v,
                       const ReformerOptions& options, const AttentionOutputs& outputs,
                       ThreadPool* pool) {
  WithMemoryErrors("Reformer attention", [&] {
    const ReformerOptions o = ValidateReformer(q, v, options);
    if (outputs.scores.has_value()) {
      Fail(ErrorCode::kUnsupported, "scores: pairs that hashing never brings together have none");
    }
    RefuseTiles(outputs, "a merge of rounds");
    const AttentionProblem p = ValidateComposed(q, KeyShape(q, v), v, InnerOptions(o), outputs);
    SpansOf(outputs).ApartFrom("rotations", options.rotations);
    Reformer(o, p, q, v, outputs, PoolOrDefault(pool)).Run();
  });
}

}  // namespace heed
