// The loop shown: what rows carry from tile to tile.
#include <cmath>
#include <limits>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "normalizer_checks.h"
#include "request_builder.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

constexpr double kInf = std::numeric_limits<double>::infinity();

class FlashAttention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(FlashAttention);

Request Shown(const AttentionCase& c) {
  Request request = c.request();
  request.id = "flash";
  request.params.push_back({"return_tiles", true});
  return request;
}

void ExpectSameTiles(const Request& request) {
  const Values expected = RunOracle(request);
  const Values actual = RunByName(request);
  for (const char* name : {"output", "lse", "running_max", "rescale"}) {
    EXPECT_THAT(actual.at(name), Pointwise(DoubleNear(2e-5), expected.at(name))) << name;
  }
  const std::vector<double>& sums = expected.at("running_sum");
  for (size_t n = 0; n < sums.size(); ++n) {
    EXPECT_NEAR(actual.at("running_sum")[n], sums[n], 2e-5 * (1 + sums[n]));
  }
}

TEST_P(FlashAttention, GivesHandComputedStatistics) {
  // 256 scores of 0, then one of log 3, then (a third tile) 0 again: 513 keys.
  std::vector<float> k(513, 0.0f);
  k[256] = static_cast<float>(std::log(3.0));
  RequestBuilder builder("flash");
  builder.Floats("q", {1, 1, 1, 1}, {1})
      .Floats("k", {1, 1, 513, 1}, k)
      .Floats("v", {1, 1, 513, 1}, std::vector<float>(513, 2.0f))
      .Param("scale", 1.0)
      .Param("return_tiles", true);
  const Values values = RunByName(builder.request());
  const double max = static_cast<double>(k[256]);
  EXPECT_THAT(values.at("running_max"), ElementsAre(0, max, max));
  EXPECT_THAT(values.at("rescale"), Pointwise(DoubleNear(1e-6), {0.0, 1 / 3.0, 1.0}));
  EXPECT_THAT(values.at("running_sum"),
              Pointwise(DoubleNear(1e-4), {256.0, 256 / 3.0 + 1 + 255 / 3.0, 515 / 3.0}));
  EXPECT_NEAR(values.at("lse")[0], std::log(515.0), 1e-6);
  EXPECT_NEAR(values.at("output")[0], 2, 1e-6);
}

TEST_P(FlashAttention, MatchesReference) {
  for (const int64_t q_len : {1, 7, 130}) {
    AttentionCase c = NormalizerCase(Normalize::kSoftmax, q_len, 1100);
    ExpectSameTiles(Shown(c));
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::At(300);
    c.scalars.softcap = 4.0;
    ExpectSameTiles(Shown(c));
  }
}

TEST_P(FlashAttention, TilesThatNobodySeesChangeNothing) {
  AttentionCase c = NormalizerCase(Normalize::kSoftmax, 40, 1100);
  c.scalars.window = Window{10, 10};
  c.scalars.query_offset = QueryOffset::At(500);
  ExpectSameTiles(Shown(c));
  Random random(4);
  c.keep = MakeKeep({1, 1, 40, 1100}, random, 0.02);
  ExpectSameTiles(Shown(c));
  const Values values = RunByName(Shown(c));
  EXPECT_EQ(values.at("running_max")[0], -kInf);
  EXPECT_EQ(values.at("running_sum")[0], 0);
  EXPECT_EQ(values.at("rescale")[0], 1);
}

TEST_P(FlashAttention, OneQueryIsThatRowOfAll) {
  const AttentionCase c = NormalizerCase(Normalize::kSoftmax, 9, 700);
  Request request = Shown(c);
  const Values all = RunByName(request);
  request.params.push_back({"tiles_of_query", 6.0});
  const Values one = RunByName(request);
  for (const char* name : {"running_max", "running_sum", "rescale"}) {
    ASSERT_EQ(one.at(name).size(), 2u * 4 * 3);
    for (size_t head = 0; head < 8; ++head) {
      for (size_t t = 0; t < 3; ++t) {
        EXPECT_EQ(one.at(name)[head * 3 + t], all.at(name)[(head * 9 + 6) * 3 + t]);
      }
    }
  }
}

TEST_P(FlashAttention, ReducesToScaledDotProduct) {
  const AttentionCase c = NormalizerCase(Normalize::kSoftmax);
  const Results r = RunAttention(c);
  Request request = c.request();
  request.id = "flash";
  const Values values = RunByName(request);
  const std::vector<float> output = r.output.Elements();
  EXPECT_EQ(values.at("output"), std::vector<double>(output.begin(), output.end()));
  ASSERT_EQ(values.count("running_max"), 0u);
}

TEST_P(FlashAttention, EmptyRowsSumToZero) {
  AttentionCase c = NormalizerCase(Normalize::kSoftmax, 5, 300);
  c.key_lengths = {0, 300};
  const Values values = RunByName(Shown(c));
  EXPECT_EQ(values.at("lse")[0], -kInf);
  EXPECT_EQ(values.at("running_max")[1], -kInf);
  EXPECT_EQ(values.at("running_sum")[1], 0);
}

TEST_P(FlashAttention, ARowThatDoesNotExistIsRefused) {
  const AttentionCase c = NormalizerCase(Normalize::kSoftmax, 9, 30);
  Request request = Shown(c);
  request.params.push_back({"tiles_of_query", 9.0});
  EXPECT_THROW(RunByName(request), Error);
  EXPECT_THROW(RunOracle(request), Error);
}

}  // namespace
}  // namespace heed::testing
