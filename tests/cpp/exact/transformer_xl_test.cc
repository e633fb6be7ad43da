// Transformer-XL's score: content and position apart, each with a learned bias.
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

class TransformerXl : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(TransformerXl);

AttentionCase Small(int64_t q_len = 33, int64_t kv_len = 390) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 4,
                              .q_len = q_len,
                              .kv_len = kv_len,
                              .head_dim = 16,
                              .head_dim_v = 9});
  Random random(1);
  c.AddTensor("relative_keys", {4, 2 * kv_len + 1, 16}, random);
  c.AddTensor("content_bias", {4, 16}, random);
  c.AddTensor("position_bias", {4, 16}, random);
  c.scalars.query_offset = QueryOffset::End();
  return c;
}

TEST_P(TransformerXl, MatchesReference) {
  ExpectMatchesReference(Small());
  AttentionCase c = Small(5, 20);
  c.scalars.causal = true;
  ExpectMatchesReference(c);
}

TEST_P(TransformerXl, EachBiasMayBeLeftOut) {
  for (const char* name : {"content_bias", "position_bias"}) {
    AttentionCase c = Small();
    c.tensors.erase(name);
    ExpectMatchesReference(c);
  }
  AttentionCase c = Small();
  c.tensors.erase("position_bias");
  c.tensors.erase("relative_keys");
  ExpectMatchesReference(c);
}

TEST_P(TransformerXl, ShiftsLikeTheFastShiftOfTrax) {
  // google/trax, rel_attention_test.py: rows -3 to 0 are shifted so that the score of a key is
  // minus its distance. The part above the diagonal is never seen.
  RequestBuilder builder("transformer_xl");
  builder.Floats("q", {1, 1, 4, 1}, {1, 1, 1, 1})
      .Floats("k", {1, 1, 4, 1}, {0, 0, 0, 0})
      .Floats("v", {1, 1, 4, 1}, {0, 0, 0, 0})
      .Floats("relative_keys", {7, 1}, {-3, -2, -1, 0, 9, 9, 9})
      .Param("causal", true)
      .Param("return_scores", "biased");
  const double hidden = -std::numeric_limits<double>::infinity();
  const std::vector<double> expected = {0,  hidden, hidden, hidden, -1, 0,  hidden, hidden,
                                        -2, -1,     0,      hidden, -3, -2, -1,     0};
  EXPECT_EQ(RunByName(builder.request()).at("scores"), expected);
}

TEST_P(TransformerXl, ReducesToShawWithoutBiases) {
  AttentionCase c = Small();
  c.tensors.erase("content_bias");
  c.tensors.erase("position_bias");
  Request request = c.request();
  request.params.clear();
  request.params.push_back({"query_offset", std::string("end")});
  request.id = "transformer_xl";
  const Values xl = RunByName(request);
  request.id = "shaw_relative";
  EXPECT_EQ(xl.at("output"), RunByName(request).at("output"));
  EXPECT_EQ(RunOracle(request).at("output").size(), xl.at("output").size());
}

TEST(TransformerXlErrors, NameTheArgument) {
  const auto refused = [](const AttentionCase& c, ErrorCode code, const std::string& name) {
    try {
      RunAttention(c);
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
  };
  AttentionCase c = Small();
  c.tensors.erase("relative_keys");
  refused(c, ErrorCode::kOption, "position_bias");
  Random random(1);
  c = Small();
  c.AddTensor("content_bias", {3, 16}, random);
  refused(c, ErrorCode::kShape, "content_bias");
}

}  // namespace
}  // namespace heed::testing
