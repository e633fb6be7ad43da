// Routing attention: clusters gather the queries and keys nearest to their centroids, each cluster
// attends within itself, and a query averages what its clusters give.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/exact/attention_spans.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/selective/choose.h"
#include "src/selective/dots.h"
#include "src/selective/router.h"
#include "src/selective/selective_problem.h"
#include "src/split_mix.h"
#include "src/view_checks.h"

namespace heed {
namespace {

constexpr int64_t kMaxClusters = int64_t{1} << 20;

struct RoutingScratch {
  RoutingScratch(int64_t len, int64_t dim)
      : panels(len, dim),
        stride(RoundUp(static_cast<size_t>(len), static_cast<size_t>(DotPanels::kPanel))),
        scores(kDotRows * stride),
        lengths(static_cast<size_t>(len)),
        order(static_cast<size_t>(len)) {}
  DotPanels panels;
  size_t stride;
  ScratchVector<double> scores, lengths;
  ScratchVector<int32_t> order;
};

// Chooses the tokens of one head, the first `len` of x, for every cluster: those with the largest
// product of centroid and direction.
void ChooseMembers(const float* x, int64_t row_stride, int64_t len, const float* centroids,
                   int64_t count, RoutingScratch& s, int32_t* members, Members& all) {
  const int64_t dim = s.panels.dim();
  for (int64_t t = 0; t < len; ++t) {
    double squares = 0;
    for (int64_t d = 0; d < dim; ++d) {
      const float value = x[t * row_stride + d];
      s.panels.at(t, d) = value;
      squares += static_cast<double>(value) * value;
    }
    s.lengths[static_cast<size_t>(t)] = std::sqrt(squares);
  }
  s.panels.FillGap();
  for (int64_t first = 0; first < all.clusters; first += static_cast<int64_t>(kDotRows)) {
    const float* rows[kDotRows] = {};
    const size_t num_rows = std::min(kDotRows, static_cast<size_t>(all.clusters - first));
    for (size_t r = 0; r < num_rows; ++r) {
      rows[r] = centroids + (first + static_cast<int64_t>(r)) * dim;
    }
    ExactDots(rows, num_rows, s.panels, len, s.scores.data(), s.stride);
    for (size_t r = 0; r < num_rows; ++r) {
      double* const scores = s.scores.data() + r * s.stride;
      for (int64_t t = 0; t < len; ++t) {
        const double length = s.lengths[static_cast<size_t>(t)];
        scores[t] = Comparable(length == 0 ? 0 : scores[t] / length);
      }
      const size_t size = static_cast<size_t>(len);
      ChooseBest({scores, size}, {s.order.data(), size},
                 {members + (first + static_cast<int64_t>(r)) * all.count,
                  static_cast<size_t>(std::min(count, len))});
    }
  }
}

}  // namespace

Router::Router(const RoutingOptions& o, const AttentionProblem& p, ThreadPool& pool)
    : o_(o), p_(p), pool_(pool), clusters_(o.num_clusters) {
  const int64_t count = p.batch * p.num_heads * clusters_;
  queries_ = {clusters_, std::min(o.cluster_tokens, p.q_len), {}};
  keys_ = {clusters_, std::min(o.cluster_tokens, p.kv_len), {}};
  queries_.tokens.resize(static_cast<size_t>(count * queries_.count));
  keys_.tokens.resize(static_cast<size_t>(count * keys_.count));
  counts_.resize(static_cast<size_t>(p.batch * p.num_heads * p.q_len));
  const size_t numbers = static_cast<size_t>(p.num_heads * clusters_ * p.head_dim);
  centroids_ = AlignedFloats(numbers);
  SplitMix64 generator(o.seed);
  if (DryRun::Current() != nullptr) return;
  for (size_t n = 0; n < numbers; ++n) {
    const int64_t at = static_cast<int64_t>(n), dim = p.head_dim;
    centroids_.get()[n] = o.centroids.has_value()
                              ? o.centroids(0, at / dim / clusters_, at / dim % clusters_, at % dim)
                              : generator.Normal();
  }
}

void Router::Choose(const TensorView<const float>& q, const TensorView<const float>& k) {
  std::vector<std::unique_ptr<RoutingScratch>> scratch;
  for (int w = 0; w < pool_.NumThreads(); ++w) {
    scratch.push_back(std::make_unique<RoutingScratch>(std::max(p_.q_len, p_.kv_len), p_.head_dim));
  }
  pool_.Run(2 * p_.batch * p_.num_heads, [&](int64_t task, int worker) {
    RoutingScratch& s = *scratch[static_cast<size_t>(worker)];
    const int64_t unit = task / 2, b = unit / p_.num_heads, h = unit % p_.num_heads;
    const float* centroids = centroids_.get() + h * clusters_ * p_.head_dim;
    const bool keys = task % 2 != 0;
    const TensorView<const float>& x = keys ? k : q;
    const float* head = x.data + b * x.strides[0] + (keys ? h / p_.group : h) * x.strides[1];
    Members& members = keys ? keys_ : queries_;
    ChooseMembers(head, x.strides[2], keys ? p_.KeyLength(b, 0) : p_.q_len, centroids,
                  members.count, s, members.Of(unit, 0), members);
  });
  if (DryRun* const dry = DryRun::Current()) {
    dry->AddFlops(2 * static_cast<double>(p_.batch * p_.num_heads * clusters_ * p_.head_dim) *
                  static_cast<double>(p_.q_len + p_.kv_len));
  }
}

void Router::GatherQueries(const TensorView<const float>& x, const TensorView<float>& to) const {
  ForEachRow(to.shape, pool_, [&](int64_t b, int64_t head, int64_t i) {
    const int64_t h = head / clusters_;
    const int64_t token = queries_.Of(b * p_.num_heads + h, head % clusters_)[i];
    std::copy_n(RowOf(x, b, h, token), to.shape[3], RowOf(to, b, head, i));
  });
}

void Router::GatherKeys(const TensorView<const float>& x, const TensorView<float>& to) const {
  ForEachRow(to.shape, pool_, [&](int64_t b, int64_t head, int64_t i) {
    if (i >= NumKeys(b)) {
      std::fill_n(RowOf(to, b, head, i), to.shape[3], 0.0f);
      return;
    }
    const int64_t h = head / clusters_;
    const int64_t token = keys_.Of(b * p_.num_heads + h, head % clusters_)[i];
    std::copy_n(RowOf(x, b, h / p_.group, token), to.shape[3], RowOf(to, b, head, i));
  });
}

// A cluster's keys ascend, so that those up to a position come first.
void Router::SetRanges(RangeKeep& ranges) {
  const Extents rows = {p_.batch, p_.num_heads * clusters_, queries_.count, 1};
  ForEachRow(rows, pool_, [&](int64_t b, int64_t head, int64_t i) {
    const int64_t unit = b * p_.num_heads + head / clusters_, c = head % clusters_;
    const int32_t* const keys = keys_.Of(unit, c);
    const int32_t* end = keys + NumKeys(b);
    if (o_.causal) {
      end = std::upper_bound(keys, end, p_.Position(b, queries_.Of(unit, c)[i]));
    }
    ranges.at(b, head, i) = {0, end - keys};
  });
  pool_.Run(p_.batch * p_.num_heads, [&](int64_t unit, int) {
    int32_t* const counts = counts_.data() + unit * p_.q_len;
    ForEachSeeing(unit / p_.num_heads, unit % p_.num_heads, ranges,
                  [&](int64_t, int64_t, int64_t, int64_t token) { ++counts[token]; });
  });
}

namespace {

// The mean of what the clusters of a head give.
void Average(const Router& router, int64_t b, int64_t h, int64_t unit, const RangeKeep& ranges,
             const AttentionOutputs& within, const AttentionOutputs& outputs) {
  const Extents& shape = outputs.output.shape;
  const bool wants_weights = outputs.weights.has_value();
  for (int64_t i = 0; i < shape[2]; ++i) {
    std::fill_n(RowOf(outputs.output, b, h, i), shape[3], 0.0f);
    if (wants_weights) std::fill_n(RowOf(outputs.weights, b, h, i), outputs.weights.shape[3], 0.0f);
  }
  router.ForEachSeeing(b, h, ranges, [&](int64_t c, int64_t i, int64_t seen, int64_t token) {
    const float share = router.Share(b, h, token);
    const int64_t head = h * router.clusters() + c;
    float* const output = RowOf(outputs.output, b, h, token);
    const float* const from = RowOf(within.output, b, head, i);
    for (int64_t d = 0; d < shape[3]; ++d) output[d] += share * from[d];
    if (!wants_weights) return;
    for (int64_t j = 0; j < seen; ++j) {
      outputs.weights(b, h, token, router.keys().Of(unit, c)[j]) +=
          share * within.weights(b, head, i, j);
    }
  });
}

// Attends within all clusters and writes the means.
void AttendWithin(Router& router, const RoutingOptions& o, const AttentionProblem& p,
                  const TensorView<const float>& q, const TensorView<const float>& k,
                  const TensorView<const float>& v, const AttentionOutputs& outputs,
                  ThreadPool& pool) {
  const int64_t heads = p.num_heads * router.clusters();
  const int64_t rows = router.queries().count, keys = router.keys().count;
  const OwnedTensor own_q({p.batch, heads, rows, p.head_dim});
  const OwnedTensor own_k({p.batch, heads, keys, p.head_dim});
  const OwnedTensor own_v({p.batch, heads, keys, p.head_dim_v});
  const OwnedTensor own_output({p.batch, heads, rows, p.head_dim_v});
  const OwnedTensor own_weights =
      outputs.weights.has_value() ? OwnedTensor({p.batch, heads, rows, keys}) : OwnedTensor();
  router.GatherQueries(q, own_q.view());
  router.GatherKeys(k, own_k.view());
  router.GatherKeys(v, own_v.view());
  auto ranges = std::make_shared<RangeKeep>(p.batch, heads, rows, keys);
  router.SetRanges(*ranges);
  AttentionOptions inner;
  inner.scale = o.scale;
  AttentionOutputs within;
  within.output = own_output.view();
  within.weights = own_weights.view();
  AttentionProblem inside =
      ValidateComposed(own_q.view(), own_k.view(), own_v.view(), inner, within);
  inside.chosen = ranges;
  RunProblem(inside, &pool);
  pool.Run(p.batch * p.num_heads, [&](int64_t unit, int) {
    Average(router, unit / p.num_heads, unit % p.num_heads, unit, *ranges, within, outputs);
  });
}

}  // namespace

AttentionOptions AttentionOf(const RoutingOptions& o) {
  AttentionOptions attention;
  attention.scale = o.scale;
  attention.causal = o.causal;
  attention.query_offset = o.query_offset;
  attention.key_lengths = o.key_lengths;
  return attention;
}

RoutingOptions ValidateRouting(const TensorView<const float>& q, const TensorView<const float>& k,
                               const TensorView<const float>& v, const RoutingOptions& options) {
  RoutingOptions o = options;
  CheckCount("num_clusters", o.num_clusters, kMaxClusters);
  if (o.cluster_tokens == 0) {
    o.cluster_tokens = std::max<int64_t>(1, (k.shape[2] + o.num_clusters - 1) / o.num_clusters);
  }
  CheckCount("cluster_tokens", o.cluster_tokens);
  CheckLengthsOfBatch(o.key_lengths, q.shape[0]);
  ValidateAttentionInputs(StoredTensor(q), StoredTensor(k), StoredTensor(v), AttentionOf(o), false);
  if (q.shape[2] > kMaxTokens || k.shape[2] > kMaxTokens) {
    Fail(ErrorCode::kShape, "q_len or kv_len is above {}: tokens are counted in 32 bits",
         {kMaxTokens});
  }
  if (o.centroids.has_value()) {
    CheckInput("centroids", o.centroids);
    CheckShape("centroids", o.centroids.shape, {1, q.shape[1], o.num_clusters, q.shape[3]},
               "[1, num_heads, num_clusters, head_dim]");
  }
  return o;
}

void RoutingAttention(TensorView<const float> q, TensorView<const float> k,
                      TensorView<const float> v, const RoutingOptions& options,
                      const AttentionOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("routing attention", [&] {
    const RoutingOptions o = ValidateRouting(q, k, v, options);
    if (outputs.scores.has_value() || outputs.lse.has_value()) {
      Fail(ErrorCode::kUnsupported,
           "lse and scores: a query averages the softmaxes of its clusters; ask for weights");
    }
    RefuseTiles(outputs, "a mean of clusters");
    const AttentionProblem p = ValidateComposed(q, k, v, AttentionOf(o), outputs);
    SpansOf(outputs).ApartFrom("centroids", options.centroids);
    Router router(o, p, PoolOrDefault(pool));
    router.Choose(q, k);
    AttendWithin(router, o, p, q, k, v, outputs, PoolOrDefault(pool));
  });
}

}  // namespace heed
