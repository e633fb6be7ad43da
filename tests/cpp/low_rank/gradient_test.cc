// Gradients of the low-rank family against central differences of the float64 oracle.
#include "heed/gradient.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "backward_case.h"
#include "gtest/gtest.h"
#include "low_rank_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class LowRankGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(LowRankGradient);

using Add = std::function<void(RequestBuilder&, const LowRankSizes&)>;

// A row of the family and what it is given beside q, k and v.
struct Row {
  std::string id;
  Add add;
};

// Weights of convolutions and projections of both signs.
RequestBuilder& AddWeights(RequestBuilder& builder, const std::string& name,
                           const std::vector<int64_t>& shape, uint64_t seed) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return builder.Floats(name, shape, Normals(count, seed, 0.3));
}

Add Projections(bool shared, bool own) {
  return [=](RequestBuilder& builder, const LowRankSizes& s) {
    const int64_t rows = 4, columns = s.kv_len + 2;
    if (shared) {
      AddWeights(builder, "key_projection", {rows, columns}, 4);
    } else {
      AddWeights(builder, "key_projection", {s.num_kv_heads, rows, columns}, 4);
    }
    if (own) AddWeights(builder, "value_projection", {rows, columns}, 5);
  };
}

void AddConvolutions(RequestBuilder& builder, const LowRankSizes& s) {
  AddWeights(builder, "key_conv", {s.num_kv_heads, s.head_dim, s.head_dim, 3}, 4);
  AddWeights(builder, "key_conv_bias", {s.num_kv_heads, s.head_dim}, 5);
  AddWeights(builder, "value_conv", {s.head_dim_v, s.head_dim_v, 3}, 6);
  AddWeights(builder, "value_conv_bias", {s.head_dim_v}, 7);
  AddWeights(builder, "sinks", {s.num_heads}, 8);
}

Add Landmarks(double count, bool conv) {
  return [=](RequestBuilder& builder, const LowRankSizes& s) {
    builder.Param("num_landmarks", count);
    if (conv) AddWeights(builder, "depthwise_conv", {s.num_heads, 3}, 4);
  };
}

std::vector<Row> Rows() {
  return {{"linformer", Projections(true, false)},
          {"linformer", Projections(false, true)},
          {"efficient", [](RequestBuilder&, const LowRankSizes&) {}},
          {"memory_compressed", [](RequestBuilder&, const LowRankSizes&) {}},
          {"memory_compressed", AddConvolutions},
          {"memory_compressed",
           [](RequestBuilder& builder, const LowRankSizes& s) {
             AddConvolutions(builder, s);
             builder.Param("causal", true).Param("query_offset", 1.0);
           }},
          {"nystrom", Landmarks(3, true)},
          {"nystrom", Landmarks(3, false)}};
}

// Nystrom pairs queries and keys of the same tokens.
RequestBuilder RequestOf(const Row& row, LowRankSizes s) {
  if (row.id == "nystrom") s.q_len = s.kv_len;
  RequestBuilder builder = Tokens(s).Request(row.id);
  row.add(builder, s);
  // The oracle gives a result that is asked for.
  if (row.id == "linformer" || row.id == "memory_compressed") builder.Param("return_lse", true);
  return builder;
}

TEST_P(LowRankGradient, MatchesDifferencesOfReference) {
  for (const Row& row : Rows()) {
    for (const LowRankSizes& s :
         {LowRankSizes{1, 1, 1, 3, 3, 1, 1}, LowRankSizes{2, 4, 2, 5, 8, 3, 4}}) {
      ExpectElementsMatch(RequestOf(row, s).request(), kLowRankGradientMaxError, row.id);
    }
  }
}

TEST_P(LowRankGradient, MatchesAlongDirectionsForLongerTexts) {
  for (const Row& row : Rows()) {
    for (const LowRankSizes& s :
         {LowRankSizes{1, 2, 1, 70, 130, 17, 9}, LowRankSizes{2, 4, 4, 33, 70, 16, 33}}) {
      ExpectDirectionsMatch(RequestOf(row, s).request(), kLowRankGradientMaxError, row.id);
    }
  }
}

TEST_P(LowRankGradient, MatchesBeyondLengths) {
  for (const Row& row : Rows()) {
    RequestBuilder builder = RequestOf(row, {3, 2, 1, 5, 7, 3, 4});
    builder.Integers("key_lengths", {3}, {0, 2, 5});
    ExpectElementsMatch(builder.request(), kLowRankGradientMaxError, row.id);
  }
}

TEST_P(LowRankGradient, SameBitsForAnyNumberOfThreads) {
  for (const Row& row : Rows()) {
    ExpectSameGradientsForAnyThreads(RequestOf(row, {2, 6, 3, 33, 70, 8, 8}).request(), row.id);
  }
}

TEST_P(LowRankGradient, SameBitsWhereRowsLieApart) {
  for (const Row& row : Rows()) {
    if (row.id == "memory_compressed") continue;  // heads of a convolution must be contiguous
    ExpectSameGradientsWithGaps(RequestOf(row, {2, 4, 2, 5, 8, 3, 4}).request(), row.id);
  }
}

TEST_P(LowRankGradient, LargeLogitsStayWithinTheBound) {
  for (const Row& row : Rows()) {
    if (row.id == "nystrom") continue;  // its bound grows with the pseudo-inverse
    const LowRankSizes s = {1, 2, 1, 5, 9, 4, 3};
    Tokens tokens(s);
    for (float& x : tokens.q) x *= 4;
    RequestBuilder builder = tokens.Request(row.id);
    row.add(builder, s);
    if (row.id != "efficient") builder.Param("return_lse", true);
    ExpectElementsMatch(builder.request(), kLowRankGradientMaxError, row.id);
  }
}

TEST_P(LowRankGradient, NanBeyondLengthsReachesNothing) {
  for (const Row& row : Rows()) {
    LowRankSizes s = {1, 2, 1, 7, 7, 3, 3};
    Tokens tokens(s);
    tokens.Key(0, 0, 6, 1) = tokens.Value(0, 0, 5, 2) = kNan;
    RequestBuilder builder = tokens.Request(row.id);
    row.add(builder, s);
    builder.Integers("key_lengths", {1}, {5});
    Backward backward(builder.request());
    for (const auto& [name, gradient] : backward.gradients.ByName()) {
      for (size_t n = 0; n < gradient.size(); ++n) {
        EXPECT_TRUE(std::isfinite(gradient[n])) << row.id << ", " << name;
        const bool exists = (name != "k" && name != "v") || n < 5 * 3;
        EXPECT_TRUE(exists || gradient[n] == 0.0) << row.id << ", " << name;
      }
    }
  }
}

TEST(LowRankGradientBoundary, ResultsWithoutGradientAreRefused) {
  for (const Row& row : Rows()) {
    RequestBuilder builder = RequestOf(row, {1, 1, 1, 3, 3, 2, 2});
    builder.Param("return_weights", true);
    EXPECT_EQ(BackwardRefusal(builder.request()),
              "unsupported: return_weights and return_residual give results without a gradient");
  }
}

TEST(LowRankGradientBoundary, GradientsInTheMemoryOfInputsAreRefused) {
  RequestBuilder builder = Tokens({1, 1, 1, 3, 3, 2, 2}).Request("efficient");
  Backward backward(builder.request());
  const std::vector<NamedTensor> gradients = {{"q", builder.request().inputs[1].tensor}};
  EXPECT_THROW(RunBackward(builder.request(), backward.results.named(), backward.d_results.named(),
                           gradients),
               Error);
}

}  // namespace
}  // namespace heed::testing
