// Gradients of positions against central differences of the float64 oracle, and in closed form.
#include <cmath>
#include <limits>

#include "backward_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/position.h"
#include "normal_input.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class PositionGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(PositionGradient);

// x [2, 3, 5, 8].
RequestBuilder Request4(const std::string& id) {
  RequestBuilder builder(id);
  builder.Floats("x", {2, 3, 5, 8}, NormalFloats(2 * 3 * 5 * 8, 1));
  return builder;
}

void Expect(const RequestBuilder& builder, const std::string& what) {
  ExpectElementsMatch(builder.request(), kPositionGradientMaxError, what);
}

TEST_P(PositionGradient, RotationsMatchDifferencesOfReference) {
  for (const char* pairing : {"half", "interleaved"}) {
    for (const bool inverse : {false, true}) {
      RequestBuilder plain = Request4("rope");
      plain.Param("pairing", pairing).Param("inverse", inverse).Param("position_offset", 7.0);
      Expect(plain, "rope");
      RequestBuilder yarn = Request4("rope");
      yarn.Param("pairing", pairing)
          .Param("inverse", inverse)
          .Param("rotary_dim", 6.0)
          .Param("scaling", "yarn")
          .Param("scaling_factor", 4.0)
          .Param("original_len", 16.0)
          .Integers("positions", {2, 5}, {3, 1, 4, 1, 5, 9, 2, 6, 5, 3});
      Expect(yarn, "yarn");
      for (const char* side : {"query", "key"}) {
        RequestBuilder xpos = Request4("xpos");
        xpos.Param("pairing", pairing).Param("inverse", inverse).Param("side", side);
        xpos.Param("scale_base", 4.0).Param("center", 2.0);
        Expect(xpos, "xpos");
      }
    }
  }
}

TEST_P(PositionGradient, GivenTablesMatchDifferencesOfReference) {
  for (const char* pairing : {"half", "interleaved"}) {
    for (const bool inverse : {false, true}) {
      RequestBuilder shared = Request4("rope");
      shared.Floats("cos", {9, 3}, NormalFloats(27, 2)).Floats("sin", {9, 3}, NormalFloats(27, 3));
      shared.Param("pairing", pairing).Param("inverse", inverse).Param("rotary_dim", 6.0);
      shared.Integers("positions", {5}, {3, 1, 4, 1, 8});
      Expect(shared, "one table");
      RequestBuilder own = Request4("rope");
      own.Floats("cos", {2, 5, 4}, NormalFloats(40, 2))
          .Floats("sin", {2, 5, 4}, NormalFloats(40, 3));
      own.Param("pairing", pairing).Param("inverse", inverse);
      Expect(own, "a table for each batch entry");
    }
  }
}

TEST_P(PositionGradient, SumsMatchDifferencesOfReference) {
  Expect(Request4("sinusoidal"), "sinusoidal");
  RequestBuilder learned = Request4("learned_position");
  learned.Floats("table", {9, 8}, NormalFloats(72, 2));
  learned.Integers("positions", {2, 5}, {3, 1, 4, 1, 5, 8, 2, 6, 5, 3});
  Expect(learned, "learned");
  for (const int64_t rows : {1, 3, 5, 12}) {
    RequestBuilder between = Request4("learned_position");
    between.Floats("table", {rows, 8}, NormalFloats(rows * 8, 2)).Param("interpolate", true);
    Expect(between, "interpolated from " + std::to_string(rows) + " rows");
  }
}

// A rotation keeps lengths, so what arrives is turned back: as `inverse` does it.
TEST_P(PositionGradient, GradientsOfRopeAreTheInverseRotation) {
  RequestBuilder builder = Request4("rope");
  builder.Param("pairing", "half");
  Backward backward(builder.request());
  std::vector<float> expected = backward.d_results.values(0);
  const TensorView<float> view = Contiguous(expected.data(), 2, 3, 5, 8);
  RopeOptions options;
  options.inverse = true;
  Rope(view, RopePairing::kHalf, options, view);
  EXPECT_EQ(backward.gradients.values(0), expected);
}

// A row of the table that nothing reads gets exactly 0, and NaN stays in the row it arrives at.
TEST_P(PositionGradient, RowsOfTablesGetWhatArrivesThere) {
  RequestBuilder builder("learned_position");
  builder.Floats("x", {3, 2}, {1, 2, 3, 4, 5, 6})
      .Floats("table", {4, 2}, NormalFloats(8, 2))
      .Integers("positions", {3}, {2, 0, 2});
  Backward backward(builder.request());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  backward.d_results.values(0) = {1, 2, nan, 4, 16, 32};
  backward.Run(builder.request());
  const std::vector<float>& table = backward.gradients.values(1);
  EXPECT_TRUE(std::isnan(table[0]));
  EXPECT_THAT(std::vector<float>(table.begin() + 1, table.end()),
              ::testing::ElementsAre(4, 0, 0, 17, 34, 0, 0));
}

TEST_P(PositionGradient, SameBitsForAnyNumberOfThreads) {
  RequestBuilder builder("learned_position");
  builder.Floats("x", {4, 600, 130}, NormalFloats(4 * 600 * 130, 1))
      .Floats("table", {600, 130}, NormalFloats(600 * 130, 2));
  ExpectSameGradientsForAnyThreads(builder.request(), "learned_position");
}

TEST(PositionGradientBoundary, OtherElementTypesAreRefused) {
  const RequestBuilder builder = Request4("sinusoidal");
  Request request = builder.request();
  request.inputs[0].tensor.dtype = DType::kBFloat16;
  EXPECT_THAT(BackwardRefusal(request), ::testing::HasSubstr("dtype: x has element type bfloat16"));
}

}  // namespace
}  // namespace heed::testing
