// Memory-compressed attention: against the oracle, its limits, and numbers from its definition.
#include <cmath>
#include <limits>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/cost.h"
#include "heed/low_rank.h"
#include "low_rank_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class MemoryCompressed : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(MemoryCompressed);

// Both convolutions, whose absolute weights sum up to about 2 for each output.
void AddConvolutions(RequestBuilder& builder, const LowRankSizes& s, int64_t heads,
                     int64_t compression) {
  const auto add = [&](const std::string& name, int64_t dim) {
    const double size = 2.5 / static_cast<double>(dim * compression);
    builder.Floats(name, {heads, dim, dim, compression},
                   Normals(heads * dim * dim * compression, 7, size));
    builder.Floats(name + "_bias", {s.num_kv_heads, dim}, Normals(s.num_kv_heads * dim, 8, 0.1));
  };
  add("key_conv", s.head_dim);
  add("value_conv", s.head_dim_v);
}

TEST_P(MemoryCompressed, MeansMatchReference) {
  for (const LowRankSizes& s : ManyLowRankSizes()) {
    for (const double compression : {1, 3, 7, 2000}) {
      RequestBuilder builder = Tokens(s).Request("memory_compressed");
      builder.Param("compression", compression)
          .Param("return_weights", true)
          .Param("return_lse", true);
      ExpectMatchesLowRankOracle(builder.request(), 5, "kv_len " + std::to_string(s.kv_len));
    }
  }
}

TEST_P(MemoryCompressed, ConvolutionsMatchReference) {
  for (const LowRankSizes& s : ManyLowRankSizes()) {
    for (const int64_t heads : {int64_t{1}, s.num_kv_heads}) {
      RequestBuilder builder = Tokens(s).Request("memory_compressed");
      AddConvolutions(builder, s, heads, 3);
      ExpectMatchesLowRankOracle(builder.request(), 15, "kv_len " + std::to_string(s.kv_len));
    }
  }
}

TEST_P(MemoryCompressed, CausalMatchesReference) {
  const LowRankSizes s{.q_len = 70};
  for (const bool lengths : {false, true}) {
    RequestBuilder builder = Tokens(s).Request("memory_compressed");
    builder.Param("causal", true)
        .Floats("sinks", {4}, {0, 1, -1, 0.5f})
        .Param("return_lse", true)
        .Param("return_weights", true);
    if (lengths)
      builder.Integers("key_lengths", {2}, {50, 0}).Param("query_offset", std::string("end"));
    ExpectMatchesLowRankOracle(builder.request(), 5, "causal");
  }
}

TEST_P(MemoryCompressed, LaterTokensChangeNoCausalRow) {
  // Rows of the first 50 queries, whatever follows: a longer sequence, or NaN from token 50 on.
  Tokens tokens({.q_len = 70});
  const auto run = [&] {
    RequestBuilder builder = tokens.Request("memory_compressed");
    builder.Param("causal", true).Param("compression", 4.0);
    return RunByName(builder.request()).at("output");
  };
  const std::vector<double> whole = run();
  for (int64_t j = 50; j < 70; ++j) {
    for (int64_t h = 0; h < 2; ++h) tokens.Key(0, h, j, 0) = tokens.Value(0, h, j, 0) = kNan;
  }
  const std::vector<double> poisoned = run();
  for (size_t n = 0; n < 4 * 70 * 9; ++n) {
    if (n / 9 % 70 >= 50) continue;
    EXPECT_EQ(poisoned[n], whole[n]) << n;
  }
}

TEST_P(MemoryCompressed, QueriesSeeTheBlocksThatAreComplete) {
  RequestBuilder builder = Tokens({.q_len = 7, .kv_len = 7}).Request("memory_compressed");
  builder.Param("causal", true).Param("return_weights", true);
  const std::vector<double> weights = RunByName(builder.request()).at("weights");
  const int seen[7] = {0, 0, 1, 1, 1, 2, 2};
  for (size_t n = 0; n < weights.size(); ++n) {
    EXPECT_EQ(weights[n] > 0, static_cast<int>(n % 3) < seen[n / 3 % 7]) << n;
  }
}

TEST_P(MemoryCompressed, ReducesToScaledDotProductWithoutCompression) {
  for (const bool causal : {false, true}) {
    RequestBuilder compressed = Tokens({.q_len = 70}).Request("memory_compressed");
    RequestBuilder plain = Tokens({.q_len = 70}).Request("scaled_dot_product");
    compressed.Param("compression", 1.0);
    if (causal) {
      compressed.Param("causal", true);
      plain.Param("causal", true);
    }
    ExpectAllNear(RunByName(compressed.request()).at("output"),
                  RunByName(plain.request()).at("output"), 5 * kLowRankMaxError);
  }
}

TEST_P(MemoryCompressed, ConvolutionOfEqualWeightsIsTheMean) {
  const LowRankSizes s{.kv_len = 69};
  RequestBuilder mean = Tokens(s).Request("memory_compressed");
  RequestBuilder conv = Tokens(s).Request("memory_compressed");
  const auto add = [&](const char* name, size_t dim) {
    std::vector<float> weights(dim * dim * 3, 0.0f);
    for (size_t n = 0; n < dim * 3; ++n) weights[n / 3 * (dim + 1) * 3 + n % 3] = 1 / 3.0f;
    const int64_t width = static_cast<int64_t>(dim);
    conv.Floats(name, {width, width, 3}, weights);
  };
  add("key_conv", 16);
  add("value_conv", 9);
  ExpectAllNear(RunByName(conv.request()).at("output"), RunByName(mean.request()).at("output"),
                5 * kLowRankMaxError);
}

TEST_P(MemoryCompressed, GivesTheNumbersOfItsDefinition) {
  // PyTorch's Conv1d, [out, in, kernel]: keys (1 * 1 + 2 * 1, 1 * 0 + 2 * 0) ln 3 / 3 - the last
  // block has one token, of value 0 - and values 10 + 20 and 30 + 0 + 1.
  const float third = std::log(3.0f) / 3;
  RequestBuilder builder("memory_compressed");
  builder.Floats("q", {1, 1, 1, 1}, {third})
      .Floats("k", {1, 1, 3, 1}, {1, 1, 0})
      .Floats("v", {1, 1, 3, 1}, {10, 20, 31})
      .Floats("key_conv", {1, 1, 2}, {1, 2})
      .Floats("value_conv", {1, 1, 2}, {1, 1})
      .Param("return_weights", true);
  const Values values = RunByName(builder.request());
  ExpectAllNear(values.at("weights"), {0.75, 0.25}, 3e-7);
  ExpectAllNear(values.at("output"), {0.75 * 30 + 0.25 * 31}, 1e-5);
}

TEST_P(MemoryCompressed, PaddingMayBeAnything) {
  const LowRankSizes s{.batch = 3};
  Tokens tokens(s);
  const auto run = [&](bool conv) {
    RequestBuilder builder = tokens.Request("memory_compressed");
    builder.Integers("key_lengths", {3}, {41, 0, 70}).Param("return_weights", true);
    if (conv) AddConvolutions(builder, s, 2, 3);
    return RunByName(builder.request());
  };
  const Values mean = run(false), convolved = run(true);
  for (int64_t h = 0; h < 2; ++h) {
    tokens.Key(0, h, 41, 3) = kNan;  // in the block of tokens 39 to 41
    tokens.Value(0, h, 41, 0) = std::numeric_limits<float>::infinity();
    tokens.Value(0, h, 69, 0) = kNan;
    tokens.Value(1, h, 0, 0) = kNan;
  }
  EXPECT_EQ(run(false), mean);
  EXPECT_EQ(run(true), convolved);
  const size_t rows = 4 * 33;  // of a batch entry
  for (size_t n = rows * 9; n < 2 * rows * 9; ++n) EXPECT_EQ(mean.at("output")[n], 0.0);
}

TEST_P(MemoryCompressed, ThreadsChangeNoBit) {
  const LowRankSizes s{.kv_len = 3000};
  RequestBuilder builder = Tokens(s).Request("memory_compressed");
  AddConvolutions(builder, s, 1, 3);
  ExpectSameBitsForAnyThreads(builder.request());
}

TEST_P(MemoryCompressed, CostIsThatOfTheBlocks) {
  const LowRankSizes s{.kv_len = 300};
  RequestBuilder mean = Tokens(s).Request("memory_compressed");
  const double attend = 2.0 * 2 * 4 * 33 * 100 * (16 + 9);
  EXPECT_EQ(EstimateCost(mean.request(), 1).flops, attend);
  RequestBuilder conv = Tokens(s).Request("memory_compressed");
  AddConvolutions(conv, s, 1, 3);
  EXPECT_EQ(EstimateCost(conv.request(), 1).flops, attend + 2.0 * 2 * 2 * 300 * (16 * 16 + 9 * 9));
}

TEST_P(MemoryCompressed, BadArgumentsAreRefused) {
  const LowRankSizes s{};
  const Tokens tokens(s);
  RequestBuilder zero = tokens.Request("memory_compressed");
  zero.Param("compression", 0.0);
  ExpectBothRefuse(zero.request(), ErrorCode::kRange, "compression");
  RequestBuilder other = tokens.Request("memory_compressed");
  other.Param("compression", 4.0);
  AddConvolutions(other, s, 1, 3);
  ExpectBothRefuse(other.request(), ErrorCode::kShape, "conv");
  RequestBuilder bias = tokens.Request("memory_compressed");
  bias.Floats("value_conv_bias", {9}, Normals(9, 1));
  ExpectBothRefuse(bias.request(), ErrorCode::kOption, "value_conv_bias");
  RequestBuilder offset = tokens.Request("memory_compressed");
  offset.Param("causal", true);
  ExpectBothRefuse(offset.request(), ErrorCode::kOption, "query_offset");
  Buffer<float> q({1, 1, 4, 8}, Layout::kDense, 0);
  Buffer<float> k = q, v = q;
  EXPECT_THROW(MemoryCompressedAttention(q.view(), k.view(), v.view(), {}, {.output = v.view()}),
               Error);
}

}  // namespace
}  // namespace heed::testing
