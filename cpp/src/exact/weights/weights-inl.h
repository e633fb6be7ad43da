// Weights socket: what happens to the weights of a tile between the normaliser and the values. It
// changes no denominator and no lse.
#if defined(HEED_EXACT_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_WEIGHTS_INL_H_
#undef HEED_EXACT_WEIGHTS_INL_H_
#else
#define HEED_EXACT_WEIGHTS_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/tile.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

class WeightPlug {
 public:
  virtual ~WeightPlug() = default;

  // Must the weights be final? While tiles stream by, those of most normalisers still lack the
  // division by the row's sum. A plug that needs final ones has whole rows finished first, in the
  // row buffer (buffered-inl.h). What it makes of them is what is returned and shown to visitors;
  // the other plugs come after.
  virtual bool NeedsFinal() const = 0;

  // Replaces the weights of the tile, columns [first, last). Those of keys that do not count are 0;
  // a plug that needs final weights may write anything there, the others leave them.
  virtual void Apply(const ScoreTile& tile) const = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_WEIGHTS_INL_H_
