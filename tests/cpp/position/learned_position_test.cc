// Learned codes against the oracle; bounds; interpolation.
#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/position.h"
#include "position/position_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class LearnedPosition : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(LearnedPosition);

AnyTensor AsTable(const Buffer<float>& table) {
  AnyTensor tensor = table.any(DType::kFloat32, 2);
  const int64_t dim = table.shape()[3];
  tensor.shape = {table.shape()[2], dim};
  tensor.strides = {dim, 1};
  return tensor;
}

std::vector<float> Codes(int64_t len, const Buffer<float>& table,
                         const LearnedPositionOptions& options) {
  const Buffer<float> zeros({1, 1, len, table.shape()[3]}, Layout::kDense, 0);
  Buffer<float> y(zeros.shape(), Layout::kDense, kNanFloat);
  AddLearnedPosition(zeros.view(), table.view(), options, y.view());
  return y.Elements();
}

TEST_P(LearnedPosition, MatchesReference) {
  for (const bool per_batch : {false, true}) {
    const Buffer<float> table = RandomBuffer({1, 1, 100, 37}, Layout::kDense, 7);
    PositionCase call("learned_position", {3, 1, 21, 37}, Layout::kPadded, 2);
    std::vector<int32_t> rows;
    for (int i = 0; i < (per_batch ? 63 : 21); ++i) rows.push_back((i * 31) % 90);
    call.Input("table", AsTable(table)).Positions(rows, per_batch).Param("position_offset", 10.0);
    call.ExpectMatch([](int64_t, int64_t, int64_t, int64_t, double wanted) {
      return 0x1p-24 * std::abs(wanted);
    });
  }
}

TEST_P(LearnedPosition, InterpolationMatchesReference) {
  for (const int64_t len : {1, 3, 50, 101, 333}) {
    const Buffer<float> table = RandomBuffer({1, 1, 101, 20}, Layout::kDense, 7);
    PositionCase call("learned_position", {2, 2, len, 20}, Layout::kDense, 2);
    call.Input("table", AsTable(table)).Param("interpolate", true);
    call.ExpectMatch([](int64_t, int64_t, int64_t, int64_t, double) {
      return kPositionCodeMaxError * 5;  // the largest of the normal numbers
    });
  }
}

// Two rows stretched to four, as image libraries resize 1-D signals with aligned cell centres:
// 1, 1.25, 1.75, 2 (the example in PyTorch's documentation of Upsample).
TEST_P(LearnedPosition, PublishedInterpolation) {
  Buffer<float> table({1, 1, 2, 1}, Layout::kDense, 0);
  table(0, 0, 0, 0) = 1, table(0, 0, 1, 0) = 2;
  EXPECT_EQ(Codes(4, table, {.interpolate = true}), (std::vector<float>{1, 1.25, 1.75, 2}));
}

TEST_P(LearnedPosition, InterpolationReducesToLookupAtTheSameLength) {
  Buffer<float> table = RandomBuffer({1, 1, 77, 9}, Layout::kDense, 7);
  EXPECT_EQ(Codes(77, table, {.interpolate = true}), Codes(77, table, {}));
}

TEST_P(LearnedPosition, ReducesToSinusoidalWithItsTable) {
  Buffer<float> table({1, 1, 90, 18}, Layout::kDense, kNanFloat);
  AddSinusoidal({}, {}, table.view());
  const Buffer<float> x = RandomBuffer({2, 1, 60, 18}, Layout::kDense, 1);
  Buffer<float> learned(x.shape(), Layout::kDense, kNanFloat);
  Buffer<float> sinusoidal(x.shape(), Layout::kDense, kNanFloat);
  AddLearnedPosition(x.view(), table.view(), {.positions = {.offset = {30}}}, learned.view());
  AddSinusoidal(x.view(), {.positions = {.offset = {30}}}, sinusoidal.view());
  EXPECT_EQ(learned.Elements(), sinusoidal.Elements());
}

TEST_P(LearnedPosition, RowsThatNobodyReadsDoNotMatter) {
  Buffer<float> table = RandomBuffer({1, 1, 10, 8}, Layout::kDense, 7);
  const std::vector<float> clean = Codes(5, table, {});
  for (int64_t d = 0; d < 8; ++d) table(0, 0, 5, d) = kNanFloat;
  EXPECT_EQ(Codes(5, table, {}), clean);
}

TEST(LearnedPositionErrors, PositionsBeyondTheTableAreRefused) {
  const Buffer<float> table = RandomBuffer({1, 1, 10, 8}, Layout::kDense, 7);
  EXPECT_EQ(Codes(10, table, {}).size(), 80u);
  EXPECT_THROW(Codes(11, table, {}), Error);
  EXPECT_THROW(Codes(1, table, {.positions = {.offset = {10}}}), Error);
  EXPECT_THROW(Codes(1, table, {.positions = {.offset = {-1}}}), Error);
  EXPECT_THROW(Codes(3, table, {.positions = {.offset = {1}}, .interpolate = true}), Error);
  const Buffer<float> empty({1, 1, 0, 8}, Layout::kDense, 0);
  EXPECT_THROW(Codes(3, empty, {.interpolate = true}), Error);
  EXPECT_TRUE(Codes(0, empty, {}).empty());
  try {
    Codes(11, table, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRange);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("10 rows"));
  }
}

}  // namespace
}  // namespace heed::testing
