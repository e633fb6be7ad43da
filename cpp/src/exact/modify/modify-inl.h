// Modify socket: plugs that change scores before the keep rules, in the order softcap, ALiBi, bias.
#if defined(HEED_EXACT_MODIFY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_MODIFY_INL_H_
#undef HEED_EXACT_MODIFY_INL_H_
#else
#define HEED_EXACT_MODIFY_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/tile.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A function on a tile of scores. It works on the columns [first, last); what it writes to padding
// or to hidden cells is overwritten by the keep plugs, which run after it. A plug may hide cells
// itself by writing -inf.
class Modify {
 public:
  virtual ~Modify() = default;
  virtual void Apply(ScoreTile& tile) const = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_MODIFY_INL_H_
