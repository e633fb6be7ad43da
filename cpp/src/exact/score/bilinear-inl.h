// Score plug: bilinear. s = scale * q^T M k. M^T q takes the place of q: the rest is a dot product.
// Source: Luong 2015, arXiv:1508.04025, equation 8 ("general").
#if defined(HEED_EXACT_SCORE_BILINEAR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SCORE_BILINEAR_INL_H_
#undef HEED_EXACT_SCORE_BILINEAR_INL_H_
#else
#define HEED_EXACT_SCORE_BILINEAR_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/projection-inl.h"
#include "src/exact/score/score-inl.h"

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

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_BILINEAR_INL_H_
