// --products: the speed of the matrix products behind the layers, as a fraction of the FMA peak.
#ifndef HEED_NATIVE_BENCH_PRODUCTS_H_
#define HEED_NATIVE_BENCH_PRODUCTS_H_

#include <ostream>
#include <string>
#include <vector>

#include "native_bench/measure.h"

namespace heed::bench {

// batch products of [m, k] and [k, n].
struct ProductCase {
  const char* function;  // "linear": the second matrix is [n, k] and shared; "bmm": [k, n] each
  int64_t batch, m, k, n;
};

struct ProductRow {
  ProductCase product;
  int threads = 1;
  double max_error = 0;  // largest sampled error over its bound: at most 1 when right
  Summary seconds;
  double gflops = 0;
  double peak_gflops = 0;  // of the chosen target with as many threads
};

// Checks and measures the products of a transformer's layers on the chosen SIMD target.
std::vector<ProductRow> MeasureProducts(const std::vector<int>& threads, const MeasurePlan& plan);

void PrintProducts(std::ostream& out, const std::vector<ProductRow>& rows);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_PRODUCTS_H_
