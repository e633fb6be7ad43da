// Gradients of talking heads, by what both mixings come down to. A mixed score is one dot product
// of all KV heads side by side, with queries that are mixed instead:
//   sum_g mix[g, h] q_g . k_g = q'_h . [k_0 | k_1 | ...],
// and mixed weights meet values side by side, whose sums are mixed afterwards. In between stands
// Attention(). Heads that share a KV head share its place.
#include <algorithm>
#include <cmath>

#include "src/compose/backward_attention.h"
#include "src/compose/backward_request.h"
#include "src/compose/backward_rows.h"
#include "src/compose/composed_request.h"
#include "src/compose/rows.h"
#include "src/rows/dot.h"

namespace heed {
namespace {

bool IsZero(const float* row, int64_t width) {
  return std::all_of(row, row + width, [](float x) { return x == 0; });
}

// [batch, heads, len, dim] as [batch, 1, len, heads * dim].
OwnedTensor SideBySide(const TensorView<const float>& heads, ThreadPool& pool) {
  const auto [batch, count, len, dim] = heads.shape;
  OwnedTensor all({batch, 1, len, count * dim});
  ForEachRow(heads.shape, pool, [&, dim = dim](int64_t b, int64_t h, int64_t i) {
    std::copy_n(&heads(b, h, i, 0), dim, &all.view()(b, 0, i, h * dim));
  });
  return all;
}

// What lies side by side as heads again.
TensorView<const float> AsHeads(const TensorView<float>& all, int64_t heads) {
  const auto& [batch, one, len, width] = all.shape;
  const int64_t dim = heads > 0 ? width / heads : 0;
  return {all.data, {batch, heads, len, dim}, {all.strides[0], dim, all.strides[2], 1}};
}

class TalkingBackward {
 public:
  explicit TalkingBackward(const ComposedBackward& call)
      : call_(call),
        r_(ReadComposed(call.reader)),
        o_(ReadTalkingHeads(call.reader, r_)),
        heads_(r_.q.shape[1]),
        kv_heads_(r_.k.shape[1]),
        dim_(r_.q.shape[3]),
        dim_v_(r_.v.shape[3]) {
    if (!o_.attention.scale) o_.attention.scale = 1 / std::sqrt(static_cast<double>(dim_));
    if (MixesScores()) keys_ = SideBySide(r_.k, call.pool);
    if (MixesWeights()) values_ = SideBySide(r_.v, call.pool);
  }

  void Run() {
    const OwnedTensor mixed = MixesScores() ? MixedQueries() : OwnedTensor();
    const TensorView<const float> q = MixesScores() ? mixed.view() : r_.q;
    const TensorView<const float> k = Shared(keys_, r_.k), v = Shared(values_, r_.v);
    const KeptAttention attention(q, k, v, o_.attention, call_.pool);
    const OwnedTensor unmixed = MixesWeights() ? SumGradients(attention.out()) : OwnedTensor();
    const OwnedTensor d_q(q.shape), d_k(k.shape), d_v(v.shape);
    AttentionGradients to = call_.WantedOptions();
    to.d_q = d_q.view();
    to.d_k = d_k.view();
    to.d_v = d_v.view();
    to.d_lse = call_.d_lse();
    attention.Backward(MixesWeights() ? unmixed.view() : call_.d_output(), to);
    QueryGradients(d_q.view());
    HeadGradient(d_k.view(), MixesScores(), call_.Wanted("k"));
    HeadGradient(d_v.view(), MixesWeights(), call_.Wanted("v"));
  }

 private:
  bool MixesScores() const { return !o_.mix_scores.empty(); }
  bool MixesWeights() const { return !o_.mix_weights.empty(); }
  float MixScore(int64_t g, int64_t h) const {
    return o_.mix_scores[static_cast<size_t>(g * heads_ + h)];
  }
  float MixWeight(int64_t g, int64_t h) const {
    return o_.mix_weights[static_cast<size_t>(g * heads_ + h)];
  }
  // Where the part of a head begins in a row of all KV heads.
  int64_t Place(int64_t h, int64_t dim) const { return h * kv_heads_ / heads_ * dim; }

  // Keys or values as attention takes them: side by side for all heads, or as they came.
  TensorView<const float> Shared(const OwnedTensor& all,
                                 const TensorView<const float>& heads) const {
    if (!all.view().has_value()) return heads;
    TensorView<const float> shared = all.view();
    if (MixesScores() && MixesWeights()) return shared;
    shared.shape[1] = kv_heads_;
    shared.strides[1] = 0;
    return shared;
  }

  OwnedTensor MixedQueries() const {
    const Extents& q = r_.q.shape;
    OwnedTensor mixed({q[0], heads_, q[2], kv_heads_ * dim_});
    ForEachRow(mixed.view().shape, call_.pool, [&](int64_t b, int64_t h, int64_t i) {
      float* row = &mixed.view()(b, h, i, 0);
      std::fill_n(row, kv_heads_ * dim_, 0.0f);
      for (int64_t g = 0; g < heads_; ++g) {
        const float* from = &r_.q(b, g, i, 0);
        float* part = row + Place(g, dim_);
        for (int64_t d = 0; d < dim_; ++d) part[d] += MixScore(g, h) * from[d];
      }
    });
    return mixed;
  }

  // What arrives at the sums of every head, before they are mixed; and at mix_weights.
  OwnedTensor SumGradients(const TensorView<float>& sums) const {
    const TensorView<const float> d_output = call_.d_output();
    OwnedTensor d_sums(sums.shape);
    ForEachRow(sums.shape, call_.pool, [&](int64_t b, int64_t g, int64_t i) {
      float* row = &d_sums.view()(b, g, i, 0);
      std::fill_n(row, kv_heads_ * dim_v_, 0.0f);
      for (int64_t h = 0; h < heads_; ++h) {
        const float* arriving = &d_output(b, h, i, 0);
        float* part = row + Place(h, dim_v_);
        for (int64_t d = 0; d < dim_v_; ++d) part[d] += MixWeight(g, h) * arriving[d];
      }
    });
    MixGradient(call_.Wanted("mix_weights"), sums.shape,
                [&](int64_t b, int64_t g, int64_t h, int64_t i) {
                  return Dot(&sums(b, g, i, Place(h, dim_v_)), &d_output(b, h, i, 0), dim_v_);
                });
    return d_sums;
  }

  // From what arrives at the mixed queries.
  void QueryGradients(const TensorView<float>& d_mixed) const {
    const TensorView<float> d_q = call_.Wanted("q");
    if (!MixesScores()) return SumOver(d_mixed, d_q, call_.pool);
    MixGradient(call_.Wanted("mix_scores"), r_.q.shape,
                [&](int64_t b, int64_t g, int64_t h, int64_t i) {
                  return Dot(&d_mixed(b, h, i, Place(g, dim_)), &r_.q(b, g, i, 0), dim_);
                });
    if (!d_q.has_value()) return;
    ForEachRow(d_q.shape, call_.pool, [&](int64_t b, int64_t g, int64_t i) {
      float* row = &d_q(b, g, i, 0);
      std::fill_n(row, dim_, 0.0f);
      for (int64_t h = 0; h < heads_; ++h) {
        const float* part = &d_mixed(b, h, i, Place(g, dim_));
        for (int64_t d = 0; d < dim_; ++d) row[d] += MixScore(g, h) * part[d];
      }
    });
  }

  // Without what meets a row of exact zeros: that of a query without keys.
  static double Dot(const float* seen, const float* other, int64_t width) {
    return IsZero(seen, width) ? 0 : DotRows(seen, other, width);
  }

  // to[g, h] = sum over batch entries and queries of term(b, g, h, i).
  template <class Term>
  void MixGradient(const TensorView<float>& to, const Extents& rows, const Term& term) const {
    if (!to.has_value()) return;
    ForEachRow({1, heads_, heads_, 1}, call_.pool, [&](int64_t, int64_t g, int64_t h) {
      double sum = 0;
      for (int64_t b = 0; b < rows[0]; ++b) {
        for (int64_t i = 0; i < rows[2]; ++i) sum += term(b, g, h, i);
      }
      to(0, 0, g, h) = static_cast<float>(sum);
    });
  }

  // Of keys or values, from those that attention was given.
  void HeadGradient(const TensorView<float>& given, bool mixed, const TensorView<float>& to) const {
    if (!to.has_value()) return;
    if (!mixed) return SumOver(given, to, call_.pool);
    const OwnedTensor all({given.shape[0], 1, given.shape[2], given.shape[3]});
    SumOver(given, all.view(), call_.pool);
    SumOver(AsHeads(all.view(), kv_heads_), to, call_.pool);
  }

  const ComposedBackward& call_;
  ComposedRequest r_;
  TalkingHeadsOptions o_;
  int64_t heads_, kv_heads_, dim_, dim_v_;
  OwnedTensor keys_, values_;  // of all KV heads side by side, where they are mixed
};

}  // namespace

void TalkingHeadsBackward(const ComposedBackward& call) { TalkingBackward(call).Run(); }

}  // namespace heed
