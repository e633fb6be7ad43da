// The low-rank family on the device path, against the float64 reference.
#include "heed/low_rank.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "device_backend.h"
#include "gtest/gtest.h"
#include "heed/registry.h"
#include "low_rank_case.h"
#include "refused.h"
#include "src/cuda/low_rank_calls.h"
#include "src/low_rank/request.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class DeviceLowRank : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }
};

void RunOnDevice(const RequestReader& reader, const LowRankRequest& r, const std::string& id,
                 std::span<const NamedTensor> results) {
  AttentionOutputs out;
  out.output = OutputView(results, "output");
  out.weights = OutputView(results, "weights");
  out.lse = OutputView(results, "lse");
  if (id == "linformer") return RunLinformerOnDevice(r.q, r.k, r.v, ReadLinformer(reader, r), out);
  if (id == "efficient") return RunEfficientOnDevice(r.q, r.k, r.v, {r.key_lengths}, out);
  if (id == "memory_compressed") {
    return RunMemoryCompressedOnDevice(r.q, r.k, r.v, ReadMemoryCompressed(reader, r), out);
  }
  RunNystromOnDevice(r.q, r.k, r.v, ReadNystrom(reader, r),
                     {out.output, out.weights, OutputView(results, "residual")});
}

// What the device makes of a request; results are filled with NaN first.
Values RunOnDevice(const Request& request) {
  const RequestReader reader(*FindMechanism(request.id), request);
  std::vector<std::vector<float>> floats;
  std::vector<NamedTensor> results;
  for (const OutputSpec& spec : PlanOutputs(request)) {
    size_t count = 1;
    for (int axis = 0; axis < spec.rank; ++axis) count *= static_cast<size_t>(spec.shape[axis]);
    floats.emplace_back(count, kNan);
    const std::span<const int64_t> shape(spec.shape.data(), static_cast<size_t>(spec.rank));
    results.push_back({spec.name, ContiguousTensor(DType::kFloat32, floats.back().data(), shape)});
  }
  RunOnDevice(reader, ReadLowRank(reader), request.id, results);
  Values values;
  for (size_t n = 0; n < results.size(); ++n) {
    values[results[n].name].assign(floats[n].begin(), floats[n].end());
  }
  return values;
}

void ExpectMatches(const RequestBuilder& builder, double size, const std::string& what) {
  ExpectMatchesLowRankOracle(builder.request(), size, what,
                             [](const Request& request) { return RunOnDevice(request); });
}

// Poison where nothing may look: behind the lengths 41, 0 and 70 of three entries.
Tokens WithPoison(Tokens tokens) {
  for (int64_t h = 0; h < 2; ++h) {
    tokens.Key(0, h, 41, 3) = kNan;
    tokens.Value(0, h, 69, 0) = kInfinity;
    tokens.Value(1, h, 0, 0) = kNan;
  }
  return tokens;
}

void ExpectZeros(const std::vector<double>& values, size_t first, size_t count) {
  for (size_t n = first; n < first + count; ++n) EXPECT_EQ(values[n], 0.0) << n;
}

// Weights of which the absolute values of a row sum up to about 2.
std::vector<float> Weights(int64_t rows, int64_t cols, uint64_t seed) {
  return Normals(rows * cols, seed, 2.5 / static_cast<double>(cols));
}

TEST_F(DeviceLowRank, LinformerMatchesTheReference) {
  for (const LowRankSizes& s : ManyLowRankSizes()) {
    for (const bool per_head : {false, true}) {
      RequestBuilder builder = Tokens(s).Request("linformer");
      const int64_t heads = per_head ? s.num_kv_heads : 1, len = s.kv_len + 3;
      builder.Floats("key_projection", {heads, 35, len}, Weights(heads * 35, len, 5));
      if (per_head) builder.Floats("value_projection", {35, len}, Weights(35, len, 6));
      builder.Param("return_weights", !per_head).Param("return_lse", true);
      ExpectMatches(builder, 15, "kv_len " + std::to_string(s.kv_len));
    }
  }
}

TEST_F(DeviceLowRank, LinformerReadsNothingBehindTheLengths) {
  const LowRankSizes s{.batch = 3};
  RequestBuilder clean = Tokens(s).Request("linformer");
  RequestBuilder poisoned = WithPoison(Tokens(s)).Request("linformer");
  for (RequestBuilder* builder : {&clean, &poisoned}) {
    builder->Floats("key_projection", {20, 70}, Weights(20, 70, 5))
        .Integers("key_lengths", {3}, {41, 0, 70})
        .Param("return_lse", true);
  }
  ExpectMatches(clean, 15, "lengths");
  const Values values = RunOnDevice(clean.request());
  EXPECT_EQ(RunOnDevice(poisoned.request()), values);
  ExpectZeros(values.at("output"), 4 * 33 * 9, 4 * 33 * 9);
  for (size_t n = 4 * 33; n < 8 * 33; ++n) EXPECT_EQ(values.at("lse")[n], -INFINITY);
}

TEST_F(DeviceLowRank, EfficientMatchesTheReference) {
  for (const LowRankSizes& s : ManyLowRankSizes()) {
    ExpectMatches(Tokens(s).Request("efficient"), 5, "kv_len " + std::to_string(s.kv_len));
  }
  Tokens large(LowRankSizes{});
  for (float& x : large.q) x *= 40;
  for (float& x : large.k) x *= 40;
  ExpectMatches(large.Request("efficient"), 5, "large queries and keys");
}

TEST_F(DeviceLowRank, EfficientReadsNothingBehindTheLengths) {
  const LowRankSizes s{.batch = 3};
  RequestBuilder clean = Tokens(s).Request("efficient");
  RequestBuilder poisoned = WithPoison(Tokens(s)).Request("efficient");
  clean.Integers("key_lengths", {3}, {41, 0, 70});
  poisoned.Integers("key_lengths", {3}, {41, 0, 70});
  ExpectMatches(clean, 5, "lengths");
  const Values values = RunOnDevice(clean.request());
  EXPECT_EQ(RunOnDevice(poisoned.request()), values);
  ExpectZeros(values.at("output"), 4 * 33 * 9, 4 * 33 * 9);
}

// A key of -inf is not kept in that feature; its value may be anything there, but for the others.
TEST_F(DeviceLowRank, EfficientLeavesKeysOfMinusInfinityOut) {
  Tokens tokens(LowRankSizes{});
  for (int64_t d = 0; d < 16; ++d) tokens.Key(1, 0, 5, d) = -kInfinity;
  tokens.Key(0, 1, 7, 3) = -kInfinity;
  tokens.Value(1, 0, 5, 2) = kNan;
  const Values values = RunOnDevice(tokens.Request("efficient").request());
  for (const double x : values.at("output")) ASSERT_TRUE(std::isfinite(x));
  tokens.Value(1, 0, 5, 2) = 0;
  ExpectMatches(tokens.Request("efficient"), 5, "keys of -inf");
}

TEST_F(DeviceLowRank, BlocksOfTokensMatchTheReference) {
  for (const LowRankSizes& s : ManyLowRankSizes()) {
    for (const double compression : {1, 3, 2000}) {
      RequestBuilder builder = Tokens(s).Request("memory_compressed");
      builder.Param("compression", compression).Param("return_lse", true);
      ExpectMatches(builder, 5, "means, kv_len " + std::to_string(s.kv_len));
    }
  }
}

// Both convolutions, whose absolute weights sum up to about 2 for each output.
void AddConvolutions(RequestBuilder& builder, const LowRankSizes& s, int64_t heads, int64_t block) {
  const auto add = [&](const std::string& name, int64_t dim) {
    const double size = 2.5 / static_cast<double>(dim * block);
    builder.Floats(name, {heads, dim, dim, block}, Normals(heads * dim * dim * block, 7, size));
    builder.Floats(name + "_bias", {s.num_kv_heads, dim}, Normals(s.num_kv_heads * dim, 8, 0.1));
  };
  add("key_conv", s.head_dim);
  add("value_conv", s.head_dim_v);
}

TEST_F(DeviceLowRank, ConvolvedBlocksMatchTheReference) {
  for (const LowRankSizes& s : ManyLowRankSizes()) {
    for (const int64_t heads : {int64_t{1}, s.num_kv_heads}) {
      RequestBuilder builder = Tokens(s).Request("memory_compressed");
      AddConvolutions(builder, s, heads, 3);
      ExpectMatches(builder, 15, "convolutions, kv_len " + std::to_string(s.kv_len));
    }
  }
}

TEST_F(DeviceLowRank, BlocksMayBeCausalAndHaveLengthsAndSinks) {
  const LowRankSizes s{.q_len = 70};
  for (const bool convolves : {false, true}) {
    for (const bool lengths : {false, true}) {
      RequestBuilder builder = Tokens(s).Request("memory_compressed");
      if (convolves) AddConvolutions(builder, s, 1, 4);
      builder.Param("causal", true).Floats("sinks", {4}, {0, 1, -1, 0.5f});
      builder.Param("return_lse", true).Param("return_weights", true);
      if (lengths) {
        builder.Integers("key_lengths", {2}, {50, 0}).Param("query_offset", std::string("end"));
      }
      ExpectMatches(builder, 15, "causal");
    }
  }
}

TEST_F(DeviceLowRank, BlocksReadNothingBehindTheLengths) {
  const LowRankSizes s{.batch = 3};
  for (const bool convolves : {false, true}) {
    RequestBuilder clean = Tokens(s).Request("memory_compressed");
    RequestBuilder poisoned = WithPoison(Tokens(s)).Request("memory_compressed");
    for (RequestBuilder* builder : {&clean, &poisoned}) {
      if (convolves) AddConvolutions(*builder, s, 1, 4);
      builder->Integers("key_lengths", {3}, {41, 0, 70});
    }
    ExpectMatches(clean, 15, "lengths");
    const Values values = RunOnDevice(clean.request());
    EXPECT_EQ(RunOnDevice(poisoned.request()), values);
    ExpectZeros(values.at("output"), 4 * 33 * 9, 4 * 33 * 9);
  }
}

// Tokens that drift slowly, so that segments have something in common and landmarks differ.
Tokens Drifting(const LowRankSizes& sizes) {
  Tokens tokens(sizes, 1);
  const size_t dim = static_cast<size_t>(sizes.head_dim), len = static_cast<size_t>(sizes.kv_len);
  const std::vector<float> directions = Normals(6 * sizes.head_dim, 50, 1.2);
  for (std::vector<float>* rows : {&tokens.q, &tokens.k}) {
    for (size_t n = 0; n < rows->size(); ++n) {
      const size_t part = 6 * (n / dim % len) / len;
      (*rows)[n] = 0.3f * (*rows)[n] + directions[part * dim + n % dim];
    }
  }
  return tokens;
}

TEST_F(DeviceLowRank, NystromMatchesTheReference) {
  for (const LowRankSizes& s :
       {LowRankSizes{.q_len = 70},
        {.batch = 1, .num_heads = 1, .num_kv_heads = 1, .q_len = 1, .kv_len = 1, .head_dim = 1},
        {.batch = 1, .num_heads = 3, .num_kv_heads = 1, .q_len = 133, .kv_len = 133}}) {
    for (const int64_t landmarks : {int64_t{1}, std::min<int64_t>(6, s.kv_len), s.kv_len}) {
      RequestBuilder builder = Drifting(s).Request("nystrom");
      builder.Param("num_landmarks", static_cast<double>(landmarks))
          .Param("return_weights", true)
          .Param("return_residual", true);
      ExpectMatches(builder, 4 * 5, std::to_string(landmarks) + " landmarks");
    }
  }
}

TEST_F(DeviceLowRank, NystromConvolvesAndReadsNothingBehindTheLengths) {
  const LowRankSizes s{.batch = 4, .q_len = 70};
  for (const int64_t heads : {1, 4}) {
    Tokens tokens = Drifting(s);
    const auto add = [heads](RequestBuilder& builder) {
      // Landmarks of 41 tokens, exact attention of 5, nothing, and all.
      builder.Integers("key_lengths", {4}, {41, 5, 0, 70})
          .Floats("depthwise_conv", {heads, 7}, Normals(heads * 7, 9, 0.1))
          .Param("num_landmarks", 6.0)
          .Param("return_weights", true)
          .Param("return_residual", true);
    };
    RequestBuilder clean = tokens.Request("nystrom");
    add(clean);
    ExpectMatches(clean, 4 * 5, "lengths");
    const Values values = RunOnDevice(clean.request());
    for (int64_t h = 0; h < 2; ++h) {
      tokens.Key(0, h, 41, 3) = tokens.Key(1, h, 69, 3) = tokens.Value(2, h, 0, 0) = kNan;
      tokens.Value(0, h, 41, 0) = kInfinity;
    }
    RequestBuilder poisoned = tokens.Request("nystrom");
    add(poisoned);
    EXPECT_EQ(RunOnDevice(poisoned.request()), values);
    ExpectZeros(values.at("output"), 2 * 4 * 70 * 9, 4 * 70 * 9);
  }
}

// An address that must not be read: what lies in device memory.
template <class T>
TensorView<T> OnDeviceOnly(int64_t batch, int64_t heads, int64_t len, int64_t dim, uintptr_t at) {
  return Contiguous(reinterpret_cast<T*>(at << 32), batch, heads, len, dim);
}

TEST(DeviceLowRankBoundary, RefusesBeforeAnythingRunsAndReadsNoTensor) {
  const auto q = OnDeviceOnly<const float>(1, 2, 5, 8, 1),
             k = OnDeviceOnly<const float>(1, 1, 9, 8, 2);
  const auto v = OnDeviceOnly<const float>(1, 1, 9, 4, 3);
  const auto projection = OnDeviceOnly<const float>(1, 1, 3, 9, 4);
  const AttentionOutputs out = {.output = OnDeviceOnly<float>(1, 2, 5, 4, 5)};
  LinformerOptions projected;
  projected.key_projection = projection;
  cuda::LinformerCall(q, k, v, projected, out);
  cuda::EfficientCall(q, k, v, {}, out);
  cuda::MemoryCompressedCall(q, k, v, {}, out);
  ExpectRefusedCall(ErrorCode::kOption, "key_projection is missing",
                    [&] { cuda::LinformerCall(q, k, v, {}, out); });
  ExpectRefusedCall(ErrorCode::kShape, "key_lengths has 2 values", [&] {
    static const int32_t kLengths[] = {1, 2};
    cuda::EfficientCall(q, k, v, {.key_lengths = kLengths}, out);
  });
  ExpectRefusedCall(ErrorCode::kUnsupported, "weights of efficient attention", [&] {
    AttentionOutputs weighed = out;
    weighed.weights = OnDeviceOnly<float>(1, 2, 5, 9, 6);
    cuda::EfficientCall(q, k, v, {}, weighed);
  });
  ExpectRefusedCall(ErrorCode::kRange, "compression = 0", [&] {
    MemoryCompressedOptions empty_blocks;
    empty_blocks.compression = 0;
    cuda::MemoryCompressedCall(q, k, v, empty_blocks, out);
  });
  ExpectRefusedCall(ErrorCode::kShape, "q_len is 5 and kv_len 9",
                    [&] { cuda::NystromCall(q, k, v, {}, {.output = out.output}); });
  ExpectRefusedCall(ErrorCode::kUnsupported, "head_dim = 5000", [&] {
    const auto wide = OnDeviceOnly<const float>(1, 1, 9, 5000, 7);
    cuda::EfficientCall(OnDeviceOnly<const float>(1, 2, 5, 5000, 8), wide, v, {}, out);
  });
}

TEST(DeviceLowRankBoundary, RefusesALaterStepThatNoGridHoldsBeforeTheFirst) {
  constexpr int64_t kBatch = 1 << 22;
  const auto q = OnDeviceOnly<const float>(kBatch, 1, 1, 8, 1 << 8),
             k = OnDeviceOnly<const float>(kBatch, 1, 1024, 8, 2 << 8),
             v = OnDeviceOnly<const float>(kBatch, 1, 1024, 8, 3 << 8);
  const AttentionOutputs out = {.output = OnDeviceOnly<float>(kBatch, 1, 1, 8, 4 << 8)};
  MemoryCompressedOptions options;
  options.compression = 512;
  cuda::MemoryCompressedCall(q, k, v, options, out);
  options.compression = 1;  // 2^32 means
  ExpectRefusedCall(ErrorCode::kUnsupported, "thread blocks",
                    [&] { cuda::MemoryCompressedCall(q, k, v, options, out); });
}

TEST(DeviceLowRankBoundary, WithoutADeviceItSaysWhatIsMissing) {
  const cuda::Availability state = cuda::Available();
  if (state.usable) GTEST_SKIP() << "found " << state.found;
  const auto q = OnDeviceOnly<const float>(1, 2, 5, 8, 1),
             k = OnDeviceOnly<const float>(1, 1, 9, 8, 2);
  const auto v = OnDeviceOnly<const float>(1, 1, 9, 4, 3);
  const AttentionOutputs out = {.output = OnDeviceOnly<float>(1, 2, 5, 4, 5)};
  ExpectRefusedCall(ErrorCode::kUnsupported, state.found,
                    [&] { cuda::EfficientAttention(q, k, v, {}, out, nullptr); });
}

}  // namespace
}  // namespace heed::testing
