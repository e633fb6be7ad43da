// One product of float32 matrices by OpenBLAS.
#ifndef HEED_NATIVE_BENCH_PEERS_BLAS_MULTIPLY_H_
#define HEED_NATIVE_BENCH_PEERS_BLAS_MULTIPLY_H_

#include <cstdint>

namespace heed::bench::blas_peer {

// out [m, n] = a [m, k] times b, which is [n, k] where it is transposed, else [k, n].
enum class Second { kAsItIs, kTransposed };
void Multiply(const float* a, const float* b, Second second, int64_t m, int64_t k, int64_t n,
              float* out);

// Of the products that follow.
void SetThreads(int threads);

}  // namespace heed::bench::blas_peer

#endif  // HEED_NATIVE_BENCH_PEERS_BLAS_MULTIPLY_H_
