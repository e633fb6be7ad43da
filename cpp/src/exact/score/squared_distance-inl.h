// Score plug: squared distance. s = -scale / 2 * |(q - k) / width|^2. Differences are taken before
// squaring: |q|^2 + |k|^2 - 2 q.k would lose the small distances that a kernel lives on.
#if defined(HEED_EXACT_SCORE_SQUARED_DISTANCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SCORE_SQUARED_DISTANCE_INL_H_
#undef HEED_EXACT_SCORE_SQUARED_DISTANCE_INL_H_
#else
#define HEED_EXACT_SCORE_SQUARED_DISTANCE_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/score/score-inl.h"

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

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_SQUARED_DISTANCE_INL_H_
