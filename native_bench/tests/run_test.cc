#include "native_bench/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace heed::bench {
namespace {

using ::testing::ElementsAre;

TEST(Run, WhatWasMeasuredIsToldAfterEachCase) {
  Options options;
  options.verify_only = true;
  options.peers = {"heed"};
  options.grid.mechanisms = {"scaled_dot_product"};
  options.grid.heads = {{2, 2}};
  options.grid.head_dims = {8};
  options.grid.lengths = {{16, 16}, {17, 17}, {18, 18}};
  options.grid.masks = {Mask::kFull};
  options.grid.threads = {1};
  std::vector<size_t> rows;
  const Report report = RunBenchmark(
      options, "test", [](const std::string&, size_t, size_t) {},
      [&](const Report& so_far) { rows.push_back(so_far.rows.size()); });
  EXPECT_THAT(rows, ElementsAre(1u, 2u));
  EXPECT_EQ(report.rows.size(), 3u);
}

}  // namespace
}  // namespace heed::bench
