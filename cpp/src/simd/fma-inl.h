// Multiply-add that is fused wherever the machine can fuse, WASM relaxed SIMD included.
#if defined(HEED_SIMD_FMA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_SIMD_FMA_INL_H_
#undef HEED_SIMD_FMA_INL_H_
#else
#define HEED_SIMD_FMA_INL_H_
#endif

#include "hwy/highway.h"

#if HWY_TARGET == HWY_WASM && defined(__wasm_relaxed_simd__)
#include <wasm_simd128.h>
#endif

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// a * b + c. Highway's WASM target multiplies, then adds; relaxed SIMD has one instruction for it.
template <class V>
HWY_INLINE V Fma(V a, V b, V c) {
#if HWY_TARGET == HWY_WASM && defined(__wasm_relaxed_simd__)
  return V{wasm_f32x4_relaxed_madd(a.raw, b.raw, c.raw)};
#else
  return hn::MulAdd(a, b, c);
#endif
}

// max(x, bound), but NaN where x is NaN. Plain Max drops NaN on some machines.
template <class V>
HWY_INLINE V RaiseToBound(V x, V bound) {
#if (HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128) || HWY_TARGET == HWY_WASM
  // maxps returns its second operand when either one is NaN; Highway's WASM target does the same.
  return hn::Max(bound, x);
#else
  return hn::IfThenElse(hn::Lt(x, bound), bound, x);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_SIMD_FMA_INL_H_
