// Horizontal maxima and sums, four vectors at a time: one by one each would wait for its shuffles.
#if defined(HEED_SIMD_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_SIMD_REDUCE_INL_H_
#undef HEED_SIMD_REDUCE_INL_H_
#else
#define HEED_SIMD_REDUCE_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D4 = hn::FixedTag<float, 4>;
using V4 = hn::Vec<D4>;

struct MaxOf {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};
struct SumOf {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};

// Combines the 128-bit blocks of a vector into one.
template <class D, class Op>
HWY_INLINE V4 CombineBlocks(D, hn::Vec<D> v, Op op) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return CombineBlocks(half, op(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), op);
  }
}

// Lane i of the result combines all lanes of v[i], in the same order for every i.
template <class D, class Op>
HWY_INLINE V4 ReduceFour(D d, const hn::Vec<D> (&v)[4], Op op) {
  const hn::Repartition<double, D> pairs;
  const auto two = [&](hn::Vec<D> a, hn::Vec<D> b) HWY_ATTR {
    return hn::BitCast(pairs, op(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  };
  const auto a = two(v[0], v[1]);
  const auto b = two(v[2], v[3]);
  const auto four = op(hn::BitCast(d, hn::InterleaveLower(pairs, a, b)),
                       hn::BitCast(d, hn::InterleaveUpper(pairs, a, b)));
  return CombineBlocks(d, four, op);
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_SIMD_REDUCE_INL_H_
