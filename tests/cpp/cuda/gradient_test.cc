// Attention backwards on the device path: sizes, layouts, every option it takes, what cannot
// matter, and what is refused.
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "device_case.h"
#include "device_gradient_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "shared_cases.h"

namespace heed::testing {
namespace {

using ::testing::Each;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

class DeviceGradient : public OnDevice {};
HEED_IN_EVERY_TYPE(DeviceGradient);

TEST_P(DeviceGradient, MatchesReferenceElementByElement) {
  ExpectDeviceGradientsMatch(MakeCase(kGradientSizes), GetParam());
  Sizes sizes = kGradientSizes;
  sizes.q_len = 19;
  sizes.kv_len = 13;
  AttentionCase c = MakeCase(sizes);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(2);
  c.scalars.softcap = 3.0;
  c.scalars.scale = -0.7;
  c.alibi_slopes = {0.5f, 0.25f, 0.125f, 1};
  c.sinks = {0, -3, 2, 30};
  Random random(6);
  c.bias = MakeBias({1, 4, 19, 13}, random);
  ExpectDeviceGradientsMatch(c, GetParam());
}

TEST_P(DeviceGradient, MatchesCpuAtEveryLength) {
  ForLengthsAroundTiles(
      [](const AttentionCase& c) { ExpectDeviceGradientsMatchCpu(c, GetParam()); });
}

TEST_P(DeviceGradient, MatchesCpuForEveryHeadDim) {
  ForEveryHeadDim([](const AttentionCase& c) { ExpectDeviceGradientsMatchCpu(c, GetParam()); });
}

TEST_P(DeviceGradient, QueryHeadsShareKvHeads) {
  ForSharedKvHeads([](const AttentionCase& c) { ExpectDeviceGradientsMatchCpu(c, GetParam()); },
                   SeveralSizes());
}

TEST_P(DeviceGradient, TakesEveryLayoutAndTypeOfOutput) {
  for (const Layout layout : {Layout::kBlhd, Layout::kPadded, Layout::kReversed}) {
    Sizes sizes = SeveralSizes();
    sizes.head_dim = sizes.head_dim_v = 32;
    AttentionCase c = MakeCase(sizes, 5, layout);
    c.output_layout = layout;
    ExpectDeviceGradientsMatchCpu(c, GetParam(), {.layout = layout});
  }
  // An output of two bytes makes D as wrong as itself, in the same way here and there.
  AttentionCase c = MakeCase(SeveralSizes());
  Cotangents cotangents = MakeCotangents(c);
  const Values rounded =
      RunDeviceBackward(c, cotangents, DType::kFloat32, {.out_type = DType::kFloat16});
  const Values exact = RunDeviceBackward(c, cotangents, DType::kFloat32);
  EXPECT_EQ(rounded.at("v"), exact.at("v"));
  for (size_t n = 0; n < exact.at("q").size(); ++n) {
    EXPECT_NEAR(rounded.at("q")[n], exact.at("q")[n], 0.02);
  }
}

TEST_P(DeviceGradient, CausalWithAnyOffset) {
  ForCausalOffsets(SeveralSizes(),
                   [](const AttentionCase& c) { ExpectDeviceGradientsMatchCpu(c, GetParam()); });
}

TEST_P(DeviceGradient, WindowsOfEverySide) {
  ForWindowsOfEverySide(
      SeveralSizes(), [](const AttentionCase& c) { ExpectDeviceGradientsMatchCpu(c, GetParam()); });
}

TEST_P(DeviceGradient, LengthsOfBatchesAndOfQueries) {
  ForLengths(SeveralSizes(),
             [](const AttentionCase& c) { ExpectDeviceGradientsMatchCpu(c, GetParam()); });
}

TEST_P(DeviceGradient, PrefixesAndDocuments) {
  AttentionCase c = MakeCase(SeveralSizes());
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(10);
  c.prefix_lengths = {30, 0};
  ExpectDeviceGradientsMatchCpu(c, GetParam());
  c = MakeCase(SeveralSizes());
  for (int i = 0; i < 2 * 41; ++i) c.query_documents.push_back(i < 41 ? 1 + i / 20 : 7 - i % 3);
  for (int j = 0; j < 2 * 150; ++j) c.key_documents.push_back(j < 75 ? -1 : j < 140 ? 2 : j % 9);
  ExpectDeviceGradientsMatchCpu(c, GetParam());
}

TEST_P(DeviceGradient, ArraysMayLieOnTheDevice) {
  AttentionCase c = CausalCase(SeveralSizes(), 41, 150);
  c.key_lengths = {150, 60};
  c.query_documents.assign(41, 1);
  c.key_documents.assign(150, 1);
  c.key_documents[3] = c.key_documents[149] = 2;
  ExpectDeviceGradientsMatchCpu(c, GetParam(), {.arrays_on_device = true});
}

TEST_P(DeviceGradient, PatternsAreThoseOfTheCpu) {
  Sizes sizes = SeveralSizes();
  sizes.q_len = sizes.kv_len = 150;
  AttentionCase c = MakeCase(sizes);
  c.scalars.patterns = {Longformer{.reach = 3, .dilation = {1, 5, 1, 2}, .global_tokens = {149}}};
  ExpectDeviceGradientsMatchCpu(c, GetParam());
  c.scalars.patterns = {BigBird{.block_size = 20, .window_blocks = 1, .random_blocks = 1}};
  c.scalars.causal = true;
  ExpectDeviceGradientsMatchCpu(c, GetParam());
}

TEST_P(DeviceGradient, KeepAndBiasBroadcastAlongEveryAxis) {
  Random random(6);
  for (const Extents& shape : {Extents{2, 4, 41, 150}, Extents{1, 4, 1, 150}, Extents{2, 1, 41, 1},
                               Extents{1, 1, 41, 150}, Extents{1, 1, 1, 1}}) {
    AttentionCase c = MakeCase(SeveralSizes());
    c.bias = MakeBias(shape, random, 0.2, Layout::kPadded);
    ExpectDeviceGradientsMatchCpu(c, GetParam());
    c.keep = MakeKeep(shape, random, 0.6, Layout::kPadded);
    c.output_layout = Layout::kPadded;
    ExpectDeviceGradientsMatchCpu(c, GetParam());
  }
}

TEST_P(DeviceGradient, ModifiersTogether) {
  AttentionCase c = CausalCase(SeveralSizes(), 41, 150);
  c.scalars.softcap = 3.0;
  c.scalars.scale = -0.7;
  c.alibi_slopes = AlibiSlopes(4);
  c.sinks = {0, -4, 2, 5};
  ExpectDeviceGradientsMatchCpu(c, GetParam());
  Random random(7);
  c.bias = MakeBias({1, 4, 41, 150}, random);
  c.scalars.normalize = Normalize::kSoftmax1;
  c.sinks.clear();
  ExpectDeviceGradientsMatchCpu(c, GetParam());
}

TEST_P(DeviceGradient, DropoutHasTheBitsOfTheCpu) {
  AttentionCase c = CausalCase(SeveralSizes(), 41, 150);
  c.scalars.dropout = {.p = 0.4, .seed = 0x123456789abcdefu};
  ExpectDeviceGradientsMatchCpu(c, GetParam());
}

TEST_P(DeviceGradient, LargeScores) {
  AttentionCase c = MakeCase(SeveralSizes());
  c.scalars.scale = 4.0;
  ExpectDeviceGradientsMatchCpu(c, GetParam(), {}, 128);
}

TEST_P(DeviceGradient, EmptyRowsGiveZeros) {
  AttentionCase c = MakeCase(kGradientSizes);
  c.key_lengths = {0, 0};
  c.sinks = {1, 2, 3, 4};
  c.alibi_slopes = AlibiSlopes(4);
  c.scalars.query_offset = QueryOffset::At(0);
  Random random(6);
  c.bias = MakeBias({1, 4, 5, 1}, random);
  Cotangents cotangents = MakeCotangents(c);
  cotangents.output(0, 0, 0, 0) = kNan;
  cotangents.lse(0, 0, 0, 0) = kInf;
  for (const auto& [name, gradient] : RunDeviceBackward(c, cotangents, GetParam())) {
    EXPECT_THAT(gradient, Each(0.0)) << name;
  }
}

TEST_P(DeviceGradient, WhatIsHiddenCannotMatter) {
  AttentionCase c = MakeCase(SeveralSizes());
  c.key_lengths = {37, 70};
  Random random(6);
  c.keep = MakeKeep({2, 4, 41, 150}, random, 0.6);
  for (int64_t h = 0; h < 4; ++h) {
    for (int64_t i = 0; i < 41; ++i) c.keep(0, h, i, 5) = 0;   // nobody sees key 5
    for (int64_t j = 0; j < 150; ++j) c.keep(1, h, 9, j) = 0;  // query 9 sees nothing
  }
  Cotangents cotangents = MakeCotangents(c);
  const Values expected = RunDeviceBackward(c, cotangents, GetParam());
  for (int64_t h = 0; h < 2; ++h) {
    c.k(0, h, 5, 1) = c.v(0, h, 5, 0) = c.k(0, h, 37, 2) = kNan;
    c.v(1, h, 149, 19) = c.v(1, h, 70, 0) = -kInf;
  }
  c.q(1, 3, 9, 3) = kNan;
  cotangents.output(1, 2, 9, 3) = kInf;
  EXPECT_EQ(RunDeviceBackward(c, cotangents, GetParam()), expected);
}

TEST_P(DeviceGradient, PoisonReachesWhatSeesIt) {
  AttentionCase c = CausalCase(SeveralSizes(), 41, 150);
  const Cotangents cotangents = MakeCotangents(c);
  const auto expect = [&](const auto& poison) {
    AttentionCase poisoned = c;
    Cotangents arriving = cotangents;
    poison(poisoned, arriving);
    ExpectPoisonReachesAsOnCpu(poisoned, arriving, GetParam());
  };
  expect([](AttentionCase& a, Cotangents&) { a.q(0, 1, 7, 3) = kNan; });
  expect([](AttentionCase& a, Cotangents&) { a.k(1, 1, 130, 3) = kNan; });
  expect([](AttentionCase& a, Cotangents&) { a.v(0, 0, 140, 3) = kNan; });
  expect([](AttentionCase& a, Cotangents&) { a.v(0, 0, 120, 3) = kInf; });
  expect([](AttentionCase&, Cotangents& arriving) { arriving.output(1, 2, 20, 0) = kNan; });
  expect([](AttentionCase&, Cotangents& arriving) { arriving.output(1, 2, 20, 0) = kInf; });
  expect([](AttentionCase&, Cotangents& arriving) { arriving.lse(0, 3, 40, 0) = kNan; });
}

TEST_P(DeviceGradient, NothingToDoIsNotAnError) {
  for (const Sizes& sizes : {Sizes{.batch = 0}, Sizes{.q_len = 0}, Sizes{.kv_len = 0},
                             Sizes{.num_heads = 0, .num_kv_heads = 0}, Sizes{.head_dim_v = 0}}) {
    AttentionCase c = MakeCase(sizes);
    Cotangents cotangents = MakeCotangents(c);
    for (const auto& [name, gradient] : RunDeviceBackward(c, cotangents, GetParam())) {
      EXPECT_TRUE(gradient.empty() || c.sizes.head_dim_v == 0 ||
                  gradient == std::vector<double>(gradient.size(), 0.0))
          << name << ": " << c.Describe();
    }
  }
}

// A call in float32 that wants nothing yet.
struct FloatCall {
  AttentionCase c = MakeCase(SeveralSizes());
  Cotangents cotangents = MakeCotangents(c);
  Results forward = RunAttention(c);
  DeviceGradientCall call;

  FloatCall() {
    call.q = StoredTensor(std::as_const(c.q).view());
    call.k = StoredTensor(std::as_const(c.k).view());
    call.v = StoredTensor(std::as_const(c.v).view());
    call.out = StoredTensor(std::as_const(forward.output).view());
    call.lse = std::as_const(forward.lse).view();
    call.d_out = StoredTensor(std::as_const(cotangents.output).view());
    call.options = c.options();
    call.gradients.d_lse = std::as_const(cotangents.lse).view();
  }
};

TEST_P(DeviceGradient, OnlyWhatIsWantedIsWritten) {
  FloatCall f;
  const Values all = RunDeviceBackward(f.c, f.cotangents, DType::kFloat32);
  Buffer<float> d_v(f.c.v.shape(), Layout::kDense, kNan);
  f.call.gradients.d_v = d_v.view();
  EXPECT_EQ(RunGradientOnDevice(f.call), "");
  const auto elements = d_v.Elements();
  EXPECT_EQ(std::vector<double>(elements.begin(), elements.end()), all.at("v"));
}

TEST_P(DeviceGradient, BadLengthsOnTheDeviceAreReported) {
  FloatCall f;
  Buffer<float> d_q(f.c.q.shape(), Layout::kDense, kNan);
  f.call.gradients.d_q = d_q.view();
  f.call.key_lengths = {150, 151};
  EXPECT_THAT(RunGradientOnDevice(f.call), ::testing::HasSubstr("key_lengths"));
}

}  // namespace
}  // namespace heed::testing
