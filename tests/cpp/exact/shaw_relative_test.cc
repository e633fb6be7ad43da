// Relative position representations: keys and values by distance.
#include <cmath>
#include <limits>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/registry.h"
#include "request_builder.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

class ShawRelative : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(ShawRelative);

// Tables of distances -reach to reach, shared by the heads or one each.
AttentionCase Small(int64_t reach, bool per_head, int64_t q_len = 33, int64_t kv_len = 390) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = q_len,
                              .kv_len = kv_len,
                              .head_dim = 16,
                              .head_dim_v = 9});
  Random random(1);
  const auto shape = [&](int64_t dim) {
    return per_head ? std::vector<int64_t>{4, 2 * reach + 1, dim}
                    : std::vector<int64_t>{2 * reach + 1, dim};
  };
  c.AddTensor("relative_keys", shape(16), random);
  c.AddTensor("relative_values", shape(9), random);
  c.scalars.query_offset = QueryOffset::End();
  return c;
}

TEST_P(ShawRelative, MatchesReferenceForEveryReach) {
  for (const int64_t reach : {0, 1, 16, 100, 500}) {
    for (const bool per_head : {false, true}) {
      AttentionCase c = Small(reach, per_head);
      ExpectMatchesReference(c);
      c.scalars.causal = true;
      ExpectMatchesReference(c);
    }
  }
}

TEST_P(ShawRelative, MatchesReferenceForFewQueries) {
  // Few rows read keys panel by panel; many keys are split over tasks.
  for (const int64_t q_len : {1, 3, 20}) {
    for (const int64_t kv_len : {5, 300, 2500}) {
      AttentionCase c = Small(20, true, q_len, kv_len);
      c.scalars.causal = true;
      ExpectMatchesReference(c);
    }
  }
}

TEST_P(ShawRelative, EachTableMayBeLeftOut) {
  for (const char* name : {"relative_keys", "relative_values"}) {
    AttentionCase c = Small(16, false);
    c.tensors.erase(name);
    ExpectMatchesReference(c);
  }
}

TEST_P(ShawRelative, GivesHandComputedNumbers) {
  // One query at key 1 of three, q = 1, keys 0: the scores are the table's rows log 1, log 2, log
  // 4, the weights 1/7, 2/7, 4/7, the values 0 and by distance 7, 14, 21.
  RequestBuilder builder("shaw_relative");
  const float two = std::log(2.0f);
  builder.Floats("q", {1, 1, 1, 1}, {1})
      .Floats("k", {1, 1, 3, 1}, {0, 0, 0})
      .Floats("v", {1, 1, 3, 1}, {0, 0, 0})
      .Floats("relative_keys", {3, 1}, {0, two, 2 * two})
      .Floats("relative_values", {3, 1}, {7, 14, 21})
      .Param("query_offset", 1.0)
      .Param("return_weights", true);
  const Values values = RunByName(builder.request());
  const std::vector<double> weights = {1 / 7.0, 2 / 7.0, 4 / 7.0};
  EXPECT_THAT(values.at("weights"), Pointwise(DoubleNear(1e-6), weights));
  EXPECT_NEAR(values.at("output")[0], 17.0, 2e-5);
}

TEST_P(ShawRelative, ReducesToScaledDotProductWithTablesOfZeros) {
  AttentionCase c = Small(16, false);
  for (auto& [name, named] : c.tensors) {
    named.buffer.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = 0.0f; });
  }
  const Results shaw = RunAttention(c);
  c.tensors.clear();
  EXPECT_EQ(Bits(shaw.output), Bits(RunAttention(c).output));
}

TEST_P(ShawRelative, TablesMayBeStrided) {
  AttentionCase c = Small(16, false);
  Random random(2);
  c.AddTensor("relative_keys", {4, 33, 16}, random, 1, Layout::kPadded);
  c.AddTensor("relative_values", {4, 33, 9}, random, 1, Layout::kReversed);
  ExpectMatchesReference(c);
}

TEST_P(ShawRelative, EmptyRowIsZeroAndMinusInf) {
  AttentionCase c = Small(16, false);
  c.key_lengths = {0, 390};
  const Results r = RunAttention(c);
  EXPECT_EQ(r.output(0, 1, 5, 2), 0.0f);
  EXPECT_EQ(r.lse(0, 1, 5, 0), -std::numeric_limits<float>::infinity());
}

TEST_P(ShawRelative, MaskedNanDoesNotMatter) {
  AttentionCase c = Small(16, false);
  c.scalars.query_offset = QueryOffset::At(0);
  c.key_lengths = {100, 389};
  const Results clean = RunAttention(c);
  for (int64_t d = 0; d < 9; ++d) c.v(0, 1, 100, d) = c.k(0, 1, 100, d) = std::nanf("");
  EXPECT_EQ(Bits(clean.output), Bits(RunAttention(c).output));
}

TEST(ShawRelativeErrors, NameTheArgument) {
  const auto refused = [](const AttentionCase& c, ErrorCode code, const std::string& name) {
    try {
      RunAttention(c);
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
  };
  Random random(1);
  AttentionCase c = Small(16, false);
  c.AddTensor("relative_keys", {32, 16}, random);
  refused(c, ErrorCode::kShape, "relative");
  c = Small(16, false);
  c.AddTensor("relative_values", {31, 9}, random);
  refused(c, ErrorCode::kShape, "relative_values");
  c = Small(16, false);
  c.tensors["relative_values"].buffer(0, 0, 3, 3) = std::nanf("");
  refused(c, ErrorCode::kRange, "relative_values");
  c = Small(16, false);
  c.scalars.score = Score::kCosine;
  refused(c, ErrorCode::kUnsupported, "relative_keys");
  c = Small(16, false);
  c.scalars.query_offset = QueryOffset();
  refused(c, ErrorCode::kOption, "relative_keys");
}

}  // namespace
}  // namespace heed::testing
