// Score plug: cosine similarity. s = head_scale[head] * q.k / (|q| |k|); a vector of zeros is
// similar to nothing. Both sides are divided by their lengths while they are packed. Source: Henry
// 2020, arXiv:2010.04245; Liu 2022, arXiv:2111.09883, section 3.2.
#if defined(HEED_EXACT_SCORE_COSINE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SCORE_COSINE_INL_H_
#undef HEED_EXACT_SCORE_COSINE_INL_H_
#else
#define HEED_EXACT_SCORE_COSINE_INL_H_
#endif

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <span>
#include <vector>

#include "hwy/highway.h"
#include "src/exact/score/score-inl.h"
#include "src/exact/score_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class CosineScore final : public ScorePlug {
 public:
  // `head_scale` holds one factor per query head.
  CosineScore(std::span<const float> head_scale, float units, size_t head_dim)
      : head_scale_(head_scale), units_(units), head_dim_(head_dim) {}
  size_t Depth() const override { return head_dim_; }

  void PackQueries(const float* const* rows, const Row* queries, size_t count, float* to,
                   float*) const override {
    PackQueryGroup(rows, count, head_dim_, 1.0f, to);
    for (size_t i = 0; i < count; ++i) {
      const float size = units_ * head_scale_[static_cast<size_t>(queries[i].head)];
      float largest = 0.0f, sum = 0.0f;
      for (size_t t = 0; t < head_dim_; ++t) largest = std::max(largest, std::abs(rows[i][t]));
      const float inverse = 1.0f / std::max(largest, FLT_MIN);
      for (size_t t = 0; t < head_dim_; ++t) {
        float& x = to[t * count + i];
        x *= inverse;
        sum += x * x;
      }
      const float factor = sum == 0.0f ? 0.0f : size / std::sqrt(sum);
      for (size_t t = 0; t < head_dim_; ++t) to[t * count + i] *= factor;
    }
  }

  void PackKeys(const float* const* rows, size_t count, int64_t, float* panel,
                float*) const override {
    PackTransposedPanel(RowPointers{rows}, count, head_dim_, panel);
    const DF d;
    NormalizeColumns(panel);
    NormalizeColumns(panel + hn::Lanes(d));
  }

  void Fill(const float* queries, const float* panels, ScoreTile& tile) const override {
    FillDots(head_dim_, head_dim_, queries, panels, tile);
  }

 private:
  // Divides each column of half a panel by its length; a column of zeros stays. Dividing by the
  // largest element first keeps the squares of huge and tiny vectors within float32.
  void NormalizeColumns(float* HWY_RESTRICT columns) const {
    const DF d;
    VF largest = hn::Set(d, FLT_MIN);
    for (size_t t = 0; t < head_dim_; ++t) {
      largest = hn::Max(largest, hn::Abs(hn::LoadU(d, columns + t * PanelCols())));
    }
    const VF inverse = hn::Div(hn::Set(d, 1.0f), largest);
    VF sum = hn::Zero(d);
    for (size_t t = 0; t < head_dim_; ++t) {
      const VF x = hn::Mul(hn::LoadU(d, columns + t * PanelCols()), inverse);
      sum = Fma(x, x, sum);
    }
    const VF factor =
        hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(d)), hn::Div(hn::Set(d, 1.0f), hn::Sqrt(sum)));
    for (size_t t = 0; t < head_dim_; ++t) {
      float* to = columns + t * PanelCols();
      hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, to), inverse), factor), d, to);
    }
  }

  std::span<const float> head_scale_;
  float units_;
  size_t head_dim_;
};

// With q' = q / |q|, d_q = (g - (g.q') q') / |q| for g = head_scale sum_j d_s_ij k'_j; nothing for
// a vector of zeros. The same for keys, whose sums hold head_scale already.
class CosineGradient final : public ScoreGradient {
 public:
  CosineGradient(const AttentionProblem& p, float units)
      : p_(p), units_(units), head_dim_(static_cast<size_t>(p.head_dim)) {}

  size_t QueryParams() const override {
    return p_.options.temperature.empty() ? 0 : static_cast<size_t>(p_.group);
  }
  size_t NumParams() const override { return p_.options.temperature.size(); }
  size_t QueryParamOf(int64_t kv_head, size_t n) const override {
    return NumParams() == 1 ? 0 : static_cast<size_t>(kv_head * p_.group) + n;
  }

  // A score is head_scale / temperature times what it is at 1: d_temperature = -score /
  // temperature.
  void Query(const Row& row, const float* q, const ScoreSums& sums, float* d_q,
             double* params) const override {
    const float scale = p_.head_scale[static_cast<size_t>(row.head)];
    const double along = Unproject(q, sums.vectors, static_cast<double>(scale), d_q);
    if (params == nullptr) return;
    const std::span<const float> temperature = p_.options.temperature;
    const float t = temperature[temperature.size() == 1 ? 0 : static_cast<size_t>(row.head)];
    if (p_.options.min_temperature && t < static_cast<float>(*p_.options.min_temperature)) return;
    params[row.head % p_.group] -= along / static_cast<double>(t);
  }
  void Key(int64_t, const float* k, const ScoreSums& sums, float* d_k, double*) const override {
    Unproject(k, sums.vectors, 1.0 / static_cast<double>(units_), d_k);
  }

  void Store(std::span<const double> params, const AttentionGradients& to) const override {
    for (size_t h = 0; h < to.d_temperature.size(); ++h) {
      to.d_temperature[h] = static_cast<float>(params[h]);
    }
  }

 private:
  // Writes the gradient of x for `scale` times that of x / |x|, and returns scale g.x / |x|.
  double Unproject(const float* x, const float* g, double scale, float* to) const {
    double squares = 0, dot = 0;
    for (size_t t = 0; t < head_dim_; ++t) {
      squares += static_cast<double>(x[t]) * static_cast<double>(x[t]);
      dot += static_cast<double>(x[t]) * static_cast<double>(g[t]);
    }
    const double inverse = squares == 0 ? 0 : 1 / std::sqrt(squares);
    const double along = scale * dot * inverse;
    for (size_t t = 0; t < head_dim_; ++t) {
      to[t] = static_cast<float>(inverse * (scale * static_cast<double>(g[t]) -
                                            along * inverse * static_cast<double>(x[t])));
    }
    return along;
  }

  const AttentionProblem& p_;
  float units_;
  size_t head_dim_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_COSINE_INL_H_
