// Multi-query attention: the reference, a hand-computed number, and its limits.
#include <cmath>

#include "gtest/gtest.h"
#include "heed/error.h"
#include "heed/reference.h"
#include "layer_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class MultiQueryLayer : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(MultiQueryLayer);

LayerCase Small() { return MakeLayerCase("multi_query", {.num_kv_heads = 1}); }

TEST_P(MultiQueryLayer, MatchesReference) {
  LayerCase c = Small();
  c.params["return_weights"] = true;
  c.params["return_lse"] = true;
  ExpectLayerMatchesReference(c);
  c.params["add_zero_attn"] = true;
  c.params["average_weights"] = true;
  c.key_lengths = {41, 7};
  ExpectLayerMatchesReference(c);
}

TEST_P(MultiQueryLayer, ReducesToMultiHeadWithRepeatedKeyAndValueHeads) {
  const LayerCase shared = Small();
  LayerCase repeated = shared;
  repeated.id = "multi_head";
  for (const std::string name : {"w_k", "w_v", "b_k", "b_v"}) {
    const Floats& one = shared.tensors.at(name);
    Floats& all = repeated.tensors[name];
    all.shape[0] = 4;
    for (int h = 1; h < 4; ++h) {
      all.values.insert(all.values.end(), one.values.begin(), one.values.end());
    }
  }
  EXPECT_EQ(RunByName(shared.Build().request()), RunByName(repeated.Build().request()));
}

// Two heads look at keys 0 and ln 3 with queries 1 and -1: weights 1/4, 3/4 and 3/4, 1/4.
TEST_P(MultiQueryLayer, GivesHandComputedNumbers) {
  RequestBuilder builder("multi_query");
  builder.Floats("query", {1, 1, 1}, {1})
      .Floats("key", {1, 2, 1}, {0, static_cast<float>(std::log(3.0))})
      .Floats("value", {1, 2, 1}, {1, 2})
      .Floats("w_q", {2, 1, 1}, {1, -1})
      .Floats("w_k", {1, 1, 1}, {1})
      .Floats("w_v", {1, 1, 1}, {4})
      .Floats("w_o", {1, 2, 1}, {1, 10})
      .Floats("b_o", {1}, {0.5f});
  EXPECT_NEAR(RunByName(builder.request()).at("output")[0], 7 + 10 * 5 + 0.5, 1e-4);
}

TEST_P(MultiQueryLayer, EmptyRowGivesTheOutputBias) {
  LayerCase c = Small();
  c.key_lengths = {0, 41};
  ExpectLayerMatchesReference(c);
  const Values r = RunByName(c.Build().request());
  EXPECT_EQ(r.at("output")[0], c.tensors["b_o"].values[0]);
}

TEST(MultiQueryLayer, HasOneHeadOfKeysAndOfValues) {
  for (const char* name : {"w_k", "w_v"}) {
    LayerCase c = Small();
    Floats& weight = c.tensors.at(name);
    weight.shape[0] = 2;
    weight.values.resize(2 * weight.values.size());
    const RequestBuilder builder = c.Build();
    EXPECT_THROW(RunByName(builder.request()), Error) << name;
    EXPECT_THROW(reference::Run(builder.request()), Error) << name;
  }
}

}  // namespace
}  // namespace heed::testing
