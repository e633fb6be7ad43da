// A call of recurrent attention in chunks, and its comparison with the float64 oracle.
#ifndef HEED_TESTS_CUDA_CHUNK_CASE_H_
#define HEED_TESTS_CUDA_CHUNK_CASE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "buffer.h"
#include "checked_call.h"
#include "chunk_results.h"
#include "device_backend.h"
#include "gtest/gtest.h"
#include "recurrent_case.h"
#include "request_builder.h"
#include "src/cuda/chunk_plan.h"
#include "stored_buffer.h"

namespace heed::testing {

struct Rule {
  FeatureMap features = FeatureMap::kIdentity;
  bool normalize = false, decays = true, betas = true, skips = false, begins = false;
};

inline float Feature(FeatureMap map, float x) {
  if (map == FeatureMap::kRelu) return std::max(x, 0.0f);
  return map == FeatureMap::kIdentity ? x : x <= 0 ? std::exp(x) : x + 1;
}

// A call, its tensors rounded to the type.
struct ChunkCall {
  int64_t batch = 2, heads = 4, kv_heads = 2, len = 130, dim = 24, dim_v = 40;
  DType dtype = DType::kBFloat16, out_dtype = DType::kFloat32;
  Layout layout = Layout::kDense;
  std::optional<Layout> out_layout;  // that of the inputs
  Rule rule;
  std::vector<int32_t> lengths;
  double scale = 0.25;
  int64_t processors = 1;
  uint64_t order = 0;
  bool on_hopper = false;
  Buffer<float> q, k, v;
  std::vector<float> gates, betas, skip, initial;

  int64_t cols() const { return dim_v + (rule.normalize ? 1 : 0); }
  void Draw() {
    q = Normals({batch, heads, len, dim}, 1);
    k = Normals({batch, kv_heads, len, dim}, 2);
    v = Normals({batch, kv_heads, len, dim_v}, 3);
    gates = LogDecays(batch * kv_heads * len, 4);
    betas = Betas(batch * kv_heads * len, 5);
    skip = Betas(heads, 6);
    initial = Betas(batch * kv_heads * dim * cols(), 7);
  }

  RecurrentOptions Options() const {
    RecurrentOptions options;
    options.feature_map = rule.features;
    options.normalize = rule.normalize;
    options.scale = scale;
    const auto per_token = [&](const std::vector<float>& values) {
      return Contiguous<const float>(values.data(), batch, kv_heads, len, 1);
    };
    if (rule.decays) options.log_decay = per_token(gates);
    if (rule.betas) options.beta = per_token(betas);
    if (rule.skips) options.skip = skip;
    if (rule.begins) {
      options.initial_state = Contiguous<const float>(initial.data(), batch, kv_heads, dim, cols());
    }
    options.key_lengths = lengths;
    return options;
  }

  // The call of the oracle, on features. With `absolute` of the absolute values of all that is
  // added up.
  RequestBuilder OracleCall(bool absolute) const {
    const auto sign = [&](std::vector<float> x) { return absolute ? Absolute(std::move(x)) : x; };
    const auto features = [&](const Buffer<float>& from) {
      std::vector<float> values = from.Elements();
      for (float& x : values) x = Feature(rule.features, x);
      return sign(std::move(values));
    };
    RequestBuilder r(rule.normalize ? "linear" : "mamba2");
    r.Floats("q", {batch, heads, len, dim}, features(q));
    r.Floats("k", {batch, kv_heads, len, dim}, features(k));
    r.Floats("v", {batch, kv_heads, len, dim_v}, sign(v.Elements()));
    r.Param("scale", scale).Param("return_state", true);
    if (rule.begins) r.Floats("initial_state", {batch, kv_heads, dim, cols()}, sign(initial));
    if (!lengths.empty()) r.Integers("key_lengths", {batch}, lengths);
    if (rule.normalize) {
      r.Param("feature_map", std::string("identity")).Param("causal", true);
      return r;
    }
    const size_t tokens = static_cast<size_t>(batch * kv_heads * len);
    r.Floats("log_decay", {batch, kv_heads, len},
             rule.decays ? gates : std::vector<float>(tokens, 0.0f));
    r.Floats("beta", {batch, kv_heads, len},
             rule.betas ? sign(betas) : std::vector<float>(tokens, 1.0f));
    if (rule.skips) r.Floats("skip", {heads}, sign(skip));
    return r;
  }
};

inline cuda::StoredRecurrentProblem Checked(const ChunkCall& c, const RecurrentOptions& options) {
  return CheckedCall(c, options, c.dtype);
}

// Runs the call in the layout of its tensors, which it rounds.
inline ChunkResults RunCall(ChunkCall& c) {
  const StoredBuffer q(c.q, c.dtype, c.layout), k(c.k, c.dtype, c.layout),
      v(c.v, c.dtype, c.layout);
  Buffer<float> blank({c.batch, c.heads, c.len, c.dim_v}, Layout::kDense, kNan);
  StoredBuffer output(blank, c.out_dtype, c.out_layout.value_or(c.layout));
  Buffer<float> state({c.batch, c.kv_heads, c.dim, c.cols()}, Layout::kPadded, kNan);
  RunStoredRecurrentOnDevice(
      q.view(), k.view(), v.view(), c.Options(), {output.output(), state.view()},
      {.processors = c.processors, .order = c.order, .on_hopper = c.on_hopper});
  EXPECT_TRUE(output.GapsAreUntouched() && state.GapsAreUntouched());
  return {output.Widened().Elements(), state.Elements()};
}

inline void ExpectMatchesOracle(ChunkCall& c, const std::string& what) {
  ASSERT_TRUE(cuda::TakesChunks(Checked(c, c.Options()))) << what;
  const ChunkResults actual = RunCall(c);
  const Values expected = RunOracle(c.OracleCall(false).request());
  const Values terms = RunOracle(c.OracleCall(true).request());
  double error = c.dtype == DType::kFloat16 ? cuda::kFloat16Recurrent : cuda::kBFloat16Recurrent;
  if (c.rule.normalize) error *= 2;
  ExpectNear(actual.output, expected.at("output"), terms.at("output"), error,
             RoundingOf(c.out_dtype), what + ", output");
  ExpectNear(actual.state, expected.at("state"), terms.at("state"), error, 0, what + ", state");
  const double rounding = RoundingOf(c.dtype);
  ExpectNearTogether(actual.output, expected.at("output"), rounding, what + ", output");
  ExpectNearTogether(actual.state, expected.at("state"), rounding, what + ", state");
}

// A value, a key, a query, a gate of token 70 that is not finite: tokens before it keep their bits,
// and so do columns and heads that do not meet it. Of a batch of one and drawn tensors, two heads a
// KV head, not normalized.
inline void ExpectPoisonReachesLaterTokensOnly(ChunkCall& c, const std::string& what) {
  constexpr int64_t kToken = 70;
  const auto later = [](int64_t head, int64_t token) { return head / 2 == 0 && token >= kToken; };
  const Reach of_value = {[&](auto head, auto t, auto col) { return later(head, t) && col == 3; },
                          [](auto head, auto, auto col) { return head == 0 && col == 3; }};
  const Reach of_key = {[&](auto head, auto t, auto) { return later(head, t); },
                        [](auto head, auto feature, auto) { return head == 0 && feature == 3; }};
  const Reach of_query = {[](auto head, auto t, auto) { return head == 0 && t == kToken; },
                          [](auto, auto, auto) { return false; }};
  const Reach of_gate = {[&](auto head, auto t, auto) { return later(head, t); },
                         [](auto head, auto, auto) { return head == 0; }};
  const ChunkResults clean = RunCall(c);
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    ChunkCall in_value = c, in_key = c, in_query = c;
    in_value.v(0, 0, kToken, 3) = bad;
    in_key.k(0, 0, kToken, 3) = bad;
    in_query.q(0, 0, kToken, 3) = bad;
    ExpectReaches(in_value, clean, of_value, what + "value " + std::to_string(bad));
    ExpectReaches(in_key, clean, of_key, what + "key " + std::to_string(bad));
    ExpectReaches(in_query, clean, of_query, what + "query " + std::to_string(bad));
    if (::testing::Test::HasFatalFailure()) return;
  }
  if (!c.rule.decays) return;
  // -infinity is a decay like others, and gates above 0 are not allowed.
  ChunkCall in_gate = c;
  in_gate.gates[kToken] = kNan;
  ExpectReaches(in_gate, clean, of_gate, what + "gate");
}

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_CHUNK_CASE_H_
