// Score plug: squared distance. s = -scale / 2 * |(q - k) / width|^2. Differences are taken before
// squaring: |q|^2 + |k|^2 - 2 q.k would lose the small distances that a kernel lives on.
#if defined(HEED_EXACT_SCORE_SQUARED_DISTANCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SCORE_SQUARED_DISTANCE_INL_H_
#undef HEED_EXACT_SCORE_SQUARED_DISTANCE_INL_H_
#else
#define HEED_EXACT_SCORE_SQUARED_DISTANCE_INL_H_
#endif

#include <span>
#include <vector>

#include "hwy/highway.h"
#include "src/exact/score/score-inl.h"
#include "src/exact/score_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class SquaredDistanceScore final : public ScorePlug {
 public:
  // `inverse_width` holds head_dim values or is nullptr for width 1.
  SquaredDistanceScore(float scale, size_t head_dim, const float* inverse_width)
      : factor_(-0.5f * scale), head_dim_(head_dim), inverse_width_(inverse_width) {}
  size_t Depth() const override { return head_dim_; }
  void PackQueries(const float* const* rows, const Row*, size_t count, float* to,
                   float*) const override {
    PackQueryGroup(rows, count, head_dim_, 1.0f, to);
  }
  void PackKeys(const float* const* rows, size_t count, int64_t, float* panel,
                float*) const override {
    PackTransposedPanel(RowPointers{rows}, count, head_dim_, panel);
  }
  void Fill(const float* queries, const float* panels, ScoreTile& tile) const override {
    const StoreScaled store = {factor_};
    if (inverse_width_ == nullptr) {
      FillScores(SquaredDifference(), head_dim_, head_dim_, queries, panels, tile, store);
    } else {
      FillScores(ScaledSquaredDifference{inverse_width_}, head_dim_, head_dim_, queries, panels,
                 tile, store);
    }
  }

 private:
  float factor_;
  size_t head_dim_;
  const float* inverse_width_;
};

// d_q = -scale / width^2 * sum_j d_s_ij (q - k_j), and the same for keys.
class SquaredDistanceGradient final : public ScoreGradient {
 public:
  explicit SquaredDistanceGradient(const AttentionProblem& p)
      : width_(p.options.width), factor_(static_cast<size_t>(p.head_dim), p.scale) {
    for (size_t t = 0; t < p.inverse_width.size(); ++t) {
      factor_[t] *= p.inverse_width[t] * p.inverse_width[t];
    }
  }

  bool NeedsTotals() const override { return true; }
  size_t QueryParams() const override { return NumParams(); }
  size_t KeyParams() const override { return NumParams(); }
  size_t NumParams() const override { return width_.empty() ? 0 : factor_.size(); }

  // Of sum d_s (q - k)^2, queries have q^2 - 2 q k and keys k^2.
  void Query(const Row&, const float* q, const ScoreSums& sums, float* d_q,
             double* params) const override {
    for (size_t t = 0; t < factor_.size(); ++t) {
      d_q[t] = factor_[t] * (sums.vectors[t] - sums.total * q[t]);
      if (params == nullptr) continue;
      const double x = static_cast<double>(q[t]);
      params[t] +=
          x * (x * static_cast<double>(sums.total) - 2 * static_cast<double>(sums.vectors[t]));
    }
  }
  void Key(int64_t, const float* k, const ScoreSums& sums, float* d_k,
           double* params) const override {
    for (size_t t = 0; t < factor_.size(); ++t) {
      d_k[t] = factor_[t] * (sums.vectors[t] - sums.total * k[t]);
      if (params == nullptr) continue;
      const double x = static_cast<double>(k[t]);
      params[t] += x * x * static_cast<double>(sums.total);
    }
  }

  void Store(std::span<const double> params, const AttentionGradients& to) const override {
    if (to.d_width.empty()) return;
    double sum = 0;
    for (size_t t = 0; t < factor_.size(); ++t) {
      const double width = static_cast<double>(width_[width_.size() == 1 ? 0 : t]);
      const double d_width = static_cast<double>(factor_[t]) * params[t] / width;
      if (width_.size() > 1) to.d_width[t] = static_cast<float>(d_width);
      sum += d_width;
    }
    if (width_.size() == 1) to.d_width[0] = static_cast<float>(sum);
  }

 private:
  std::span<const float> width_;
  std::vector<float> factor_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_SQUARED_DISTANCE_INL_H_
