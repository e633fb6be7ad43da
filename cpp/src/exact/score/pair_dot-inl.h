// Score plug: scaled dot product of bfloat16 numbers, s = scale * q.k, two products a step.
#if defined(HEED_EXACT_SCORE_PAIR_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SCORE_PAIR_DOT_INL_H_
#undef HEED_EXACT_SCORE_PAIR_DOT_INL_H_
#else
#define HEED_EXACT_SCORE_PAIR_DOT_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/score/score-inl.h"
#include "src/simd/bfloat16-inl.h"

#if HWY_NATIVE_DOT_BF16
HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class PairDotScore final : public ScorePlug {
 public:
  PairDotScore(float scale, size_t head_dim)
      : scale_(scale), head_dim_(head_dim), row_(RoundUp(Depth(), hn::Lanes(DF()))) {}
  size_t Depth() const override { return (head_dim_ + 1) / 2; }
  size_t QueryScratch() const override { return kTileRows * row_; }
  size_t KeyScratch() const override { return PanelCols() * row_; }

  void PackQueries(const float* const* rows, const Row*, size_t count, float* to,
                   float* scratch) const override {
    const float* pairs[kTileRows];
    ToPairRows(rows, count, scratch, pairs);
    TransposeRows(pairs, count, Depth(), to, count);
  }
  void PackKeys(const float* const* rows, size_t count, int64_t, float* panel,
                float* scratch) const override {
    const float* pairs[PanelCols()];
    ToPairRows(rows, count, scratch, pairs);
    PackTransposedPanel(RowPointers{pairs}, count, Depth(), panel);
  }
  void Fill(const float* queries, const float* panels, ScoreTile& tile) const override {
    FillScores(MultiplyPairs(), Depth(), Depth(), queries, panels, tile, StoreScaled{scale_});
  }

 private:
  void ToPairRows(const float* const* rows, size_t count, float* to, const float** pairs) const {
    for (size_t r = 0; r < count; ++r) {
      RowToPairs(rows[r], head_dim_, to + r * row_);
      pairs[r] = to + r * row_;
    }
  }

  float scale_;
  size_t head_dim_;
  size_t row_;  // floats of a row of pairs, whole vectors
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();
#endif  // HWY_NATIVE_DOT_BF16

#endif  // HEED_EXACT_SCORE_PAIR_DOT_INL_H_
