// The Hopper kernel against the oracle: sizes, layouts, rows, sockets and poison.
#include <cmath>
#include <limits>

#include "device_case.h"
#include "gtest/gtest.h"
#include "shared_cases.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class DeviceHopper : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(NarrowTypes, DeviceHopper,
                         ::testing::Values(DType::kFloat16, DType::kBFloat16),
                         [](const auto& info) { return DTypeName(info.param); });

constexpr DeviceChoices kOnHopper = {.on_hopper = true};

void ExpectHopperMatches(const AttentionCase& c, DType dtype) {
  ExpectDeviceMatches(c, dtype, kOnHopper);
}

Sizes Small() {
  return {.batch = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .q_len = 41,
          .kv_len = 300,
          .head_dim = 24,
          .head_dim_v = 24};
}

AttentionCase Causal(int64_t q_len, int64_t kv_len) { return CausalCase(Small(), q_len, kv_len); }

TEST_P(DeviceHopper, MatchesReferenceAtEveryLength) {
  ForLengthsAroundTiles([](const AttentionCase& c) { ExpectHopperMatches(c, GetParam()); },
                        {{1, 1}, {63, 127}, {65, 129}, {1, 700}, {300, 3}, {128, 256}});
}

TEST_P(DeviceHopper, MatchesReferenceForEveryHeadDim) {
  for (const auto& [dim, dim_v] : Pairs{{8, 8},
                                        {40, 32},
                                        {64, 64},
                                        {8, 80},
                                        {96, 8},
                                        {128, 128},
                                        {136, 8},
                                        {192, 128},
                                        {192, 136},
                                        {8, 256},
                                        {200, 64},
                                        {256, 256}}) {
    ExpectHopperMatches(OneHeadCase(70, 270, dim, dim_v), GetParam());
  }
}

TEST_P(DeviceHopper, QueryHeadsShareKvHeads) {
  ForSharedKvHeads([](const AttentionCase& c) { ExpectHopperMatches(c, GetParam()); }, Small(),
                   {{6, 1}, {14, 2}, {3, 3}});
}

// A group has 64 packed rows of an item: the last groups may have few, or none. The kernels of 64
// columns are those of most groups.
TEST_P(DeviceHopper, GroupsHaveFewRowsOrNone) {
  for (const int64_t rows : {1, 64, 65, 128, 129, 191, 192, 193}) {
    AttentionCase c = OneHeadCase(rows, 260, 16, 16);
    ExpectHopperMatches(c, GetParam());
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::At(70);
    ExpectHopperMatches(c, GetParam());
    c.scalars.softcap = 3.0;
    ExpectHopperMatches(c, GetParam());
  }
}

// Groups of an item whose rows see different keys have the same tiles.
TEST_P(DeviceHopper, GroupsOfAnItemSeeDifferentTiles) {
  for (const int64_t dim : {24, 128}) {
    Sizes sizes = Small();
    sizes.head_dim = sizes.head_dim_v = dim;
    AttentionCase c = CausalCase(sizes, 200, 400);
    c.key_lengths = {400, 90};
    ExpectHopperMatches(c, GetParam());
    c = MakeCase(c.sizes);
    c.scalars.query_offset = QueryOffset::At(0);
    c.key_lengths.assign(400, 0);  // [2, 200], two packed rows each
    for (size_t query = 32; query < 64; ++query) c.key_lengths[query] = 390;
    for (size_t query = 96; query < 400; ++query)
      c.key_lengths[query] = static_cast<int32_t>(query);
    ExpectHopperMatches(c, GetParam());
    c.alibi_slopes = AlibiSlopes(4);
    for (const int64_t j : {40, 380}) c.v(0, 0, j, 3) = kNan;
    ExpectHopperMatches(c, GetParam());
  }
}

// Groups let tiles pass of which they see nothing: before their own, behind them, all of them. What
// is not finite there is none of their business, and must not keep the others waiting.
TEST_P(DeviceHopper, GroupsPassTilesOfWhichTheySeeNothing) {
  for (const int64_t dim : {64, 128, 256}) {
    for (const bool poisoned : {false, true}) {
      AttentionCase c = OneHeadCase(270, 800, dim, dim);
      if (poisoned) {
        for (const int64_t j : {60, 200, 333, 400, 431, 560}) c.v(0, 0, j, j % 64) = kNan;
      }
      c.scalars.window = {.left = 20, .right = 5};
      c.scalars.query_offset = QueryOffset::At(300);
      ExpectHopperMatches(c, GetParam());
      c.scalars.window = {.left = 300, .right = 0};
      ExpectHopperMatches(c, GetParam());
      c.scalars.query_offset = QueryOffset::At(-100);  // rows without keys
      ExpectHopperMatches(c, GetParam());
      c.scalars.window = {.left = 0, .right = 130};
      c.prefix_lengths = {256};
      ExpectHopperMatches(c, GetParam());
    }
  }
}

// A block takes several items, with nothing hidden: no barrier of masks is between them.
TEST_P(DeviceHopper, ItemsOfWholeTilesFollowOneAnother) {
  for (const int64_t dim : {64, 128, 256}) {
    Sizes sizes = Small();
    sizes.q_len = 384, sizes.kv_len = 256;
    sizes.head_dim = sizes.head_dim_v = dim;
    ExpectHopperMatches(MakeCase(sizes), GetParam());
  }
}

TEST_P(DeviceHopper, TakesLayoutsOfAscendingStrides) {
  ForLayoutsOfAscendingStrides(Small(), [](const AttentionCase& c, Layout layout) {
    ExpectDeviceMatches(c, GetParam(), {.layout = layout, .on_hopper = true});
  });
}

TEST_P(DeviceHopper, CausalWithAnyOffset) {
  ForCausalOffsets(Small(), [](const AttentionCase& c) { ExpectHopperMatches(c, GetParam()); });
}

TEST_P(DeviceHopper, WindowsOfEverySide) {
  ForWindowsOfEverySide(Small(),
                        [](const AttentionCase& c) { ExpectHopperMatches(c, GetParam()); });
}

TEST_P(DeviceHopper, LengthsOfBatchesAndOfQueries) {
  ForLengths(Small(), [](const AttentionCase& c) { ExpectHopperMatches(c, GetParam()); });
}

TEST_P(DeviceHopper, ModifiersTogetherAndAlone) {
  ForModifiers(Causal(41, 300), [](const AttentionCase& c) { ExpectHopperMatches(c, GetParam()); });
}

// As large as the kernel takes them: keys beside a row's position outweigh all others.
TEST_P(DeviceHopper, LargeSlopesOfAlibi) {
  for (const bool causal : {true, false}) {
    AttentionCase c = Causal(70, 300);
    c.scalars.causal = causal;
    c.alibi_slopes = {16, -16, 0.01f, 4};
    ExpectHopperMatches(c, GetParam());
    c.scalars.softcap = 3.0;
    ExpectHopperMatches(c, GetParam());
  }
}

// They bend nothing, and cost no precision.
TEST_P(DeviceHopper, LargeSoftcaps) {
  for (const double softcap : {1e4, 1e6, 1e8}) {
    AttentionCase c = MakeCase(Small());
    c.scalars.softcap = softcap;
    ExpectHopperMatches(c, GetParam());
  }
}

// Of the kernels for more than 128 columns, which have tiles of other sizes.
std::vector<Sizes> WideSizes() {
  Sizes latent = Small(), wide = Small();  // latent attention has keys wider than its values
  latent.head_dim = 192, latent.head_dim_v = 128;
  wide.head_dim = wide.head_dim_v = 256;
  return {latent, wide};
}

TEST_P(DeviceHopper, WideColumnsTakeEverySocket) {
  for (const Sizes& sizes : WideSizes()) {
    AttentionCase c = CausalCase(sizes, 150, 300);
    c.key_lengths = {300, 170};
    ExpectHopperMatches(c, GetParam());
    c.scalars.window = {.left = 90, .right = 20};
    c.scalars.softcap = 3.0;
    c.alibi_slopes = AlibiSlopes(4);
    c.sinks = {0, -kInf, 2, 30};
    ExpectHopperMatches(c, GetParam());
    c.key_lengths = {0, 1};
    c.scalars.normalize = Normalize::kSoftmax1;
    c.sinks.clear();
    ExpectHopperMatches(c, GetParam());
  }
}

TEST_P(DeviceHopper, WideColumnsKeepPoisonOut) {
  for (const Sizes& sizes : WideSizes()) {
    for (const int64_t column : {3, 127}) {
      AttentionCase c = CausalCase(sizes, 150, 150);
      for (const int64_t j : {40, 63, 64, 130}) c.v(1, 0, j, column) = j == 64 ? kInf : kNan;
      c.k(0, 1, 100, 120) = kNan;
      ExpectHopperMatches(c, GetParam());
    }
  }
}

TEST_P(DeviceHopper, HugeScoresAndUnderflow) {
  AttentionCase c = MakeCase(Small());
  c.scalars.scale = 60.0;
  ExpectHopperMatches(c, GetParam());
}

void PoisonKey(AttentionCase& c, int64_t b, int64_t j, float poison) {
  for (int64_t h = 0; h < c.sizes.num_kv_heads; ++h) {
    c.k(b, h, j, j % c.sizes.head_dim) = poison;
    c.v(b, h, j, j % c.sizes.head_dim_v) = poison;
  }
}

TEST_P(DeviceHopper, KeysBeyondTheLengthMayBeAnything) {
  for (const float poison : {kNan, kInf, -kInf}) {
    AttentionCase c = MakeCase(Small());
    c.key_lengths = {70, 290};
    AttentionCase poisoned = c;
    for (int64_t j = 70; j < 300; ++j) PoisonKey(poisoned, 0, j, poison);
    for (int64_t j = 290; j < 300; ++j) PoisonKey(poisoned, 1, j, poison);
    const Results expected = RunDevice(c, GetParam(), kOnHopper);
    const Results actual = RunDevice(poisoned, GetParam(), kOnHopper);
    EXPECT_EQ(Bits(expected.output), Bits(actual.output));
    EXPECT_EQ(Bits(expected.lse), Bits(actual.lse));
    ExpectWithinDeviceBounds(poisoned, GetParam(), actual);
  }
}

TEST_P(DeviceHopper, FutureKeysReachOnlyTheRowsThatSeeThem) {
  for (const float poison : {kNan, kInf}) {
    for (const bool in_values : {false, true}) {
      AttentionCase c = Causal(150, 150);
      for (const int64_t j : {40, 130}) (in_values ? c.v : c.k)(1, 0, j, 3) = poison;
      ExpectHopperMatches(c, GetParam());
    }
  }
}

TEST_P(DeviceHopper, PoisonedQueriesLoseTheirRowAlone) {
  AttentionCase c = MakeCase(Small());
  c.q(0, 1, 7, 5) = kNan;
  c.q(1, 3, 40, 0) = kInf;
  ExpectHopperMatches(c, GetParam());
}

}  // namespace
}  // namespace heed::testing
