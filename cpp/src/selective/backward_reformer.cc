// Gradients of Reformer: rounds see disjoint keys, so that each is attention with the lse of all of
// them, and its gradients are added. Queries are keys as well.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "src/compose/rows.h"
#include "src/gradient/problem.h"
#include "src/gradient/request.h"
#include "src/selective/backward_request.h"
#include "src/selective/reformer.h"
#include "src/selective/request.h"
#include "src/selective/selective_problem.h"

namespace heed {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// What forward gave, and what arrives at it.
struct ReformerResults {
  TensorView<float> out, lse, d_out, d_lse;  // d_lse may be absent
};

class ReformerBackward {
 public:
  ReformerBackward(const ReformerRequest& r, const AttentionProblem& p,
                   const ReformerResults& results, const TensorView<float>& d_q,
                   const TensorView<float>& d_v, ThreadPool& pool)
      : q_(r.q),
        v_(r.v),
        p_(p),
        results_(results),
        d_q_(d_q),
        d_v_(d_v),
        pool_(pool),
        inner_(InnerOptions(r.options)),
        hashing_(HashAll(r.options, p, r.q, pool)) {
    const Extents rows = {p.batch, p.num_heads, p.q_len, p.head_dim};
    const Extents out = {p.batch, p.num_heads, p.q_len, p.head_dim_v};
    const Extents lse = {p.batch, p.num_heads, p.q_len, 1};
    for (OwnedTensor* tensor : {&sorted_q_, &sorted_k_}) *tensor = OwnedTensor(rows);
    for (OwnedTensor* tensor : {&sorted_v_, &sorted_out_, &sorted_d_out_}) {
      *tensor = OwnedTensor(out);
    }
    sorted_lse_ = OwnedTensor(lse);
    if (results.d_lse.has_value()) sorted_d_lse_ = OwnedTensor(lse);
    if (d_q.has_value()) {
      sorted_d_q_ = OwnedTensor(rows);
      sorted_d_k_ = OwnedTensor(rows);
    }
    if (d_v.has_value()) sorted_d_v_ = OwnedTensor(out);
  }

  void Run() {
    if (DryRun* const dry = DryRun::Current()) {
      const size_t earlier = hashing_.rounds.size() - 1;  // which the last round looks at
      const ScratchVector<int32_t> places(earlier * hashing_.HeadStart(p_.batch, 0));
      return dry->Repeat(static_cast<int64_t>(hashing_.rounds.size()), [&] { RunRound(0); });
    }
    StartWithThemselves();
    for (size_t round = 0; round < hashing_.rounds.size(); ++round) {
      RunRound(round);
      AddRound(round);
    }
  }

 private:
  static void CopyRow(const TensorView<const float>& from, int64_t b, int64_t h, int64_t token,
                      const OwnedTensor& to, int64_t to_head, int64_t place) {
    std::copy_n(RowOf(from, b, h, token), from.shape[3], RowOf(to.view(), b, to_head, place));
  }
  bool Exists(int64_t b, int64_t i) const { return i < p_.KeyLength(b, 0); }

  // Does any round show the token another one? Those of a bucket ascend.
  bool SeesOthers(int64_t b, int64_t h, int64_t token) const {
    for (size_t round = 0; round < hashing_.rounds.size(); ++round) {
      const HashPlace& seen = hashing_.Place(round, b, h, token);
      const bool others = hashing_.causal ? hashing_.Token(round, b, h, seen.begin) < token
                                          : seen.end - seen.begin > 1;
      if (others) return true;
    }
    return false;
  }

  // Tokens that see themselves alone have the lse scale |q| and their own value as output.
  void StartWithThemselves() {
    if (d_q_.has_value()) {
      ForEachRow(d_q_.shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
        float* const to = RowOf(d_q_, b, h, i);
        std::fill_n(to, p_.head_dim, 0.0f);
        if (!Exists(b, i) || !results_.d_lse.has_value() || SeesOthers(b, h, i)) return;
        CopyUnit(RowOf(q_, b, h, i), p_.head_dim, to);
        for (int64_t d = 0; d < p_.head_dim; ++d) to[d] *= p_.scale * results_.d_lse(b, h, i, 0);
      });
    }
    if (!d_v_.has_value()) return;
    ForEachRow(d_v_.shape, pool_, [&](int64_t b, int64_t kv_head, int64_t i) {
      float* const to = RowOf(d_v_, b, kv_head, i);
      std::fill_n(to, p_.head_dim_v, 0.0f);
      for (int64_t h = kv_head * p_.group; h < (kv_head + 1) * p_.group; ++h) {
        if (!Exists(b, i) || SeesOthers(b, h, i)) continue;
        const float* const from = RowOf(results_.d_out, b, h, i);
        for (int64_t d = 0; d < p_.head_dim_v; ++d) to[d] += from[d];
      }
    });
  }

  // The tokens of a round in its order. Places behind them stand for empty rows.
  void Gather(size_t round) {
    ForEachRow(sorted_q_.view().shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
      if (!Exists(b, i)) {
        for (const OwnedTensor* tensor : {&sorted_q_, &sorted_out_, &sorted_d_out_}) {
          std::fill_n(RowOf(tensor->view(), b, h, i), tensor->view().shape[3], 0.0f);
        }
        sorted_lse_.view()(b, h, i, 0) = kMinusInf;
        if (results_.d_lse.has_value()) sorted_d_lse_.view()(b, h, i, 0) = 0;
        return;
      }
      const int64_t token = hashing_.Token(round, b, h, i);
      CopyRow(q_, b, h, token, sorted_q_, h, i);
      CopyUnit(RowOf(q_, b, h, token), p_.head_dim, RowOf(sorted_k_.view(), b, h, i));
      CopyRow(v_, b, h / p_.group, token, sorted_v_, h, i);
      CopyRow(results_.out, b, h, token, sorted_out_, h, i);
      CopyRow(results_.d_out, b, h, token, sorted_d_out_, h, i);
      CopyRow(results_.lse, b, h, token, sorted_lse_, h, i);
      if (results_.d_lse.has_value()) CopyRow(results_.d_lse, b, h, token, sorted_d_lse_, h, i);
    });
  }

  void RunRound(size_t round) {
    Gather(round);
    AttentionGradients to;
    if (results_.d_lse.has_value()) to.d_lse = sorted_d_lse_.view();
    if (d_q_.has_value()) {
      to.d_q = StoredOutput(sorted_d_q_.view());
      to.d_k = StoredOutput(sorted_d_k_.view());
    }
    if (d_v_.has_value()) to.d_v = StoredOutput(sorted_d_v_.view());
    GradientProblem g =
        ValidateGradient(StoredTensor(sorted_q_.view()), StoredTensor(sorted_k_.view()),
                         StoredTensor(sorted_v_.view()), StoredTensor(sorted_out_.view()),
                         sorted_lse_.view(), StoredTensor(sorted_d_out_.view()), inner_, to);
    g.attention.chosen = std::make_shared<BucketKeep>(hashing_, round);
    RunGradientProblem(g, &pool_);
  }

  void AddRound(size_t round) {
    if (d_q_.has_value()) {
      ForEachRow(d_q_.shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
        if (!Exists(b, i)) return;
        const int64_t place = hashing_.Place(round, b, h, i).place;
        const float* const from = RowOf(sorted_d_q_.view(), b, h, place);
        float* const to = RowOf(d_q_, b, h, i);
        for (int64_t d = 0; d < p_.head_dim; ++d) to[d] += from[d];
        AddAsKey(RowOf(sorted_d_k_.view(), b, h, place), RowOf(q_, b, h, i), to);
      });
    }
    if (!d_v_.has_value()) return;
    ForEachRow(d_v_.shape, pool_, [&](int64_t b, int64_t kv_head, int64_t i) {
      float* const to = RowOf(d_v_, b, kv_head, i);
      for (int64_t h = kv_head * p_.group; h < (kv_head + 1) * p_.group && Exists(b, i); ++h) {
        const int64_t place = hashing_.Place(round, b, h, i).place;
        const float* const from = RowOf(sorted_d_v_.view(), b, h, place);
        for (int64_t d = 0; d < p_.head_dim_v; ++d) to[d] += from[d];
      }
    });
  }

  // k = q / |q|: dq += (dk - (dk . k) k) / |q|, 0 for a vector of zeros. A key that nobody saw is
  // not read.
  void AddAsKey(const float* d_k, const float* q, float* to) const {
    if (std::all_of(d_k, d_k + p_.head_dim, [](float x) { return x == 0; })) return;
    double squares = 0, along = 0;
    for (int64_t d = 0; d < p_.head_dim; ++d) {
      squares += static_cast<double>(q[d]) * static_cast<double>(q[d]);
      along += static_cast<double>(q[d]) * static_cast<double>(d_k[d]);
    }
    if (squares == 0) return;
    const double length = std::sqrt(squares);
    for (int64_t d = 0; d < p_.head_dim; ++d) {
      const double across =
          static_cast<double>(d_k[d]) - along / squares * static_cast<double>(q[d]);
      to[d] += static_cast<float>(across / length);
    }
  }

  TensorView<const float> q_, v_;
  const AttentionProblem& p_;
  const ReformerResults& results_;
  const TensorView<float>&d_q_, &d_v_;
  ThreadPool& pool_;
  AttentionOptions inner_;
  Hashing hashing_;
  OwnedTensor sorted_q_, sorted_k_, sorted_v_, sorted_out_, sorted_lse_, sorted_d_out_,
      sorted_d_lse_, sorted_d_q_, sorted_d_k_, sorted_d_v_;
};

ReformerRequest ReadValid(const Request& request) {
  ReformerRequest r = ReadReformer(DifferentiableReader(request));
  r.options = ValidateReformer(r.q, r.v, r.options);
  return r;
}

BackwardPlan PlanReformerBackward(const Request& request) {
  const ReformerRequest r = ReadValid(request);
  const auto& [batch, heads, len, dim] = r.q.shape;
  BackwardPlan plan = PlanOfRow(request, r.q.shape, r.v.shape[3], {"q", "v"});
  plan.results.push_back({"lse", 3, {batch, heads, len, 0}});
  return plan;
}

void RunReformerForward(const Request& request, std::span<const NamedTensor> results,
                        ThreadPool* pool) {
  const ReformerRequest r = ReadReformer(DifferentiableReader(request));
  AttentionOutputs outputs;
  outputs.output = LeadingViewOf(FindTensor(results, "output"));
  outputs.lse = RowsOf(FindTensor(results, "lse"));
  ReformerAttention(r.q, r.v, r.options, outputs, pool);
}

void RunReformerBackward(const Request& request, std::span<const NamedTensor> results,
                         std::span<const NamedTensor> d_results,
                         std::span<const NamedTensor> gradients, ThreadPool* pool) {
  CheckAreFloats(d_results, gradients);
  CheckAreRows(gradients);
  const ReformerRequest r = ReadValid(request);
  const AttentionProblem p =
      ValidateAttentionInputs(StoredTensor(r.q), StoredTensor(KeyShape(r.q, r.v)),
                              StoredTensor(r.v), InnerOptions(r.options), true);
  const ReformerResults given = {
      LeadingViewOf(FindTensor(results, "output")), RowsOf(FindTensor(results, "lse")),
      LeadingViewOf(FindTensor(d_results, "output")), RowsOf(FindTensor(d_results, "lse"))};
  ReformerBackward(r, p, given, LeadingViewOf(FindTensor(gradients, "q")),
                   LeadingViewOf(FindTensor(gradients, "v")), PoolOrDefault(pool))
      .Run();
}

}  // namespace

const GradientVerbs kReformerGradient = {PlanReformerBackward, RunReformerForward,
                                         RunReformerBackward};

}  // namespace heed
