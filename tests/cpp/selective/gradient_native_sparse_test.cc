// Gradients of native sparse attention against central differences of the float64 oracle, whose
// steps change no choice.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>

#include "backward_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "selective_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class NativeSparseGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(NativeSparseGradient);

// Small blocks, so that queries leave some out; compressed keys that overlap.
RequestBuilder Sparse(const SelectiveSizes& s, uint64_t seed = 1) {
  RequestBuilder builder = SelectiveRequest("native_sparse", s, seed);
  builder
      .Floats("branch_gates", {s.batch, s.num_heads, s.q_len, 3},
              Normals(s.batch * s.num_heads * s.q_len * 3, seed + 3))
      .Param("compress_block", 4.0)
      .Param("compress_stride", 2.0)
      .Param("key_block", 3.0)
      .Param("top_blocks", 3.0)
      .Param("first_blocks", 1.0)
      .Param("local_blocks", 1.0)
      .Param("window_len", 5.0);
  return builder;
}

TEST_P(NativeSparseGradient, MatchesDifferencesOfReference) {
  for (const SelectiveSizes& s :
       {SelectiveSizes{1, 1, 1, 1, 1, 1, 1}, SelectiveSizes{2, 4, 2, 17, 17, 3, 5}}) {
    ExpectElementsMatch(Sparse(s).request(), kGradientMaxError,
                        "length " + std::to_string(s.kv_len));
  }
}

TEST_P(NativeSparseGradient, WeightsOfCompressionLearn) {
  const SelectiveSizes s = {2, 4, 2, 15, 15, 3, 2};
  for (const int64_t rows : {1, 2}) {
    RequestBuilder builder = Sparse(s, 9);
    builder.Floats("compress_k_weight", {rows, 4}, Normals(rows * 4, 5))
        .Floats("compress_v_weight", {rows, 4}, Normals(rows * 4, 6));
    ExpectElementsMatch(builder.request(), kGradientMaxError, std::to_string(rows) + " rows");
  }
}

constexpr const char* kOwn[] = {"compress_k", "compress_v", "window_k", "window_v"};

// Gives branches normal rows of their own, by name.
void AddOwn(RequestBuilder& builder, const SelectiveSizes& s, const std::vector<std::string>& names,
            uint64_t seed = 20) {
  for (const std::string& name : names) {
    const int64_t width = name.ends_with('k') ? s.head_dim : s.head_dim_v;
    builder.Floats(name, {s.batch, s.num_kv_heads, s.kv_len, width},
                   Normals(s.batch * s.num_kv_heads * s.kv_len * width, seed++));
  }
}

TEST_P(NativeSparseGradient, TokensOfBranchesLearn) {
  const SelectiveSizes s = {2, 4, 2, 15, 15, 3, 2};
  const std::vector<std::string> all(std::begin(kOwn), std::end(kOwn));
  std::vector<std::vector<std::string>> given = {all, {"compress_v", "window_k"}};
  for (const std::string& name : all) given.push_back({name});
  for (const std::vector<std::string>& names : given) {
    RequestBuilder builder = Sparse(s, 9);
    AddOwn(builder, s, names);
    builder.Floats("compress_k_weight", {2, 4}, Normals(8, 5))
        .Floats("compress_v_weight", {4}, Normals(4, 6));
    ExpectElementsMatch(builder.request(), kGradientMaxError,
                        names.front() + " of " + std::to_string(names.size()));
    ExpectSameGradientsForAnyThreads(builder.request(), names.front());
    ExpectSameGradientsWithGaps(builder.request(), names.front());
  }
}

TEST_P(NativeSparseGradient, TokensOfBranchesLearnAroundTilesAndBeyondLengths) {
  const SelectiveSizes s = {2, 2, 2, 40, 130, 8, 20};
  RequestBuilder builder = Sparse(s, 4);
  AddOwn(builder, s, {std::begin(kOwn), std::end(kOwn)});
  builder.Param("query_offset", std::vector<double>{90, 20})
      .Integers("key_lengths", {2}, {130, 51});
  ExpectDirectionsMatch(builder.request(), kGradientMaxError, "lengths 130 and 51");
}

// One pair learns what those of the branches learn together.
TEST_P(NativeSparseGradient, AddsUpToThatOfOnePair) {
  const SelectiveSizes s = {2, 4, 2, 30, 30, 4, 4};
  const RequestBuilder one = Sparse(s, 3);
  Request request = one.request();
  for (const NamedTensor& input : one.request().inputs) {
    if (input.name != "k" && input.name != "v") continue;
    for (const char* branch : {"compress_", "window_"}) {
      request.inputs.push_back({branch + input.name, input.tensor});
    }
  }
  Backward whole(one.request()), parts(request);
  const Values expected = whole.gradients.ByName(), actual = parts.gradients.ByName();
  EXPECT_EQ(actual.at("q"), expected.at("q"));
  EXPECT_EQ(actual.at("branch_gates"), expected.at("branch_gates"));
  for (const std::string name : {"k", "v"}) {
    for (size_t n = 0; n < expected.at(name).size(); ++n) {
      const double sum =
          actual.at(name)[n] + actual.at("compress_" + name)[n] + actual.at("window_" + name)[n];
      EXPECT_NEAR(sum, expected.at(name)[n], 1e-5) << name << "[" << n << "]";
    }
  }
}

TEST_P(NativeSparseGradient, TokensThatNoBranchReachesGetZeros) {
  const SelectiveSizes s = {1, 2, 1, 12, 12, 2, 2};
  RequestBuilder builder = Sparse(s, 6);
  AddOwn(builder, s, {std::begin(kOwn), std::end(kOwn)});
  builder.Integers("key_lengths", {1}, {9});
  for (const NamedTensor& input : builder.request().inputs) {
    if (input.name == "q" || input.name == "branch_gates" || input.tensor.rank != 4) continue;
    std::fill_n(static_cast<float*>(input.tensor.data) + 18, 6, kNan);
  }
  Backward backward(builder.request());
  for (const auto& [name, gradient] : backward.gradients.ByName()) {
    for (const double x : gradient) EXPECT_TRUE(std::isfinite(x)) << name;
    if (name == "q" || name == "branch_gates") continue;
    for (size_t n = 18; n < 24; ++n) EXPECT_EQ(gradient[n], 0) << name << "[" << n << "]";
  }
}

TEST_P(NativeSparseGradient, MatchesAlongDirectionsAroundTiles) {
  for (const SelectiveSizes& s :
       {SelectiveSizes{1, 3, 1, 65, 65, 17, 9}, SelectiveSizes{2, 2, 2, 40, 130, 8, 20}}) {
    RequestBuilder builder = Sparse(s, 4);
    builder.Param("query_offset", std::string("end"));
    ExpectDirectionsMatch(builder.request(), kGradientMaxError,
                          "length " + std::to_string(s.kv_len));
  }
}

TEST_P(NativeSparseGradient, MatchesBeyondLengths) {
  RequestBuilder builder = Sparse({3, 2, 1, 13, 13, 3, 2}, 7);
  builder.Integers("key_lengths", {3}, {13, 0, 8}).Param("scale", 1.5);
  ExpectElementsMatch(builder.request(), kGradientMaxError, "lengths 13, 0 and 8");
}

// Query 7 of 12 does not look at the compressed branch.
RequestBuilder Gated(const std::vector<float>& k, const std::vector<float>& v) {
  RequestBuilder builder("native_sparse");
  std::vector<float> gates(12 * 3, 0.5f);
  gates[7 * 3] = 0;
  builder.Floats("q", {1, 1, 12, 2}, Normals(24, 1))
      .Floats("k", {1, 1, 12, 2}, k)
      .Floats("v", {1, 1, 12, 2}, v)
      .Floats("branch_gates", {1, 1, 12, 3}, gates)
      .Param("compress_block", 4.0)
      .Param("compress_stride", 4.0)
      .Param("key_block", 2.0)
      .Param("top_blocks", 3.0)
      .Param("local_blocks", 2.0)
      .Param("window_len", 3.0);
  return builder;
}

TEST_P(NativeSparseGradient, AGateOfZeroLearnsAndLeavesItsBranchOut) {
  const RequestBuilder builder = Gated(Normals(24, 2), Normals(24, 3));
  ExpectElementsMatch(builder.request(), kGradientMaxError, "a gate of 0");
  // All gates of 0: nothing but gates learns, whatever the branches hold.
  RequestBuilder closed = Gated(std::vector<float>(24, kNan), std::vector<float>(24, kNan));
  closed.Param("first_blocks", 1.0);
  Request request = closed.request();
  std::vector<float> zeros(36, 0.0f);
  for (NamedTensor& input : request.inputs) {
    if (input.name == "branch_gates") input.tensor.data = zeros.data();
  }
  Backward backward(request);
  for (size_t n = 0; n < 3; ++n) {
    for (const float x : backward.gradients.values(n)) EXPECT_EQ(x, 0.0f);
  }
}

TEST_P(NativeSparseGradient, WhatIsNotSeenCannotMatter) {
  std::vector<float> k = Normals(24, 2), v = Normals(24, 3);
  std::fill(k.begin() + 18, k.end(), kNan);
  std::fill(v.begin() + 18, v.end(), kNan);
  RequestBuilder builder = Gated(k, v);
  builder.Integers("key_lengths", {1}, {9});
  Backward backward(builder.request());
  for (size_t n = 0; n < backward.gradients.size(); ++n) {
    for (const float x : backward.gradients.values(n)) EXPECT_TRUE(std::isfinite(x));
  }
  for (size_t i = 18; i < 24; ++i) {
    EXPECT_EQ(backward.gradients.values(1)[i], 0.0f);
    EXPECT_EQ(backward.gradients.values(2)[i], 0.0f);
  }
}

TEST_P(NativeSparseGradient, SameBitsForAnyNumberOfThreads) {
  RequestBuilder builder = Sparse({2, 4, 2, 200, 200, 8, 8}, 11);
  builder.Floats("compress_k_weight", {4}, Normals(4, 5));
  ExpectSameGradientsForAnyThreads(builder.request(), "native_sparse");
}

TEST(NativeSparseGradientMemory, GrowsWithTheLength) {
  const auto bytes = [](int64_t len) {
    return static_cast<double>(BackwardScratchBytes(Sparse({1, 2, 1, len, len, 8, 8}).request()));
  };
  EXPECT_GT(bytes(2048), 0);
  EXPECT_LT(bytes(4096), 2.2 * bytes(2048));
}

TEST(NativeSparseGradientRefuses, WhatForwardRefuses) {
  RequestBuilder builder = Sparse({1, 1, 1, 4, 4, 2, 2});
  builder.Floats("compress_k_weight", {3}, {1, 1, 1});
  EXPECT_THAT(BackwardRefusal(builder.request()), ::testing::HasSubstr("shape: compress_k_weight"));
  RequestBuilder window = Sparse({1, 1, 1, 4, 4, 2, 2});
  window.Floats("window_v", {1, 1, 3, 2}, Normals(6, 1));
  EXPECT_THAT(BackwardRefusal(window.request()), ::testing::HasSubstr("shape: window_v"));
}

}  // namespace
}  // namespace heed::testing
