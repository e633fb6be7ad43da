// Score plug: scaled dot product. s = scale * q.k. The scale is folded into the packed queries.
#if defined(HEED_EXACT_SCORE_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SCORE_DOT_INL_H_
#undef HEED_EXACT_SCORE_DOT_INL_H_
#else
#define HEED_EXACT_SCORE_DOT_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/score/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

class DotScore final : public ScorePlug {
 public:
  explicit DotScore(float scale) : scale_(scale) {}
  float QueryFactor() const override { return scale_; }
  void Fill(const float* queries, const float* panels, ScoreTile& tile) const override {
    FillScores(MultiplyAccumulate(), queries, panels, tile, StoreOnly());
  }

 private:
  float scale_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_DOT_INL_H_
