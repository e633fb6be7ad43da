#include "native_bench/products.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "heed/linear.h"
#include "native_bench/probes.h"
#include "native_bench/simd_target.h"

namespace heed::bench {
namespace {

// Square, a feed-forward layer, one and eight tokens, the heads of a short sequence.
constexpr ProductCase kProducts[] = {{"linear", 1, 768, 768, 768},
                                     {"linear", 1, 1024, 768, 3072},
                                     {"linear", 1, 1, 4096, 4096},
                                     {"linear", 1, 8, 4096, 4096},
                                     {"bmm", 64, 128, 64, 128}};

std::vector<float> RandomNormal(int64_t count, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  std::generate(values.begin(), values.end(), [&] { return normal(generator); });
  return values;
}

class Product {
 public:
  explicit Product(const ProductCase& c)
      : c_(c),
        linear_(std::string(c.function) == "linear"),
        a_(RandomNormal(c.batch * c.m * c.k, 1)),
        b_(RandomNormal((linear_ ? 1 : c.batch) * c.k * c.n, 2)),
        out_(static_cast<size_t>(c.batch * c.m * c.n)) {}

  void Run(ThreadPool& pool) {
    const auto a = Contiguous<const float>(a_.data(), c_.batch, 1, c_.m, c_.k);
    const auto out = Contiguous(out_.data(), c_.batch, 1, c_.m, c_.n);
    if (linear_) {
      Linear(a, MatrixView<const float>(b_.data(), c_.n, c_.k), {}, out, &pool);
    } else {
      Bmm(a, Contiguous<const float>(b_.data(), c_.batch, 1, c_.k, c_.n), out, &pool);
    }
  }

  // The largest of a few thousand errors, over its bound.
  double MaxError() const {
    double worst = 0;
    const int64_t elements = c_.batch * c_.m * c_.n;
    const int64_t step = std::max<int64_t>(1, elements / 4096 | 1);
    for (int64_t index = 0; index < elements; index += step) {
      const int64_t row = index / c_.n, column = index % c_.n;
      double sum = 0, size = 0;
      for (int64_t t = 0; t < c_.k; ++t) {
        const double term = static_cast<double>(a_[static_cast<size_t>(row * c_.k + t)]) *
                            b_[static_cast<size_t>(SecondIndex(row / c_.m, t, column))];
        sum += term;
        size += std::abs(term);
      }
      const double error = std::abs(out_[static_cast<size_t>(index)] - sum);
      if (std::isnan(error)) return std::numeric_limits<double>::infinity();
      if (error > 0) worst = std::max(worst, error / (kLinearMaxError * size));
    }
    return worst;
  }

  double Flops() const { return 2.0 * static_cast<double>(c_.batch * c_.m * c_.n * c_.k); }

 private:
  int64_t SecondIndex(int64_t batch, int64_t t, int64_t column) const {
    return linear_ ? column * c_.k + t : (batch * c_.k + t) * c_.n + column;
  }

  ProductCase c_;
  bool linear_;
  std::vector<float> a_, b_, out_;
};

ProductRow Measure(const ProductCase& c, int threads, double peak, const MeasurePlan& plan) {
  const auto pool = MakeThreadPool(threads);
  Product product(c);
  product.Run(*pool);
  ProductRow row = {c, threads, product.MaxError(), {}, 0, peak};
  if (!(row.max_error <= 1)) return row;  // wrong: no speed
  const std::function<void()> run = [&] { product.Run(*pool); };
  const double warm = product.Flops() / (peak * 1e9);
  row.seconds = MeasureInterleaved({&run, 1}, {&warm, 1}, plan)[0];
  row.gflops = product.Flops() / row.seconds.median / 1e9;
  return row;
}

}  // namespace

std::vector<ProductRow> MeasureProducts(const std::vector<int>& threads, const MeasurePlan& plan) {
  std::vector<ProductRow> rows;
  const std::string target = ChosenTarget();
  for (const int count : threads) {
    const double peak = MeasureFmaPeak(target, count, plan.clock).gflops;
    ForceTarget(target);  // the probe lifts the restriction
    for (const ProductCase& c : kProducts) rows.push_back(Measure(c, count, peak, plan));
  }
  return rows;
}

void PrintProducts(std::ostream& out, const std::vector<ProductRow>& rows) {
  out << "product  batch     m     k     n  threads  max error    median ms    GFLOP/s  of peak\n";
  for (const ProductRow& row : rows) {
    const ProductCase& c = row.product;
    std::array<char, 160> text;
    std::snprintf(text.data(), text.size(),
                  "%-7s %6lld %5lld %5lld %5lld  %7d  %9.3f  %11.4f  %9.1f  %5.1f %%\n", c.function,
                  static_cast<long long>(c.batch), static_cast<long long>(c.m),
                  static_cast<long long>(c.k), static_cast<long long>(c.n), row.threads,
                  row.max_error, row.seconds.median * 1e3, row.gflops,
                  100 * row.gflops / row.peak_gflops);
    out << text.data();
  }
  out << "max error: over the bound kLinearMaxError; a product beyond it is not timed\n";
}

}  // namespace heed::bench
