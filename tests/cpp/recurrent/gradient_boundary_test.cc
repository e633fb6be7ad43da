// The boundary of RecurrentBackward(): factors that broadcast, refusals, scratch memory.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/gradient.h"
#include "recurrent_case.h"
#include "simd_targets.h"
#include "src/parallel/dry_run.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

// A call of gated linear attention, of which one part is then changed.
struct Call {
  static constexpr int64_t kBatch = 2, kHeads = 2, kLen = 9, kDim = 3, kDimV = 4;
  static constexpr int64_t kTokens = kBatch * kHeads * kLen;

  std::vector<float> q = Betas(kTokens * kDim, 1), k = Betas(kTokens * kDim, 2),
                     v = Betas(kTokens * kDimV, 3), d_out = Betas(kTokens * kDimV, 4),
                     gates = LogDecays(kTokens * kDim, 5), strengths = Betas(kTokens, 6);
  std::vector<float> d_q = std::vector<float>(q.size()), d_gates = std::vector<float>(gates.size());
  RecurrentOptions options;
  RecurrentGradients gradients{
      .d_q = Contiguous(d_q.data(), kBatch, kHeads, kLen, kDim),
      .d_log_decay = Contiguous(d_gates.data(), kBatch, kHeads, kLen, kDim)};
  TensorView<const float> arriving =
      Contiguous<const float>(d_out.data(), kBatch, kHeads, kLen, kDimV);

  Call() { options.log_decay = Contiguous<const float>(gates.data(), kBatch, kHeads, kLen, kDim); }
  void Run() const {
    RecurrentBackward(Contiguous<const float>(q.data(), kBatch, kHeads, kLen, kDim),
                      Contiguous<const float>(k.data(), kBatch, kHeads, kLen, kDim),
                      Contiguous<const float>(v.data(), kBatch, kHeads, kLen, kDimV), arriving,
                      options, gradients);
  }
  // "code: message"; empty when nothing is thrown.
  std::string Refusal() const {
    try {
      Run();
    } catch (const Error& error) {
      return std::string(ErrorCodeName(error.code())) + ": " + error.what();
    }
    return "";
  }
};

void ExpectRefusal(const std::function<void(Call&)>& change, const std::string& expected) {
  Call call;
  change(call);
  EXPECT_THAT(call.Refusal(), HasSubstr(expected));
}

class RecurrentGradientBoundary : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(RecurrentGradientBoundary);

// Extents of 1 mean the sum over what they stand for, of the same numbers given out one by one.
TEST_P(RecurrentGradientBoundary, FactorsThatBroadcastGetTheSum) {
  for (const Extents shape : {Extents{1, 2, 1, 3}, Extents{2, 1, 9, 3}, Extents{1, 1, 1, 3},
                              Extents{1, 2, 9, 1}, Extents{2, 2, 1, 1}}) {
    const auto extent = [&](size_t axis) { return shape[axis]; };
    const int64_t size = extent(0) * extent(1) * extent(2) * extent(3);
    const bool channels = shape[3] == 3;
    const int64_t width = channels ? 3 : 1;
    Call small, full;
    const std::vector<float> few = LogDecays(size, 8);
    std::vector<float> d_few(few.size(), std::nanf(""));
    small.options.log_decay =
        Contiguous<const float>(few.data(), shape[0], shape[1], shape[2], shape[3]);
    small.gradients.d_log_decay = Contiguous(d_few.data(), shape[0], shape[1], shape[2], shape[3]);
    small.Run();
    const auto cell = [&](int64_t b, int64_t h, int64_t t, int64_t c) {
      const auto at = [&](size_t axis, int64_t n) { return shape[axis] == 1 ? 0 : n; };
      return static_cast<size_t>(
          ((at(0, b) * shape[1] + at(1, h)) * shape[2] + at(2, t)) * shape[3] + at(3, c));
    };
    std::vector<float> gates(static_cast<size_t>(Call::kTokens * width)), d_gates(gates.size());
    const auto all = [&](std::vector<float>& numbers) {
      return Contiguous(numbers.data(), Call::kBatch, Call::kHeads, Call::kLen, width);
    };
    const auto each = [&](auto&& body) {
      for (int64_t n = 0; n < Call::kTokens * width; ++n) {
        const int64_t c = n % width, t = n / width % Call::kLen, unit = n / width / Call::kLen;
        body(static_cast<size_t>(n), cell(unit / Call::kHeads, unit % Call::kHeads, t, c));
      }
    };
    each([&](size_t n, size_t from) { gates[n] = few[from]; });
    full.options.log_decay = all(gates);
    full.gradients.d_log_decay = all(d_gates);
    full.Run();
    std::vector<double> sums(few.size());
    each([&](size_t n, size_t to) { sums[to] += static_cast<double>(d_gates[n]); });
    for (size_t n = 0; n < sums.size(); ++n) EXPECT_NEAR(d_few[n], sums[n], 2e-5);
  }
}

TEST(RecurrentGradientBoundary, AWholeCallIsAccepted) { EXPECT_EQ(Call().Refusal(), ""); }

TEST(RecurrentGradientBoundary, ShapesThatDoNotFitAreRefused) {
  ExpectRefusal([](Call& c) { c.arriving.shape[2] = 8; }, "shape: d_out has shape [2, 2, 8, 4]");
  ExpectRefusal([](Call& c) { c.gradients.d_q.shape[3] = 2; }, "shape: d_q has shape [2, 2, 9, 2]");
  ExpectRefusal([](Call& c) { c.gradients.d_log_decay.shape[2] = 1; }, "shape: d_log_decay");
  ExpectRefusal([](Call& c) { c.gradients.d_final_state = c.arriving; }, "shape: d_final_state");
  static float numbers[3] = {};
  ExpectRefusal(
      [](Call& c) {
        c.options.skip = {numbers, 2};
        c.gradients.d_skip = {numbers, 3};
      },
      "shape: d_skip has 3 values, but skip has 2");
}

TEST(RecurrentGradientBoundary, GradientsOfAbsentOptionsAreRefused) {
  static float numbers[Call::kTokens] = {};
  ExpectRefusal(
      [](Call& c) {
        c.gradients.d_beta = Contiguous(numbers, Call::kBatch, Call::kHeads, Call::kLen, 1);
      },
      "option: d_beta is given without beta");
  ExpectRefusal([](Call& c) { c.gradients.d_skip = numbers; },
                "option: d_skip is given without skip");
}

TEST(RecurrentGradientBoundary, OverlapsAreRefused) {
  ExpectRefusal([](Call& c) { c.gradients.d_log_decay = c.gradients.d_q; }, "d_log_decay");
  ExpectRefusal([](Call& c) { c.gradients.d_q.data = c.k.data(); }, "d_q");
  // A gradient is written while factors of heads are still read.
  ExpectRefusal(
      [](Call& c) {
        c.options.skip = {c.gradients.d_q.data, Call::kHeads};
      },
      "d_q overlaps skip");
}

TEST(RecurrentGradientBoundary, WhatHasNoGradientIsRefusedByName) {
  ExpectRefusal(
      [](Call& c) {
        c.options.feature_map = FeatureMap::kUser;
        c.options.feature_mod = [](const FeatureRows&) {};
      },
      "unsupported: feature_mod has no gradient without feature_mod_backward");
  const auto with_levels = [](const std::function<void(RecurrentOptions&)>& change) {
    static const std::vector<float> weights(Call::kTokens * 13);
    const std::string refusal = "unsupported: level_weights with features or log_decay of channels";
    ExpectRefusal(
        [&](Call& c) {
          c.options.level_weights =
              Contiguous(weights.data(), Call::kBatch, Call::kHeads, Call::kLen, 13);
          c.options.log_decay = {};
          c.gradients.d_log_decay = {};
          change(c.options);
        },
        refusal);
  };
  const std::vector<float> gates = LogDecays(Call::kTokens * Call::kDim, 5);
  with_levels([](RecurrentOptions& o) { o.feature_map = FeatureMap::kRelu; });
  with_levels([&](RecurrentOptions& o) {
    o.log_decay = Contiguous(gates.data(), Call::kBatch, Call::kHeads, Call::kLen, Call::kDim);
  });
}

// What one thread allocates for one head of so many tokens.
int64_t ScratchBytes(int64_t len) {
  static float nothing = 0;
  const Extents shape = {1, 1, len, 64}, strides = {0, 0, 0, 1};
  const TensorView<const float> tokens = {&nothing, shape, strides};
  DryRun dry;
  IdlePool pool(1);
  RecurrentBackward(tokens, tokens, tokens, tokens, {}, {}, &pool);
  return dry.most_bytes();
}

TEST(RecurrentGradientBoundary, MemoryIsOneStateForEvery2048Tokens) {
  const int64_t state = ScratchBytes(int64_t{4} << 11) - ScratchBytes(int64_t{3} << 11);
  EXPECT_LT(state, 80 * 80 * 4);
  EXPECT_GE(state, 64 * 64 * 4);
  EXPECT_EQ(ScratchBytes(int64_t{1} << 20) - ScratchBytes(int64_t{1} << 19), 256 * state);
}

}  // namespace
}  // namespace heed::testing
