// Recurrent attention of bfloat16 tensors on the device path whose channels decay each at a rate of
// its own, or which erases by the delta rule: gated chunks, against the float64 oracle.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "buffer.h"
#include "chunk_results.h"
#include "device_backend.h"
#include "gtest/gtest.h"
#include "host_block.h"
#include "recurrent_case.h"
#include "request_builder.h"
#include "src/cuda/gated_chunk_kernels.h"
#include "src/cuda/gated_chunk_plan.h"
#include "src/cuda/gated_chunk_tokens.h"
#include "stored_buffer.h"

namespace heed::testing {
namespace {

class DeviceGatedChunks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }
};

enum class Decay { kNone, kHeads, kChannels };

struct Rule {
  Decay decay = Decay::kChannels;
  bool delta = false, betas = true;
  FeatureMap features = FeatureMap::kIdentity;
  bool skips = false, begins = false, bonus = false;
};

const Rule kGated{.betas = false};
const Rule kGatedDelta{.decay = Decay::kHeads, .delta = true, .features = FeatureMap::kUnit};
const Rule kKimiDelta{.delta = true, .features = FeatureMap::kUnit};

// A call, its tensors rounded to bfloat16.
struct GatedCall {
  int64_t batch = 2, heads = 4, kv_heads = 2, len = 130, dim = 24, dim_v = 40;
  DType out_dtype = DType::kFloat32;
  Layout layout = Layout::kDense;
  Rule rule;
  std::vector<int32_t> lengths;
  EmulatedChunks chunks;
  Buffer<float> q, k, v;
  std::vector<float> gates, betas, skip, initial, bonus;

  int64_t gate_width() const { return rule.decay == Decay::kChannels ? dim : 1; }
  void Draw() {
    q = Normals({batch, heads, len, dim}, 1);
    k = Normals({batch, kv_heads, len, dim}, 2);
    v = Normals({batch, kv_heads, len, dim_v}, 3);
    gates = LogDecays(batch * kv_heads * len * gate_width(), 4);
    betas = Betas(batch * kv_heads * len, 5);
    skip = Betas(heads, 6);
    initial = Betas(batch * kv_heads * dim * dim_v, 7);
    bonus = Betas(heads * dim, 8);
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
    if (rule.decay != Decay::kNone) {
      options.log_decay = Contiguous(gates.data(), batch, kv_heads, len, gate_width());
    }
    if (rule.betas) options.beta = Contiguous(betas.data(), batch, kv_heads, len, 1);
    if (rule.skips) options.skip = skip;
    if (rule.bonus) options.bonus = Contiguous(bonus.data(), 1, heads, 1, dim);
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
        if (rule.features == FeatureMap::kUnit) x /= static_cast<float>(std::sqrt(squares));
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
    for (size_t n = 0; n < channels.size() && rule.decay != Decay::kNone; ++n) {
      channels[n] = gates[n / static_cast<size_t>(dim / gate_width())];
    }
    return channels;
  }

  // The call of the oracle, on features. With `absolute` of the absolute values of all that is
  // added up.
  RequestBuilder OracleCall(bool absolute) const {
    const auto sign = [&](std::vector<float> x) { return absolute ? Absolute(std::move(x)) : x; };
    const bool by_head = rule.delta && rule.decay != Decay::kChannels;
    RequestBuilder r(by_head      ? "gated_delta_rule"
                     : rule.delta ? "kimi_delta"
                     : rule.bonus ? "rwkv6"
                                  : "gated_linear");
    r.Floats("q", {batch, heads, len, dim}, sign(Features(q, false)));
    r.Floats("k", {batch, kv_heads, len, dim}, sign(Features(k, true)));
    r.Floats("v", {batch, kv_heads, len, dim_v}, sign(OracleValues()));
    r.Param("scale", 0.25).Param("return_state", true);
    if (rule.begins) r.Floats("initial_state", {batch, kv_heads, dim, dim_v}, sign(initial));
    if (!lengths.empty()) r.Integers("key_lengths", {batch}, lengths);
    if (!by_head) r.Floats("channel_log_decay", {batch, kv_heads, len, dim}, ChannelGates());
    if (by_head && rule.decay == Decay::kHeads) {
      r.Floats("log_decay", {batch, kv_heads, len}, gates);
    }
    if (rule.bonus) r.Floats("bonus", {heads, dim}, sign(bonus));
    if (rule.delta) r.Param("key_norm", std::string("none"));
    if (rule.delta && rule.betas) r.Floats("beta", {batch, kv_heads, len}, betas);
    return r;
  }
};

// The call as it is checked: of its tensors only shapes are looked at.
cuda::StoredRecurrentProblem Checked(const GatedCall& c, const RecurrentOptions& options,
                                     DType dtype = DType::kBFloat16) {
  static Buffer<uint32_t> q, k, v;  // as wide as the widest type
  static Buffer<float> output;
  q = {{c.batch, c.heads, c.len, c.dim}, Layout::kDense, 0};
  k = {{c.batch, c.kv_heads, c.len, c.dim}, Layout::kDense, 0};
  v = {{c.batch, c.kv_heads, c.len, c.dim_v}, Layout::kDense, 0};
  output = {{c.batch, c.heads, c.len, c.dim_v}, Layout::kDense, 0};
  const auto stored = [&](const Buffer<uint32_t>& buffer) {
    return StoredTensor(buffer.view().data, dtype, buffer.shape(), buffer.view().strides);
  };
  return cuda::ValidateStoredRecurrentForDevice(stored(q), stored(k), stored(v), options,
                                                {StoredOutput(output.view()), {}});
}

cuda::GatedChunkPlan PlanOf(const GatedCall& c) {
  return {Checked(c, c.Options()), c.chunks.processors, c.chunks.prepared_bytes};
}
int64_t SpansOf(const GatedCall& c, int64_t segment = 0) {
  return PlanOf(c).Params(segment, nullptr, nullptr).spans;
}

// Runs the call in the layout of its tensors, which it rounds.
ChunkResults RunCall(GatedCall& c) {
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
void AddOwn(const GatedCall& c, std::vector<double>& output, bool absolute) {
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

double LargestOf(const std::vector<double>& values) {
  double largest = 0;
  for (const double x : values) largest = std::max(largest, std::abs(x));
  return largest;
}

void ExpectMatchesOracle(GatedCall& c, const std::string& what) {
  ASSERT_TRUE(cuda::TakesGatedChunks(Checked(c, c.Options()))) << what;
  const ChunkResults actual = RunCall(c);
  Values expected = RunOracle(c.OracleCall(false).request()), terms = expected;
  AddOwn(c, expected.at("output"), false);
  double error = cuda::kBFloat16Recurrent;
  if (c.rule.delta) {
    error = cuda::kBFloat16Delta;
    for (auto& [name, values] : terms) {
      std::fill(values.begin(), values.end(), LargestOf(expected.at(name)));
    }
  } else {
    terms = RunOracle(c.OracleCall(true).request());
    AddOwn(c, terms.at("output"), true);
  }
  // Of the delta rule solutions and values of a chunk are rounded besides.
  const double together = (c.rule.delta ? 3 : 2) * RoundingOf(DType::kBFloat16);
  const std::vector<double>&output = expected.at("output"), &state = expected.at("state");
  ExpectNear(actual.output, output, terms.at("output"), error, RoundingOf(c.out_dtype),
             what + ", output");
  ExpectNear(actual.state, state, terms.at("state"), error, 0, what + ", state");
  ExpectNearTogether(actual.output, output, together, what + ", output");
  ExpectNearTogether(actual.state, state, together, what + ", state");
}

TEST_F(DeviceGatedChunks, EveryRuleMatchesTheOracle) {
  const Rule rules[] = {kGated,
                        kGatedDelta,
                        kKimiDelta,
                        {.begins = true},
                        {.features = FeatureMap::kRelu},
                        {.features = FeatureMap::kEluPlusOne, .begins = true},
                        {.betas = false, .features = FeatureMap::kComplement},
                        {.betas = false, .begins = true, .bonus = true},
                        {.skips = true},
                        {.decay = Decay::kNone, .delta = true, .features = FeatureMap::kUnit},
                        {.decay = Decay::kHeads,
                         .delta = true,
                         .betas = false,
                         .features = FeatureMap::kUnit,
                         .begins = true},
                        {.delta = true, .features = FeatureMap::kUnit, .begins = true}};
  for (const Rule& rule : rules) {
    GatedCall c;
    c.rule = rule;
    c.Draw();
    ExpectMatchesOracle(c, "rule " + std::to_string(&rule - rules));
    if (HasFatalFailure()) return;
  }
}

TEST_F(DeviceGatedChunks, EverySizeMatchesTheOracle) {
  struct Size {
    int64_t len, dim, dim_v;
  };
  for (const Size& size :
       {Size{64, 2, 1}, {65, 64, 64}, {100, 65, 63}, {127, 128, 128}, {70, 33, 200}}) {
    for (const Rule& rule : {kGated, kGatedDelta, kKimiDelta}) {
      GatedCall c;
      c.batch = 1, c.heads = c.kv_heads = 1;
      c.len = size.len, c.dim = size.dim, c.dim_v = size.dim_v;
      c.out_dtype = DType::kBFloat16;
      c.rule = rule;
      c.rule.begins = true;
      c.Draw();
      ExpectMatchesOracle(c, "head_dim " + std::to_string(size.dim));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(DeviceGatedChunks, EveryLayoutMatchesTheOracle) {
  for (const Layout layout : {Layout::kBlhd, Layout::kPadded, Layout::kReversed}) {
    GatedCall c;
    c.layout = layout;
    c.out_dtype = DType::kBFloat16;
    c.rule = kKimiDelta;
    c.Draw();
    ExpectMatchesOracle(c, "layout " + std::to_string(static_cast<int>(layout)));
    if (HasFatalFailure()) return;
  }
}

// Spans, of which the last is shorter, in three orders: the same bits.
TEST_F(DeviceGatedChunks, SpansMatchTheOracleInAnyOrder) {
  for (const Rule& rule : {kGated, kGatedDelta, kKimiDelta}) {
    GatedCall c;
    c.batch = 1, c.heads = c.kv_heads = 1;
    c.len = 25 * 64 + 9, c.dim = c.dim_v = 8;
    c.rule = rule;
    c.rule.begins = true;
    c.chunks.processors = 8;
    c.Draw();
    EXPECT_EQ(SpansOf(c), 6);
    ExpectMatchesOracle(c, "spans");
    const ChunkResults first = RunCall(c);
    for (const uint64_t order : {1, 2}) {
      c.chunks.order = order;
      const ChunkResults next = RunCall(c);
      EXPECT_EQ(next.output, first.output);
      EXPECT_EQ(next.state, first.state);
    }
  }
}

// More columns of values, and of a model, than a block has.
TEST_F(DeviceGatedChunks, SpansOfSeveralSlicesMatchTheOracle) {
  GatedCall c;
  c.batch = 1, c.heads = c.kv_heads = 1;
  c.len = 16 * 64, c.dim = 72, c.dim_v = 70;
  c.rule = kGatedDelta;
  c.chunks.processors = 8;
  c.Draw();
  EXPECT_EQ(SpansOf(c), 4);
  ExpectMatchesOracle(c, "slices");
}

// A sequence whose chunks are prepared three, two and one at a time continues from state to state.
TEST_F(DeviceGatedChunks, SegmentsGiveTheSameBits) {
  for (const Rule& rule : {kGated, kKimiDelta}) {
    GatedCall c;
    c.len = 6 * 64 + 1;
    c.rule = rule;
    c.rule.begins = true;
    c.lengths = {200, 385};
    c.Draw();
    ExpectMatchesOracle(c, "whole");
    ASSERT_EQ(PlanOf(c).num_segments(), 1);
    const ChunkResults whole = RunCall(c);
    const int64_t chunk_bytes = 4 * PlanOf(c).Params(0, nullptr, nullptr).place.bytes;
    for (const int64_t chunks : {3, 2, 1}) {
      c.chunks.prepared_bytes = chunks * chunk_bytes;
      ASSERT_EQ(PlanOf(c).num_segments(), (7 + chunks - 1) / chunks);
      const ChunkResults parts = RunCall(c);
      EXPECT_EQ(parts.output, whole.output) << chunks;
      EXPECT_EQ(parts.state, whole.state) << chunks;
    }
  }
}

// Segments that have spans, the last of them fewer, and a state in place.
TEST_F(DeviceGatedChunks, SegmentsOfSpansMatchTheOracle) {
  for (const Rule& rule : {kGated, kKimiDelta}) {
    GatedCall c;
    c.batch = 1, c.heads = c.kv_heads = 1;
    c.len = 37 * 64 + 5, c.dim = c.dim_v = 8;
    c.rule = rule;
    c.rule.begins = true;
    c.chunks.processors = 8;
    c.Draw();
    c.chunks.prepared_bytes = 20 * PlanOf(c).Params(0, nullptr, nullptr).place.bytes;
    ASSERT_EQ(PlanOf(c).num_segments(), 2);
    EXPECT_EQ(SpansOf(c, 0), 4);
    ExpectMatchesOracle(c, "segments of spans");
    c.len = 33 * 64;
    c.Draw();
    c.chunks.prepared_bytes = 18 * PlanOf(c).Params(0, nullptr, nullptr).place.bytes;
    ASSERT_EQ(PlanOf(c).num_segments(), 2);
    ExpectMatchesOracle(c, "a shorter segment");
  }
}

// Three query heads of one KV head, more than 64 features, gates and beta of all tokens alike, no
// final state, float16 results.
TEST_F(DeviceGatedChunks, GroupsAndBroadcastsMatchTheOracle) {
  GatedCall c;
  c.batch = 1, c.heads = 3, c.kv_heads = 1, c.dim = 72;
  c.out_dtype = DType::kFloat16;
  c.rule = kKimiDelta;
  c.Draw();
  for (size_t n = 0; n < c.gates.size(); ++n) c.gates[n] = c.gates[n % 72];
  std::fill(c.betas.begin(), c.betas.end(), c.betas[0]);
  ExpectMatchesOracle(c, "groups");
  const ChunkResults whole = RunCall(c);
  const StoredBuffer q(c.q, DType::kBFloat16, c.layout), k(c.k, DType::kBFloat16, c.layout),
      v(c.v, DType::kBFloat16, c.layout);
  Buffer<float> blank({1, 3, c.len, c.dim_v}, Layout::kDense, kNan);
  StoredBuffer output(blank, DType::kFloat16, c.layout);
  RecurrentOptions options = c.Options();
  options.log_decay = Contiguous(c.gates.data(), 1, 1, 1, 72);
  options.beta = Contiguous(c.betas.data(), 1, 1, 1, 1);
  RunStoredRecurrentOnDevice(q.view(), k.view(), v.view(), options, {output.output(), {}},
                             c.chunks);
  EXPECT_EQ(output.Widened().Elements(), whole.output);
}

// Nothing of a token beyond its length is read, nor is it a feature of zeros.
TEST_F(DeviceGatedChunks, TokensBeyondLengthsDoNotExist) {
  const Rule rules[] = {kGated,
                        kGatedDelta,
                        kKimiDelta,
                        {.features = FeatureMap::kEluPlusOne},
                        {.skips = true, .bonus = true}};
  for (const Rule& rule : rules) {
    GatedCall c;
    c.batch = 3;
    c.lengths = {0, 70, 128};
    c.rule = rule;
    c.rule.begins = true;
    c.Draw();
    GatedCall poisoned = c;
    for (int64_t b = 0; b < c.batch; ++b) {
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        for (int64_t t = c.lengths[static_cast<size_t>(b)]; t < c.len; ++t) {
          const size_t token = static_cast<size_t>((b * c.kv_heads + h) * c.len + t);
          poisoned.k(b, h, t, 0) = poisoned.v(b, h, t, 0) = kNan;
          poisoned.betas[token] = kNan;
          poisoned.gates[token * static_cast<size_t>(c.gate_width())] = kNan;
        }
      }
    }
    ExpectMatchesOracle(c, "lengths");
    const ChunkResults clean = RunCall(c), other = RunCall(poisoned);
    EXPECT_EQ(other.output, clean.output);
    EXPECT_EQ(other.state, clean.state);
  }
}

// Decays of 0, of e^-90, of e^-3 and of all but 1 beside each other: products of matrices where 16
// tokens decay little enough, number by number elsewhere.
TEST_F(DeviceGatedChunks, StrongDecaysAreExact) {
  for (const Rule& rule : {kGated, kGatedDelta, kKimiDelta}) {
    GatedCall c;
    c.rule = rule;
    c.Draw();
    const std::vector<float> drawn = c.gates;
    for (size_t n = 0; n < c.gates.size(); ++n) {
      c.gates[n] = n % 11 == 3 ? -kInfinity : n % 7 == 2 ? -90.0f : -1e-4f;
    }
    ExpectMatchesOracle(c, "0 and e^-90");
    std::fill(c.gates.begin(), c.gates.end(), -kInfinity);
    ExpectMatchesOracle(c, "0");
    std::fill(c.gates.begin(), c.gates.end(), -3.7f);  // 59.2 a sub
    ExpectMatchesOracle(c, "e^-3.7");
    c.gates = drawn;
    c.gates[5] = -60.5f;  // of one channel of one token
    ExpectMatchesOracle(c, "one");
  }
}

// A gate that is NaN behind a strong one of its 16 tokens: those between them are as without it.
TEST_F(DeviceGatedChunks, GatesBehindStrongOnesReachLaterTokensOnly) {
  GatedCall c;
  c.batch = 1, c.rule = kGated;
  c.Draw();
  c.gates[static_cast<size_t>(66 * c.dim + 3)] = -kInfinity;
  const ChunkResults clean = RunCall(c);
  const Reach reach = {[](auto head, auto t, auto) { return head / 2 == 0 && t >= 74; },
                       [](auto head, auto feature, auto) { return head == 0 && feature == 3; }};
  c.gates[static_cast<size_t>(74 * c.dim + 3)] = kNan;
  ExpectReaches(c, clean, reach, "NaN");
}

// A value, a key, a query, a gate, a beta that is not finite: tokens before it keep their bits, and
// so do columns and heads that do not meet it. One chunk later, and in the next spans.
TEST_F(DeviceGatedChunks, WhatIsNotFiniteReachesLaterTokensOnly) {
  constexpr int64_t kToken = 70;
  const auto later = [](int64_t head, int64_t token) { return head / 2 == 0 && token >= kToken; };
  const Reach of_value = {[&](auto head, auto t, auto col) { return later(head, t) && col == 3; },
                          [](auto head, auto, auto col) { return head == 0 && col == 3; }};
  const Reach of_head = {[&](auto head, auto t, auto) { return later(head, t); },
                         [](auto head, auto, auto) { return head == 0; }};
  const Reach of_channel = {
      [&](auto head, auto t, auto) { return later(head, t); },
      [](auto head, auto feature, auto) { return head == 0 && feature == 3; }};
  const Reach of_query = {[](auto head, auto t, auto) { return head == 0 && t == kToken; },
                          [](auto, auto, auto) { return false; }};
  for (const int64_t len : {int64_t{130}, int64_t{16 * 64}}) {
    for (const Rule& rule : {kGated, kGatedDelta, kKimiDelta, Rule{}}) {
      GatedCall c;
      c.batch = 1, c.len = len, c.rule = rule;
      c.chunks.processors = len == 130 ? 1 : 8;
      c.Draw();
      ASSERT_EQ(SpansOf(c), len == 130 ? 1 : 4);
      const ChunkResults clean = RunCall(c);
      const std::string what = std::to_string(len) + ", ";
      const Reach& of_key = rule.delta ? of_head : of_channel;
      for (const float bad : {kNan, kInfinity, -kInfinity}) {
        if (len > 130 && !std::isnan(bad)) continue;
        GatedCall in_value = c, in_key = c, in_query = c;
        in_value.v(0, 0, kToken, 3) = bad;
        in_key.k(0, 0, kToken, 3) = bad;
        in_query.q(0, 0, kToken, 3) = bad;
        ExpectReaches(in_value, clean, of_value, what + "value " + std::to_string(bad));
        ExpectReaches(in_key, clean, of_key, what + "key " + std::to_string(bad));
        ExpectReaches(in_query, clean, of_query, what + "query " + std::to_string(bad));
        if (HasFatalFailure()) return;
      }
      GatedCall in_gate = c;
      in_gate.gates[static_cast<size_t>(kToken * c.gate_width() + (c.gate_width() > 1 ? 3 : 0))] =
          kNan;
      ExpectReaches(in_gate, clean, of_key, what + "gate");
      if (!rule.betas) continue;
      GatedCall in_beta = c;
      in_beta.betas[kToken] = kNan;
      ExpectReaches(in_beta, clean, of_head, what + "beta");
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(DeviceGatedChunks, AStateInPlaceContinuesACall) {
  for (const Rule& rule : {kGated, kKimiDelta}) {
    GatedCall c;
    c.dim_v = 70;
    c.rule = rule;
    c.rule.begins = true;
    c.Draw();
    const ChunkResults apart = RunCall(c);
    const StoredBuffer q(c.q, DType::kBFloat16, c.layout), k(c.k, DType::kBFloat16, c.layout),
        v(c.v, DType::kBFloat16, c.layout);
    Buffer<float> output({c.batch, c.heads, c.len, c.dim_v}, Layout::kDense, kNan);
    std::vector<float> state = c.initial;
    const auto view = Contiguous(state.data(), c.batch, c.kv_heads, c.dim, c.dim_v);
    RecurrentOptions options = c.Options();
    options.initial_state = view;
    RunStoredRecurrentOnDevice(q.view(), k.view(), v.view(), options,
                               {StoredOutput(output.view()), view}, {.order = 1});
    EXPECT_EQ(output.Elements(), apart.output);
    EXPECT_EQ(state, apart.state);
  }
}

TEST(DeviceGatedChunkPlan, TakesWhatGatedChunksCompute) {
  GatedCall c;
  c.rule = kKimiDelta;
  c.Draw();
  const auto takes = [&](const RecurrentOptions& options, DType dtype = DType::kBFloat16) {
    return cuda::TakesGatedChunks(Checked(c, options, dtype));
  };
  const RecurrentOptions plain = c.Options();
  EXPECT_TRUE(takes(plain));
  EXPECT_FALSE(takes(plain, DType::kFloat16));
  EXPECT_FALSE(takes(plain, DType::kFloat32));
  RecurrentOptions other = plain;
  other.delta = false;
  EXPECT_TRUE(takes(other));
  other.normalize = true;
  EXPECT_FALSE(takes(other));
  other = plain, other.feature_map = FeatureMap::kSoftmax;
  EXPECT_FALSE(takes(other));
  other = plain, other.causal = false;
  EXPECT_FALSE(takes(other));
  // Decays of heads alone are simpler chunks.
  other = plain, other.delta = false, other.feature_map = FeatureMap::kIdentity;
  other.log_decay = Contiguous(c.gates.data(), c.batch, c.kv_heads, c.len, 1);
  EXPECT_FALSE(takes(other));
  EXPECT_TRUE(cuda::TakesChunks(Checked(c, other)));
  c.dim = 129;
  other = plain, other.log_decay = {};
  EXPECT_FALSE(takes(other));
  c.dim = 128;
  EXPECT_TRUE(takes(other));
  c.len = 63;
  other.beta = {};
  EXPECT_FALSE(takes(other));
}

// A block may have 99 KiB of shared memory on GPUs of compute capability 8.6 and 8.9.
TEST(DeviceGatedChunkPlan, BlocksFitEveryGpu) {
  constexpr int kLeast = 99 << 10;
  EXPECT_LE((cuda::GatedChunkTokens<HostBlock, 128>::kSharedBytes), kLeast);
  EXPECT_LE((cuda::GatedSums<HostBlock, 128>::kSharedBytes), kLeast);
  EXPECT_LE((cuda::GatedReads<HostBlock, 128>::kSharedBytes), kLeast);
}

TEST(DeviceGatedChunkPlan, SpansFillTheGpuWhereTheyPay) {
  GatedCall c;
  c.batch = 1, c.heads = c.kv_heads = 8, c.len = 2048, c.dim = c.dim_v = 128;
  c.chunks.processors = 132;
  c.rule = kKimiDelta;
  c.rule.betas = false, c.rule.decay = Decay::kNone;
  // 8 heads, 2 slices of values and 2 of a model, on 264 places.
  EXPECT_EQ(SpansOf(c), 8);
  EXPECT_EQ(cuda::NumSumBlocks(PlanOf(c).Params(0, nullptr, nullptr)), 8 * 4 * 7);
  EXPECT_EQ(cuda::NumReadBlocks(PlanOf(c).Params(0, nullptr, nullptr)), 8 * 2 * 8);
  // With 32 heads two spans would fit, whose models cost more than they gain.
  c.heads = c.kv_heads = 32;
  EXPECT_EQ(SpansOf(c), 1);
  EXPECT_EQ(cuda::NumSumBlocks(PlanOf(c).Params(0, nullptr, nullptr)), 0);
}

}  // namespace
}  // namespace heed::testing
