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
namespace hn = hwy::HWY_NAMESPACE;

class DotScore final : public ScorePlug {
 public:
  DotScore(float scale, size_t head_dim) : scale_(scale), head_dim_(head_dim) {}
  size_t Depth() const override { return head_dim_; }
  void PackQueries(const float* const* rows, const Row*, size_t count, float* to,
                   float*) const override {
    PackQueryGroup(rows, count, head_dim_, scale_, to);
  }
  void PackKeys(const float* const* rows, size_t count, int64_t, float* panel,
                float*) const override {
    PackTransposedPanel(RowPointers{rows}, count, head_dim_, panel);
  }
  void Fill(const float* queries, const float* panels, ScoreTile& tile) const override {
    FillDots(head_dim_, head_dim_, queries, panels, tile);
  }

 private:
  float scale_;
  size_t head_dim_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_DOT_INL_H_
