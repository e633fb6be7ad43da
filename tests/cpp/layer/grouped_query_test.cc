// Grouped-query attention: the reference, a hand-computed number, and its limits.
#include <cmath>

#include "gtest/gtest.h"
#include "layer_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class GroupedQueryLayer : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(GroupedQueryLayer);

LayerCase Small() { return MakeLayerCase("grouped_query", {.num_heads = 6, .num_kv_heads = 2}); }

TEST_P(GroupedQueryLayer, MatchesReference) {
  LayerCase c = Small();
  c.params["return_weights"] = true;
  c.params["return_lse"] = true;
  ExpectLayerMatchesReference(c);
  c.params["causal"] = true;
  c.params["query_offset"] = std::string("end");
  ExpectLayerMatchesReference(c);
}

TEST_P(GroupedQueryLayer, ReducesToMultiHeadWithAKvHeadPerHead) {
  LayerCase c = MakeLayerCase("grouped_query", {});
  const Values grouped = RunByName(c.Build().request());
  c.id = "multi_head";
  EXPECT_EQ(grouped, RunByName(c.Build().request()));
}

// Heads 0 and 1 read KV head 0, heads 2 and 3 KV head 1: with queries of zero every head takes the
// mean of its group's values, 1.5 and 15.
TEST_P(GroupedQueryLayer, GivesHandComputedNumbers) {
  RequestBuilder builder("grouped_query");
  builder.Floats("query", {1, 1, 1}, {0})
      .Floats("key", {1, 2, 1}, {3, 4})
      .Floats("value", {1, 2, 1}, {1, 2})
      .Floats("w_q", {4, 1, 1}, {1, 1, 1, 1})
      .Floats("w_k", {2, 1, 1}, {1, 1})
      .Floats("w_v", {2, 1, 1}, {1, 10});
  const std::vector<double> expected = {1.5, 1.5, 15, 15};
  EXPECT_EQ(RunByName(builder.request()).at("output"), expected);
}

TEST_P(GroupedQueryLayer, EmptyRowGivesTheOutputBias) {
  LayerCase c = Small();
  c.key_lengths = {0, 41};
  ExpectLayerMatchesReference(c);
  const Values r = RunByName(c.Build().request());
  EXPECT_EQ(r.at("output")[0], c.tensors["b_o"].values[0]);
}

}  // namespace
}  // namespace heed::testing
