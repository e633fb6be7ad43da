// Score plug: bilinear. s = scale * q^T M k. M^T q takes the place of q: the rest is a dot product.
// Source: Luong 2015, arXiv:1508.04025, equation 8 ("general").
#if defined(HEED_EXACT_SCORE_BILINEAR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SCORE_BILINEAR_INL_H_
#undef HEED_EXACT_SCORE_BILINEAR_INL_H_
#else
#define HEED_EXACT_SCORE_BILINEAR_INL_H_
#endif

#include <span>

#include "hwy/highway.h"
#include "src/exact/projection-inl.h"
#include "src/exact/score/score-inl.h"
#include "src/exact/score_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class BilinearScore final : public ScorePlug {
 public:
  // `matrix` is [1, num_heads or 1, head_dim, head_dim_k].
  BilinearScore(float scale, const TensorView<const float>& matrix)
      : scale_(scale), projection_(QueryProjection::OfTransposed(matrix)) {}
  size_t Depth() const override { return projection_.out(); }
  size_t QueryScratch() const override { return projection_.Scratch(); }

  void PackQueries(const float* const* rows, const Row* queries, size_t count, float* to,
                   float* scratch) const override {
    projection_.Project(rows, queries, count, to, scratch);
    for (size_t n = 0; n < count * Depth(); ++n) to[n] *= scale_;
  }
  void PackKeys(const float* const* rows, size_t count, int64_t, float* panel,
                float*) const override {
    PackTransposedPanel(RowPointers{rows}, count, Depth(), panel);
  }
  void Fill(const float* queries, const float* panels, ScoreTile& tile) const override {
    FillDots(Depth(), Depth(), queries, panels, tile);
  }

 private:
  float scale_;
  QueryProjection projection_;
};

// With g_i = scale sum_j d_s_ij k_j: d_q = M g, d_M = sum_i q_i g_i^T, and d_k_j = sum_i d_s_ij
// times the packed query, scale M^T q_i.
class BilinearGradient final : public ScoreGradient {
 public:
  BilinearGradient(const AttentionProblem& p, float units) : p_(p), units_(units) {}

  size_t QueryParams() const override { return static_cast<size_t>(p_.group) * MatrixSize(); }
  size_t NumParams() const override {
    return static_cast<size_t>(p_.options.score_matrix.shape[1]) * MatrixSize();
  }
  size_t QueryParamOf(int64_t kv_head, size_t n) const override {
    if (p_.options.score_matrix.shape[1] == 1) return n % MatrixSize();
    return static_cast<size_t>(kv_head * p_.group) * MatrixSize() + n;
  }

  void Query(const Row& row, const float* q, const ScoreSums& sums, float* d_q,
             double* params) const override {
    const TensorView<const float>& matrix = p_.options.score_matrix;
    const int64_t head = matrix.shape[1] == 1 ? 0 : row.head;
    double* to = params == nullptr
                     ? nullptr
                     : params + static_cast<size_t>(row.head % p_.group) * MatrixSize();
    for (int64_t t = 0; t < p_.head_dim; ++t) {
      const float* m = &matrix(0, head, t, 0);
      double sum = 0;
      for (int64_t u = 0; u < p_.head_dim_k; ++u) {
        const double g = static_cast<double>(p_.scale * sums.vectors[u]);
        sum += static_cast<double>(m[u]) * g;
        if (to != nullptr) *to++ += static_cast<double>(q[t]) * g;
      }
      d_q[t] = static_cast<float>(sum);
    }
  }
  void Key(int64_t, const float*, const ScoreSums& sums, float* d_k, double*) const override {
    for (int64_t u = 0; u < p_.head_dim_k; ++u) d_k[u] = sums.vectors[u] / units_;
  }

  void Store(std::span<const double> params, const AttentionGradients& to) const override {
    StoreTensor(params.data(), to.d_score_matrix);
  }

 private:
  size_t MatrixSize() const { return static_cast<size_t>(p_.head_dim * p_.head_dim_k); }

  const AttentionProblem& p_;
  float units_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_BILINEAR_INL_H_
