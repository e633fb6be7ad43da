// Inner loops of the probes, one version for each Highway target.
#ifndef HEED_NATIVE_BENCH_PROBE_KERNELS_H_
#define HEED_NATIVE_BENCH_PROBE_KERNELS_H_

#include <cstdint>

namespace heed::bench {

struct FmaRun {
  double flops = 0;
  float sum = 0;  // keeps the compiler from dropping the loop
};

// `rounds` rounds of 14 chained multiply-adds.
FmaRun RunFmaChains(int64_t rounds);

// The sum of `count` floats; `data` on a cache line, `count` a multiple of 256.
float ReadArray(const float* data, int64_t count);

// a[i] = b[i] + factor * c[i] with stores that bypass the caches; alignment as above.
void TriadArrays(float* a, const float* b, const float* c, float factor, int64_t count);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_PROBE_KERNELS_H_
