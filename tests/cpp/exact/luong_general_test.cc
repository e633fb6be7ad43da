// General attention: the bilinear score.
#include <cmath>

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
using ::testing::Pointwise;

class LuongGeneral : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(LuongGeneral);

AttentionCase Small(int64_t head_dim_k) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = 33,
                              .kv_len = 300,
                              .head_dim = 24,
                              .head_dim_v = 9});
  c.scalars.score = Score::kBilinear;
  Random random(2);
  c.k = Buffer<float>({2, 2, 300, head_dim_k}, Layout::kPadded, 0.0f);
  c.k.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x = random.Normal(); });
  return c;
}

TEST_P(LuongGeneral, MatchesReferenceForOneMatrixOrOnePerHead) {
  for (const int64_t head_dim_k : {1, 7, 24, 40}) {
    AttentionCase c = Small(head_dim_k);
    Random random(1);
    c.AddTensor("score_matrix", {24, head_dim_k}, random, 0.1);
    ExpectMatchesReference(c);
    c.AddTensor("score_matrix", {4, 24, head_dim_k}, random, 0.1);
    c.scalars.scale = -0.7;
    ExpectMatchesReference(c);
  }
}

TEST_P(LuongGeneral, GivesTheNumbersOfAllenNlp) {
  // allenai/allennlp, bilinear_matrix_attention_test.py, without its constant 0.1.
  RequestBuilder builder("luong_general");
  builder.Floats("q", {1, 1, 2, 2}, {1, 1, 2, 2})
      .Floats("k", {1, 1, 2, 2}, {1, 0, 0, 1})
      .Floats("v", {1, 1, 2, 1}, {0, 1})
      .Floats("score_matrix", {2, 2}, {-0.3f, 0.5f, 2.0f, -1.0f})
      .Param("return_scores", "raw");
  const std::vector<double> expected = {1.7, -0.5, 3.4, -1.0};
  EXPECT_THAT(RunByName(builder.request()).at("scores"), Pointwise(DoubleNear(1e-6), expected));
}

TEST_P(LuongGeneral, ReducesToLuongDotWithTheIdentity) {
  AttentionCase c = Small(24);
  NamedBuffer& matrix = c.tensors["score_matrix"];
  matrix = {Buffer<float>({1, 1, 24, 24}, Layout::kDense, 0.0f), 2};
  for (int64_t d = 0; d < 24; ++d) matrix.buffer(0, 0, d, d) = 1.0f;
  const Results general = RunAttention(c);
  c.tensors.clear();
  c.scalars.score = Score::kDot;
  c.scalars.scale = 1.0;
  EXPECT_EQ(Bits(general.output), Bits(RunAttention(c).output));
}

TEST_P(LuongGeneral, MaskedNanDoesNotMatter) {
  AttentionCase c = Small(10);
  Random random(1);
  c.AddTensor("score_matrix", {24, 10}, random, 0.1);
  c.key_lengths = {100, 299};
  const Results clean = RunAttention(c);
  for (int64_t d = 0; d < 10; ++d) c.k(0, 1, 100, d) = std::nanf("");
  EXPECT_EQ(Bits(clean.output), Bits(RunAttention(c).output));
}

TEST(LuongGeneralErrors, NameTheMatrix) {
  RequestBuilder builder("luong_general");
  builder.Floats("q", {1, 1, 1, 2}, {1, 1})
      .Floats("k", {1, 1, 1, 3}, {1, 0, 1})
      .Floats("v", {1, 1, 1, 1}, {0});
  EXPECT_THROW(PlanOutputs(builder.request()), Error);
  builder.Floats("score_matrix", {3, 2}, std::vector<float>(6, 1.0f));
  try {
    PlanOutputs(builder.request());
    ADD_FAILURE() << "a transposed matrix was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kShape);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("score_matrix"));
  }
}

}  // namespace
}  // namespace heed::testing
