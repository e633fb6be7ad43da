// The kernel of single queries (decode_kernel.h): which calls take it, and that it computes them.
#include <cmath>
#include <limits>
#include <vector>

#include "device_case.h"
#include "gtest/gtest.h"
#include "src/cuda/decode_plan.h"
#include "src/cuda/plan.h"
#include "stored_buffer.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class DeviceSingleQuery : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(TwoBytes, DeviceSingleQuery,
                         ::testing::Values(DType::kFloat16, DType::kBFloat16),
                         [](const auto& info) { return DTypeName(info.param); });

AttentionCase Query(int64_t num_heads, int64_t num_kv_heads, int64_t kv_len, int64_t columns,
                    int64_t batch = 1) {
  return MakeCase({.batch = batch,
                   .num_heads = num_heads,
                   .num_kv_heads = num_kv_heads,
                   .q_len = 1,
                   .kv_len = kv_len,
                   .head_dim = columns,
                   .head_dim_v = columns});
}

struct Stored {
  Layout layout = Layout::kDense;
  DType dtype = DType::kBFloat16;
  cuda::DeviceArrays arrays{};
};
bool IsTaken(AttentionCase c, const Stored& stored = {}) {
  const StoredBuffer q(c.q, stored.dtype, stored.layout), k(c.k, stored.dtype, stored.layout),
      v(c.v, stored.dtype, stored.layout);
  const Sizes& s = c.sizes;
  Buffer<float> output({s.batch, s.num_heads, s.q_len, s.head_dim_v}, Layout::kDense, 0);
  AttentionOutputs outputs;
  outputs.output = output.view();
  return cuda::TakesDecoding(
      cuda::ValidateForDevice(q.view(), k.view(), v.view(), c.options(), outputs, stored.arrays));
}

void ExpectMatches(const AttentionCase& c, DType dtype, const DeviceChoices& choices = {}) {
  EXPECT_TRUE(IsTaken(c, {choices.layout, dtype})) << c.Describe();
  ExpectDeviceMatches(c, dtype, choices);
}

TEST_P(DeviceSingleQuery, LengthsAroundStepsAndTiles) {
  for (const int64_t columns : {64, 128}) {
    for (const int64_t kv_len : {1, 2, 15, 16, 17, 31, 63, 64, 65, 129, 200}) {
      ExpectMatches(Query(2, 1, kv_len, columns), GetParam());
    }
    ExpectMatches(Query(4, 1, 700, columns), GetParam(), {.processors = 3});
  }
}

TEST_P(DeviceSingleQuery, GroupsOfOneToEightHeads) {
  for (const int64_t columns : {64, 128}) {
    for (int64_t group = 1; group <= 8; ++group) {
      ExpectMatches(Query(2 * group, 2, 77, columns, 2), GetParam());
    }
  }
}

// The last block adds 16 splits at a time, and four heads of 128 columns.
TEST_P(DeviceSingleQuery, ManySplitsHaveTheBitsOfTheSecondKernel) {
  for (const int64_t columns : {64, 128}) {
    for (const int64_t group : {1, 5, 8}) {
      for (const int64_t tiles : {16, 17, 32}) {
        AttentionCase c = Query(group, 1, 64 * tiles - 3, columns);
        c.sinks.assign(static_cast<size_t>(group), 0.5f);
        ExpectMatches(c, GetParam(), {.processors = 132});
        const Results here =
            RunDevice(c, GetParam(), {.processors = 132, .block_order = 3, .must_merge = true});
        const Results apart = RunDevice(c, GetParam(), {.processors = 132, .merges_apart = true});
        EXPECT_EQ(Bits(here.output), Bits(apart.output));
        EXPECT_EQ(Bits(here.lse), Bits(apart.lse));
      }
    }
  }
}

TEST_P(DeviceSingleQuery, WhatHidesEndsOfTheKeys) {
  for (const int64_t columns : {64, 128}) {
    AttentionCase c = Query(6, 2, 150, columns, 3);
    c.key_lengths = {150, 0, 37};
    c.sinks = {0, 1, -2, 3, 0.5, 9};
    ExpectMatches(c, GetParam());
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::End();
    ExpectMatches(c, GetParam());
    c.scalars.window = Window{20, 0};
    ExpectMatches(c, GetParam());
    c.scalars.query_offset = QueryOffset::At(90);
    ExpectMatches(c, GetParam());
    c.prefix_lengths = {5, 100, 149};
    c.scalars.window.reset();
    ExpectMatches(c, GetParam(), {.processors = 40});
  }
}

TEST_P(DeviceSingleQuery, ScalesAndSoftmaxOfOneMore) {
  AttentionCase c = Query(4, 2, 90, 64);
  for (const float scale : {0.5f, -0.3f, 0.0f, 20.0f}) {
    c.scalars.scale = scale;
    c.scalars.normalize = scale < 1 ? Normalize::kSoftmax1 : Normalize::kSoftmax;
    ExpectMatches(c, GetParam());
  }
}

TEST_P(DeviceSingleQuery, LayoutsOfInputsAndResults) {
  for (const Layout layout : {Layout::kBlhd, Layout::kReversed}) {
    ExpectMatches(Query(4, 2, 90, 64, 2), GetParam(), {.layout = layout});
  }
  AttentionCase padded = Query(4, 2, 90, 128, 2);
  padded.output_layout = Layout::kPadded;
  ExpectMatches(padded, GetParam());
}

TEST_P(DeviceSingleQuery, LaterKeysMayHaveMuchLargerScores) {
  for (const int64_t processors : {1, 40}) {
    AttentionCase c = Query(4, 1, 400, 64);
    c.scalars.scale = 4;
    for (int64_t j = 0; j < 400; ++j) {
      for (int64_t d = 0; d < 64; ++d) c.k(0, 0, j, d) *= static_cast<float>(j) / 200;
    }
    ExpectMatches(c, GetParam(), {.processors = processors});
  }
}

TEST_P(DeviceSingleQuery, HiddenKeysMayBeAnything) {
  for (const float poison : {kNan, kInf, -kInf}) {
    AttentionCase c = Query(4, 2, 200, 128);
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::At(130);
    c.scalars.window = Window{70, 0};
    AttentionCase poisoned = c;
    for (int64_t j = 0; j < 200; ++j) {
      if (j >= 60 && j <= 130) continue;
      for (int64_t h = 0; h < 2; ++h) poisoned.k(0, h, j, 3) = poisoned.v(0, h, j, 9) = poison;
    }
    const Results expected = RunDevice(c, GetParam(), {.processors = 9});
    const Results actual = RunDevice(poisoned, GetParam(), {.processors = 9});
    EXPECT_EQ(Bits(expected.output), Bits(actual.output));
    EXPECT_EQ(Bits(expected.lse), Bits(actual.lse));
  }
}

TEST_P(DeviceSingleQuery, WhatIsSeenAndNotFiniteReachesItsColumns) {
  for (const float poison : {kNan, kInf, -kInf}) {
    AttentionCase c = Query(4, 2, 100, 64);
    c.v(0, 0, 33, 5) = poison;
    ExpectMatches(c, GetParam());
    c.k(0, 1, 99, 7) = kNan;
    ExpectMatches(c, GetParam());
  }
}

TEST(SingleQuery, IsTakenByPlainCallsOfFewHeads) {
  EXPECT_TRUE(IsTaken(Query(8, 1, 100, 64)));
  EXPECT_TRUE(IsTaken(Query(8, 8, 100, 128), {.dtype = DType::kFloat16}));
  EXPECT_FALSE(IsTaken(Query(8, 8, 100, 128), {.dtype = DType::kFloat32}));
  EXPECT_FALSE(IsTaken(Query(9, 1, 100, 64)));
  EXPECT_FALSE(IsTaken(Query(8, 1, 100, 96)));
  EXPECT_FALSE(IsTaken(Query(8, 1, 100, 64), {.layout = Layout::kPadded}));
  AttentionCase two = Query(2, 1, 100, 64);
  two.sizes.q_len = 2;
  EXPECT_FALSE(IsTaken(MakeCase(two.sizes)));
}

TEST(SingleQuery, IsNotTakenByWhatItLacks) {
  const AttentionCase plain = Query(2, 1, 100, 64);
  const std::vector<void (*)(AttentionCase&)> changes = {
      [](AttentionCase& c) { c.scalars.softcap = 3; },
      [](AttentionCase& c) { c.scalars.normalize = Normalize::kSigmoid; },
      [](AttentionCase& c) { c.scalars.dropout = {.p = 0.5, .seed = 1}; },
      [](AttentionCase& c) {
        c.alibi_slopes = {1, 2};
        c.scalars.query_offset = QueryOffset::End();
      },
      [](AttentionCase& c) {
        c.bias = Buffer<float>({1, 1, 1, 100}, Layout::kDense, 0);
      },
      [](AttentionCase& c) {
        c.keep = Buffer<uint8_t>({1, 1, 1, 100}, Layout::kDense, 1);
      },
      [](AttentionCase& c) {
        c.query_documents = {0};
        c.key_documents.assign(100, 0);
      },
      [](AttentionCase& c) {
        c.lists.q_block = 1;
        c.lists.block_keep = Buffer<uint8_t>({1, 1, 1, 2}, Layout::kDense, 1);
      },
  };
  for (size_t n = 0; n < changes.size(); ++n) {
    AttentionCase c = plain;
    changes[n](c);
    EXPECT_FALSE(IsTaken(c)) << "change " << n;
  }
  const std::vector<int32_t> documents(100, 0);
  EXPECT_FALSE(IsTaken(
      plain, {.arrays = {.query_documents = documents.data(), .key_documents = documents.data()}}));
}

}  // namespace
}  // namespace heed::testing
