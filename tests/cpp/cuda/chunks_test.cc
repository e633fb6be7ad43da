// Recurrent attention of 16-bit tensors on the device path, in chunks, against the float64 oracle.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "buffer.h"
#include "checked_call.h"
#include "chunk_case.h"
#include "chunk_results.h"
#include "device_backend.h"
#include "gtest/gtest.h"
#include "random.h"
#include "recurrent_case.h"
#include "refused.h"
#include "request_builder.h"
#include "src/cuda/chunk_plan.h"
#include "stored_buffer.h"

namespace heed::testing {
namespace {

class DeviceChunks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }
};

bool TakesChunks(const ChunkCall& c) { return cuda::TakesChunks(Checked(c, c.Options())); }

int64_t SpansOf(const ChunkCall& c) {
  return cuda::ChunkPlan(Checked(c, c.Options()), c.processors).spans();
}

constexpr DType kTypes[] = {DType::kBFloat16, DType::kFloat16};

TEST_F(DeviceChunks, EveryRuleMatchesTheOracle) {
  const Rule rules[] = {{.decays = false, .betas = false},
                        {},
                        {.betas = false},
                        {.skips = true, .begins = true},
                        {.features = FeatureMap::kRelu},
                        {.features = FeatureMap::kEluPlusOne, .begins = true},
                        {.features = FeatureMap::kEluPlusOne,
                         .normalize = true,
                         .decays = false,
                         .betas = false,
                         .begins = true}};
  for (const DType dtype : kTypes) {
    for (const Rule& rule : rules) {
      ChunkCall c;
      c.rule = rule;
      c.dtype = dtype;
      c.Draw();
      ExpectMatchesOracle(c, "rule " + std::to_string(&rule - rules) + " of " + DTypeName(dtype));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(DeviceChunks, EverySizeMatchesTheOracle) {
  struct Size {
    int64_t len, dim, dim_v;
  };
  for (const Size& size :
       {Size{64, 1, 1}, {65, 64, 64}, {100, 65, 63}, {127, 128, 128}, {70, 33, 200}}) {
    for (const DType dtype : kTypes) {
      ChunkCall c;
      c.batch = 1, c.heads = c.kv_heads = 1;
      c.len = size.len, c.dim = size.dim, c.dim_v = size.dim_v;
      c.dtype = c.out_dtype = dtype;
      c.rule.begins = true;
      c.Draw();
      ExpectMatchesOracle(c, "head_dim " + std::to_string(size.dim));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(DeviceChunks, EveryLayoutMatchesTheOracle) {
  for (const Layout layout : {Layout::kBlhd, Layout::kPadded, Layout::kReversed}) {
    ChunkCall c;
    c.layout = layout;
    c.out_dtype = DType::kBFloat16;
    c.Draw();
    ExpectMatchesOracle(c, "layout " + std::to_string(static_cast<int>(layout)));
    if (HasFatalFailure()) return;
  }
}

// Six spans, of which the last is shorter, in three orders: the same bits.
TEST_F(DeviceChunks, SpansMatchTheOracleInAnyOrder) {
  ChunkCall c;
  c.batch = 1, c.heads = c.kv_heads = 1;
  c.len = 25 * 64 + 9, c.dim = c.dim_v = 8;
  c.rule.begins = true;
  c.Draw();
  EXPECT_EQ(SpansOf(c), 6);
  ExpectMatchesOracle(c, "spans");
  const ChunkResults first = RunCall(c);
  for (const uint64_t order : {1, 2}) {
    c.order = order;
    const ChunkResults next = RunCall(c);
    EXPECT_EQ(next.output, first.output);
    EXPECT_EQ(next.state, first.state);
  }
}

TEST_F(DeviceChunks, SpansOfSumsMatchTheOracle) {
  ChunkCall c;
  c.batch = 1, c.heads = c.kv_heads = 1;
  c.len = 9 * 64, c.dim = 8, c.dim_v = 65;
  c.rule = {.features = FeatureMap::kEluPlusOne,
            .normalize = true,
            .decays = false,
            .betas = false,
            .begins = true};
  c.Draw();
  EXPECT_EQ(SpansOf(c), 2);
  ExpectMatchesOracle(c, "spans of sums");
}

// Nothing of a token beyond its length is read.
TEST_F(DeviceChunks, TokensBeyondLengthsDoNotExist) {
  ChunkCall c;
  c.batch = 3;
  c.lengths = {0, 70, 128};
  c.rule.skips = c.rule.begins = true;
  c.Draw();
  ChunkCall poisoned = c;
  for (size_t b = 0; b < 3; ++b) {
    for (int64_t h = 0; h < c.kv_heads; ++h) {
      for (int64_t t = c.lengths[b]; t < c.len; ++t) {
        const int64_t batch = static_cast<int64_t>(b);
        poisoned.k(batch, h, t, 0) = poisoned.v(batch, h, t, 0) = kNan;
        poisoned.gates[static_cast<size_t>((batch * c.kv_heads + h) * c.len + t)] = kNan;
        poisoned.betas[static_cast<size_t>((batch * c.kv_heads + h) * c.len + t)] = kNan;
      }
    }
  }
  ExpectMatchesOracle(c, "lengths");
  const ChunkResults clean = RunCall(c), other = RunCall(poisoned);
  EXPECT_EQ(other.output, clean.output);
  EXPECT_EQ(other.state, clean.state);
}

// Decays of 0, of e^-90 and of all but 1 beside each other.
TEST_F(DeviceChunks, StrongDecaysAreExact) {
  for (const DType dtype : kTypes) {
    ChunkCall c;
    c.dtype = dtype;
    c.Draw();
    for (size_t n = 0; n < c.gates.size(); ++n) {
      c.gates[n] = n % 11 == 3 ? -kInfinity : n % 7 == 2 ? -90.0f : -1e-4f;
    }
    ExpectMatchesOracle(c, DTypeName(dtype));
    std::fill(c.gates.begin(), c.gates.end(), -kInfinity);
    ExpectMatchesOracle(c, DTypeName(dtype));
  }
}

// One chunk later, and in the next span.
TEST_F(DeviceChunks, WhatIsNotFiniteReachesLaterTokensOnly) {
  for (const int64_t len : {int64_t{130}, int64_t{9 * 64}}) {
    for (const DType dtype : kTypes) {
      ChunkCall c;
      c.batch = 1, c.len = len, c.dtype = dtype;
      c.Draw();
      ASSERT_TRUE(TakesChunks(c));
      ASSERT_EQ(SpansOf(c), len == 130 ? 1 : 2);
      ExpectPoisonReachesLaterTokensOnly(c, std::to_string(len) + " of " + DTypeName(dtype) + ", ");
      if (HasFatalFailure()) return;
    }
  }
}

// Products beyond 65504, states beyond it, and strengths far from 1 do not fit float16 as they are.
TEST_F(DeviceChunks, Float16NeitherOverflowsNorVanishes) {
  for (const float factor : {300.0f, 0.01f}) {
    for (const float beta : {1e5f, 1.0f, 1e-5f}) {
      ChunkCall c;
      c.dtype = DType::kFloat16;
      c.Draw();
      for (Buffer<float>* tensor : {&c.q, &c.k}) {
        tensor->ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x *= factor; });
      }
      for (float& x : c.betas) x *= beta;
      ExpectMatchesOracle(c, "factor " + std::to_string(factor) + ", beta " + std::to_string(beta));
      if (HasFatalFailure()) return;
    }
  }
}

// With the initial state as the place of the final one: the same bits as apart.
void ExpectSameInPlace(ChunkCall& c, const std::string& what) {
  ASSERT_TRUE(TakesChunks(c)) << what;
  const ChunkResults apart = RunCall(c);
  const StoredBuffer q(c.q, c.dtype, c.layout), k(c.k, c.dtype, c.layout),
      v(c.v, c.dtype, c.layout);
  Buffer<float> output({c.batch, c.heads, c.len, c.dim_v}, Layout::kDense, kNan);
  std::vector<float> state = c.initial;
  const auto view = Contiguous(state.data(), c.batch, c.kv_heads, c.dim, c.cols());
  RecurrentOptions options = c.Options();
  options.initial_state = view;
  RunStoredRecurrentOnDevice(q.view(), k.view(), v.view(), options,
                             {StoredOutput(output.view()), view},
                             {.processors = c.processors, .order = 1});
  EXPECT_EQ(output.Elements(), apart.output) << what;
  EXPECT_EQ(state, apart.state) << what;
}

TEST_F(DeviceChunks, AStateInPlaceContinuesACall) {
  for (const bool normalize : {false, true}) {
    ChunkCall c;
    c.dim_v = 70;
    c.rule = {.features = FeatureMap::kEluPlusOne, .normalize = normalize, .begins = true};
    c.Draw();
    ExpectSameInPlace(c, "normalize " + std::to_string(normalize));
  }
}

// One sequence without a token, and one that ends in the second of two spans, in kernels of 128
// features, of which 72 are there.
TEST_F(DeviceChunks, SpansOfABatchOfLengthsMatchTheOracle) {
  for (const DType dtype : kTypes) {
    ChunkCall c;
    c.len = 8 * 64, c.dim = 72, c.dtype = dtype;
    c.lengths = {0, 300};
    c.rule.begins = true;
    c.processors = 2;
    c.Draw();
    ASSERT_EQ(SpansOf(c), 2);
    ExpectMatchesOracle(c, DTypeName(dtype));
    if (HasFatalFailure()) return;
    ExpectSameInPlace(c, DTypeName(dtype));
  }
}

// Calls that do not take chunks, within the bound of float32 and the rounding of their output.
TEST_F(DeviceChunks, OtherCallsAreComputedInFloat32) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const int64_t dim : {24, 129}) {
      ChunkCall c;
      c.batch = 1, c.heads = c.kv_heads = 1;
      c.len = dim == 24 ? 63 : 64, c.dim = dim, c.dim_v = 9;
      c.dtype = c.out_dtype = dtype;
      c.layout = Layout::kPadded;
      c.rule.begins = true;
      c.Draw();
      EXPECT_FALSE(TakesChunks(c));
      const ChunkResults actual = RunCall(c);
      const Values expected = RunOracle(c.OracleCall(false).request());
      const std::vector<double>&output = expected.at("output"), &state = expected.at("state");
      ExpectNear(actual.output, output, output, 0, RoundingOf(dtype), "output");
      ExpectNear(actual.state, state, state, 0, 0, "state");
    }
  }
}

TEST(DeviceChunkPlan, TakesWhatChunksCompute) {
  ChunkCall c;
  c.Draw();
  const auto takes = [&](const RecurrentOptions& options) {
    return cuda::TakesChunks(Checked(c, options));
  };
  const RecurrentOptions plain = c.Options();
  EXPECT_TRUE(takes(plain));
  RecurrentOptions other = plain;
  other.causal = false;
  EXPECT_FALSE(takes(other));
  other = plain, other.feature_map = FeatureMap::kUnit;
  EXPECT_FALSE(takes(other));
  other = plain, other.delta = true;
  EXPECT_FALSE(takes(other));
  const std::vector<float> channels(static_cast<size_t>(c.batch * c.kv_heads * c.len * c.dim), -1);
  other = plain;
  other.log_decay = Contiguous(channels.data(), c.batch, c.kv_heads, c.len, c.dim);
  EXPECT_FALSE(takes(other));
  const std::vector<float> bonus(static_cast<size_t>(c.heads * c.dim), 1);
  other = plain, other.bonus = Contiguous(bonus.data(), 1, c.heads, 1, c.dim);
  EXPECT_FALSE(takes(other));
  c.dim = 128;
  EXPECT_TRUE(takes(plain));
  c.dim = 129;
  EXPECT_FALSE(takes(plain));
  // A decay of the only feature is one of its head.
  c.dim = 1;
  EXPECT_TRUE(takes(plain));
  c.dim = 8, c.len = 63;
  EXPECT_FALSE(takes({}));
  c.len = 64;
  EXPECT_TRUE(takes({}));
}

TEST(DeviceChunkPlan, SpansFillTheGpuTwice) {
  ChunkCall c;
  c.batch = 1, c.heads = c.kv_heads = 32, c.len = 8192, c.dim = c.dim_v = 128;
  const cuda::ChunkPlan plan(Checked(c, {}), 132);
  EXPECT_EQ(plan.spans(), 8);
  EXPECT_EQ(plan.num_sum_blocks(), 7 * 64);
  EXPECT_EQ(plan.num_read_blocks(), 8 * 64);
  EXPECT_EQ(plan.scratch_floats(), 8 * 32 * (128 * 128 + 1));
  // Enough heads need no spans, and short sequences have none.
  c.batch = 16, c.len = 1024;
  EXPECT_EQ(cuda::ChunkPlan(Checked(c, {}), 132).spans(), 1);
  c.batch = 1, c.len = 448;
  EXPECT_EQ(cuda::ChunkPlan(Checked(c, {}), 132).spans(), 1);
}

TEST(DeviceChunkBoundary, NamesWhatIsWrong) {
  ChunkCall c;
  c.Draw();
  c.dtype = DType::kInt8;
  ExpectRefusedCall(ErrorCode::kDType, "q has element type int8", [&] { Checked(c, {}); });
  c.dtype = DType::kBFloat16;
  RecurrentOptions options;
  options.initial_state = Contiguous<const float>(c.initial.data(), 1, 1, c.dim, c.dim_v);
  ExpectRefusedCall(ErrorCode::kShape, "initial_state", [&] { Checked(c, options); });
  std::vector<uint16_t> same(64 * 8 * 2);
  const auto at = [&](int64_t first) {
    const auto view = Contiguous(same.data() + first, 1, 1, 64, 8);
    return StoredTensor(view.data, DType::kFloat16, view.shape, view.strides);
  };
  const StoredTensor q = at(0), next = at(512);
  const auto check = [&](const StoredTensor& to) {
    cuda::ValidateStoredRecurrentForDevice(
        q, q, q, {}, {{const_cast<void*>(to.data), to.dtype, to.shape, to.strides}, {}});
  };
  check(next);  // beside each other
  ExpectRefusedCall(ErrorCode::kShape, "output overlaps q", [&] { check(q); });
  std::vector<float> output(64 * 8);
  const auto results = Contiguous(output.data(), 1, 1, 64, 8);
  ExpectRefusedCall(ErrorCode::kShape, "final_state overlaps output", [&] {
    cuda::ValidateStoredRecurrentForDevice(
        q, q, q, {}, {StoredOutput(results), Contiguous(output.data(), 1, 1, 8, 8)});
  });
}

}  // namespace
}  // namespace heed::testing
