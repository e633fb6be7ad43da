// Merging over ranks, and decoding from a cache of which every rank keeps a part.
#include "heed/merge.h"

#include <string>
#include <vector>

#include "distributed/local_ranks.h"
#include "distributed/shards.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/cache.h"
#include "heed/distributed.h"

namespace heed::testing {
namespace {

using distributed::Communicator;
using distributed::TokenOrder;
using ::testing::HasSubstr;

struct State {
  Buffer<float> output, lse;
};

State DrawState(uint64_t seed) {
  return {NormalBuffer({2, 4, 3, 20}, seed), NormalBuffer({2, 4, 3, 1}, seed + 100)};
}

TEST(MergeOverRanks, SameBitsAsMergeOnEveryRank) {
  const State states[] = {DrawState(1), DrawState(2), DrawState(3)};
  const std::vector<PartialAttention> all = {{states[0].output.view(), states[0].lse.view()},
                                             {states[1].output.view(), states[1].lse.view()},
                                             {states[2].output.view(), states[2].lse.view()}};
  State expected = DrawState(9);
  Merge(all, expected.output.view(), expected.lse.view());
  RunRanksWell(3, [&](Communicator& communicator) {
    State mine = states[communicator.Rank()];
    Buffer<float> output(mine.output.shape(), Layout::kPadded, -1);
    distributed::Merge({mine.output.view(), mine.lse.view()}, output.view(), {}, communicator);
    EXPECT_EQ(output.Elements(), expected.output.Elements());
    // In place.
    distributed::Merge({mine.output.view(), mine.lse.view()}, mine.output.view(), mine.lse.view(),
                       communicator);
    EXPECT_EQ(mine.output.Elements(), expected.output.Elements());
    EXPECT_EQ(mine.lse.Elements(), expected.lse.Elements());
  });
}

TEST(MergeOverRanks, DecodesFromACacheInParts) {
  const int64_t len = 61;
  const auto q = NormalBuffer({1, 8, 1, 16}, 1), k = NormalBuffer({1, 2, len, 16}, 2);
  const auto v = NormalBuffer({1, 2, len, 16}, 3);
  Buffer<float> whole(q.shape(), Layout::kDense, 0);
  Attention(q.view(), k.view(), v.view(), {}, {.output = whole.view()});
  RunRanksWell(3, [&](Communicator& communicator) {
    const auto own_k = PartOf(k, communicator.Rank(), 3, TokenOrder::kContiguous);
    const auto own_v = PartOf(v, communicator.Rank(), 3, TokenOrder::kContiguous);
    KvCache cache({.batch = 1, .num_kv_heads = 2, .head_dim = 16});
    cache.Append(own_k.view(), own_v.view());
    Buffer<float> output(q.shape(), Layout::kDense, 0), lse({1, 8, 1, 1}, Layout::kDense, 0);
    Decode(q.view(), cache, {}, {.output = output.view(), .lse = lse.view()});
    distributed::Merge({output.view(), lse.view()}, output.view(), {}, communicator);
    output.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
      EXPECT_NEAR(x, whole(b, h, i, d), 1e-5);
    });
  });
}

TEST(MergeOverRanks, RefusesWhatRanksDisagreeIn) {
  const auto errors = RunRanks(3, [](Communicator& communicator) {
    const int64_t queries = communicator.Rank() == 2 ? 4 : 3;
    Buffer<float> output({1, 2, queries, 5}, Layout::kDense, 0),
        lse({1, 2, queries, 1}, Layout::kDense, 0);
    distributed::Merge({output.view(), lse.view()}, output.view(), lse.view(), communicator);
  });
  for (const auto& error : errors) {
    EXPECT_EQ(ErrorOf(error).code, "option");
    EXPECT_THAT(ErrorOf(error).text, HasSubstr("another q_len"));
  }
}

}  // namespace
}  // namespace heed::testing
