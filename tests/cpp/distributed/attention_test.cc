// Attention over ranks is attention of the whole.
#include <limits>
#include <string>
#include <vector>

#include "distributed/local_ranks.h"
#include "distributed/ring_case.h"
#include "distributed/shards.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/distributed.h"
#include "heed/thread_pool.h"

namespace heed::testing {
namespace {

using distributed::TokenOrder;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Both calls are within kAttentionMaxError of the reference; logits are small, and values below 5.
constexpr double kBound = 2 * kAttentionMaxError;

class RingAttention : public ::testing::TestWithParam<RingVariant> {};
INSTANTIATE_TEST_SUITE_P(Options, RingAttention, ::testing::ValuesIn(RingVariants()),
                         [](const auto& variant) { return std::string(variant.param.name); });

TEST_P(RingAttention, IsAttentionOfTheWhole) {
  for (const TokenOrder order : {TokenOrder::kContiguous, TokenOrder::kZigzag}) {
    RingCase c;
    GetParam().apply(c);
    c.sharding.order = order;
    c.DrawTensors();
    const RingResults whole = RunWhole(c);
    for (int size = 1; size <= 4; ++size) {
      SCOPED_TRACE(std::to_string(size) + " ranks, order " +
                   std::to_string(static_cast<int>(order)));
      const RingResults ranks = RunOverRanks(c, size);
      EXPECT_LE(LargestError(ranks.output, whole.output), kBound);
      EXPECT_LE(LargestError(ranks.lse, whole.lse), kBound);
    }
  }
}

TEST_P(RingAttention, SameBitsForAnyNumberOfThreads) {
  RingCase c;
  GetParam().apply(c);
  c.DrawTensors();
  const RingResults one = RunOverRanks(c, 3, 1), three = RunOverRanks(c, 3, 3);
  EXPECT_EQ(one.output.Elements(), three.output.Elements());
  EXPECT_EQ(one.lse.Elements(), three.lse.Elements());
}

TEST(RingAttentionEdges, WhatIsMaskedCannotMatter) {
  for (const int64_t poisoned : {17, 52}) {
    RingCase c;
    c.options.causal = true;
    c.DrawTensors();
    const RingResults clean = RunOverRanks(c, 3);
    for (int64_t h = 0; h < c.num_kv_heads; ++h) {
      c.k(1, h, poisoned, 3) = kNan;
      c.v(1, h, poisoned, 5) = std::numeric_limits<float>::infinity();
    }
    const RingResults dirty = RunOverRanks(c, 3);
    for (int64_t b = 0; b < c.batch; ++b) {
      for (int64_t i = 0; i < c.sharding.q_len; ++i) {
        const bool sees = b == 1 && i >= poisoned;
        EXPECT_EQ(std::isnan(dirty.output(b, 2, i, 0)), sees) << i;
        if (sees) continue;
        EXPECT_EQ(dirty.output(b, 2, i, 7), clean.output(b, 2, i, 7));
      }
    }
  }
}

TEST(RingAttentionEdges, EmptyRowIsZeroAndMinusInf) {
  RingCase c;
  c.lengths = {0, 53};
  c.options.key_lengths = c.lengths;
  c.numbers = {1, 2, 3, 4};
  c.options.sinks = c.numbers;
  c.DrawTensors();
  RingResults r = RunOverRanks(c, 3);
  r.output.ForEach([](int64_t b, int64_t, int64_t, int64_t, float& x) {
    if (b == 0) {
      EXPECT_EQ(x, 0.0f);
    }
  });
  r.lse.ForEach([](int64_t b, int64_t, int64_t, int64_t, float& x) {
    EXPECT_EQ(x == -std::numeric_limits<float>::infinity(), b == 0);
  });
}

template <typename T, typename Round>
Buffer<T> Rounded(const Buffer<float>& from, const Round& round) {
  Buffer<T> to(from.shape(), Layout::kDense, T{});
  to.ForEach(
      [&](int64_t b, int64_t h, int64_t i, int64_t d, T& x) { x = round(from(b, h, i, d)); });
  return to;
}

// Keys of bfloat16 go around as such; the output is rounded once.
TEST(RingAttentionEdges, TakesAndGivesStorageTypes) {
  RingCase c;
  c.options.causal = true;
  c.DrawTensors();
  const auto q = Rounded<Float16>(c.q, ToFloat16);
  const auto k = Rounded<BFloat16>(c.k, ToBFloat16);
  const auto v = Rounded<Float16>(c.v, ToFloat16);
  const Extents shape = {c.batch, c.num_heads, c.sharding.q_len, c.head_dim_v};
  Buffer<float> whole(shape, Layout::kDense, kNan);
  Attention(q.view(), k.view(), v.view(), c.options, {.output = whole.view()});
  RunRanksWell(3, [&](distributed::Communicator& communicator) {
    const int rank = communicator.Rank();
    const TokenOrder order = c.sharding.order;
    const auto own_q = PartOf(q, rank, 3, order);
    const auto own_k = PartOf(k, rank, 3, order);
    const auto own_v = PartOf(v, rank, 3, order);
    auto expected = PartOf(whole, rank, 3, order);
    Buffer<BFloat16> output(expected.shape(), Layout::kPadded, BFloat16{0x7fc0});
    distributed::Attention(own_q.view(), own_k.view(), own_v.view(), c.options,
                           {.stored_output = output.view()}, c.sharding, communicator);
    output.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, BFloat16& x) {
      const double value = static_cast<double>(expected(b, h, i, d));
      EXPECT_NEAR(static_cast<double>(ToFloat(x)), value,
                  kBFloat16Rounding * std::abs(value) + 5 * kBound);
    });
  });
}

}  // namespace
}  // namespace heed::testing
