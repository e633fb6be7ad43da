// heed::DropoutMask: the picture of what dropout leaves, from the same words as the loop.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/exact/dropout.cc"
#include <algorithm>

#include "heed/attention.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/exact/problem.h"
#include "src/exact/weights/dropout-inl.h"
#include "src/view_checks.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

void WriteMask(const Dropout& dropout, const TensorView<uint8_t>& kept) {
  const DropoutWeights plug(dropout);
  constexpr int64_t kWords = 4 * static_cast<int64_t>(hn::MaxLanes(DF()));
  HWY_ALIGN uint32_t words[kWords];
  for (int64_t b = 0; b < kept.shape[0]; ++b) {
    for (int64_t h = 0; h < kept.shape[1]; ++h) {
      for (int64_t i = 0; i < kept.shape[2]; ++i) {
        for (int64_t j = 0; j < kept.shape[3]; ++j) {
          if (j % kWords == 0) plug.Words(b, h, i, j, words);
          kept(b, h, i, j) = plug.Keeps(words[j % kWords]) ? 1 : 0;
        }
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(WriteMask);

void DropoutMask(const Dropout& dropout, TensorView<uint8_t> kept) {
  CheckDropout(dropout, kept.shape);
  CheckInput("kept", kept);
  HWY_DYNAMIC_DISPATCH(WriteMask)(dropout, kept);
}

}  // namespace heed
#endif  // HWY_ONCE
