#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/rows/backward_activation.cc"
#include "src/rows/backward_activation.h"

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/parallel/pieces.h"
#include "src/rows/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

void ActivateElementsBackward(Activation activation, const float* x, const float* d_y, size_t begin,
                              size_t end, float* d_x) {
  const DF d;
  ForEachVector(begin, end, [&](size_t n, size_t count) HWY_ATTR {
    const VF from = hn::LoadN(d, x + n, count), arriving = hn::LoadN(d, d_y + n, count);
    VF slope = from;
    WithActivation(activation, [&](const auto& act) HWY_ATTR { slope = act.Slope(d, from); });
    const VF gradient = hn::IfThenZeroElse(hn::Eq(arriving, hn::Zero(d)), hn::Mul(slope, arriving));
    hn::StoreN(gradient, d, d_x + n, count);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(ActivateElementsBackward);

void ActivateBackward(Activation activation, const float* x, const float* d_y, int64_t count,
                      float* d_x, ThreadPool* pool) {
  ForEachPiece(count, kTaskElements, pool, [&](int64_t begin, int64_t end, int64_t) {
    HWY_DYNAMIC_DISPATCH(ActivateElementsBackward)
    (activation, x, d_y, static_cast<size_t>(begin), static_cast<size_t>(end), d_x);
  });
}

}  // namespace heed
#endif  // HWY_ONCE
