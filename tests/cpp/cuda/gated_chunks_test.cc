// Recurrent attention of bfloat16 tensors on the device path whose channels decay each at a rate of
// its own, or which erases, by the delta rule or by keys of its own: gated chunks, against the
// float64 oracle.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gated_case.h"

namespace heed::testing {
namespace {

class DeviceGatedChunks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(DeviceGatedChunks, EveryRuleMatchesTheOracle) {
  const GatedRule rules[] = {
      kGated,
      kGatedDelta,
      kKimiDelta,
      {.begins = true},
      {.features = FeatureMap::kRelu},
      {.features = FeatureMap::kEluPlusOne, .begins = true},
      {.betas = false, .features = FeatureMap::kComplement},
      {.betas = false, .begins = true, .bonus = true},
      {.skips = true},
      {.decay = GatedDecay::kNone, .delta = true, .features = FeatureMap::kUnit},
      {.decay = GatedDecay::kHeads,
       .delta = true,
       .betas = false,
       .features = FeatureMap::kUnit,
       .begins = true},
      {.delta = true, .features = FeatureMap::kUnit, .begins = true},
      kRwkv7,
      {.skips = true, .begins = true, .erases_apart = true},
      {.decay = GatedDecay::kHeads, .begins = true, .erases_apart = true},
      {.decay = GatedDecay::kNone, .betas = false, .erases_apart = true}};
  for (const GatedRule& rule : rules) {
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
    for (const GatedRule& rule : {kGated, kGatedDelta, kKimiDelta, kRwkv7}) {
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

// What a delta rule erases takes older errors along: a state that hardly decays is as right after
// thousands of tokens as after a few.
TEST_F(DeviceGatedChunks, LongSequencesMatchTheOracle) {
  for (const GatedRule& rule : {kKimiDelta, kRwkv7}) {
    GatedCall c;
    c.batch = 1, c.heads = c.kv_heads = 1, c.len = 4096;
    c.rule = rule;
    c.Draw();
    for (float& x : c.gates) x *= 0.01f;
    ExpectMatchesOracle(c, "4096 tokens");
  }
}

TEST_F(DeviceGatedChunks, EveryLayoutMatchesTheOracle) {
  for (const GatedRule& rule : {kKimiDelta, kRwkv7}) {
    for (const Layout layout : {Layout::kBlhd, Layout::kPadded, Layout::kReversed}) {
      GatedCall c;
      c.layout = layout;
      c.out_dtype = DType::kBFloat16;
      c.rule = rule;
      c.Draw();
      ExpectMatchesOracle(c, "layout " + std::to_string(static_cast<int>(layout)));
      if (HasFatalFailure()) return;
    }
  }
}

// Keys that become unit vectors are of any length; those of zeros stay zeros.
TEST_F(DeviceGatedChunks, LengthsOfUnitKeysDoNotCount) {
  GatedCall c;
  c.rule = kGatedDelta;
  c.Draw();
  const ChunkResults first = RunCall(c);
  for (const float factor : {0x1p100f, 0x1p-60f, 0x1p-105f}) {
    GatedCall scaled = c;
    scaled.k.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x *= factor; });
    EXPECT_EQ(RunCall(scaled).output, first.output) << factor;
  }
  c.k.ForEach([](int64_t, int64_t, int64_t t, int64_t, float& x) {
    if (t % 5 == 3) x = 0;
  });
  ExpectMatchesOracle(c, "zeros");
}

// The same of keys to erase by, of which one of zeros erases nothing.
TEST_F(DeviceGatedChunks, LengthsOfKeysToEraseByDoNotCount) {
  GatedCall c;
  c.rule = kRwkv7;
  c.Draw();
  const ChunkResults first = RunCall(c);
  for (const float factor : {0x1p100f, 0x1p-100f}) {
    GatedCall scaled = c;
    scaled.erase_key.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x *= factor; });
    EXPECT_EQ(RunCall(scaled).output, first.output) << factor;
  }
  c.erase_key.ForEach([](int64_t, int64_t, int64_t t, int64_t, float& x) {
    if (t % 5 == 3) x = 0;
  });
  ExpectMatchesOracle(c, "zeros");
}

// Spans, of which the last is shorter, in three orders: the same bits.
TEST_F(DeviceGatedChunks, SpansMatchTheOracleInAnyOrder) {
  for (const GatedRule& rule : {kGated, kGatedDelta, kKimiDelta, kRwkv7}) {
    GatedCall c;
    c.batch = 1, c.heads = c.kv_heads = 1;
    c.rule = rule;
    c.len = 25 * c.chunk_len() + 9, c.dim = c.dim_v = 8;
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
  for (const GatedRule& rule : {kGatedDelta, kRwkv7}) {
    GatedCall c;
    c.rule = rule;
    c.batch = 1, c.heads = c.kv_heads = 1;
    c.len = 16 * c.chunk_len(), c.dim = 72, c.dim_v = 70;
    c.chunks.processors = 8;
    c.Draw();
    EXPECT_EQ(SpansOf(c), 4);
    ExpectMatchesOracle(c, "slices");
  }
}

// A sequence whose chunks are prepared three, two and one at a time continues from state to state.
TEST_F(DeviceGatedChunks, SegmentsGiveTheSameBits) {
  for (const GatedRule& rule : {kGated, kKimiDelta, kRwkv7}) {
    GatedCall c;
    c.rule = rule;
    c.len = 6 * c.chunk_len() + 1;
    c.rule.begins = true;
    c.lengths = {100, static_cast<int32_t>(c.len)};
    c.Draw();
    ExpectMatchesOracle(c, "whole");
    ASSERT_EQ(PlanOf(c).num_segments(), 1);
    const ChunkResults whole = RunCall(c);
    const int64_t chunk_bytes = 4 * PlanOf(c).Params(0, nullptr, nullptr).place.bytes;
    for (const int64_t chunks : {3, 2, 1}) {
      c.chunks.prepared_bytes = 2 * chunks * chunk_bytes;
      ASSERT_EQ(PlanOf(c).num_segments(), (7 + chunks - 1) / chunks);
      const ChunkResults parts = RunCall(c);
      EXPECT_EQ(parts.output, whole.output) << chunks;
      EXPECT_EQ(parts.state, whole.state) << chunks;
    }
  }
}

// Segments that have spans, the last of them fewer, and a state in place.
TEST_F(DeviceGatedChunks, SegmentsOfSpansMatchTheOracle) {
  for (const GatedRule& rule : {kGated, kKimiDelta, kRwkv7}) {
    GatedCall c;
    c.rule = rule;
    c.batch = 1, c.heads = c.kv_heads = 1;
    c.len = 55 * c.chunk_len() + 5, c.dim = c.dim_v = 8;
    c.rule.begins = true;
    c.chunks.processors = 8;
    c.Draw();
    c.chunks.prepared_bytes = 38 * PlanOf(c).Params(0, nullptr, nullptr).place.bytes;
    ASSERT_EQ(PlanOf(c).num_segments(), 3);
    EXPECT_EQ(SpansOf(c, 0), 4);
    ExpectMatchesOracle(c, "segments of spans");
    c.len = 49 * c.chunk_len();
    c.Draw();
    c.chunks.prepared_bytes = 34 * PlanOf(c).Params(0, nullptr, nullptr).place.bytes;
    ASSERT_EQ(PlanOf(c).num_segments(), 3);
    EXPECT_LT(SpansOf(c, 2), SpansOf(c, 0));
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
  const GatedRule rules[] = {kGated,
                             kGatedDelta,
                             kKimiDelta,
                             {.skips = true, .erases_apart = true},
                             {.features = FeatureMap::kEluPlusOne},
                             {.skips = true, .bonus = true}};
  for (const GatedRule& rule : rules) {
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
          poisoned.erase_key(b, h, t, 0) = poisoned.erase_rate(b, h, t, 0) = kNan;
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
// tokens decay little enough, halves elsewhere.
TEST_F(DeviceGatedChunks, StrongDecaysAreExact) {
  for (const GatedRule& rule : {kGated, kGatedDelta, kKimiDelta, kRwkv7}) {
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
    // 59.2 for 16 tokens that decay.
    std::fill(c.gates.begin(), c.gates.end(), c.rule.erases_apart ? -7.4f : -3.7f);
    ExpectMatchesOracle(c, "e^-3.7");
    c.gates = drawn;
    c.gates[5] = -60.5f;  // of one channel of one token
    ExpectMatchesOracle(c, "one");
  }
}

// The same of more than 64 channels, of an odd number of them, and of queries that read first.
TEST_F(DeviceGatedChunks, StrongDecaysOfEveryWidthAreExact) {
  GatedRule reads_first = kGated;
  reads_first.bonus = true;
  for (const int64_t dim : {71, 128}) {
    for (const GatedRule& rule : {kGated, kKimiDelta, kRwkv7, reads_first}) {
      GatedCall c;
      c.batch = 1, c.heads = 2, c.kv_heads = 1, c.len = 100, c.dim = dim;
      c.rule = rule;
      c.Draw();
      for (size_t n = 0; n < c.gates.size(); ++n) {
        c.gates[n] = n % 3001 == 30 ? -kInfinity : n % 707 == 2 ? -90.0f : -1e-2f;
      }
      ExpectMatchesOracle(c, "head_dim " + std::to_string(dim));
    }
  }
}

// More chunks than there are between blocks whose warps have the same tokens.
TEST_F(DeviceGatedChunks, ManyChunksMatchTheOracle) {
  for (const GatedRule& rule : {kGated, kGatedDelta, kKimiDelta, kRwkv7}) {
    GatedCall c;
    c.rule = rule;
    c.batch = 4, c.heads = c.kv_heads = 64, c.len = 2 * c.chunk_len(), c.dim = 4, c.dim_v = 2;
    c.Draw();
    ASSERT_EQ(cuda::NumTokenBlocks(PlanOf(c).Params(0, nullptr, nullptr)), 512);
    ExpectMatchesOracle(c, "512 chunks");
  }
}

// Queries that meet their own values: more than 64 channels, and an odd number, which no vectors
// are.
TEST_F(DeviceGatedChunks, BonusesOfEveryWidthMatchTheOracle) {
  for (const int64_t dim : {7, 72, 128}) {
    for (const Layout layout : {Layout::kDense, Layout::kPadded}) {
      GatedCall c;
      c.dim = dim, c.layout = layout;
      c.rule = {.bonus = true};
      c.Draw();
      ExpectMatchesOracle(c, "head_dim " + std::to_string(dim));
    }
  }
}

// Decays that are not aligned to pairs, or whose tokens are an odd number apart.
TEST_F(DeviceGatedChunks, DecaysLieAnywhere) {
  for (const GatedRule& rule : {kGated, kRwkv7}) {
    GatedCall c;
    c.rule = rule;
    c.Draw();
    const ChunkResults aligned = RunCall(c);
    for (const int64_t apart : {c.dim, c.dim + 1}) {
      std::vector<float> moved(static_cast<size_t>(c.batch * c.kv_heads * c.len * apart + 1), kNan);
      GatedCall other = c;
      other.gates_apart = apart;
      for (int64_t row = 0; row < c.batch * c.kv_heads * c.len; ++row) {
        std::copy_n(c.gates.begin() + row * c.dim, c.dim, moved.begin() + 1 + row * apart);
      }
      other.gates = std::move(moved);
      other.first_gate = 1;
      EXPECT_EQ(RunCall(other).output, aligned.output) << apart;
    }
  }
}

// A gate that is NaN behind a strong one of its 16 tokens: those between them are as without it.
TEST_F(DeviceGatedChunks, GatesBehindStrongOnesReachLaterTokensOnly) {
  for (const GatedRule& rule : {kGated, kKimiDelta, kRwkv7}) {
    GatedCall c;
    c.batch = 1, c.rule = rule;
    c.Draw();
    c.gates[static_cast<size_t>(66 * c.dim + 3)] = -kInfinity;
    const ChunkResults clean = RunCall(c);
    const bool of_head = rule.erases();
    const Reach reach = {
        [](auto head, auto t, auto) { return head / 2 == 0 && t >= 74; },
        [&](auto head, auto feature, auto) { return head == 0 && (of_head || feature == 3); }};
    c.gates[static_cast<size_t>(74 * c.dim + 3)] = kNan;
    ExpectReaches(c, clean, reach, "NaN");
  }
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
    for (const GatedRule& rule : {kGated, kGatedDelta, kKimiDelta, kRwkv7, GatedRule{}}) {
      GatedCall c;
      c.batch = 1, c.len = len, c.rule = rule;
      c.chunks.processors = len == 130 ? 1 : 8;
      c.Draw();
      ASSERT_EQ(SpansOf(c), len == 130 ? 1 : 4);
      const ChunkResults clean = RunCall(c);
      const std::string what = std::to_string(len) + ", ";
      const Reach& of_key = rule.erases() ? of_head : of_channel;
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
      if (rule.erases_apart) {
        GatedCall in_erase_key = c, in_erase_rate = c;
        in_erase_key.erase_key(0, 0, kToken, 3) = in_erase_rate.erase_rate(0, 0, kToken, 3) = kNan;
        ExpectReaches(in_erase_key, clean, of_head, what + "erase_key");
        ExpectReaches(in_erase_rate, clean, of_head, what + "erase_rate");
        in_erase_key.erase_key(0, 0, kToken, 3) = -kInfinity;
        in_erase_rate.erase_rate(0, 0, kToken, 3) = kInfinity;
        ExpectReaches(in_erase_key, clean, of_head, what + "an infinite erase_key");
        ExpectReaches(in_erase_rate, clean, of_head, what + "an infinite erase_rate");
      }
      if (!rule.betas) continue;
      GatedCall in_beta = c;
      in_beta.betas[kToken] = kNan;
      ExpectReaches(in_beta, clean, of_head, what + "beta");
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(DeviceGatedChunks, AStateInPlaceContinuesACall) {
  for (const GatedRule& rule : {kGated, kKimiDelta, kRwkv7}) {
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

}  // namespace
}  // namespace heed::testing
