#include "native_bench/products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace heed::bench {
namespace {

using ::testing::HasSubstr;

TEST(Products, EveryProductIsRightAndHasASpeed) {
  const MeasurePlan plan = {.min_reps = 1, .min_seconds = 0, .max_seconds = 0.01};
  const std::vector<ProductRow> rows = MeasureProducts({1, 2}, plan);
  ASSERT_EQ(rows.size(), 10u);
  for (const ProductRow& row : rows) {
    EXPECT_LE(row.max_error, 1);
    EXPECT_GT(row.gflops, 0);
    EXPECT_GT(row.peak_gflops, 0);
  }
  std::ostringstream table;
  PrintProducts(table, rows);
  EXPECT_THAT(table.str(), HasSubstr("linear"));
  EXPECT_THAT(table.str(), HasSubstr("bmm"));
}

}  // namespace
}  // namespace heed::bench
