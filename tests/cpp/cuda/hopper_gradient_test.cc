// The gradient kernels for Hopper: sizes, layouts, rows, sockets, poison, and the same bits however
// many blocks run.
#include <limits>

#include "device_case.h"
#include "device_gradient_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "shared_cases.h"

namespace heed::testing {
namespace {

using ::testing::Each;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class DeviceHopperGradient : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(NarrowTypes, DeviceHopperGradient,
                         ::testing::Values(DType::kFloat16, DType::kBFloat16),
                         [](const auto& info) { return DTypeName(info.param); });

constexpr GradientChoices kOnHopper = {.on_hopper = true};

void ExpectHopperMatches(const AttentionCase& c, DType dtype, double size = 16) {
  ExpectDeviceGradientsMatchCpu(c, dtype, kOnHopper, size);
}

// More rows and keys than a tile, tails of both, two blocks of keys.
Sizes Several() {
  return {.batch = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .q_len = 70,
          .kv_len = 150,
          .head_dim = 24,
          .head_dim_v = 16};
}

TEST_P(DeviceHopperGradient, MatchesReferenceElementByElement) {
  Sizes sizes = kGradientSizes;
  sizes.head_dim = sizes.head_dim_v = 8;
  ExpectDeviceGradientsMatch(MakeCase(sizes), GetParam(), kOnHopper);
  sizes.q_len = 19;
  sizes.kv_len = 13;
  AttentionCase c = MakeCase(sizes);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(2);
  c.scalars.softcap = 3.0;
  c.scalars.scale = 0.7;
  c.alibi_slopes = {0.5f, 0.25f, 0.125f, 1};
  c.sinks = {0, -3, 2, 30};
  ExpectDeviceGradientsMatch(c, GetParam(), kOnHopper);
}

TEST_P(DeviceHopperGradient, MatchesCpuAtEveryLength) {
  ForLengthsAroundTiles(
      [](const AttentionCase& c) { ExpectHopperMatches(c, GetParam()); },
      {{1, 1}, {47, 79}, {49, 81}, {1, 300}, {300, 3}, {128, 160}, {129, 129}, {96, 256}});
}

TEST_P(DeviceHopperGradient, MatchesCpuForEveryHeadDim) {
  for (const auto& [dim, dim_v] : Pairs{{8, 8}, {40, 32}, {64, 64}, {8, 80}, {96, 8}, {128, 128}}) {
    ExpectHopperMatches(OneHeadCase(70, 130, dim, dim_v), GetParam());
  }
}

TEST_P(DeviceHopperGradient, QueryHeadsShareKvHeads) {
  ForSharedKvHeads([](const AttentionCase& c) { ExpectHopperMatches(c, GetParam()); }, Several());
}

TEST_P(DeviceHopperGradient, TakesLayoutsOfAscendingStrides) {
  ForLayoutsOfAscendingStrides(Several(), [](const AttentionCase& c, Layout layout) {
    ExpectDeviceGradientsMatchCpu(c, GetParam(), {.layout = layout, .on_hopper = true});
  });
}

TEST_P(DeviceHopperGradient, CausalWithAnyOffset) {
  ForCausalOffsets(Several(), [](const AttentionCase& c) { ExpectHopperMatches(c, GetParam()); });
}

TEST_P(DeviceHopperGradient, WindowsOfEverySide) {
  ForWindowsOfEverySide(Several(),
                        [](const AttentionCase& c) { ExpectHopperMatches(c, GetParam()); });
}

TEST_P(DeviceHopperGradient, LengthsOfBatchesAndOfQueries) {
  ForLengths(Several(), [](const AttentionCase& c) { ExpectHopperMatches(c, GetParam()); });
}

TEST_P(DeviceHopperGradient, LengthsMayLieOnTheDevice) {
  AttentionCase c = CausalCase(Several(), 70, 150);
  c.key_lengths = {150, 60};
  ExpectDeviceGradientsMatchCpu(c, GetParam(), {.arrays_on_device = true, .on_hopper = true});
}

TEST_P(DeviceHopperGradient, ModifiersTogetherAndAlone) {
  ForModifiers(CausalCase(Several(), 70, 150),
               [](const AttentionCase& c) { ExpectHopperMatches(c, GetParam()); });
}

// 128 columns, where tiles have two panels.
TEST_P(DeviceHopperGradient, WideColumnsTakeEverySocket) {
  Sizes sizes = Several();
  sizes.head_dim = sizes.head_dim_v = 128;
  AttentionCase c = CausalCase(sizes, 150, 300);
  c.key_lengths = {300, 170};
  ExpectHopperMatches(c, GetParam());
  c.scalars.window = {.left = 90, .right = 20};
  c.scalars.softcap = 3.0;
  c.alibi_slopes = AlibiSlopes(4);
  c.sinks = {0, -kInf, 2, 30};
  ExpectHopperMatches(c, GetParam());
}

TEST_P(DeviceHopperGradient, LargeScores) {
  AttentionCase c = MakeCase(Several());
  c.scalars.scale = 4.0;
  ExpectHopperMatches(c, GetParam(), 128);
}

TEST_P(DeviceHopperGradient, BitsAreTheSameForAnyNumberOfBlocks) {
  AttentionCase c = CausalCase(Several(), 150, 300);
  c.alibi_slopes = AlibiSlopes(4);
  Cotangents cotangents = MakeCotangents(c);
  const Values expected = RunDeviceBackward(c, cotangents, GetParam(), kOnHopper);
  for (const int64_t blocks : {1, 3, 100}) {
    EXPECT_EQ(
        RunDeviceBackward(c, cotangents, GetParam(), {.on_hopper = true, .hopper_blocks = blocks}),
        expected)
        << blocks;
  }
}

TEST_P(DeviceHopperGradient, EmptyRowsGiveZeros) {
  AttentionCase c = MakeCase(Several());
  c.key_lengths = {0, 0};
  c.sinks = {1, 2, 3, 4};
  Cotangents cotangents = MakeCotangents(c);
  cotangents.output(0, 0, 0, 0) = kNan;
  cotangents.lse(0, 0, 0, 0) = kInf;
  for (const auto& [name, gradient] : RunDeviceBackward(c, cotangents, GetParam(), kOnHopper)) {
    EXPECT_THAT(gradient, Each(0.0)) << name;
  }
}

// Row 48, the only one of its tile, has scores of -infinity in one of two heads. That is as if
// nothing arrived there, and the other head keeps its share.
TEST_P(DeviceHopperGradient, ARowWithoutAWeightHidesNoOtherHead) {
  for (const int64_t head : {0, 1}) {
    AttentionCase c = MakeCase({.num_heads = 2,
                                .num_kv_heads = 1,
                                .q_len = 49,
                                .kv_len = 5,
                                .head_dim = 8,
                                .head_dim_v = 8});
    for (int64_t j = 0; j < 5; ++j) c.k(0, 0, j, 0) = 1;
    Cotangents cotangents = MakeCotangents(c);
    for (int64_t d = 0; d < 8; ++d) cotangents.output(0, head, 48, d) = 0;
    cotangents.lse(0, head, 48, 0) = 0;
    const Values expected = RunDeviceBackward(c, cotangents, GetParam(), kOnHopper);
    c.q(0, head, 48, 0) = -kInf;
    EXPECT_EQ(RunDeviceBackward(c, cotangents, GetParam(), kOnHopper), expected);
    ExpectPoisonReachesAsOnCpu(c, cotangents, GetParam(), kOnHopper);
  }
}

TEST_P(DeviceHopperGradient, WhatIsHiddenCannotMatter) {
  for (const int64_t dim : {16, 128}) {
    Sizes sizes = Several();
    sizes.head_dim = sizes.head_dim_v = dim;
    AttentionCase c = MakeCase(sizes);
    for (int i = 0; i < 2 * 70; ++i) {
      c.key_lengths.push_back(i == 70 + 9 ? 0 : i < 70 ? 37 : 70);  // a query that sees nothing
    }
    Cotangents cotangents = MakeCotangents(c);
    const Values expected = RunDeviceBackward(c, cotangents, GetParam(), kOnHopper);
    for (int64_t h = 0; h < 2; ++h) {
      c.k(0, h, 37, 2) = c.k(1, h, 140, 3) = kNan;
      c.v(1, h, 149, dim - 1) = c.v(1, h, 70, 0) = -kInf;
    }
    c.q(1, 3, 9, 3) = kNan;
    c.q(1, 2, 9, dim - 1) = kInf;
    cotangents.output(1, 2, 9, 3) = kInf;
    cotangents.output(1, 1, 9, dim - 1) = kNan;
    EXPECT_EQ(RunDeviceBackward(c, cotangents, GetParam(), kOnHopper), expected);
  }
}

TEST_P(DeviceHopperGradient, PoisonReachesWhatSeesIt) {
  AttentionCase c = CausalCase(Several(), 70, 150);
  const Cotangents cotangents = MakeCotangents(c);
  const auto expect = [&](const auto& poison) {
    AttentionCase poisoned = c;
    Cotangents arriving = cotangents;
    poison(poisoned, arriving);
    ExpectPoisonReachesAsOnCpu(poisoned, arriving, GetParam(), kOnHopper);
  };
  expect([](AttentionCase& a, Cotangents&) { a.q(0, 1, 7, 3) = kNan; });
  expect([](AttentionCase& a, Cotangents&) { a.k(1, 1, 130, 3) = kNan; });
  expect([](AttentionCase& a, Cotangents&) { a.k(1, 1, 20, 23) = kNan; });
  expect([](AttentionCase& a, Cotangents&) { a.v(0, 0, 140, 3) = kNan; });
  expect([](AttentionCase& a, Cotangents&) { a.v(0, 0, 120, 3) = kInf; });
  expect([](AttentionCase&, Cotangents& arriving) { arriving.output(1, 2, 20, 0) = kNan; });
  expect([](AttentionCase&, Cotangents& arriving) { arriving.output(1, 2, 69, 15) = kInf; });
  expect([](AttentionCase&, Cotangents& arriving) { arriving.lse(0, 3, 40, 0) = kNan; });
}

// Where softcap has slope 0.
TEST_P(DeviceHopperGradient, InfiniteKeysReachWhatSeesThemThroughSoftcap) {
  AttentionCase c = CausalCase(Several(), 70, 150);
  c.scalars.softcap = 3.0;
  const Cotangents cotangents = MakeCotangents(c);
  for (const int64_t key : {20, 130}) {
    for (const float infinity : {kInf, -kInf}) {
      AttentionCase poisoned = c;
      poisoned.k(1, 1, key, 3) = infinity;
      ExpectPoisonReachesAsOnCpu(poisoned, cotangents, GetParam(), kOnHopper);
    }
  }
}

}  // namespace
}  // namespace heed::testing
