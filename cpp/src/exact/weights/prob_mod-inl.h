// Weights plug: a user's function on final weights.
#if defined(HEED_EXACT_WEIGHTS_PROB_MOD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_WEIGHTS_PROB_MOD_INL_H_
#undef HEED_EXACT_WEIGHTS_PROB_MOD_INL_H_
#else
#define HEED_EXACT_WEIGHTS_PROB_MOD_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/user_tile.h"
#include "src/exact/weights/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

class ProbMod final : public WeightPlug {
 public:
  explicit ProbMod(const TileFunction& function) : function_(function) {}

  bool NeedsFinal() const override { return true; }

  // The function is not told which cells are hidden: the loop makes them 0 again.
  void Apply(const ScoreTile& tile) const override { function_(UserTile(tile).All(tile)); }

 private:
  const TileFunction& function_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_WEIGHTS_PROB_MOD_INL_H_
