// Gradients of routing attention: those of attention within the clusters, added up over the
// clusters that took a token. Centroids only steer, and get none.
#include <algorithm>
#include <memory>

#include "src/compose/rows.h"
#include "src/gradient/request.h"
#include "src/selective/backward_attention.h"
#include "src/selective/backward_request.h"
#include "src/selective/request.h"
#include "src/selective/router.h"
#include "src/selective/selective_problem.h"

namespace heed {
namespace {

struct RoutingGradients {
  TensorView<float> d_q, d_k, d_v;  // absent: not computed
};

class RoutingBackward {
 public:
  // Attends within all clusters once more.
  RoutingBackward(const RoutingRequest& r, const AttentionProblem& p, ThreadPool& pool)
      : p_(p), pool_(pool), router_(r.options, p, pool) {
    router_.Choose(r.q, r.k);
    const int64_t heads = p.num_heads * router_.clusters();
    const int64_t rows = router_.queries().count, keys = router_.keys().count;
    q_ = OwnedTensor({p.batch, heads, rows, p.head_dim});
    k_ = OwnedTensor({p.batch, heads, keys, p.head_dim});
    v_ = OwnedTensor({p.batch, heads, keys, p.head_dim_v});
    router_.GatherQueries(r.q, q_.view());
    router_.GatherKeys(r.k, k_.view());
    router_.GatherKeys(r.v, v_.view());
    ranges_ = std::make_shared<RangeKeep>(p.batch, heads, rows, keys);
    router_.SetRanges(*ranges_);
    AttentionOptions inner;
    inner.scale = r.options.scale;
    within_ =
        std::make_unique<ChosenAttention>(q_.view(), k_.view(), v_.view(), inner, ranges_, pool);
  }

  void Run(const TensorView<const float>& d_out, const RoutingGradients& to) const {
    const OwnedTensor own_d_out(within_->out().shape);
    pool_.Run(p_.batch * p_.num_heads, [&](int64_t unit, int) {
      ShareOut(unit / p_.num_heads, unit % p_.num_heads, d_out, own_d_out.view());
    });
    const OwnedTensor d_q = Wanted(to.d_q, q_), d_k = Wanted(to.d_k, k_), d_v = Wanted(to.d_v, v_);
    within_->Backward(own_d_out.view(), {.d_q = d_q.view(), .d_k = d_k.view(), .d_v = d_v.view()});
    if (to.d_q.has_value()) AddQueries(d_q.view(), to.d_q);
    if (to.d_k.has_value()) AddKeys(d_k.view(), to.d_k);
    if (to.d_v.has_value()) AddKeys(d_v.view(), to.d_v);
  }

 private:
  static OwnedTensor Wanted(const TensorView<float>& gradient, const OwnedTensor& gathered) {
    return gradient.has_value() ? OwnedTensor(gathered.view().shape) : OwnedTensor();
  }

  // What arrives at a query, to its rows in the clusters that show it a key.
  void ShareOut(int64_t b, int64_t h, const TensorView<const float>& d_out,
                const TensorView<float>& to) const {
    for (int64_t c = 0; c < router_.clusters(); ++c) {
      for (int64_t i = 0; i < to.shape[2]; ++i) {
        std::fill_n(RowOf(to, b, h * router_.clusters() + c, i), to.shape[3], 0.0f);
      }
    }
    router_.ForEachSeeing(b, h, *ranges_, [&](int64_t c, int64_t i, int64_t, int64_t token) {
      const float share = router_.Share(b, h, token);
      const float* const from = RowOf(d_out, b, h, token);
      float* const row = RowOf(to, b, h * router_.clusters() + c, i);
      for (int64_t d = 0; d < to.shape[3]; ++d) row[d] = share * from[d];
    });
  }

  void AddQueries(const TensorView<float>& from, const TensorView<float>& to) const {
    Clear(to);
    pool_.Run(p_.batch * p_.num_heads, [&](int64_t unit, int) {
      const int64_t b = unit / p_.num_heads, h = unit % p_.num_heads;
      router_.ForEachSeeing(b, h, *ranges_, [&](int64_t c, int64_t i, int64_t, int64_t token) {
        AddRow(from, b, h * router_.clusters() + c, i, RowOf(to, b, h, token));
      });
    });
  }

  // Of all query heads that share a KV head, in ascending order.
  void AddKeys(const TensorView<float>& from, const TensorView<float>& to) const {
    Clear(to);
    pool_.Run(p_.batch * p_.num_kv_heads, [&](int64_t unit, int) {
      const int64_t b = unit / p_.num_kv_heads, kv_head = unit % p_.num_kv_heads;
      for (int64_t head = kv_head * p_.group * router_.clusters();
           head < (kv_head + 1) * p_.group * router_.clusters(); ++head) {
        const int64_t h = head / router_.clusters(), c = head % router_.clusters();
        const int32_t* const tokens = router_.keys().Of(b * p_.num_heads + h, c);
        for (int64_t j = 0; j < router_.NumKeys(b); ++j) {
          AddRow(from, b, head, j, RowOf(to, b, kv_head, tokens[j]));
        }
      }
    });
  }

  void Clear(const TensorView<float>& to) const {
    ForEachRow(to.shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
      std::fill_n(RowOf(to, b, h, i), to.shape[3], 0.0f);
    });
  }
  static void AddRow(const TensorView<float>& from, int64_t b, int64_t head, int64_t i, float* to) {
    const float* const row = RowOf(from, b, head, i);
    for (int64_t d = 0; d < from.shape[3]; ++d) to[d] += row[d];
  }

  const AttentionProblem& p_;
  ThreadPool& pool_;
  Router router_;
  OwnedTensor q_, k_, v_;
  std::shared_ptr<RangeKeep> ranges_;
  std::unique_ptr<ChosenAttention> within_;
};

RoutingRequest ReadValid(const Request& request) {
  RoutingRequest r = ReadRouting(DifferentiableReader(request));
  r.options = ValidateRouting(r.q, r.k, r.v, r.options);
  return r;
}

BackwardPlan PlanRoutingBackward(const Request& request) {
  const RoutingRequest r = ReadValid(request);
  return PlanOfRow(request, r.q.shape, r.v.shape[3], {"q", "k", "v"});
}

void RunRoutingForward(const Request& request, std::span<const NamedTensor> results,
                       ThreadPool* pool) {
  const RoutingRequest r = ReadRouting(DifferentiableReader(request));
  AttentionOutputs outputs;
  outputs.output = LeadingViewOf(FindTensor(results, "output"));
  RoutingAttention(r.q, r.k, r.v, r.options, outputs, pool);
}

void RunRoutingBackward(const Request& request, std::span<const NamedTensor>,
                        std::span<const NamedTensor> d_results,
                        std::span<const NamedTensor> gradients, ThreadPool* pool) {
  CheckAreFloats(d_results, gradients);
  CheckAreRows(gradients);
  const RoutingRequest r = ReadValid(request);
  const AttentionProblem p = ValidateAttentionInputs(
      StoredTensor(r.q), StoredTensor(r.k), StoredTensor(r.v), AttentionOf(r.options), false);
  const RoutingGradients to = {LeadingViewOf(FindTensor(gradients, "q")),
                               LeadingViewOf(FindTensor(gradients, "k")),
                               LeadingViewOf(FindTensor(gradients, "v"))};
  RoutingBackward(r, p, PoolOrDefault(pool))
      .Run(LeadingViewOf(FindTensor(d_results, "output")), to);
}

}  // namespace

const GradientVerbs kRoutingGradient = {PlanRoutingBackward, RunRoutingForward, RunRoutingBackward};

}  // namespace heed
