// Philox-4x32-10, a counter-based random generator: the same words for the same counter and key on
// every machine, in any order. Source: Salmon, Moraes, Dror & Shaw 2011, Parallel Random Numbers:
// As Easy as 1, 2, 3, section 4.3.
#if defined(HEED_SIMD_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_SIMD_PHILOX_INL_H_
#undef HEED_SIMD_PHILOX_INL_H_
#else
#define HEED_SIMD_PHILOX_INL_H_
#endif

#include <stdint.h>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Replaces the counters, one a lane, by their four random words. key[0] is the low half.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void Philox(D d, V (&counter)[4], const uint32_t (&key)[2]) {
  const V a = hn::Set(d, 0xD2511F53u);
  const V b = hn::Set(d, 0xCD9E8D57u);
  V k0 = hn::Set(d, key[0]);
  V k1 = hn::Set(d, key[1]);
  for (int round = 0; round < 10; ++round) {
    const V a_high = hn::MulHigh(a, counter[0]);
    const V a_low = hn::Mul(a, counter[0]);
    const V b_high = hn::MulHigh(b, counter[2]);
    const V b_low = hn::Mul(b, counter[2]);
    counter[0] = hn::Xor3(b_high, counter[1], k0);
    counter[1] = b_low;
    counter[2] = hn::Xor3(a_high, counter[3], k1);
    counter[3] = a_low;
    k0 = hn::Add(k0, hn::Set(d, 0x9E3779B9u));
    k1 = hn::Add(k1, hn::Set(d, 0xBB67AE85u));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_SIMD_PHILOX_INL_H_
