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

#include "hwy/highway.h"
#include "src/exact/score/score-inl.h"

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

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_COSINE_INL_H_
