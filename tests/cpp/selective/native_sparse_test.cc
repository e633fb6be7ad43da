// Native sparse attention: against the oracle, its three limits, choices by hand, what is refused.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/dtype.h"
#include "heed/registry.h"
#include "heed/selective.h"
#include "selective_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class NativeSparse : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(NativeSparse);

void AddGates(RequestBuilder& builder, const SelectiveSizes& s, std::vector<float> one) {
  std::vector<float> gates;
  for (int64_t n = 0; n < s.batch * s.num_heads * s.q_len; ++n) {
    gates.insert(gates.end(), one.begin(), one.end());
  }
  builder.Floats("branch_gates", {s.batch, s.num_heads, s.q_len, 3}, gates);
}

RequestBuilder Sparse(const SelectiveSizes& s, std::vector<float> gates, uint64_t seed = 1) {
  RequestBuilder builder = SelectiveRequest("native_sparse", s, seed);
  AddGates(builder, s, std::move(gates));
  return builder;
}

RequestBuilder Causal(const SelectiveSizes& s, uint64_t seed = 1) {
  RequestBuilder builder = SelectiveRequest("scaled_dot_product", s, seed);
  builder.Param("causal", true);
  return builder;
}

TEST_P(NativeSparse, MatchesReference) {
  uint64_t seed = 1;
  for (const SelectiveSizes& s : CrossSizes()) {
    for (const double key_block : {4, 10, 64}) {
      RequestBuilder builder = Sparse(s, {0.5f, 0.8f, 0.3f}, seed++);
      builder.Param("compress_block", 8.0)
          .Param("compress_stride", 4.0)
          .Param("key_block", key_block)
          .Param("top_blocks", 5.0)
          .Param("window_len", 20.0);
      if (s.q_len != s.kv_len) builder.Param("query_offset", std::string("end"));
      ExpectChoiceMatchesOracle(builder.request(), "length " + std::to_string(s.kv_len), 2);
    }
  }
}

TEST_P(NativeSparse, WeightsAndLengthsMatchReference) {
  const SelectiveSizes s = {3, 4, 2, 40, 90, 8, 6};
  RequestBuilder builder = Sparse(s, {1, -0.5f, 0.25f});
  builder.Integers("key_lengths", {3}, {90, 0, 29})
      .Param("query_offset", std::vector<double>{50, 0, -7})
      .Floats("compress_k_weight", {2, 6}, Normals(12, 4))
      .Floats("compress_v_weight", {6}, Normals(6, 5))
      .Param("compress_block", 6.0)
      .Param("compress_stride", 4.0)
      .Param("key_block", 8.0)
      .Param("top_blocks", 4.0)
      .Param("window_len", 5.0);
  ExpectChoiceMatchesOracle(builder.request(), "lengths 90, 0 and 29", 4);
}

constexpr const char* kOwn[] = {"compress_k", "compress_v", "window_k", "window_v"};

// Gives the branches of these names normal rows of their own.
void AddOwn(RequestBuilder& builder, const SelectiveSizes& s, const std::vector<std::string>& names,
            uint64_t seed = 20) {
  for (const std::string& name : names) {
    const int64_t width = name.ends_with('k') ? s.head_dim : s.head_dim_v;
    builder.Floats(name, {s.batch, s.num_kv_heads, s.kv_len, width},
                   Normals(s.batch * s.num_kv_heads * s.kv_len * width, seed++));
  }
}

TEST_P(NativeSparse, BranchesWithTheirOwnTokensMatchReference) {
  const std::vector<std::string> all(std::begin(kOwn), std::end(kOwn));
  std::vector<std::vector<std::string>> given = {all, {"compress_k", "window_v"}};
  for (const std::string& name : all) given.push_back({name});
  for (const SelectiveSizes& s :
       {SelectiveSizes{2, 4, 2, 70, 70, 8, 5}, SelectiveSizes{1, 3, 1, 9, 130, 16, 20}}) {
    for (const std::vector<std::string>& names : given) {
      RequestBuilder builder = Sparse(s, {0.5f, -0.8f, 0.3f}, 3);
      AddOwn(builder, s, names);
      builder.Param("compress_block", 6.0)
          .Param("compress_stride", 4.0)
          .Param("key_block", 10.0)
          .Param("top_blocks", 4.0)
          .Param("window_len", 12.0);
      if (s.q_len != s.kv_len) builder.Param("query_offset", std::string("end"));
      ExpectChoiceMatchesOracle(builder.request(), names.front(), 2);
    }
  }
}

TEST_P(NativeSparse, OwnTokensWithWeightsAndLengthsMatchReference) {
  const SelectiveSizes s = {3, 4, 2, 40, 90, 8, 6};
  RequestBuilder builder = Sparse(s, {1, -0.5f, 0.25f});
  AddOwn(builder, s, {std::begin(kOwn), std::end(kOwn)});
  builder.Integers("key_lengths", {3}, {90, 0, 29})
      .Param("query_offset", std::vector<double>{50, 0, -7})
      .Floats("compress_k_weight", {2, 6}, Normals(12, 4))
      .Floats("compress_v_weight", {6}, Normals(6, 5))
      .Param("compress_block", 6.0)
      .Param("compress_stride", 4.0)
      .Param("key_block", 8.0)
      .Param("top_blocks", 4.0)
      .Param("window_len", 5.0);
  ExpectChoiceMatchesOracle(builder.request(), "lengths 90, 0 and 29", 4);
  const std::vector<double> output = RunByName(builder.request()).at("output");
  for (size_t n = 4 * 40 * 6; n < 2 * 4 * 40 * 6; ++n) EXPECT_EQ(output[n], 0) << n;
  ExpectSameBitsForAnyThreads(builder.request());
}

TEST_P(NativeSparse, ReducesToOnePairWhenAllBranchesHaveTheSame) {
  const SelectiveSizes s = {2, 4, 2, 130, 130, 16, 9};
  const auto with_params = [&] {
    RequestBuilder builder = Sparse(s, {0.5f, 0.8f, 0.3f});
    builder.Param("compress_block", 8.0)
        .Param("compress_stride", 4.0)
        .Param("key_block", 16.0)
        .Param("top_blocks", 4.0)
        .Param("window_len", 20.0);
    return builder;
  };
  const RequestBuilder one = with_params();
  for (const char* name : kOwn) {
    const RequestBuilder own = with_params();
    Request request = own.request();
    const char* source = std::string_view(name).ends_with('k') ? "k" : "v";
    for (const NamedTensor& input : own.request().inputs) {
      if (input.name == source) request.inputs.push_back({name, input.tensor});
    }
    EXPECT_EQ(RunByName(request), RunByName(one.request())) << name;
  }
}

// All of a tensor becomes NaN.
void Break(const Request& request, const char* name) {
  for (const NamedTensor& input : request.inputs) {
    if (input.name != name) continue;
    const auto& e = input.tensor.shape;
    std::fill_n(static_cast<float*>(input.tensor.data), e[0] * e[1] * e[2] * e[3], kNan);
  }
}

TEST_P(NativeSparse, ReducesToWindowedAttentionOfItsOwnTokens) {
  const SelectiveSizes s = {1, 4, 2, 130, 130, 16, 16};
  RequestBuilder sparse = Sparse(s, {0, 0, 1}), window = Causal(s, 30);
  AddOwn(sparse, s, {"compress_k", "compress_v"});
  Request request = sparse.request(), recent = window.request();
  for (NamedTensor& input : recent.inputs) {
    if (input.name == "k") request.inputs.push_back({"window_k", input.tensor});
    if (input.name == "v") request.inputs.push_back({"window_v", input.tensor});
    for (const NamedTensor& other : request.inputs) {
      if (input.name == "q" && other.name == "q") input.tensor = other.tensor;
    }
  }
  request.params.push_back({"window_len", 9.0});
  recent.params.push_back({"window_left", 8.0});
  ExpectSameOutput(request, recent);
  // The other branches are left out, whatever they hold.
  for (const char* name : {"k", "v", "compress_k", "compress_v"}) Break(request, name);
  ExpectSameOutput(request, recent);
}

TEST_P(NativeSparse, CompressedBranchReadsNothingButItsOwn) {
  const SelectiveSizes s = {1, 4, 2, 50, 50, 8, 8};
  RequestBuilder sparse = Sparse(s, {1, 0, 0});
  AddOwn(sparse, s, {std::begin(kOwn), std::end(kOwn)});
  sparse.Param("compress_block", 4.0).Param("compress_stride", 4.0).Param("key_block", 4.0);
  const Values before = RunByName(sparse.request());
  for (const char* name : {"k", "v", "window_k", "window_v"}) Break(sparse.request(), name);
  EXPECT_EQ(RunByName(sparse.request()), before);
}

TEST_P(NativeSparse, OwnTokensMayBeStoredInTwoBytes) {
  const SelectiveSizes s = {1, 2, 1, 30, 30, 8, 8};
  RequestBuilder builder = Sparse(s, {0.5f, 0.5f, 0.5f});
  AddOwn(builder, s, {std::begin(kOwn), std::end(kOwn)});
  builder.Param("compress_block", 4.0).Param("compress_stride", 2.0).Param("key_block", 4.0);
  Request request = builder.request();
  std::vector<std::vector<Float16>> halves;
  for (NamedTensor& input : request.inputs) {
    if (std::find(std::begin(kOwn), std::end(kOwn), input.name) == std::end(kOwn)) continue;
    const float* from = static_cast<const float*>(input.tensor.data);
    for (halves.emplace_back(); halves.back().size() < 30 * 8;) {
      halves.back().push_back(ToFloat16(*from++));
    }
    input.tensor.data = halves.back().data();
    input.tensor.dtype = DType::kFloat16;
  }
  EXPECT_EQ(PlanOutputs(request).front().dtype, DType::kFloat32);  // as q is
  ExpectChoiceMatchesOracle(request, "float16", 2);
}

TEST_P(NativeSparse, ReducesToWindowedAttentionByItsGate) {
  const SelectiveSizes s = {1, 4, 2, 130, 130, 16, 16};
  RequestBuilder sparse = Sparse(s, {0, 0, 1}), window = Causal(s);
  sparse.Param("window_len", 9.0);
  window.Param("window_left", 8.0);
  ExpectSameOutput(sparse.request(), window.request());
}

TEST_P(NativeSparse, ReducesToCausalAttentionWhenAllBlocksAreSelected) {
  const SelectiveSizes s = {1, 4, 2, 130, 130, 16, 16};
  RequestBuilder sparse = Sparse(s, {0, 1, 0});
  sparse.Param("key_block", 8.0).Param("top_blocks", 17.0);
  ExpectSameOutput(sparse.request(), Causal(s).request());
}

TEST_P(NativeSparse, ReducesToCausalAttentionWhenNothingIsCompressed) {
  const SelectiveSizes s = {1, 4, 2, 130, 130, 16, 16};
  RequestBuilder sparse = Sparse(s, {1, 0, 0});
  sparse.Param("compress_block", 1.0).Param("compress_stride", 1.0);
  ExpectSameOutput(sparse.request(), Causal(s).request());
}

// One head on a line; values are the positions.
RequestBuilder OnALine(std::vector<float> k, std::vector<float> gates) {
  const int64_t len = static_cast<int64_t>(k.size());
  std::vector<float> v;
  for (int64_t j = 0; j < len; ++j) v.push_back(static_cast<float>(j));
  RequestBuilder builder("native_sparse");
  builder.Floats("q", {1, 1, len, 1}, std::vector<float>(k.size(), 1))
      .Floats("k", {1, 1, len, 1}, std::move(k))
      .Floats("v", {1, 1, len, 1}, std::move(v))
      .Param("compress_block", 2.0)
      .Param("compress_stride", 2.0)
      .Param("key_block", 2.0)
      .Param("top_blocks", 2.0)
      .Param("first_blocks", 0.0)
      .Param("local_blocks", 1.0)
      .Param("window_len", 2.0);
  AddGates(builder, {1, 1, 1, len, len}, std::move(gates));
  return builder;
}

TEST_P(NativeSparse, BranchesSeeWhatOneSeesByHand) {
  const std::vector<float> zeros(6, 0);
  // Whole pairs at or before the query.
  ExpectAllNear(RunByName(OnALine(zeros, {1, 0, 0}).request()).at("output"),
                {0, 0.5, 0.5, 1.5, 1.5, 2.5}, 1e-6);
  ExpectAllNear(RunByName(OnALine(zeros, {0, 0, 1}).request()).at("output"),
                {0, 0.5, 1.5, 2.5, 3.5, 4.5}, 1e-6);
  // The compressed key of the second pair is the largest: its block joins the own one.
  const double e = std::exp(5.0);
  const std::vector<double> selected =
      RunByName(OnALine({0, 0, 5, 5, 0, 0, 0, 0}, {0, 1, 0}).request()).at("output");
  EXPECT_NEAR(selected[7], (5 * e + 13) / (2 * e + 2), 1e-5);
  EXPECT_NEAR(selected[6], (5 * e + 6) / (2 * e + 1), 1e-5);
  EXPECT_NEAR(selected[1], 0.5, 1e-6);
}

// The keys of the second pair are as any other; what compressed keys are made of is not.
TEST_P(NativeSparse, CompressedKeysOfTheirOwnChooseTheBlocks) {
  RequestBuilder builder = OnALine(std::vector<float>(8, 0), {0, 1, 0});
  builder.Floats("compress_k", {1, 1, 8, 1}, {0, 0, 5, 5, 0, 0, 0, 0});
  const std::vector<double> selected = RunByName(builder.request()).at("output");
  EXPECT_NEAR(selected[7], (2 + 3 + 6 + 7) / 4.0, 1e-6);
  EXPECT_NEAR(selected[6], (2 + 3 + 6) / 3.0, 1e-6);
}

TEST_P(NativeSparse, HeadsOfAGroupChooseTogether) {
  // The first head likes block 0, the second block 1 and more so: both see block 1.
  RequestBuilder builder("native_sparse");
  std::vector<float> q;
  for (int i = 0; i < 6; ++i) q.insert(q.end(), {1, 0});
  for (int i = 0; i < 6; ++i) q.insert(q.end(), {0, 1});
  builder.Floats("q", {1, 2, 6, 2}, q)
      .Floats("k", {1, 1, 6, 2}, {1, 0, 1, 0, 0, 9, 0, 9, 0, 0, 0, 0})
      .Floats("v", {1, 1, 6, 1}, {0, 0, 1, 1, 0, 0})
      .Param("scale", 1.0)
      .Param("compress_block", 2.0)
      .Param("compress_stride", 2.0)
      .Param("key_block", 2.0)
      .Param("top_blocks", 2.0)
      .Param("first_blocks", 0.0)
      .Param("local_blocks", 1.0);
  AddGates(builder, {1, 2, 1, 6, 6}, {0, 1, 0});
  const std::vector<double> output = RunByName(builder.request()).at("output");
  EXPECT_NEAR(output[5], 0.5, 1e-6);  // of the first head: two keys of block 1, two of its own
  EXPECT_GT(output[11], 0.99);
}

TEST_P(NativeSparse, WhatIsNotSeenCannotMatter) {
  std::vector<float> k = Normals(40 * 4, 3), v = Normals(40 * 4, 4);
  const auto run = [&](std::vector<float> gates) {
    RequestBuilder builder("native_sparse");
    builder.Floats("q", {1, 1, 6, 4}, Normals(24, 5))
        .Floats("k", {1, 1, 40, 4}, k)
        .Floats("v", {1, 1, 40, 4}, v)
        .Integers("key_lengths", {1}, {30})
        .Param("compress_block", 4.0)
        .Param("compress_stride", 2.0)
        .Param("key_block", 8.0)
        .Param("window_len", 3.0)
        .Param("query_offset", 10.0);
    AddGates(builder, {1, 1, 1, 6, 40}, std::move(gates));
    return RunByName(builder.request()).at("output");
  };
  const std::vector<double> before = run({1, 1, 1}), window = run({0, 0, 1});
  for (size_t n = 16 * 4; n < k.size(); ++n) k[n] = v[n] = kNan;
  EXPECT_EQ(run({1, 1, 1}), before);
  // Gates of 0 leave broken branches out.
  k[0] = kNan;
  EXPECT_EQ(run({0, 0, 1}), window);
}

// Lengths hide the last keys, and no window reaches the first ones.
TEST_P(NativeSparse, WhatABranchDoesNotReachCannotMatter) {
  const SelectiveSizes s = {1, 2, 1, 6, 40, 4, 4};
  RequestBuilder builder = Sparse(s, {1, 1, 1});
  AddOwn(builder, s, {std::begin(kOwn), std::end(kOwn)});
  builder.Integers("key_lengths", {1}, {14})
      .Param("compress_block", 4.0)
      .Param("compress_stride", 2.0)
      .Param("key_block", 8.0)
      .Param("window_len", 3.0)
      .Param("query_offset", 10.0);
  const Values before = RunByName(builder.request());
  for (const NamedTensor& input : builder.request().inputs) {
    if (input.name == "q" || input.tensor.rank != 4 || input.name == "branch_gates") continue;
    float* const x = static_cast<float*>(input.tensor.data);
    std::fill_n(x + 14 * 4, 26 * 4, kNan);
    if (input.name.starts_with("window")) std::fill_n(x, 8 * 4, kNan);
  }
  EXPECT_EQ(RunByName(builder.request()), before);
  ExpectChoiceMatchesOracle(builder.request(), "NaN that nobody sees", 3);
}

TEST_P(NativeSparse, MemoryGrowsWithTheLength) {
  const auto bytes = [](int64_t len) {
    return ScratchBytes(Sparse({1, 2, 1, len, len, 8, 8}, {1, 1, 1}).request());
  };
  EXPECT_LT(bytes(8192), 2.5 * static_cast<double>(bytes(4096)));
}

TEST(NativeSparseRefuses, NumbersThatDoNotFit) {
  const SelectiveSizes s = {1, 1, 1, 4, 4, 2, 2};
  for (const char* name :
       {"compress_block", "compress_stride", "key_block", "top_blocks", "window_len"}) {
    RequestBuilder zero = Sparse(s, {1, 1, 1});
    zero.Param(name, 0.0);
    ExpectBothRefuse(zero.request(), ErrorCode::kRange, name);
  }
  RequestBuilder many = Sparse(s, {1, 1, 1});
  many.Param("top_blocks", 2.0);
  ExpectBothRefuse(many.request(), ErrorCode::kRange, "top_blocks");
  RequestBuilder weight = Sparse(s, {1, 1, 1});
  weight.Floats("compress_k_weight", {3}, {1, 1, 1});
  ExpectBothRefuse(weight.request(), ErrorCode::kShape, "compress_k_weight");
}

TEST(NativeSparseRefuses, TokensOfBranchesThatAreShapedOtherwise) {
  const SelectiveSizes s = {2, 2, 2, 4, 4, 3, 5};
  for (const std::string name : kOwn) {
    const int64_t width = name.ends_with('k') ? 3 : 5;
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{1, 2, 4, width},
                                                                               {2, 1, 4, width},
                                                                               {2, 2, 3, width},
                                                                               {2, 2, 5, width},
                                                                               {2, 2, 4, 8 - width},
                                                                               {2, 4, width}}) {
      int64_t count = 1;
      for (const int64_t extent : shape) count *= extent;
      RequestBuilder builder = Sparse(s, {1, 1, 1});
      builder.Floats(name, shape, Normals(count, 1));
      ExpectBothRefuse(builder.request(), ErrorCode::kShape, name);
    }
    RequestBuilder integers = Sparse(s, {1, 1, 1});
    integers.Integers(name, {2, 2, 4, width},
                      std::vector<int32_t>(static_cast<size_t>(16 * width)));
    ExpectBothRefuse(integers.request(), ErrorCode::kDType, name);
  }
}

TEST(NativeSparseOfNoTokens, GivesZeros) {
  const SelectiveSizes s = {1, 2, 1, 3, 0, 4, 2};
  RequestBuilder builder = Sparse(s, {1, 1, 1});
  AddOwn(builder, s, {std::begin(kOwn), std::end(kOwn)});
  builder.Param("query_offset", 0.0);
  EXPECT_EQ(RunByName(builder.request()).at("output"), std::vector<double>(12, 0.0));
}

}  // namespace
}  // namespace heed::testing
