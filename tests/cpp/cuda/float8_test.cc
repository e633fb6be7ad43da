// Attention of float8_e4m3 tensors: on Hopper, where they are multiplied as they are, and on the
// base path. Numbers are rounded first; the oracle takes what they stand for.
#include <cmath>
#include <limits>
#include <vector>

#include "device_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quantised_buffer.h"
#include "shared_cases.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr DType kFloat8 = DType::kFloat8E4M3;

// Both suites are one for each type of the output.
class DeviceFloat8 : public OnDevice {};
HEED_IN_EVERY_TYPE(DeviceFloat8);
class DeviceHopperFloat8 : public OnDevice {
 protected:
  static DeviceChoices OnHopper() { return {.on_hopper = true, .output = GetParam()}; }
  static void ExpectMatches(const AttentionCase& c) { ExpectDeviceMatches(c, kFloat8, OnHopper()); }
  static void ExpectMatchesExactly(const AttentionCase& c) {
    DeviceChoices choices = OnHopper();
    choices.exact_weights = true;
    ExpectDeviceMatches(c, kFloat8, choices);
  }
};
HEED_IN_EVERY_TYPE(DeviceHopperFloat8);

Sizes Small() {
  return {.batch = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .q_len = 41,
          .kv_len = 300,
          .head_dim = 32,
          .head_dim_v = 32};
}

// Scores are whole multiples of log 2, from -8 to 0, so that every weight is a power of two and no
// rounding of weights hides what else is wrong.
void MakeWeightsExact(AttentionCase& c) {
  Random random(9);
  c.q.ForEach([&](int64_t, int64_t, int64_t, int64_t d, float& x) {
    x = static_cast<float>(random.Integer(0, 1)) * (d % 3 == 0 ? 1.0f : -1.0f);
  });
  c.k.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = 0; });
  const int dim = static_cast<int>(c.sizes.head_dim);
  c.k.ForEach([&](int64_t b, int64_t h, int64_t j, int64_t d, float&) {
    if (d >= 8) return;
    const int64_t at = random.Integer(0, dim - 1);
    c.k(b, h, j, at) = at % 3 == 0 ? -1.0f : 1.0f;
  });
  c.scalars.scale = std::log(2.0);
}

AttentionCase Exact(AttentionCase c) {
  MakeWeightsExact(c);
  return c;
}

TEST_P(DeviceHopperFloat8, MatchesReferenceAtEveryLength) {
  for (const auto& [q_len, kv_len] :
       Pairs{{1, 1}, {63, 127}, {65, 129}, {1, 700}, {300, 3}, {128, 256}}) {
    const AttentionCase c = OneHeadCase(q_len, kv_len, 16, 16);
    ExpectMatches(c);
    ExpectMatchesExactly(Exact(c));
  }
}

TEST_P(DeviceHopperFloat8, MatchesReferenceForEveryHeadDim) {
  for (const auto& [dim, dim_v] : Pairs{{16, 16},
                                        {48, 32},
                                        {64, 64},
                                        {32, 80},
                                        {96, 16},
                                        {128, 128},
                                        {80, 112},
                                        {144, 128},
                                        {192, 64},
                                        {192, 128},
                                        {208, 96},
                                        {64, 208},
                                        {256, 256}}) {
    const AttentionCase c = OneHeadCase(70, 270, dim, dim_v);
    ExpectMatches(c);
    ExpectMatchesExactly(Exact(c));
  }
}

// Tiles of 128 keys are taken in two parts there: what rows see begins and ends in either.
TEST_P(DeviceHopperFloat8, PartsOfTilesOf256Columns) {
  Sizes sizes = Small();
  sizes.batch = 1;
  sizes.head_dim = sizes.head_dim_v = 256;
  for (const auto& [q_len, kv_len] : Pairs{{3, 64}, {70, 65}, {41, 191}, {130, 193}, {7, 320}}) {
    ExpectMatchesExactly(Exact(OneHeadCase(q_len, kv_len, 256, 256)));
    ExpectMatchesExactly(Exact(CausalCase(sizes, q_len, kv_len)));
  }
  AttentionCase c = MakeCase(sizes);
  for (const int32_t length : {1, 63, 64, 65, 128, 200}) {
    c.key_lengths = {length};
    ExpectMatchesExactly(Exact(c));
  }
}

// Tiles of which a group sees nothing, before and behind its own.
TEST_P(DeviceHopperFloat8, GroupsPassTilesOfWhichTheySeeNothing) {
  for (const int64_t dim : {64, 256}) {
    AttentionCase c = OneHeadCase(270, 800, dim, dim);
    c.scalars.window = {.left = 20, .right = 5};
    c.scalars.query_offset = QueryOffset::At(300);
    for (const int64_t j : {333, 400, 431}) c.v(0, 0, j, j % 64) = std::nanf("");
    ExpectMatches(c);
    ExpectMatches(OneHeadCase(65, 300, dim, dim));
  }
}

TEST_P(DeviceHopperFloat8, QueryHeadsShareKvHeads) {
  ForSharedKvHeads([](const AttentionCase& c) { ExpectMatchesExactly(Exact(c)); }, Small(),
                   {{6, 1}, {14, 2}, {3, 3}});
}

TEST_P(DeviceHopperFloat8, TakesLayoutsOfAscendingStrides) {
  ForLayoutsOfAscendingStrides(Small(), [](const AttentionCase& c, Layout layout) {
    DeviceChoices choices = OnHopper();
    choices.layout = layout;
    choices.exact_weights = true;
    ExpectDeviceMatches(Exact(c), kFloat8, choices);
  });
}

TEST_P(DeviceHopperFloat8, EverySocketOfWhatRowsSee) {
  const auto expect = [](const AttentionCase& c) { ExpectMatchesExactly(Exact(c)); };
  ForCausalOffsets(Small(), expect);
  ForWindowsOfEverySide(Small(), expect);
  ForLengths(Small(), expect);
}

TEST_P(DeviceHopperFloat8, ModifiersTogetherAndAlone) {
  AttentionCase c = CausalCase(Small(), 41, 300);
  ForModifiers(c, ExpectMatches);
  c.sinks = {0, -kInf, 2, 30};
  ExpectMatchesExactly(Exact(c));
  const float log_2 = std::log(2.0f);
  c.alibi_slopes = {log_2, 0, 2 * log_2, 0};
  ExpectMatchesExactly(Exact(c));
  c.sinks.clear();
  c.scalars.normalize = Normalize::kSoftmax1;
  ExpectMatchesExactly(Exact(c));
}

TEST_P(DeviceHopperFloat8, HugeScoresAndUnderflow) {
  AttentionCase c = MakeCase(Small());
  c.scalars.scale = 60.0;
  ExpectMatches(c);
}

// They bend nothing, and cost no precision.
TEST_P(DeviceHopperFloat8, LargeSoftcaps) {
  for (const double softcap : {1e4, 1e6, 1e8}) {
    AttentionCase c = MakeCase(Small());
    c.scalars.softcap = softcap;
    ExpectMatches(c);
  }
}

// Keys behind the lengths hold 0x7f and 0xff, the two NaN.
TEST_P(DeviceHopperFloat8, KeysBeyondTheLengthMayBeAnything) {
  AttentionCase c = MakeCase(Small());
  c.key_lengths = {70, 290};
  AttentionCase poisoned = c;
  for (Buffer<float>* rows : {&poisoned.k, &poisoned.v}) {
    rows->ForEach([&](int64_t b, int64_t, int64_t j, int64_t d, float& x) {
      const bool hidden = j >= c.key_lengths[static_cast<size_t>(b)];
      if (hidden && d % 5 == 0) x = std::copysign(kNan, d % 2 == 0 ? 1.0f : -1.0f);
    });
  }
  for (Buffer<float>* rows : {&c.k, &c.v}) {  // the same scales
    rows->ForEach([&](int64_t b, int64_t, int64_t j, int64_t d, float& x) {
      if (j >= c.key_lengths[static_cast<size_t>(b)] && d % 5 == 0) x = 0;
    });
  }
  const Results expected = RunDevice(c, kFloat8, OnHopper());
  const Results actual = RunDevice(poisoned, kFloat8, OnHopper());
  EXPECT_EQ(Bits(expected.output), Bits(actual.output));
  EXPECT_EQ(Bits(expected.lse), Bits(actual.lse));
  ExpectWithinDeviceBounds(poisoned, kFloat8, actual, OnHopper());
}

TEST_P(DeviceHopperFloat8, FutureKeysReachOnlyTheRowsThatSeeThem) {
  Sizes sizes = Small();
  for (const int64_t width : {32, 128, 192, 256}) {
    sizes.head_dim = sizes.head_dim_v = width;
    for (const bool in_values : {false, true}) {
      AttentionCase c = CausalCase(sizes, 150, 150);
      for (const int64_t j : {40, 63, 130}) (in_values ? c.v : c.k)(1, 0, j, j % width) = kNan;
      ExpectMatches(c);
    }
  }
}

TEST_P(DeviceHopperFloat8, PoisonedQueriesLoseTheirRowAlone) {
  AttentionCase c = MakeCase(Small());
  c.q(0, 1, 7, 5) = kNan;
  ExpectMatches(c);
}

void ExpectEmptyRowsAreZero(const DeviceChoices& choices) {
  AttentionCase c = MakeCase(Small());
  c.key_lengths = {0, 0};
  const Results results = RunDevice(c, kFloat8, choices);
  EXPECT_THAT(results.output.Elements(), ::testing::Each(0.0f));
  EXPECT_THAT(results.lse.Elements(), ::testing::Each(-kInf));
}
TEST_P(DeviceHopperFloat8, EmptyRowsAreZero) { ExpectEmptyRowsAreZero(OnHopper()); }
TEST_P(DeviceFloat8, EmptyRowsAreZero) { ExpectEmptyRowsAreZero({.output = GetParam()}); }

TEST_P(DeviceFloat8, TheBasePathTakesEveryCall) {
  Random random(2);
  Sizes sizes = Small();
  sizes.head_dim = 24;  // of strides that TMA does not read
  AttentionCase c = CausalCase(sizes, 41, 150);
  DeviceChoices choices = {.output = GetParam()};
  ExpectDeviceMatches(c, kFloat8, choices);
  choices.processors = 64;
  ExpectDeviceMatches(c, kFloat8, choices);  // split
  c.bias = MakeBias({1, 1, 41, 150}, random, 0.1);
  choices.layout = Layout::kPadded;
  ExpectDeviceMatches(c, kFloat8, choices);
  c.scalars.normalize = Normalize::kSigmoid;
  ExpectDeviceMatches(c, kFloat8, choices);
  c.scalars.normalize = Normalize::kEntmax15;  // whole rows
  ExpectDeviceMatches(c, kFloat8, choices);
  ExpectDeviceMatches(OneHeadCase(9, 40, 300, 270), kFloat8, choices);
}

// A call with numbers of its own, all of whose scales are given or absent.
Results RunWithScales(const AttentionCase& c, const std::vector<float>& scales, bool on_hopper) {
  const Extents shape = {c.sizes.batch, c.sizes.num_heads, c.sizes.q_len, c.sizes.head_dim_v};
  AttentionCase rounded = c;
  const auto bytes = [](Buffer<float>& from) {
    return QuantisedBuffer(from, kFloat8, 1, 1, Layout::kDense);
  };
  const QuantisedBuffer q = bytes(rounded.q), k = bytes(rounded.k), v = bytes(rounded.v);
  Results results;
  results.output = Buffer<float>(shape, Layout::kDense, kNan);
  results.lse = Buffer<float>({shape[0], shape[1], shape[2], 1}, Layout::kDense, kNan);
  DeviceCall call;
  call.q = q.view(), call.k = k.view(), call.v = v.view();
  // One number for all heads, by strides of 0.
  const auto shared = [&](const float& scale) {
    return TensorView<const float>{&scale, {c.sizes.batch, c.sizes.num_kv_heads, 1, 1}, {}};
  };
  if (!scales.empty()) {
    call.q_scales = shared(scales[0]), call.k_scales = shared(scales[1]);
    call.v_scales = shared(scales[2]);
  }
  call.options = c.options();
  call.outputs.stored_output = results.output.view();
  call.outputs.lse = results.lse.view();
  call.on_hopper = on_hopper;
  EXPECT_EQ(RunOnDevice(call), "");
  return results;
}

// Negative scales turn the order of the scores round, 0 makes weights alike.
void ExpectScalesMayBeAnyNumber(bool on_hopper) {
  AttentionCase c = CausalCase(Small(), 41, 200);
  for (Buffer<float>* rows : {&c.q, &c.k, &c.v}) {
    const Buffer<float> drawn = *rows;
    rows->ForEach([&](int64_t b, int64_t h, int64_t j, int64_t d, float& x) {
      x = d == 0 && j % 7 == 0 ? 448.0f : std::round(drawn(b, h, j, d) * 2);
    });
  }
  for (const std::vector<float>& scales : std::vector<std::vector<float>>{
           {-0.25f, 0.0625f, -2.0f}, {0.0f, 1.0f, 1.0f}, {1.0f, 0x1p-10f, 0.0f}, {}}) {
    if (scales.empty()) c.scalars.scale = 0x1p-14;
    for (const bool has_slopes : {false, true}) {
      c.alibi_slopes.clear();
      if (has_slopes) c.alibi_slopes = {0.5f, 0.25f, -0.125f, 2.0f};
      AttentionCase scaled = c;
      Buffer<float>* const rows[] = {&scaled.q, &scaled.k, &scaled.v};
      for (size_t n = 0; n < scales.size(); ++n) {
        rows[n]->ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x *= scales[n]; });
      }
      ExpectWithinDeviceBounds(scaled, kFloat8, RunWithScales(c, scales, on_hopper),
                               {.on_hopper = on_hopper});
    }
  }
}
TEST_P(DeviceHopperFloat8, ScalesMayBeAnyNumber) { ExpectScalesMayBeAnyNumber(true); }
TEST_P(DeviceFloat8, ScalesMayBeAnyNumber) { ExpectScalesMayBeAnyNumber(false); }

TEST_P(DeviceHopperFloat8, ScalesOfNanLeaveEmptyRowsZero) {
  Sizes sizes = Small();
  sizes.batch = 1;
  AttentionCase c = CausalCase(sizes, 41, 20);  // the first 21 rows see nothing
  for (const bool has_slopes : {false, true}) {
    if (has_slopes) c.alibi_slopes = AlibiSlopes(sizes.num_heads);
    for (const std::vector<float>& scales : std::vector<std::vector<float>>{
             {kNan, 1.0f, 1.0f}, {1.0f, kNan, 1.0f}, {1.0f, 1.0f, kNan}}) {
      const Results results = RunWithScales(c, scales, true);
      Buffer<float> output = results.output;
      output.ForEach([&](int64_t, int64_t, int64_t i, int64_t, float& x) {
        if (i < 21) {
          EXPECT_EQ(x, 0.0f);
        } else {
          EXPECT_TRUE(std::isnan(x));
        }
      });
    }
  }
}

}  // namespace
}  // namespace heed::testing
