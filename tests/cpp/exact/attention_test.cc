// The row `attention`: every socket open, by name.
#include <string>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gtest/gtest.h"
#include "request_builder.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class AttentionRow : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AttentionRow);

AttentionCase Modified() {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = 33,
                              .kv_len = 150,
                              .head_dim = 20,
                              .head_dim_v = 9});
  Random random(3);
  c.bias = MakeBias({1, 4, 33, 150}, random, 0.2);
  c.keep = MakeKeep({2, 1, 33, 150}, random, 0.8);
  c.scalars.softcap = 3;
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::End();
  return c;
}

void ExpectSame(const Values& actual, const Values& expected, double bound) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, values] : expected) {
    ASSERT_EQ(actual.at(name).size(), values.size()) << name;
    for (size_t n = 0; n < values.size(); ++n) {
      if (values[n] == actual.at(name)[n]) continue;  // infinities
      EXPECT_NEAR(actual.at(name)[n], values[n], bound) << name << " " << n;
    }
  }
}

TEST_P(AttentionRow, ReducesToScaledDotProduct) {
  AttentionCase c = Modified();
  Request request = c.request();
  const Values expected = RunByName(request);
  request.id = "attention";
  EXPECT_EQ(RunByName(request), expected);
  request.params.push_back({"score", std::string("dot")});
  request.params.push_back({"normalize", std::string("softmax")});
  EXPECT_EQ(RunByName(request), expected);
}

TEST_P(AttentionRow, ReducesToKernelRegression) {
  AttentionCase c = MakeCase({.q_len = 20, .kv_len = 300, .head_dim = 3, .head_dim_v = 4});
  c.scalars.score = Score::kSquaredDistance;
  c.scalars.normalize = Normalize::kKernelSum;
  c.scalars.kernel = Kernel::kTriangular;
  c.width = {3};
  Request request = c.request();
  const Values expected = RunByName(request);
  request.id = "attention";
  request.params.push_back({"score", std::string("squared_distance")});
  request.params.push_back({"normalize", std::string("kernel_sum")});
  EXPECT_EQ(RunByName(request), expected);
}

TEST_P(AttentionRow, DistanceScoresWithModifiersMatchReference) {
  AttentionCase c = Modified();
  Request request = c.request();
  request.id = "attention";
  request.params.push_back({"score", std::string("squared_distance")});
  request.params.push_back({"width", std::vector<double>{2.5}});
  request.params.push_back({"scale", 0.7});
  ExpectSame(RunByName(request), RunOracle(request), 5e-6);
}

TEST_P(AttentionRow, UnknownWordsAreRefused) {
  for (const std::string name : {"score", "normalize"}) {
    Request request = Modified().request();
    request.id = "attention";
    request.params.push_back({name, std::string("nothing")});
    EXPECT_THROW(RunByName(request), Error) << name;
    EXPECT_THROW(RunOracle(request), Error) << name;
  }
}

}  // namespace
}  // namespace heed::testing
