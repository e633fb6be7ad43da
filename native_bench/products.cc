#include "native_bench/products.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <string>
#include <utility>

#include "heed/linear.h"
#include "native_bench/probes.h"
#include "native_bench/simd_target.h"
#if defined(HEED_BENCH_BLAS)
#include "native_bench/peers/blas/multiply.h"
#endif

namespace heed::bench {
namespace {

// Projections of 64 and more tokens, a feed-forward layer, one and eight tokens, the heads of a
// short sequence.
constexpr ProductCase kProducts[] = {
    {"linear", 1, 64, 512, 512},     {"linear", 1, 64, 2048, 2048},
    {"linear", 1, 512, 512, 512},    {"linear", 1, 768, 768, 768},
    {"linear", 1, 1024, 1024, 1024}, {"linear", 1, 2048, 2048, 2048},
    {"linear", 1, 1024, 768, 3072},  {"linear", 1, 1, 4096, 4096},
    {"linear", 1, 8, 4096, 4096},    {"bmm", 64, 128, 64, 128}};

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

#if defined(HEED_BENCH_BLAS)
  void RunBlas() {
    using blas_peer::Second;
    const Second second = linear_ ? Second::kTransposed : Second::kAsItIs;
    for (int64_t n = 0; n < c_.batch; ++n) {  // 1 where the second matrix is shared
      blas_peer::Multiply(a_.data() + n * c_.m * c_.k, b_.data() + n * c_.k * c_.n, second, c_.m,
                          c_.k, c_.n, out_.data() + n * c_.m * c_.n);
    }
  }
#endif

  // NaN everywhere: what is not written is wrong.
  void Forget() { std::fill(out_.begin(), out_.end(), std::numeric_limits<float>::quiet_NaN()); }

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

 private:
  int64_t SecondIndex(int64_t batch, int64_t t, int64_t column) const {
    return linear_ ? column * c_.k + t : (batch * c_.k + t) * c_.n + column;
  }

  ProductCase c_;
  bool linear_;
  std::vector<float> a_, b_, out_;
};

double FlopOf(const ProductCase& c) { return 2.0 * static_cast<double>(c.batch * c.m * c.n * c.k); }

// heed and the BLAS of one product, in turn.
std::vector<ProductRow> MeasureProduct(const ProductRow& row, const MeasurePlan& plan) {
  const auto pool = MakeThreadPool(row.threads);
  Product product(row.product);
  std::vector<std::pair<const char*, std::function<void()>>> peers;
  peers.emplace_back("heed", [&] { product.Run(*pool); });
#if defined(HEED_BENCH_BLAS)
  // Its threads look for more work for a while after a call, on the processors that heed's turn
  // needs.
  if (row.threads == 1) {
    blas_peer::SetThreads(1);
    peers.emplace_back("blas", [&] { product.RunBlas(); });
  }
#endif
  std::vector<ProductRow> rows(peers.size(), row);
  std::vector<std::function<void()>> calls;
  std::vector<size_t> right;
  for (size_t i = 0; i < peers.size(); ++i) {
    rows[i].peer = peers[i].first;
    product.Forget();
    peers[i].second();
    rows[i].max_error = product.MaxError();
    if (!(rows[i].max_error <= 1)) continue;  // wrong: no speed
    calls.push_back(peers[i].second);
    right.push_back(i);
  }
  const std::vector<double> warm(calls.size(), FlopOf(row.product) / (row.peak_gflops * 1e9));
  const std::vector<Summary> summaries = MeasureInterleaved(calls, warm, plan);
  for (size_t n = 0; n < right.size(); ++n) rows[right[n]].seconds = summaries[n];
  return rows;
}

}  // namespace

std::string ProductRow::Name() const {
  const ProductCase& c = product;
  return std::string(c.function) + "/" + std::to_string(c.batch) + "x" + std::to_string(c.m) + "x" +
         std::to_string(c.k) + "x" + std::to_string(c.n) + "/t" + std::to_string(threads);
}

double ProductRow::Gflops() const {
  return seconds.count ? FlopOf(product) / seconds.median / 1e9 : 0;
}

ProductReport MeasureProducts(const Options& options, Report context, const Progress& progress,
                              const CheckpointOf<ProductReport>& checkpoint) {
  ProductReport report = {.context = std::move(context)};
  const std::string target = ChosenTarget();
  const std::regex expression = CompileFilter(options.filter);
  std::vector<ProductRow> wanted;
  for (const int threads : options.grid.threads) {
    report.context.peaks.push_back(MeasureFmaPeak(target, threads, options.plan.clock));
    ForceTarget(target);  // the probe lifts the restriction
    for (const ProductCase& c : kProducts) {
      ProductRow row;
      row.product = c;
      row.threads = threads;
      row.peak_gflops = report.context.peaks.back().gflops;
      if (std::regex_search(row.Name(), expression)) wanted.push_back(row);
    }
  }
  if (wanted.empty()) throw Error(ErrorCode::kOption, "--filter leaves no row of --products");
  for (size_t n = 0; n < wanted.size(); ++n) {
    progress(wanted[n].Name(), n, wanted.size());
    const std::vector<ProductRow> rows = MeasureProduct(wanted[n], options.plan);
    report.rows.insert(report.rows.end(), rows.begin(), rows.end());
    if (checkpoint) checkpoint(report);
  }
  return report;
}

bool AnyWrong(const ProductReport& report) {
  return std::any_of(report.rows.begin(), report.rows.end(),
                     [](const ProductRow& row) { return !(row.max_error <= 1); });
}

void PrintProducts(std::ostream& out, const ProductReport& report) {
  out << "product, batch x m x k x n     peer  max error    median ms    GFLOP/s  of peak\n";
  for (const ProductRow& row : report.rows) {
    std::array<char, 160> text;
    std::snprintf(text.data(), text.size(), "%-28s  %5s  %9.3f  %11.4f  %9.1f  %5.1f %%\n",
                  row.Name().c_str(), row.peer.c_str(), row.max_error, row.seconds.median * 1e3,
                  row.Gflops(), 100 * row.Gflops() / row.peak_gflops);
    out << text.data();
  }
  out << "max error: over the bound kLinearMaxError; a product beyond it is not timed\n";
}

nlohmann::json ToJson(const ProductReport& report) {
  nlohmann::json object = ContextJson(report.context);
  object["schema"] = "heed-bench-products";
  nlohmann::json& rows = object["rows"] = nlohmann::json::array();
  for (const ProductRow& row : report.rows) {
    const ProductCase& c = row.product;
    nlohmann::json entry = {{"case", row.Name()},
                            {"function", c.function},
                            {"batch", c.batch},
                            {"m", c.m},
                            {"k", c.k},
                            {"n", c.n},
                            {"threads", row.threads},
                            {"peer", row.peer},
                            {"error_over_bound", row.max_error},
                            {"flop", FlopOf(c)},
                            {"status", "wrong"}};
    if (row.seconds.count > 0) {
      entry["status"] = "timed";
      entry["ms"] = TimesJson(row.seconds);
      entry["reps"] = row.seconds.count;
      entry["gflops"] = row.Gflops();
      entry["fraction_of_fma_peak"] = row.Gflops() / row.peak_gflops;
    }
    rows.push_back(std::move(entry));
  }
  return object;
}

}  // namespace heed::bench
