// Gradients of native sparse attention: of its gates, and through them of three calls of attention.
// Compressed keys learn through what they are sums of; the choice of blocks is held fixed. A branch
// without keys or values of its own adds to the gradients of k or v.
#include <algorithm>
#include <memory>
#include <utility>

#include "src/compose/rows.h"
#include "src/gradient/request.h"
#include "src/selective/backward_attention.h"
#include "src/selective/backward_request.h"
#include "src/selective/native_sparse.h"
#include "src/selective/request.h"
#include "src/selective/selective_problem.h"

namespace heed {
namespace {

// Where gradients go; absent ones are not computed. Weights are [1, 1, rows, compress_block].
struct NativeSparseGradients {
  TensorView<float> d_q, d_k, d_v, d_gates, d_k_weight, d_v_weight;
  TensorView<float> d_compress_k, d_compress_v, d_window_k, d_window_v;
};

// Where the gradients of what a branch reads go.
struct BranchGradients {
  TensorView<float> d_k, d_v;
};

// Hides a branch from the queries whose gate is exactly 0, whatever it holds.
class GatedKeep final : public CellKeep {
 public:
  GatedKeep(const TensorView<const float>& gates, int64_t branch,
            std::shared_ptr<const CellKeep> chosen)
      : gates_(gates), branch_(branch), chosen_(std::move(chosen)) {}

  KeyRange Hull(int64_t batch, const Row& row) const override {
    if (gates_(batch, row.head, row.query, branch_) == 0) return {0, 0};
    return chosen_ == nullptr ? row.keys : chosen_->Hull(batch, row);
  }
  bool MayMeet(const KeepTile& tile) const override {
    return chosen_ == nullptr || chosen_->MayMeet(tile);
  }
  void Narrow(const KeepTile& tile, KeyBits* bits) const override {
    if (chosen_ != nullptr) chosen_->Narrow(tile, bits);
  }

 private:
  TensorView<const float> gates_;
  int64_t branch_;
  std::shared_ptr<const CellKeep> chosen_;
};

class NativeSparseBackward {
 public:
  NativeSparseBackward(const NativeSparseRequest& r, const AttentionProblem& p,
                       const TensorView<const float>& d_out, const NativeSparseGradients& to,
                       ThreadPool& pool)
      : r_(r),
        o_(r.options),
        p_(p),
        d_out_(d_out),
        to_(to),
        pool_(pool),
        branch_d_out_(d_out.shape),
        tokens_(CompressTokens(r.options, p, r.k, r.v, pool)),
        from_(OfCompressed(o_, r.k, r.v)),
        recent_(OfWindow(o_, r.k, r.v)),
        to_from_{o_.compress_k.has_value() ? to.d_compress_k : to.d_k,
                 o_.compress_v.has_value() ? to.d_compress_v : to.d_v},
        to_recent_{o_.window_k.has_value() ? to.d_window_k : to.d_k,
                   o_.window_v.has_value() ? to.d_window_v : to.d_v} {}

  void Run() {
    // The window is the first to write: what it does not write is added to.
    if (o_.window_k.has_value()) Clear(to_.d_k);
    if (o_.window_v.has_value()) Clear(to_.d_v);
    if (o_.compress_k.has_value()) Clear(to_.d_compress_k);
    if (o_.compress_v.has_value()) Clear(to_.d_compress_v);
    RunWindow();
    RunSelected();
    RunCompressed();
  }

 private:
  // Gradients of one branch: those of its gates, then `to`.
  void RunBranch(int64_t branch, const TensorView<const float>& k, const TensorView<const float>& v,
                 const AttentionOptions& options, std::shared_ptr<const CellKeep> chosen,
                 const AttentionGradients& to) {
    ChosenAttention attention(r_.q, k, v, options, chosen, pool_);
    ForEachRow(d_out_.shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
      const float* const from = RowOf(d_out_, b, h, i);
      if (to_.d_gates.has_value()) {
        const float* const out = RowOf(attention.out(), b, h, i);
        double sum = 0;
        for (int64_t d = 0; d < p_.head_dim_v; ++d) {
          sum += static_cast<double>(from[d]) * static_cast<double>(out[d]);
        }
        to_.d_gates(b, h, i, branch) = static_cast<float>(sum);
      }
      const float gate = r_.gates(b, h, i, branch);
      if (gate == 0) attention.Hide(b, h, i);
      float* const row = RowOf(branch_d_out_.view(), b, h, i);
      for (int64_t d = 0; d < p_.head_dim_v; ++d) row[d] = gate == 0 ? 0 : gate * from[d];
    });
    if (HasZeros(branch)) {
      attention.Narrow(std::make_shared<GatedKeep>(r_.gates, branch, std::move(chosen)));
    }
    attention.Backward(branch_d_out_.view(), to);
  }

  bool HasZeros(int64_t branch) const {
    if (DryRun::Current() != nullptr) return false;
    for (int64_t n = 0; n < p_.batch * p_.num_heads * p_.q_len; ++n) {
      const int64_t unit = n / p_.q_len;
      if (r_.gates(unit / p_.num_heads, unit % p_.num_heads, n % p_.q_len, branch) == 0)
        return true;
    }
    return false;
  }

  void RunWindow() {
    RunBranch(2, recent_.k, recent_.v, OverWindow(o_), nullptr,
              {.d_q = to_.d_q, .d_k = to_recent_.d_k, .d_v = to_recent_.d_v});
  }

  void RunSelected() {
    const OwnedTensor d_q = Wanted(to_.d_q), d_k = Wanted(to_.d_k), d_v = Wanted(to_.d_v);
    AttentionProblem selected = p_;
    KeepSelected(o_, r_.q, tokens_, selected, pool_);
    RunBranch(1, r_.k, r_.v, Branch(o_), selected.chosen,
              {.d_q = d_q.view(), .d_k = d_k.view(), .d_v = d_v.view()});
    Add(d_q, to_.d_q);
    Add(d_k, to_.d_k);
    Add(d_v, to_.d_v);
  }

  void RunCompressed() {
    const OwnedTensor d_q = Wanted(to_.d_q);
    const bool wants_keys = to_from_.d_k.has_value() || to_.d_k_weight.has_value();
    const bool wants_values = to_from_.d_v.has_value() || to_.d_v_weight.has_value();
    const OwnedTensor d_keys = wants_keys ? OwnedTensor(tokens_.keys.view().shape) : OwnedTensor();
    const OwnedTensor d_values =
        wants_values ? OwnedTensor(tokens_.values.view().shape) : OwnedTensor();
    RunBranch(0, tokens_.keys.view(), tokens_.values.view(), OverCompressed(o_, tokens_), nullptr,
              {.d_q = d_q.view(), .d_k = d_keys.view(), .d_v = d_values.view()});
    Add(d_q, to_.d_q);
    if (to_from_.d_k.has_value()) Spread(d_keys.view(), o_.compress_k_weight, to_from_.d_k);
    if (to_from_.d_v.has_value()) Spread(d_values.view(), o_.compress_v_weight, to_from_.d_v);
    if (to_.d_k_weight.has_value()) AddUp(d_keys.view(), from_.k, to_.d_k_weight);
    if (to_.d_v_weight.has_value()) AddUp(d_values.view(), from_.v, to_.d_v_weight);
  }

  static OwnedTensor Wanted(const TensorView<float>& gradient) {
    return gradient.has_value() ? OwnedTensor(gradient.shape) : OwnedTensor();
  }
  void Clear(const TensorView<float>& to) const {
    if (!to.has_value()) return;
    ForEachRow(to.shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
      std::fill_n(RowOf(to, b, h, i), to.shape[3], 0.0f);
    });
  }
  void Add(const OwnedTensor& from, const TensorView<float>& to) const {
    if (!to.has_value()) return;
    ForEachRow(to.shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
      const float* const row = RowOf(from.view(), b, h, i);
      float* const sum = RowOf(to, b, h, i);
      for (int64_t d = 0; d < to.shape[3]; ++d) sum[d] += row[d];
    });
  }

  // Adds to a token what arrives at the compressed ones that it is part of. What arrives at none
  // counts as 0, whatever its weight is.
  void Spread(const TensorView<float>& from, const TensorView<const float>& weight,
              const TensorView<float>& to) const {
    const TensorView<const float> factors = PerHead(weight);
    ForEachRow(to.shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
      const int64_t count = NumCompressed(o_, o_.KeyLength(b, p_.kv_len));
      const int64_t before = i - o_.compress_block;  // the last token that shares none with i
      const int64_t first = before < 0 ? 0 : before / o_.compress_stride + 1;
      const int64_t end = std::min(count, i / o_.compress_stride + 1);
      float* const row = RowOf(to, b, h, i);
      for (int64_t d = 0; d < to.shape[3]; ++d) {
        double sum = 0;
        for (int64_t j = first; j < end; ++j) {
          const double arriving = from(b, h, j, d);
          if (arriving == 0) continue;
          sum += factors.has_value() ? arriving * factors(0, 0, h, i - j * o_.compress_stride)
                                     : arriving / static_cast<double>(o_.compress_block);
        }
        if (sum != 0) row[d] += static_cast<float>(sum);
      }
    });
  }

  // Sums over all that was compressed with a weight, in the order of batch entries, heads and keys.
  void AddUp(const TensorView<float>& from, const TensorView<const float>& x,
             const TensorView<float>& to) const {
    const int64_t rows = to.shape[2], heads = rows == 1 ? p_.num_kv_heads : 1;
    pool_.Run(rows * o_.compress_block, [&](int64_t task, int) {
      const int64_t row = task / o_.compress_block, n = task % o_.compress_block;
      double sum = 0;
      for (int64_t unit = 0; unit < p_.batch * heads; ++unit) {
        const int64_t b = unit / heads, h = row + unit % heads;
        const int64_t count = NumCompressed(o_, o_.KeyLength(b, p_.kv_len));
        for (int64_t j = 0; j < count; ++j) {
          for (int64_t d = 0; d < from.shape[3]; ++d) {
            const double arriving = from(b, h, j, d);
            if (arriving != 0) sum += arriving * x(b, h, j * o_.compress_stride + n, d);
          }
        }
      }
      to(0, 0, row, n) = static_cast<float>(sum);
    });
  }

  const NativeSparseRequest& r_;
  const NativeSparseOptions& o_;
  const AttentionProblem& p_;
  TensorView<const float> d_out_;
  const NativeSparseGradients& to_;
  ThreadPool& pool_;
  OwnedTensor branch_d_out_;
  CompressedTokens tokens_;
  BranchTokens from_, recent_;  // what compressed tokens are made of, and the window's
  BranchGradients to_from_, to_recent_;
};

NativeSparseRequest ReadValid(const Request& request) {
  NativeSparseRequest r = ReadNativeSparse(DifferentiableReader(request));
  ValidateNativeSparse(r.q, r.k, r.v, r.gates, r.options);
  return r;
}

BackwardPlan PlanNativeSparseBackward(const Request& request) {
  const NativeSparseRequest r = ReadValid(request);
  return PlanOfRow(request, r.q.shape, r.v.shape[3],
                   {"q", "k", "v", "branch_gates", "compress_k", "compress_v", "window_k",
                    "window_v", "compress_k_weight", "compress_v_weight"});
}

void RunNativeSparseForward(const Request& request, std::span<const NamedTensor> results,
                            ThreadPool* pool) {
  const NativeSparseRequest r = ReadNativeSparse(DifferentiableReader(request));
  NativeSparseAttention(r.q, r.k, r.v, r.gates, r.options,
                        LeadingViewOf(FindTensor(results, "output")), pool);
}

void RunNativeSparseBackward(const Request& request, std::span<const NamedTensor>,
                             std::span<const NamedTensor> d_results,
                             std::span<const NamedTensor> gradients, ThreadPool* pool) {
  CheckAreFloats(d_results, gradients);
  CheckAreRows(gradients);
  const NativeSparseRequest r = ReadValid(request);
  const AttentionProblem p = ValidateAttentionInputs(StoredTensor(r.q), StoredTensor(r.k),
                                                     StoredTensor(r.v), Branch(r.options), false);
  const auto find = [&](const char* name) { return LeadingViewOf(FindTensor(gradients, name)); };
  const NativeSparseGradients to = {find("q"),
                                    find("k"),
                                    find("v"),
                                    find("branch_gates"),
                                    find("compress_k_weight"),
                                    find("compress_v_weight"),
                                    find("compress_k"),
                                    find("compress_v"),
                                    find("window_k"),
                                    find("window_v")};
  NativeSparseBackward(r, p, LeadingViewOf(FindTensor(d_results, "output")), to,
                       PoolOrDefault(pool))
      .Run();
}

}  // namespace

const GradientVerbs kNativeSparseGradient = {PlanNativeSparseBackward, RunNativeSparseForward,
                                             RunNativeSparseBackward};

}  // namespace heed
