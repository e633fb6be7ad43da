#include "native_bench/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "native_bench/backward.h"
#include "native_bench/curves.h"
#include "native_bench/decode.h"
#include "native_bench/steps.h"

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
  EXPECT_THAT(rows, ElementsAre(1u, 2u, 3u));
  EXPECT_EQ(report.rows.size(), 3u);
}

TEST(Run, OwnReportsAreToldAfterEachCaseToo) {
  Options options;
  options.verify_only = true;
  options.grid.heads = {{2, 2}};
  options.grid.head_dims = {8};
  options.grid.lengths = {{16, 16}, {32, 32}};
  options.grid.threads = {1};
  const Progress silent = [](const std::string&, size_t, size_t) {};
  std::vector<size_t> told;
  MeasureDecode(options, {}, silent,
                [&](const DecodeReport& so_far) { told.push_back(so_far.rows.size()); });
  options.filter = "^linear$|^retention$";
  MeasureCurves(options, {}, silent,
                [&](const CurveReport& so_far) { told.push_back(so_far.curves.size()); });
  MeasureSteps(options, {}, silent,
               [&](const StepReport& so_far) { told.push_back(so_far.rows.size()); });
  EXPECT_THAT(told, ElementsAre(5u, 10u, 1u, 2u, 2u));
}

TEST(Run, EveryCaseOfGradientsIsTold) {
  Options options;
  options.verify_only = true;
  options.grid.mechanisms = {"scaled_dot_product"};
  options.grid.heads = {{1, 1}};
  options.grid.head_dims = {4};
  options.grid.lengths = {{8, 8}, {9, 9}};
  options.grid.masks = {Mask::kCausal};
  options.grid.threads = {1};
  std::vector<size_t> told;
  MeasureBackward(
      options, {}, [](const std::string&, size_t, size_t) {},
      [&](const BackwardReport& so_far) { told.push_back(so_far.rows.size()); });
  EXPECT_THAT(told, ElementsAre(1u, 2u));
}

}  // namespace
}  // namespace heed::bench
