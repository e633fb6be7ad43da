// The boundary of AttentionBackward(): storage types, refusals, scratch memory.
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "attention_case.h"
#include "gmock/gmock.h"
#include "gradient_case.h"
#include "gtest/gtest.h"
#include "heed/gradient.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr Sizes kSmall = {
    .num_heads = 2, .num_kv_heads = 1, .q_len = 5, .kv_len = 7, .head_dim = 3, .head_dim_v = 5};

class GradientStorage : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(GradientStorage);

// A tensor stored as bfloat16, and what it holds.
struct Rounded {
  Buffer<BFloat16> stored;
  Buffer<float> floats;
  explicit Rounded(const Buffer<float>& from)
      : stored(from.shape(), Layout::kPadded, BFloat16{0x7fff}),
        floats(from.shape(), Layout::kDense, 0.0f) {
    floats.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
      stored(b, h, i, d) = ToBFloat16(from(b, h, i, d));
      x = ToFloat(stored(b, h, i, d));
    });
  }
};

TEST_P(GradientStorage, TwoByteInputsGiveTheFloatGradientsRoundedOnce) {
  AttentionCase c = MakeCase(kSmall);
  const Rounded q(c.q), k(c.k), v(c.v);
  c.q = q.floats;
  c.k = k.floats;
  c.v = v.floats;
  Cotangents cotangents = MakeCotangents(c);
  const Rounded d_out(cotangents.output);
  cotangents.output = d_out.floats;
  Values expected = RunBackward(c, cotangents);
  const Results forward = RunAttention(c);
  Buffer<BFloat16> d_q(c.q.shape(), Layout::kDense, BFloat16{0x7fff});
  Buffer<Float16> d_k(c.k.shape(), Layout::kDense, Float16{0x7fff});
  Buffer<float> d_v(c.v.shape(), Layout::kDense, std::nanf(""));
  AttentionGradients gradients;
  gradients.d_lse = cotangents.lse.view();
  gradients.d_q = d_q.view();
  gradients.d_k = d_k.view();
  gradients.d_v = d_v.view();
  AttentionBackward(StoredTensor(q.stored.view()), StoredTensor(k.stored.view()),
                    StoredTensor(v.stored.view()), StoredTensor(forward.output.view()),
                    forward.lse.view(), StoredTensor(d_out.stored.view()), c.options(), gradients);
  size_t n = 0;
  for (const BFloat16 x : d_q.Elements()) {
    EXPECT_EQ(x.bits, ToBFloat16(static_cast<float>(expected["q"][n++])).bits);
  }
  n = 0;
  for (const Float16 x : d_k.Elements()) {
    EXPECT_EQ(x.bits, ToFloat16(static_cast<float>(expected["k"][n++])).bits);
  }
  n = 0;
  for (const float x : d_v.Elements()) EXPECT_EQ(static_cast<double>(x), expected["v"][n++]);
}

// A call of which one part is then made wrong.
struct Call {
  AttentionCase c = MakeCase(kSmall);
  Cotangents cotangents = MakeCotangents(c);
  Results forward = RunAttention(c);
  Buffer<float> d_q{c.q.shape(), Layout::kDense, 0.0f};
  StoredTensor out{forward.output.view()};
  TensorView<const float> lse = forward.lse.view();
  StoredTensor d_out{cotangents.output.view()};
  AttentionOptions options = c.options();
  AttentionGradients gradients{.d_q = d_q.view()};

  // "code: message"; empty when nothing is thrown.
  std::string Refusal() const {
    try {
      AttentionBackward(StoredTensor(c.q.view()), StoredTensor(c.k.view()),
                        StoredTensor(c.v.view()), out, lse, d_out, options, gradients);
    } catch (const Error& error) {
      return std::string(ErrorCodeName(error.code())) + ": " + error.what();
    }
    return "";
  }
};

void ExpectRefusal(const std::function<void(Call&)>& change, const std::string& expected) {
  Call call;
  change(call);
  EXPECT_THAT(call.Refusal(), ::testing::HasSubstr(expected));
}

TEST(GradientBoundary, AWholeCallIsAccepted) { EXPECT_EQ(Call().Refusal(), ""); }

TEST(GradientBoundary, ShapesThatDoNotFitAreRefused) {
  ExpectRefusal([](Call& c) { c.d_out.shape[2] = 4; }, "shape: d_out has shape [1, 2, 4, 5]");
  ExpectRefusal([](Call& c) { c.out.shape[3] = 4; }, "shape: out has shape [1, 2, 5, 4]");
  ExpectRefusal([](Call& c) { c.lse.shape[2] = 6; }, "shape: lse has shape [1, 2, 6, 1]");
  ExpectRefusal(
      [](Call& c) {
        c.gradients.d_lse = {c.lse.data, {1, 1, 5, 1}, c.lse.strides};
      },
      "shape: d_lse has shape [1, 1, 5, 1]");
  ExpectRefusal([](Call& c) { c.gradients.d_q.shape[1] = 1; }, "shape: d_q has shape [1, 1, 5, 3]");
}

TEST(GradientBoundary, MissingTensorsAreNamed) {
  ExpectRefusal(
      [](Call& c) {
        c.lse = {nullptr, c.lse.shape, c.lse.strides};
      },
      "option: lse is missing");
  ExpectRefusal([](Call& c) { c.out.data = nullptr; }, "option: out is missing");
  ExpectRefusal([](Call& c) { c.d_out.data = nullptr; }, "option: d_out is missing");
}

TEST(GradientBoundary, GradientsOfAbsentOptionsAreRefused) {
  static float numbers[2] = {};
  ExpectRefusal([](Call& c) { c.gradients.d_sinks = numbers; }, "option: d_sinks is given without");
  ExpectRefusal([](Call& c) { c.gradients.d_alibi_slopes = numbers; },
                "option: d_alibi_slopes is given without");
  ExpectRefusal([](Call& c) { c.gradients.d_bias = c.d_q.view(); }, "option: d_bias is given");
  ExpectRefusal(
      [](Call& c) {
        c.options.sinks = {numbers, 2};
        c.gradients.d_sinks = std::span<float>(numbers, 1);
      },
      "shape: d_sinks has 1 values, but sinks has 2");
}

TEST(GradientBoundary, GradientsThatOverlapInputsAreRefused) {
  ExpectRefusal([](Call& c) { c.gradients.d_q = c.c.q.view(); }, "shape: d_q overlaps q");
  ExpectRefusal([](Call& c) { c.gradients.d_k = StoredOutput(c.c.k.view()); },
                "shape: d_k overlaps k");
}

TEST(GradientBoundary, NormalisersWithoutLseTakeNone) {
  ExpectRefusal([](Call& c) { c.options.normalize = Normalize::kSigmoid; }, "unsupported: lse");
}

TEST(GradientBoundary, WhatHasNoGradientIsRefusedByName) {
  const auto expect = [](const std::string& name, const std::function<void(Call&)>& change) {
    ExpectRefusal(change, "unsupported: " + name);
  };
  expect("score_mod has no gradient without score_mod_slope", [](Call& c) {
    c.options.score_mod = CompileExpression("score_mod", "score * 2", ExpressionValue::kScore);
  });
  expect("prob_mod has no gradient without prob_mod_slope", [](Call& c) {
    c.options.prob_mod = CompileExpression("prob_mod", "prob", ExpressionValue::kProb);
  });
}

TEST(GradientBoundary, ScratchDoesNotGrowWithThePairs) {
  // From 4096 queries on there are 8 parts, and everything is proportional to the keys.
  const int64_t bytes = BackwardScratch(16384, {});
  EXPECT_GT(bytes, 16384 * 64 * 4);
  EXPECT_LT(bytes, 16384 * int64_t{16384} * 4 / 10);
  EXPECT_LT(BackwardScratch(32768, {}), 2 * bytes);
  EXPECT_LT(BackwardScratch(65536, {}), 4 * bytes);
}

}  // namespace
}  // namespace heed::testing
