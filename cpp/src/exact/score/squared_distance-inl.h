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

class SquaredDistanceScore final : public ScorePlug {
 public:
  // `inverse_width` holds head_dim values or is nullptr for width 1.
  SquaredDistanceScore(float scale, const float* inverse_width)
      : factor_(-0.5f * scale), inverse_width_(inverse_width) {}
  float QueryFactor() const override { return 1.0f; }
  void Fill(const float* queries, const float* panels, ScoreTile& tile) const override {
    const StoreScaled store = {factor_};
    if (inverse_width_ == nullptr) {
      FillScores(SquaredDifference(), queries, panels, tile, store);
    } else {
      FillScores(ScaledSquaredDifference{inverse_width_}, queries, panels, tile, store);
    }
  }

 private:
  float factor_;
  const float* inverse_width_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_SQUARED_DISTANCE_INL_H_
