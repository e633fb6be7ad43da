// Talking heads: against the oracle, its limits, and numbers from its definition.
#include <cmath>
#include <limits>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/compose.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class TalkingHeads : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(TalkingHeads);

ComposedCase MakeTalking(AttentionCase inner) {
  ComposedCase c{.id = "talking_heads", .inner = std::move(inner), .extras = {}, .params = {}};
  const int64_t heads = c.inner.sizes.num_heads;
  c.AddNormal("mix_scores", {heads, heads}, 11);
  c.AddNormal("mix_weights", {heads, heads}, 12);
  return c;
}

double MaxColumnSum(const std::vector<float>& matrix, int64_t heads) {
  double max = 0;
  for (int64_t h = 0; h < heads; ++h) {
    double sum = 0;
    for (int64_t g = 0; g < heads; ++g) sum += std::abs(matrix[static_cast<size_t>(g * heads + h)]);
    max = std::max(max, sum);
  }
  return max;
}

// Scores grow by the column sums of the first matrix, errors of weights by those of the second; a
// row sees the values and scores of all heads.
void ExpectTalkingMatches(ComposedCase& c) {
  const int64_t heads = c.inner.sizes.num_heads;
  const double before = std::max(1.0, MaxColumnSum(c.extra("mix_scores").values, heads));
  const double after = std::max(1.0, MaxColumnSum(c.extra("mix_weights").values, heads));
  ExpectComposedMatches(c, 2 * before * after, 2 * before * after);
}

TEST_P(TalkingHeads, MatchesReference) {
  for (const AttentionCase& inner : PassThroughCases()) {
    ComposedCase c = MakeTalking(inner);
    ExpectTalkingMatches(c);
  }
}

TEST_P(TalkingHeads, ManyHeadsMatchReference) {
  for (const int64_t heads : {5, 8, 12, 17}) {
    ComposedCase c = MakeTalking(MakeCase({.num_heads = heads,
                                           .num_kv_heads = heads,
                                           .q_len = 19,
                                           .kv_len = 270,
                                           .head_dim = 8,
                                           .head_dim_v = 17}));
    for (float& x : c.extra("mix_scores").values) x /= std::sqrt(static_cast<float>(heads));
    ExpectTalkingMatches(c);
  }
}

TEST_P(TalkingHeads, GivesTheNumbersOfItsDefinition) {
  // Raw scores of head 0: (ln 2, 0), of head 1: (0, ln 3). mix_scores sends both to head 0 and the
  // negative of head 1 to head 1: (ln 2, ln 3) and (0, -ln 3), weights (2/5, 3/5) and (3/4, 1/4).
  // mix_weights: head 0 = first + 2 second = (1.9, 1.1), head 1 = - second = (-0.75, -0.25).
  RequestBuilder builder("talking_heads");
  builder.Floats("q", {1, 2, 1, 1}, {1, 1})
      .Floats("k", {1, 2, 2, 1}, {std::log(2.0f), 0, 0, std::log(3.0f)})
      .Floats("v", {1, 2, 2, 1}, {10, 20, 4, 8})
      .Floats("mix_scores", {2, 2}, {1, 0, 1, -1})
      .Floats("mix_weights", {2, 2}, {1, 0, 2, -1})
      .Param("return_weights", true)
      .Param("return_lse", true);
  const Values values = RunByName(builder.request());
  ExpectAllNear(values.at("weights"), {1.9, 1.1, -0.75, -0.25}, 5e-7);
  ExpectAllNear(values.at("output"), {19 + 22, -3 - 2}, 1e-5);
  ExpectAllNear(values.at("lse"), {std::log(5.0), std::log(4 / 3.0)}, 5e-7);
}

TEST_P(TalkingHeads, ReducesToScaledDotProductWithoutMixing) {
  for (const AttentionCase& inner : PassThroughCases()) {
    ComposedCase c{.id = "talking_heads", .inner = inner, .extras = {}, .params = {}};
    c.params.push_back({"return_weights", true});
    c.params.push_back({"return_lse", true});
    const Values absent = RunByName(c.request());
    const size_t heads = static_cast<size_t>(inner.sizes.num_heads);
    std::vector<float> identity(heads * heads);
    for (size_t h = 0; h < heads; ++h) identity[h * heads + h] = 1;
    for (const char* name : {"mix_scores", "mix_weights"}) {
      c.extras.push_back({name, {inner.sizes.num_heads, inner.sizes.num_heads}, identity});
    }
    EXPECT_EQ(RunByName(c.request()), absent);  // x + 0 y is x, bit for bit
    const Values plain = RunOracle(inner);
    const std::vector<RowBound> bounds = RowBounds(inner, plain);
    for (size_t n = 0; n < plain.at("output").size(); ++n) {
      EXPECT_NEAR(absent.at("output")[n], plain.at("output")[n], bounds[n / 17].Output()) << n;
    }
  }
}

TEST_P(TalkingHeads, PermutationsMoveHeads) {
  // Scores of head 0 go to head 1 and weights back again: as if nothing had been mixed.
  ComposedCase c = MakeTalking(MakeCase({.num_heads = 3, .num_kv_heads = 3, .kv_len = 65}));
  c.extra("mix_scores").values = {0, 1, 0, 0, 0, 1, 1, 0, 0};
  c.extra("mix_weights").values = {0, 0, 1, 1, 0, 0, 0, 1, 0};
  ComposedCase plain = c;
  plain.extras.clear();
  EXPECT_EQ(RunByName(c.request()), RunByName(plain.request()));
}

TEST_P(TalkingHeads, EmptyRowIsZeroAndMinusInf) {
  ComposedCase c = MakeTalking(MakeCase({.batch = 2, .q_len = 9, .kv_len = 150}));
  c.inner.key_lengths = {0, 150};
  c.params.push_back({"return_lse", true});
  c.params.push_back({"return_weights", true});
  const Values values = RunByName(c.request());
  for (size_t n = 0; n < 2 * 9 * 64; ++n) EXPECT_EQ(values.at("output")[n], 0.0);
  for (size_t n = 0; n < 2 * 9 * 150; ++n) EXPECT_EQ(values.at("weights")[n], 0.0);
  for (size_t n = 0; n < 2 * 9; ++n) EXPECT_EQ(values.at("lse")[n], -HUGE_VAL);
}

TEST_P(TalkingHeads, KeyThatNoHeadKeepsMayBeAnything) {
  for (const float poison : {kNan, HUGE_VALF, -HUGE_VALF}) {
    ComposedCase c = MakeTalking(MakeCase({.q_len = 9, .kv_len = 300}));
    c.inner.keep = Buffer<uint8_t>({1, 1, 1, 300}, Layout::kDense, 1);
    for (const int64_t j : {0, 77, 255, 299}) c.inner.keep(0, 0, 0, j) = 0;
    c.params.push_back({"return_weights", true});
    const Values clean = RunByName(c.request());
    for (const int64_t j : {0, 77, 255, 299}) {
      for (int64_t h = 0; h < 2; ++h) c.inner.k(0, h, j, 5) = c.inner.v(0, h, j, 7) = poison;
    }
    EXPECT_EQ(RunByName(c.request()), clean);
    ExpectTalkingMatches(c);
  }
}

TEST_P(TalkingHeads, NanKeptByOneHeadMatchesReference) {
  ComposedCase c = MakeTalking(MakeCase({.num_heads = 3,
                                         .num_kv_heads = 3,
                                         .q_len = 20,
                                         .kv_len = 300,
                                         .head_dim = 8,
                                         .head_dim_v = 17}));
  Random random(4);
  c.inner.keep = MakeKeep({1, 3, 20, 300}, random, 0.3);
  c.inner.v(0, 1, 140, 3) = kNan;
  ExpectTalkingMatches(c);
  c.inner.k(0, 2, 30, 3) = kNan;  // every head that keeps key 30 is lost, and with it the row
  ExpectTalkingMatches(c);
}

TEST_P(TalkingHeads, ThreadsChangeNoBit) {
  for (const size_t n : {1u, 3u}) {
    ComposedCase c = MakeTalking(PassThroughCases()[n]);
    c.params.push_back({"return_weights", true});
    c.params.push_back({"return_lse", true});
    ExpectSameBitsForAnyThreads(c.request());
  }
}

TEST_P(TalkingHeads, BadArgumentsAreRefused) {
  const ComposedCase good = MakeTalking(MakeCase({.q_len = 3, .kv_len = 3}));
  ComposedCase wide = good, vector = good, nan = good, scores = good;
  wide.extra("mix_scores") = {"mix_scores", {2, 3}, std::vector<float>(6)};
  vector.extra("mix_weights").shape = {4};
  nan.extra("mix_weights").values[1] = kNan;
  scores.params.push_back({"return_scores", std::string("raw")});
  ExpectBothRefuse(wide.request(), ErrorCode::kShape, "mix_scores");
  ExpectBothRefuse(vector.request(), ErrorCode::kShape, "mix_weights");
  ExpectBothRefuse(nan.request(), ErrorCode::kRange, "mix_weights");
  ExpectBothRefuse(scores.request(), ErrorCode::kOption, "return_scores");
  TalkingHeadsOptions options;
  options.attention.score = Score::kSquaredDistance;
  options.attention.normalize = Normalize::kKernelSum;
  Buffer<float> output({1, 2, 3, 64}, Layout::kDense, 0);
  EXPECT_THROW(TalkingHeadsAttention(good.inner.q.view(), good.inner.k.view(), good.inner.v.view(),
                                     options, {.output = output.view()}),
               Error);
}

}  // namespace
}  // namespace heed::testing
