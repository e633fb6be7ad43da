// Attention over ranks is attention of the whole.
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
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

// A rank without tokens has nothing to point at: not for tensors, and not for gradients.
TEST(RingAttentionEdges, RanksWithoutTokensNeedNoMemory) {
  const distributed::Sharding sharding = {.q_len = 8, .kv_len = 8};
  const auto whole = NormalBuffer({1, 2, 8, 4}, 1);
  RunRanksWell(4, [&](distributed::Communicator& communicator) {
    const auto own = PartOf(whole, communicator.Rank(), 4, sharding.order, Layout::kDense);
    const int64_t tokens = own.shape()[2];
    Buffer<float> output(own.shape(), Layout::kDense, -7),
        lse({1, 2, tokens, 1}, Layout::kDense, -7);
    auto d_q = output, d_k = output, d_v = output;
    const auto view = [&](Buffer<float>& buffer) {
      TensorView<float> all = buffer.view();
      if (tokens == 0) all.data = nullptr;
      return all;
    };
    auto x = own;
    distributed::Attention(view(x), view(x), view(x), {},
                           {.output = view(output), .lse = view(lse)}, sharding, communicator);
    distributed::AttentionBackward(view(x), view(x), view(x), view(output), view(lse), view(x), {},
                                   {.d_q = view(d_q), .d_k = view(d_k), .d_v = view(d_v)}, sharding,
                                   communicator);
    d_v.ForEach([](int64_t, int64_t, int64_t, int64_t, float& value) { EXPECT_NE(value, -7.0f); });
  });
}

// Rows of keys that are no multiple of the size of values.
TEST(RingAttentionEdges, TakesOddRowsOfOneTypeBesideAnother) {
  Buffer<BFloat16> k({1, 1, 9, 3}, Layout::kDense, BFloat16{0x3f80});
  const auto q = NormalBuffer({1, 1, 9, 3}, 1), v = NormalBuffer({1, 1, 9, 5}, 2);
  Buffer<float> whole({1, 1, 9, 5}, Layout::kDense, kNan);
  Attention(StoredTensor(q.view()), k.view(), StoredTensor(v.view()), {}, {.output = whole.view()});
  RunRanksWell(2, [&](distributed::Communicator& communicator) {
    const int rank = communicator.Rank();
    const auto own_q = PartOf(q, rank, 2, TokenOrder::kZigzag);
    const auto own_k = PartOf(k, rank, 2, TokenOrder::kZigzag);
    const auto own_v = PartOf(v, rank, 2, TokenOrder::kZigzag);
    auto output = PartOf(whole, rank, 2, TokenOrder::kZigzag);
    const Buffer<float> expected = output;
    distributed::Attention(StoredTensor(own_q.view()), own_k.view(), StoredTensor(own_v.view()), {},
                           {.output = output.view()}, {.q_len = 9, .kv_len = 9}, communicator);
    EXPECT_LE(LargestError(output, expected), kBound);
  });
}

// Alone in its network, which notes who calls Progress().
class Noting final : public distributed::Communicator {
 public:
  Noting(distributed::Communicator& network, bool fails) : network_(network), fails_(fails) {}
  int Rank() const override { return network_.Rank(); }
  int Size() const override { return network_.Size(); }
  void BeginSend(int to, std::span<const std::byte> bytes) override {
    network_.BeginSend(to, bytes);
  }
  void BeginReceive(int from, std::span<std::byte> bytes) override {
    network_.BeginReceive(from, bytes);
  }
  void Finish() override { network_.Finish(); }
  void Progress() override {
    EXPECT_EQ(std::this_thread::get_id(), caller_);
    ++calls;
    if (fails_) throw std::runtime_error("the cable is out");
  }
  int calls = 0;

 private:
  distributed::Communicator& network_;
  const bool fails_;
  const std::thread::id caller_ = std::this_thread::get_id();
};

TEST(RingAttentionEdges, NetworksMayMoveOnBetweenTasks) {
  RunRanksWell(2, [&](distributed::Communicator& network) {
    const auto x = NormalBuffer({1, 4, 200, 8}, 1);
    Buffer<float> output(x.shape(), Layout::kDense, 0);
    const auto pool = MakeThreadPool(2);
    Noting noting(network, false);
    distributed::Attention(x.view(), x.view(), x.view(), {}, {.output = output.view()},
                           {.q_len = 400, .kv_len = 400}, noting, pool.get());
    EXPECT_GT(noting.calls, 0);
  });
}

TEST(RingAttentionEdges, WhatTheNetworkThrowsPasses) {
  const auto errors = RunRanks(2, [&](distributed::Communicator& network) {
    const auto x = NormalBuffer({1, 4, 200, 8}, 1);
    Buffer<float> output(x.shape(), Layout::kDense, -7);
    Noting noting(network, true);
    distributed::Attention(x.view(), x.view(), x.view(), {}, {.output = output.view()},
                           {.q_len = 400, .kv_len = 400}, noting);
  });
  for (const auto& error : errors) EXPECT_EQ(ErrorOf(error).text, "the cable is out");
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
