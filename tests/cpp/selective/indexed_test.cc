// Indexed attention: against the oracle, its limit, choices by hand, and what it refuses.
#include <cmath>
#include <limits>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/selective.h"
#include "selective_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Indexed : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Indexed);

RequestBuilder WithIndexer(const SelectiveSizes& s, double top_k, uint64_t seed = 1,
                           int64_t heads = 3, int64_t dim = 5) {
  RequestBuilder builder = SelectiveRequest("indexed", s, seed);
  builder
      .Floats("index_q", {s.batch, heads, s.q_len, dim},
              Normals(s.batch * heads * s.q_len * dim, seed + 10))
      .Floats("index_k", {s.batch, s.kv_len, dim}, Normals(s.batch * s.kv_len * dim, seed + 11))
      .Floats("index_weights", {s.batch, heads, s.q_len},
              Normals(s.batch * heads * s.q_len, seed + 12))
      .Param("top_k", top_k);
  return builder;
}

TEST_P(Indexed, MatchesReference) {
  uint64_t seed = 1;
  for (const SelectiveSizes& s : CrossSizes()) {
    for (const double top_k : {1, 8, 50}) {
      for (const bool causal : {true, false}) {
        RequestBuilder builder = WithIndexer(s, top_k, seed++);
        builder.Param("causal", causal).Param("return_weights", true).Param("return_lse", true);
        if (s.q_len != s.kv_len) builder.Param("query_offset", std::string("end"));
        ExpectChoiceMatchesOracle(builder.request(), "length " + std::to_string(s.kv_len) +
                                                         ", keys " + std::to_string(top_k));
      }
    }
  }
}

TEST_P(Indexed, LengthsPerQueryMatchReference) {
  const SelectiveSizes s = {2, 4, 2, 3, 90, 8, 6};
  RequestBuilder builder = WithIndexer(s, 7);
  builder.Integers("key_lengths", {2, 3}, {90, 0, 29, 5, 7, 60}).Param("return_lse", true);
  ExpectChoiceMatchesOracle(builder.request(), "lengths of their own");
}

TEST_P(Indexed, ReducesToScaledDotProductWithAllKeys) {
  for (const SelectiveSizes& s : SelfSizes()) {
    RequestBuilder all = WithIndexer(s, static_cast<double>(s.kv_len), 9);
    RequestBuilder exact = SelectiveRequest("scaled_dot_product", s, 9);
    all.Param("causal", true);
    exact.Param("causal", true);
    ExpectSameOutput(all.request(), exact.request());
  }
}

// Equal weights on two of five keys: the output is their mean index.
RequestBuilder ByHand(std::vector<float> index_k, std::vector<float> weights) {
  RequestBuilder builder("indexed");
  const int64_t heads = static_cast<int64_t>(weights.size());
  std::vector<float> index_q;
  for (int64_t h = 0; h < heads; ++h) index_q.push_back(h % 2 == 0 ? 1.0f : -1.0f);
  builder.Floats("q", {1, 1, 1, 1}, {1})
      .Floats("k", {1, 1, 5, 1}, {1, 2, 3, 4, 5})
      .Floats("v", {1, 1, 5, 1}, {0, 1, 2, 3, 4})
      .Floats("index_q", {1, heads, 1, 1}, std::move(index_q))
      .Floats("index_k", {1, 5, 1}, std::move(index_k))
      .Floats("index_weights", {1, heads, 1}, std::move(weights))
      .Param("scale", 0.0)
      .Param("top_k", 2.0);
  return builder;
}

double Output(const RequestBuilder& builder) {
  return RunByName(builder.request()).at("output").at(0);
}

TEST_P(Indexed, ChoosesWhatOneChoosesByHand) {
  EXPECT_NEAR(Output(ByHand({3, 1, -9, 2, 0}, {1})), 1.5, 1e-6);      // keys 0 and 3
  EXPECT_NEAR(Output(ByHand({3, 1, -9, 2, 0}, {1, 1})), 1, 1e-6);     // 2 by its negative, and 0
  EXPECT_NEAR(Output(ByHand({3, 1, -9, 2, 0}, {-1, 0})), 3, 1e-6);    // 2 and 4 cost nothing
  EXPECT_NEAR(Output(ByHand({-1, -2, -3, -4, -5}, {1})), 0.5, 1e-6);  // all 0: the first two
  EXPECT_NEAR(Output(ByHand({1, 1, 2, 2, 2}, {1})), 2.5, 1e-6);       // of three equal ones two
}

TEST_P(Indexed, WhatIsNotSeenCannotMatter) {
  std::vector<float> k = Normals(40 * 4, 3), v = Normals(40 * 4, 4), index_k = Normals(40 * 2, 6);
  const auto run = [&] {
    RequestBuilder builder("indexed");
    builder.Floats("q", {1, 1, 4, 4}, Normals(16, 5))
        .Floats("k", {1, 1, 40, 4}, k)
        .Floats("v", {1, 1, 40, 4}, v)
        .Floats("index_q", {1, 1, 4, 2}, Normals(8, 7))
        .Floats("index_k", {1, 40, 2}, index_k)
        .Floats("index_weights", {1, 1, 4}, {1, 1, 1, 1})
        .Integers("key_lengths", {1}, {30})
        .Param("top_k", 3.0);
    return RunByName(builder.request()).at("output");
  };
  const std::vector<double> before = run();
  for (size_t n = 30 * 4; n < k.size(); ++n) k[n] = v[n] = kNan;
  for (size_t n = 30 * 2; n < index_k.size(); ++n) index_k[n] = kNan;
  EXPECT_EQ(run(), before);
  // A score that is NaN is seen first.
  index_k[2 * 9] = kNan;
  v[4 * 9] = kNan;
  const std::vector<double> after = run();
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(after[4 * i]));
}

TEST_P(Indexed, MemoryGrowsWithTheLength) {
  const auto bytes = [](int64_t len) {
    return ScratchBytes(WithIndexer({1, 2, 1, len, len, 8, 8}, 16).request());
  };
  EXPECT_LT(bytes(8192), 2.5 * static_cast<double>(bytes(4096)));
}

TEST(IndexedRefuses, TensorsThatDoNotFit) {
  const SelectiveSizes s = {1, 1, 1, 4, 4, 2, 2};
  RequestBuilder none = WithIndexer(s, 0);
  ExpectBothRefuse(none.request(), ErrorCode::kRange, "top_k");
  RequestBuilder narrow = WithIndexer(s, 1);
  narrow.Param("causal", true);
  Request request = narrow.request();
  for (NamedTensor& input : request.inputs) {
    if (input.name == "index_k") --input.tensor.shape[2];
  }
  ExpectBothRefuse(request, ErrorCode::kShape, "index_k");
}

}  // namespace
}  // namespace heed::testing
