#include "native_bench/products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace heed::bench {
namespace {

using ::testing::HasSubstr;

ProductReport MeasureQuickly(const std::string& filter) {
  Options options;
  options.grid.threads = {1, 2};
  options.filter = filter;
  options.plan = {.min_reps = 1, .min_seconds = 0, .max_seconds = 0.01};
  return MeasureProducts(options, OpenReport(options, "test"),
                         [](const std::string&, size_t, size_t) {});
}

TEST(Products, EveryProductIsRightAndHasASpeed) {
  const ProductReport report = MeasureQuickly("");
  EXPECT_FALSE(AnyWrong(report));
  std::map<std::string, int> products;
  for (const ProductRow& row : report.rows) {
    products[row.peer] += 1;
    EXPECT_LE(row.max_error, 1);
    EXPECT_GT(row.Gflops(), 0);
    EXPECT_GT(row.peak_gflops, 0);
  }
  EXPECT_EQ(products["heed"], 20);
  const int of_one_thread = products.contains("blas") ? 10 : 0;
  EXPECT_EQ(products["blas"], of_one_thread);
  std::ostringstream table;
  PrintProducts(table, report);
  EXPECT_THAT(table.str(), HasSubstr("linear/1x768x768x768/t1"));
  EXPECT_THAT(table.str(), HasSubstr("bmm/64x128x64x128/t2"));
}

TEST(Products, FilterChoosesAndJsonHoldsWhatWasMeasured) {
  const ProductReport report = MeasureQuickly("^linear/1x1x.*/t2$");
  const nlohmann::json json = ToJson(report);
  EXPECT_EQ(json.at("schema"), "heed-bench-products");
  ASSERT_FALSE(json.at("rows").empty());
  for (const nlohmann::json& row : json.at("rows")) {
    EXPECT_EQ(row.at("case"), "linear/1x1x4096x4096/t2");
    EXPECT_EQ(row.at("status"), "timed");
    EXPECT_NEAR(row.at("gflops"),
                row.at("flop").get<double>() / row.at("ms").at("median").get<double>() / 1e6, 1e-6);
  }
  EXPECT_THROW(MeasureQuickly("no such product"), Error);
}

}  // namespace
}  // namespace heed::bench
