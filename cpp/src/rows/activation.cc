#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/rows/activation.cc"
#include "src/rows/activation.h"

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/parallel/pieces.h"
#include "src/rows/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

void ActivateElements(Activation activation, const float* x, size_t begin, size_t end, float* y) {
  const DF d;
  ForEachVector(begin, end, [&](size_t n, size_t count) HWY_ATTR {
    const VF from = hn::LoadN(d, x + n, count);
    VF to = from;
    WithActivation(activation, [&](const auto& act) HWY_ATTR { to = act.Value(d, from); });
    hn::StoreN(to, d, y + n, count);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(ActivateElements);

void Activate(Activation activation, const float* x, int64_t count, float* y, ThreadPool* pool) {
  ForEachPiece(count, kTaskElements, pool, [&](int64_t begin, int64_t end, int64_t) {
    HWY_DYNAMIC_DISPATCH(ActivateElements)
    (activation, x, static_cast<size_t>(begin), static_cast<size_t>(end), y);
  });
}

}  // namespace heed
#endif  // HWY_ONCE
