// Score plug: 0 for every pair, for normalisers to which q and k do not matter.
#if defined(HEED_EXACT_SCORE_CONSTANT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SCORE_CONSTANT_INL_H_
#undef HEED_EXACT_SCORE_CONSTANT_INL_H_
#else
#define HEED_EXACT_SCORE_CONSTANT_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "src/exact/score/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

class ConstantScore final : public ScorePlug {
 public:
  size_t Depth() const override { return 0; }
  void PackQueries(const float* const*, const Row*, size_t, float*, float*) const override {}
  void PackKeys(const float* const*, size_t, int64_t, float*, float*) const override {}
  void Fill(const float*, const float*, ScoreTile& tile) const override {
    for (size_t r = 0; r < tile.num_rows; ++r) {
      std::fill(tile.row_scores(r) + tile.first, tile.row_scores(r) + tile.last, 0.0f);
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_CONSTANT_INL_H_
