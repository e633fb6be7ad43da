// The derivative of additive scores.
#if defined(HEED_EXACT_ADDITIVE_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_ADDITIVE_GRADIENT_INL_H_
#undef HEED_EXACT_ADDITIVE_GRADIENT_INL_H_
#else
#define HEED_EXACT_ADDITIVE_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <span>

#include "hwy/highway.h"
#include "src/exact/problem.h"
#include "src/exact/score_gradient-inl.h"
#include "src/parallel/worker_scratch.h"
#include "src/simd/fma-inl.h"
#include "src/simd/tanh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// With x = W_q q_i + W_k k_j + b and a_ij = scale d_s_ij v (1 - tanh^2 x): the projected query gets
// sum_j a_ij, the projected key sum_i a_ij, and v gets scale sum_ij d_s_ij tanh x. A pair costs
// hidden_dim tanh, as in forward.
class AdditiveGradient final : public ScoreGradient {
 public:
  explicit AdditiveGradient(const AttentionProblem& p)
      : p_(p),
        cols_(RoundUp(static_cast<size_t>(p.hidden_dim), PanelCols())),
        vectors_(cols_ * static_cast<size_t>(p.num_heads)) {
    std::fill_n(vectors_.get(), cols_ * static_cast<size_t>(p.num_heads), 0.0f);
    const TensorView<const float>& vector = p.options.score_vector;
    for (int64_t h = 0; h < p.num_heads; ++h) {
      float* to = vectors_.get() + static_cast<size_t>(h) * cols_;
      for (int64_t t = 0; t < p.hidden_dim; ++t) {
        to[t] = p.scale * (vector.has_value() ? vector(0, 0, vector.shape[2] == 1 ? 0 : h, t) : 1);
      }
    }
  }

  bool HasPairs() const override { return true; }
  void AddPairs(const ScoreTile& d_scores, const PanelRows& queries, const PanelRows& keys,
                const PairSums& sums) const override {
    for (size_t r = 0; r < d_scores.num_rows; ++r) {
      for (size_t c = 0; c < cols_; c += hn::Lanes(DF())) {
        AddRow(d_scores, r, c, queries, keys, sums);
      }
    }
  }

  void Query(const Row& row, const float* q, const ScoreSums& sums, float* d_q,
             double* params) const override {
    double* const own = params == nullptr ? nullptr : LaneParams(params, row);
    const TensorView<const float>& weight = p_.options.query_weight;
    const int64_t head = weight.has_value() && weight.shape[1] > 1 ? row.head : 0;
    Unproject(weight, head, q, p_.head_dim, sums.vectors, d_q, own);
    if (own == nullptr) return;
    double* const d_bias = own + WeightSize(weight);
    for (size_t t = 0; t < Hidden(); ++t) d_bias[t] += static_cast<double>(sums.vectors[t]);
  }

  void Key(int64_t kv_head, const float* k, const ScoreSums& sums, float* d_k,
           double* params) const override {
    const TensorView<const float>& weight = p_.options.key_weight;
    const int64_t head = weight.has_value() && weight.shape[1] > 1 ? kv_head : 0;
    Unproject(weight, head, k, p_.head_dim_k, sums.vectors, d_k, params);
  }

  // Of each query head of a KV head: W_q, b, v. Of keys: W_k. In all: W_q, b, v, W_k of all heads.
  size_t QueryParams() const override { return static_cast<size_t>(p_.group) * LaneSize(); }
  size_t KeyParams() const override { return WeightSize(p_.options.key_weight); }
  size_t NumParams() const override { return KeyStart() + TensorSize(p_.options.key_weight); }
  size_t QueryParamOf(int64_t kv_head, size_t n) const override {
    const AttentionOptions& o = p_.options;
    const size_t head = static_cast<size_t>(kv_head * p_.group) + n / LaneSize();
    const size_t matrix = WeightSize(o.query_weight);
    size_t at = n % LaneSize();
    if (at < matrix) return at + (o.query_weight.shape[1] == 1 ? 0 : head * matrix);
    at -= matrix;
    if (at < Hidden()) return BiasStart() + at;
    at -= Hidden();
    return VectorStart() + at + (VectorHeads() == 1 ? 0 : head * Hidden());
  }
  size_t KeyParamOf(int64_t kv_head, size_t n) const override {
    const size_t head = p_.options.key_weight.shape[1] == 1 ? 0 : static_cast<size_t>(kv_head);
    return KeyStart() + head * KeyParams() + n;
  }

  void Store(std::span<const double> params, const AttentionGradients& to) const override {
    StoreTensor(params.data(), to.d_query_weight);
    for (size_t t = 0; t < to.d_score_bias.size(); ++t) {
      to.d_score_bias[t] = static_cast<float>(params[BiasStart() + t]);
    }
    StoreTensor(params.data() + VectorStart(), to.d_score_vector);
    StoreTensor(params.data() + KeyStart(), to.d_key_weight);
  }

 private:
  size_t Hidden() const { return static_cast<size_t>(p_.hidden_dim); }
  static size_t WeightSize(const TensorView<const float>& weight) {
    return weight.has_value() ? static_cast<size_t>(weight.shape[2] * weight.shape[3]) : 0;
  }
  static size_t TensorSize(const TensorView<const float>& weight) {
    return weight.has_value() ? static_cast<size_t>(weight.shape[1]) * WeightSize(weight) : 0;
  }
  size_t VectorHeads() const {
    const TensorView<const float>& vector = p_.options.score_vector;
    return vector.has_value() ? static_cast<size_t>(vector.shape[2]) : 1;
  }
  size_t LaneSize() const { return WeightSize(p_.options.query_weight) + 2 * Hidden(); }
  size_t BiasStart() const { return TensorSize(p_.options.query_weight); }
  size_t VectorStart() const { return BiasStart() + Hidden(); }
  size_t KeyStart() const { return VectorStart() + VectorHeads() * Hidden(); }
  double* LaneParams(double* params, const Row& row) const {
    return params + static_cast<size_t>(row.head % p_.group) * LaneSize();
  }

  // Row r of the tile and a vector of dims, from c on.
  void AddRow(const ScoreTile& d_scores, size_t r, size_t c, const PanelRows& queries,
              const PanelRows& keys, const PairSums& sums) const {
    const DF d;
    const size_t panel = c / PanelCols() * PanelCols();
    const Row& row = d_scores.rows[r];
    const VF query = hn::LoadU(d, queries.At(r, panel) + (c - panel));
    const VF weight = hn::LoadU(d, vectors_.get() + static_cast<size_t>(row.head) * cols_ + c);
    const float* HWY_RESTRICT d_s = d_scores.row_scores(r);
    const size_t last = std::min(d_scores.last, d_scores.num_keys);
    VF d_query = hn::Zero(d);
    VF d_vector = hn::Zero(d);
    for (size_t key = d_scores.first; key < last; ++key) {
      if (d_s[key] == 0) continue;
      const VF g = hn::Set(d, d_s[key]);
      VF x[1] = {hn::Add(query, hn::LoadU(d, keys.At(key, panel) + (c - panel)))};
      Tanh(d, x);
      d_vector = Fma(g, x[0], d_vector);
      const VF slope = hn::NegMulAdd(x[0], x[0], hn::Set(d, 1.0f));
      const VF a = hn::Mul(hn::Mul(g, weight), slope);
      d_query = hn::Add(d_query, a);
      if (sums.keys == nullptr) continue;
      float* to = sums.keys + key * cols_ + c;
      hn::StoreU(hn::Add(hn::LoadU(d, to), a), d, to);
    }
    if (sums.queries != nullptr) {
      float* to = sums.queries + r * cols_ + c;
      hn::StoreU(hn::Add(hn::LoadU(d, to), d_query), d, to);
    }
    if (sums.params != nullptr) AddVector(d_vector, c, LaneParams(sums.params, row));
  }

  // Dims [at, at + a vector) of d_v.
  void AddVector(VF sum, size_t at, double* lane) const {
    const DF d;
    HWY_ALIGN float terms[hn::MaxLanes(DF())];
    hn::Store(sum, d, terms);
    double* to = lane + WeightSize(p_.options.query_weight) + Hidden();
    for (size_t n = 0; n < hn::Lanes(d) && at + n < Hidden(); ++n) {
      to[at + n] += static_cast<double>(p_.scale * terms[n]);
    }
  }

  // From the gradient of W x to that of x, W^T g, and of W, g x^T; without W they are the same.
  void Unproject(const TensorView<const float>& weight, int64_t head, const float* x, int64_t dim,
                 const float* g, float* d_x, double* d_weight) const {
    if (!weight.has_value()) {
      std::copy_n(g, dim, d_x);
      return;
    }
    for (int64_t t = 0; t < dim; ++t) {
      double sum = 0;
      for (int64_t u = 0; u < p_.hidden_dim; ++u) {
        sum += static_cast<double>(weight(0, head, u, t)) * static_cast<double>(g[u]);
      }
      d_x[t] = static_cast<float>(sum);
    }
    for (int64_t u = 0; u < p_.hidden_dim && d_weight != nullptr; ++u) {
      for (int64_t t = 0; t < dim; ++t) {
        *d_weight++ += static_cast<double>(g[u]) * static_cast<double>(x[t]);
      }
    }
  }

  const AttentionProblem& p_;
  size_t cols_;            // hidden_dim, whole panels
  AlignedFloats vectors_;  // [num_heads][cols_], times the scale
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_ADDITIVE_GRADIENT_INL_H_
