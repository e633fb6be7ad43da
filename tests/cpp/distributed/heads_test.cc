// From tokens to heads and back; in between, whatever heed has.
#include <string>
#include <variant>
#include <vector>

#include "distributed/local_ranks.h"
#include "distributed/shards.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/attention.h"
#include "heed/distributed.h"
#include "heed/recurrent.h"

namespace heed::testing {
namespace {

using distributed::Communicator;
using distributed::HeadsOf;
using distributed::HeadsToSequence;
using distributed::SequenceToHeads;
using distributed::TokenOrder;
using distributed::TokenSpan;
using ::testing::HasSubstr;

// All tokens of this rank's heads.
template <typename T>
Buffer<T> ByHead(const Buffer<T>& by_token, int64_t len, TokenOrder order, T fill,
                 Communicator& communicator) {
  const auto [batch, heads, rows, dim] = by_token.shape();
  const TokenSpan mine = HeadsOf(heads, communicator.Rank(), communicator.Size());
  Buffer<T> by_head({batch, mine.len, len, dim}, Layout::kPadded, fill);
  SequenceToHeads(StoredTensor(by_token.view()), by_head.view(), len, order, communicator);
  EXPECT_TRUE(by_head.GapsAreUntouched());
  return by_head;
}

TEST(SequenceToHeads, BringsAllTokensOfAHeadTogether) {
  for (const TokenOrder order : {TokenOrder::kContiguous, TokenOrder::kZigzag}) {
    for (const int size : {1, 2, 3, 4, 12}) {
      for (const int64_t len : {0, 5, 37}) {
        const auto whole = NormalBuffer({2, 12, len, 3}, 8);
        RunRanksWell(size, [&](Communicator& communicator) {
          const int rank = communicator.Rank();
          const auto own = PartOf(whole, rank, size, order);
          auto by_head = ByHead(own, len, order, -1.0f, communicator);
          const int64_t first = HeadsOf(12, rank, size).begin;
          by_head.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
            EXPECT_EQ(x, whole(b, first + h, i, d));
          });
          Buffer<float> back(own.shape(), Layout::kBlhd, -1);
          HeadsToSequence(StoredTensor(by_head.view()), back.view(), len, order, communicator);
          EXPECT_EQ(back.Elements(), own.Elements());
        });
      }
    }
  }
}

TEST(SequenceToHeads, GivesRanksThatShareAHeadACopyEach) {
  Buffer<BFloat16> whole({1, 2, 21, 5}, Layout::kDense, BFloat16{0});
  uint16_t next = 0;
  whole.ForEach([&](int64_t, int64_t, int64_t, int64_t, BFloat16& x) { x.bits = ++next; });
  RunRanksWell(4, [&](Communicator& communicator) {
    const int rank = communicator.Rank();
    const auto own = PartOf(whole, rank, 4, TokenOrder::kZigzag);
    auto by_head = ByHead(own, 21, TokenOrder::kZigzag, BFloat16{0}, communicator);
    by_head.ForEach([&](int64_t b, int64_t, int64_t i, int64_t d, BFloat16& x) {
      EXPECT_EQ(x.bits, whole(b, rank / 2, i, d).bits);
    });
  });
}

// Options that attention over ranks refuses, as they need whole rows.
TEST(SequenceToHeads, LetsEveryFunctionComputeTheSameBits) {
  const int64_t len = 45;
  const auto q = NormalBuffer({2, 8, len, 16}, 1), k = NormalBuffer({2, 4, len, 16}, 2);
  const auto v = NormalBuffer({2, 4, len, 16}, 3);
  AttentionOptions options;
  options.causal = true;
  options.normalize = Normalize::kEntmax15;
  Buffer<float> whole({2, 8, len, 16}, Layout::kDense, 0), states(whole.shape(), Layout::kDense, 0);
  Attention(q.view(), k.view(), v.view(), options, {.output = whole.view()});
  RecurrentOptions recurrent;
  recurrent.feature_map = FeatureMap::kUnit;
  recurrent.delta = true;
  RecurrentAttention(q.view(), k.view(), v.view(), recurrent, {.output = states.view()});
  RunRanksWell(4, [&](Communicator& communicator) {
    const int rank = communicator.Rank();
    const TokenOrder order = TokenOrder::kZigzag;
    const auto by_head = [&](const Buffer<float>& tensor) {
      return ByHead(PartOf(tensor, rank, 4, order), len, order, 0.0f, communicator);
    };
    const auto own_q = by_head(q), own_k = by_head(k), own_v = by_head(v);
    Buffer<float> output(own_q.shape(), Layout::kDense, 0);
    Buffer<float> back(PartOf(whole, rank, 4, order).shape(), Layout::kDense, 0);
    Attention(own_q.view(), own_k.view(), own_v.view(), options, {.output = output.view()});
    HeadsToSequence(StoredTensor(output.view()), back.view(), len, order, communicator);
    EXPECT_EQ(back.Elements(), PartOf(whole, rank, 4, order).Elements());
    RecurrentAttention(own_q.view(), own_k.view(), own_v.view(), recurrent,
                       {.output = output.view()});
    HeadsToSequence(StoredTensor(output.view()), back.view(), len, order, communicator);
    EXPECT_EQ(back.Elements(), PartOf(states, rank, 4, order).Elements());
  });
}

// What counts heads counts those of the rank: dropout has an origin, random blocks another seed.
TEST(SequenceToHeads, LeavesTheFirstHeadToItsCaller) {
  const int64_t len = 70;
  const auto x = NormalBuffer({1, 4, len, 8}, 1);
  AttentionOptions options;
  options.dropout = {0.4, 11};
  options.patterns = {BigBird{.block_size = 5, .window_blocks = 1, .seed = 100}};
  Buffer<float> whole(x.shape(), Layout::kDense, 0);
  Attention(x.view(), x.view(), x.view(), options, {.output = whole.view()});
  RunRanksWell(2, [&](Communicator& communicator) {
    const int rank = communicator.Rank();
    const auto own = ByHead(PartOf(x, rank, 2, TokenOrder::kZigzag), len, TokenOrder::kZigzag, 0.0f,
                            communicator);
    const int64_t first = HeadsOf(4, rank, 2).begin;
    AttentionOptions of_rank = options;
    of_rank.dropout.origin[1] = first;
    std::get<BigBird>(of_rank.patterns[0]).seed += static_cast<uint64_t>(first);
    Buffer<float> output(own.shape(), Layout::kDense, 0);
    Attention(own.view(), own.view(), own.view(), of_rank, {.output = output.view()});
    output.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& value) {
      EXPECT_EQ(value, whole(b, first + h, i, d));
    });
  });
}

TEST(SequenceToHeads, RefusesWhatDoesNotFit) {
  const auto errors = RunRanks(2, [](Communicator& communicator) {
    Buffer<float> by_token({1, 3, 8, 4}, Layout::kDense, 0),
        by_head({1, 1, 16, 4}, Layout::kDense, 0);
    SequenceToHeads(StoredTensor(by_token.view()), by_head.view(), 16, TokenOrder::kContiguous,
                    communicator);
  });
  EXPECT_THAT(ErrorOf(errors[0]).text, HasSubstr("3 heads for 2 ranks"));
  const auto back = RunRanks(2, [](Communicator& communicator) {
    Buffer<float> by_token({1, 1, 8, 4}, Layout::kDense, 0),
        by_head({1, 1, 16, 4}, Layout::kDense, 0);
    HeadsToSequence(StoredTensor(by_head.view()), by_token.view(), 16, TokenOrder::kContiguous,
                    communicator);
  });
  EXPECT_EQ(ErrorOf(back[1]).code, "unsupported");
  const auto shape = RunRanks(2, [](Communicator& communicator) {
    const int64_t tokens = communicator.Rank() == 0 ? 8 : 7;
    Buffer<float> by_token({1, 2, tokens, 4}, Layout::kDense, 0);
    Buffer<float> by_head({1, 1, 16, 4}, Layout::kDense, 0);
    SequenceToHeads(StoredTensor(by_token.view()), by_head.view(), 16, TokenOrder::kContiguous,
                    communicator);
  });
  EXPECT_THAT(ErrorOf(shape[0]).text, HasSubstr("rank 1: by_token"));
  EXPECT_THAT(ErrorOf(shape[1]).text, HasSubstr("this rank's tokens"));
  const auto alias = RunRanks(1, [](Communicator& communicator) {
    Buffer<float> both({1, 1, 8, 4}, Layout::kDense, 0);
    SequenceToHeads(StoredTensor(both.view()), both.view(), 8, TokenOrder::kContiguous,
                    communicator);
  });
  EXPECT_THAT(ErrorOf(alias[0]).text, HasSubstr("by_head"));
  const auto type = RunRanks(1, [](Communicator& communicator) {
    Buffer<float> by_token({1, 1, 8, 4}, Layout::kDense, 0);
    Buffer<Float16> by_head({1, 1, 8, 4}, Layout::kDense, Float16{0});
    SequenceToHeads(StoredTensor(by_token.view()), by_head.view(), 8, TokenOrder::kContiguous,
                    communicator);
  });
  EXPECT_EQ(ErrorOf(type[0]).code, "dtype");
}

}  // namespace
}  // namespace heed::testing
