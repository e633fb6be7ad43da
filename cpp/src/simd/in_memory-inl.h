// Constants of inner loops, read from memory where that is cheaper than making them.
#if defined(HEED_SIMD_IN_MEMORY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_SIMD_IN_MEMORY_INL_H_
#undef HEED_SIMD_IN_MEMORY_INL_H_
#else
#define HEED_SIMD_IN_MEMORY_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// `constants` as they are; in WASM without the compiler's knowing their values, so that they are
// loaded. V8 makes every vector constant anew wherever it is used, by three instructions through an
// integer register: two thirds of all instructions of an exponential.
template <class T>
HWY_INLINE const T& InMemory(const T& constants) {
  const T* hidden = &constants;
#if HWY_TARGET == HWY_WASM
  asm("" : "+r"(hidden));
#endif
  return *hidden;
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_SIMD_IN_MEMORY_INL_H_
