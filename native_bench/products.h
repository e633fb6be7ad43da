// heed-bench --products: the matrix products behind the layers, beside those of a BLAS.
#ifndef HEED_NATIVE_BENCH_PRODUCTS_H_
#define HEED_NATIVE_BENCH_PRODUCTS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "native_bench/report.h"
#include "native_bench/run.h"

namespace heed::bench {

// batch products of [m, k] and [k, n].
struct ProductCase {
  const char* function;  // "linear": the second matrix is [n, k] and shared; "bmm": [k, n] each
  int64_t batch, m, k, n;
};

struct ProductRow {
  ProductCase product;
  int threads = 1;
  std::string peer;        // "heed"; "blas" on one thread, where the build has one
  double max_error = 0;    // largest sampled error over kLinearMaxError: at most 1 when right
  Summary seconds;         // none: wrong
  double peak_gflops = 0;  // of the chosen target with as many threads

  // "linear/1x768x768x768/t1": batch, m, k, n
  std::string Name() const;
  double Gflops() const;
};

struct ProductReport {
  Report context;
  std::vector<ProductRow> rows = {};  // the peers of a product follow each other, heed first
};

// The products of a transformer's layers with every thread count of the grid. All are checked, then
// timed in turn. `context` is OpenReport()'s.
ProductReport MeasureProducts(const Options& options, Report context, const Progress& progress,
                              const CheckpointOf<ProductReport>& checkpoint = {});

bool AnyWrong(const ProductReport& report);
void PrintProducts(std::ostream& out, const ProductReport& report);
nlohmann::json ToJson(const ProductReport& report);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_PRODUCTS_H_
