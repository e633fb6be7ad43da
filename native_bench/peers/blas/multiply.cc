#include "native_bench/peers/blas/multiply.h"

#include <cblas.h>

namespace heed::bench::blas_peer {

void Multiply(const float* a, const float* b, Second second, int64_t m, int64_t k, int64_t n,
              float* out) {
  const int rows = static_cast<int>(m), depth = static_cast<int>(k), columns = static_cast<int>(n);
  const bool transposed = second == Second::kTransposed;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, transposed ? CblasTrans : CblasNoTrans, rows, columns,
              depth, 1, a, depth, b, transposed ? depth : columns, 0, out, columns);
}

void SetThreads(int threads) { openblas_set_num_threads(threads); }

}  // namespace heed::bench::blas_peer
