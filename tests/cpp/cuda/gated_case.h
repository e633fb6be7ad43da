// Calls of recurrent attention in gated chunks, and how they are compared with the float64 oracle.
#ifndef HEED_TESTS_CUDA_GATED_CASE_H_
#define HEED_TESTS_CUDA_GATED_CASE_H_

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "buffer.h"
#include "checked_call.h"
#include "chunk_results.h"
#include "device_backend.h"
#include "gtest/gtest.h"
#include "recurrent_case.h"
#include "request_builder.h"
#include "src/cuda/gated_chunk_plan.h"
#include "stored_buffer.h"

namespace heed::testing {

enum class GatedDecay { kNone, kHeads, kChannels };

struct GatedRule {
  GatedDecay decay = GatedDecay::kChannels;
  bool delta = false, betas = true;
  FeatureMap features = FeatureMap::kIdentity;
  bool skips = false, begins = false, bonus = false, erases_apart = false;
  bool erases() const { return delta || erases_apart; }
};

inline const GatedRule kGated{.betas = false};
inline const GatedRule kGatedDelta{
    .decay = GatedDecay::kHeads, .delta = true, .features = FeatureMap::kUnit};
inline const GatedRule kKimiDelta{.delta = true, .features = FeatureMap::kUnit};
inline const GatedRule kRwkv7{.betas = false, .erases_apart = true};

// A call, its tensors rounded to bfloat16.
struct GatedCall {
  int64_t batch = 2, heads = 4, kv_heads = 2, len = 130, dim = 24, dim_v = 40;
  DType out_dtype = DType::kFloat32;
  Layout layout = Layout::kDense;
  GatedRule rule;
  std::vector<int32_t> lengths;
  EmulatedChunks chunks;
  int64_t first_gate = 0,
          gates_apart = 0;  // in `gates`; 0: tokens are as far apart as they are wide
  Buffer<float> q, k, v, erase_key, erase_rate;
  std::vector<float> gates, betas, skip, initial, bonus;

  int64_t chunk_len() const { return rule.erases_apart ? 32 : 64; }
  int64_t gate_width() const { return rule.decay == GatedDecay::kChannels ? dim : 1; }
  void Draw() {
    q = Normals({batch, heads, len, dim}, 1);
    k = Normals({batch, kv_heads, len, dim}, 2);
    v = Normals({batch, kv_heads, len, dim_v}, 3);
    gates = LogDecays(batch * kv_heads * len * gate_width(), 4);
    betas = Betas(batch * kv_heads * len, 5);
    skip = Betas(heads, 6);
    initial = Betas(batch * kv_heads * dim * dim_v, 7);
    bonus = Betas(heads * dim, 8);
    erase_key = Normals({batch, kv_heads, len, dim}, 9, Layout::kPadded);
    erase_rate = Normals({batch, kv_heads, len, dim}, 10, Layout::kBlhd);
    erase_rate.ForEach(
        [](int64_t, int64_t, int64_t, int64_t, float& x) { x = 1 / (1 + std::exp(-x)); });
    if (rule.delta && rule.features != FeatureMap::kUnit) {
      const float unit = 1 / std::sqrt(static_cast<float>(dim));
      k.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x *= unit; });
    }
    if (rule.features != FeatureMap::kComplement) return;
    for (float& x : gates) x = -std::abs(x);
    k.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = -std::abs(x); });
  }

  RecurrentOptions Options() const {
    RecurrentOptions options;
    options.feature_map = rule.features;
    options.delta = rule.delta;
    options.scale = 0.25;
    if (rule.decay != GatedDecay::kNone) {
      options.log_decay = Contiguous(gates.data() + first_gate, batch, kv_heads, len, gate_width());
      if (gates_apart > 0) {
        options.log_decay.strides = {kv_heads * len * gates_apart, len * gates_apart, gates_apart,
                                     1};
      }
    }
    if (rule.betas) options.beta = Contiguous(betas.data(), batch, kv_heads, len, 1);
    if (rule.skips) options.skip = skip;
    if (rule.bonus) options.bonus = Contiguous(bonus.data(), 1, heads, 1, dim);
    if (rule.erases_apart) {
      options.erase_key = erase_key.view();
      options.erase_rate = erase_rate.view();
    }
    if (rule.begins) {
      options.initial_state = Contiguous(initial.data(), batch, kv_heads, dim, dim_v);
    }
    options.key_lengths = lengths;
    return options;
  }

  std::vector<float> Features(const Buffer<float>& from, bool is_key) const {
    std::vector<float> values = from.Elements();
    for (size_t row = 0; row < values.size(); row += static_cast<size_t>(dim)) {
      double squares = 0;
      for (int64_t c = 0; c < dim; ++c) {
        squares += std::pow(values[row + static_cast<size_t>(c)], 2);
      }
      for (int64_t c = 0; c < dim; ++c) {
        float& x = values[row + static_cast<size_t>(c)];
        if (rule.features == FeatureMap::kUnit && squares > 0)
          x /= static_cast<float>(std::sqrt(squares));
        if (rule.features == FeatureMap::kRelu) x = std::max(x, 0.0f);
        if (rule.features == FeatureMap::kEluPlusOne) x = x <= 0 ? std::exp(x) : x + 1;
        if (rule.features == FeatureMap::kComplement && is_key) x = -std::expm1(x);
      }
    }
    return values;
  }
  // Without delta the oracle's values have beta, as its rows with decays of channels have none.
  std::vector<float> OracleValues() const {
    std::vector<float> values = v.Elements();
    for (size_t n = 0; n < values.size() && rule.betas && !rule.delta; ++n) {
      values[n] *= betas[n / static_cast<size_t>(dim_v)];
    }
    return values;
  }
  std::vector<float> ChannelGates() const {
    std::vector<float> channels(static_cast<size_t>(batch * kv_heads * len * dim));
    for (size_t n = 0; n < channels.size() && rule.decay != GatedDecay::kNone; ++n) {
      channels[n] = gates[n / static_cast<size_t>(dim / gate_width())];
    }
    return channels;
  }

  // The call of the oracle, on features. With `absolute` of the absolute values of all that is
  // added up.
  RequestBuilder OracleCall(bool absolute) const {
    const auto sign = [&](std::vector<float> x) { return absolute ? Absolute(std::move(x)) : x; };
    const bool by_head = rule.delta && rule.decay != GatedDecay::kChannels;
    RequestBuilder r(by_head             ? "gated_delta_rule"
                     : rule.delta        ? "kimi_delta"
                     : rule.erases_apart ? "rwkv7"
                     : rule.bonus        ? "rwkv6"
                                         : "gated_linear");
    r.Floats("q", {batch, heads, len, dim}, sign(Features(q, false)));
    r.Floats("k", {batch, kv_heads, len, dim}, sign(Features(k, true)));
    r.Floats("v", {batch, kv_heads, len, dim_v}, sign(OracleValues()));
    r.Param("scale", 0.25).Param("return_state", true);
    if (rule.begins) r.Floats("initial_state", {batch, kv_heads, dim, dim_v}, sign(initial));
    if (!lengths.empty()) r.Integers("key_lengths", {batch}, lengths);
    if (!by_head) r.Floats("channel_log_decay", {batch, kv_heads, len, dim}, ChannelGates());
    if (by_head && rule.decay == GatedDecay::kHeads) {
      r.Floats("log_decay", {batch, kv_heads, len}, gates);
    }
    if (rule.bonus) r.Floats("bonus", {heads, dim}, sign(bonus));
    if (rule.erases_apart) {
      r.Floats("erase_key", {batch, kv_heads, len, dim}, erase_key.Elements());
      r.Floats("erase_rate", {batch, kv_heads, len, dim}, erase_rate.Elements());
    }
    if (rule.delta) r.Param("qk_norm", std::string("none"));
    if (rule.delta && rule.betas) r.Floats("beta", {batch, kv_heads, len}, betas);
    return r;
  }
};

inline cuda::StoredRecurrentProblem Checked(const GatedCall& c, const RecurrentOptions& options,
                                            DType dtype = DType::kBFloat16) {
  return CheckedCall(c, options, dtype);
}

inline cuda::GatedChunkPlan PlanOf(const GatedCall& c) {
  return {Checked(c, c.Options()), c.chunks.processors, c.chunks.prepared_bytes};
}
inline int64_t SpansOf(const GatedCall& c, int64_t segment = 0) {
  return PlanOf(c).Params(segment, nullptr, nullptr).spans;
}

// Runs the call in the layout of its tensors, which it rounds.
inline ChunkResults RunCall(GatedCall& c) {
  const StoredBuffer q(c.q, DType::kBFloat16, c.layout), k(c.k, DType::kBFloat16, c.layout),
      v(c.v, DType::kBFloat16, c.layout);
  Buffer<float> blank({c.batch, c.heads, c.len, c.dim_v}, Layout::kDense, kNan);
  StoredBuffer output(blank, c.out_dtype, c.layout);
  Buffer<float> state({c.batch, c.kv_heads, c.dim, c.dim_v}, Layout::kPadded, kNan);
  RunStoredRecurrentOnDevice(q.view(), k.view(), v.view(), c.Options(),
                             {output.output(), state.view()}, c.chunks);
  EXPECT_TRUE(output.GapsAreUntouched() && state.GapsAreUntouched());
  return {output.Widened().Elements(), state.Elements()};
}

// Adds what the rows of the oracle lack: skip, and of values that a bonus meets what beta took off.
inline void AddOwn(const GatedCall& c, std::vector<double>& output, bool absolute) {
  size_t n = 0;
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t kv_head = h / (c.heads / c.kv_heads);
      const int64_t length = c.lengths.empty() ? c.len : c.lengths[static_cast<size_t>(b)];
      for (int64_t t = 0; t < c.len; ++t) {
        double factor = c.rule.skips ? c.skip[static_cast<size_t>(h)] : 0;
        const double beta = c.betas[static_cast<size_t>((b * c.kv_heads + kv_head) * c.len + t)];
        for (int64_t d = 0; d < c.dim && c.rule.bonus && c.rule.betas; ++d) {
          const double bonus = c.bonus[static_cast<size_t>(h * c.dim + d)];
          factor += 0.25 * (1 - beta) * c.q(b, h, t, d) * bonus * c.k(b, kv_head, t, d);
        }
        for (int64_t d = 0; d < c.dim_v; ++d, ++n) {
          const double x = t < length ? factor * c.v(b, kv_head, t, d) : 0;
          output[n] += absolute ? std::abs(x) : x;
        }
      }
    }
  }
}

inline double LargestOf(const std::vector<double>& values) {
  double largest = 0;
  for (const double x : values) largest = std::max(largest, std::abs(x));
  return largest;
}

inline void ExpectMatchesOracle(GatedCall& c, const std::string& what) {
  ASSERT_TRUE(cuda::TakesGatedChunks(Checked(c, c.Options()))) << what;
  const ChunkResults actual = RunCall(c);
  Values expected = RunOracle(c.OracleCall(false).request()), terms = expected;
  AddOwn(c, expected.at("output"), false);
  double error = cuda::kBFloat16Recurrent;
  if (c.rule.erases()) {
    error = cuda::kBFloat16Delta;
    for (auto& [name, values] : terms) {
      std::fill(values.begin(), values.end(), LargestOf(expected.at(name)));
    }
  } else {
    terms = RunOracle(c.OracleCall(true).request());
    AddOwn(c, terms.at("output"), true);
  }
  // Of delta rules solutions and values of a chunk are rounded besides.
  const double together = (c.rule.erases() ? 3 : 2) * RoundingOf(DType::kBFloat16);
  const std::vector<double>&output = expected.at("output"), &state = expected.at("state");
  ExpectNear(actual.output, output, terms.at("output"), error, RoundingOf(c.out_dtype),
             what + ", output");
  ExpectNear(actual.state, state, terms.at("state"), error, 0, what + ", state");
  ExpectNearTogether(actual.output, output, together, what + ", output");
  ExpectNearTogether(actual.state, state, together, what + ", state");
}

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_GATED_CASE_H_
