// Any combination of what the device path offers works together: seeded random problems.
#include <array>

#include "device_case.h"
#include "gtest/gtest.h"

namespace heed::testing {
namespace {

constexpr uint64_t kCases = 60;

class DeviceCombinations : public OnDevice {};
HEED_IN_EVERY_TYPE(DeviceCombinations);

template <class T, size_t kCount>
T Pick(Random& random, const std::array<T, kCount>& choices) {
  return choices[static_cast<size_t>(random.Integer(0, kCount - 1))];
}

Sizes RandomSizes(Random& random) {
  constexpr std::array<int64_t, 9> kLens = {1, 2, 16, 33, 64, 65, 129, 200, 257};
  constexpr std::array<int64_t, 6> kDims = {1, 7, 16, 40, 64, 72};
  Sizes sizes;
  sizes.batch = random.Integer(1, 2);
  sizes.num_kv_heads = random.Integer(1, 2);
  sizes.num_heads = sizes.num_kv_heads * random.Integer(1, 3);
  sizes.q_len = Pick(random, kLens);
  sizes.kv_len = Pick(random, kLens);
  sizes.head_dim = Pick(random, kDims);
  sizes.head_dim_v = Pick(random, kDims);
  return sizes;
}

// Each axis of [batch, num_heads, q_len, kv_len] becomes 1 with probability 0.4.
Extents RandomPairs(const Sizes& sizes, Random& random) {
  Extents shape = {sizes.batch, sizes.num_heads, sizes.q_len, sizes.kv_len};
  for (int64_t& extent : shape) {
    if (random.Chance(0.4)) extent = 1;
  }
  return shape;
}

void AddKeepRules(AttentionCase& c, Random& random) {
  const Sizes& s = c.sizes;
  c.scalars.query_offset = QueryOffset::At(random.Integer(-20, s.kv_len));
  c.scalars.causal = random.Chance(0.4);
  if (random.Chance(0.3)) c.scalars.window = Window{random.Integer(0, 90), random.Integer(0, 90)};
  if (random.Chance(0.3)) c.keep = MakeKeep(RandomPairs(s, random), random, 0.7, Layout::kPadded);
  for (int64_t b = 0; b < s.batch && random.Chance(0.5); ++b) {
    c.key_lengths.resize(static_cast<size_t>(s.batch), static_cast<int32_t>(s.kv_len));
    c.key_lengths[static_cast<size_t>(b)] = static_cast<int32_t>(random.Integer(0, s.kv_len));
  }
  if (!random.Chance(0.3)) return;
  for (int64_t i = 0; i < s.q_len; ++i) {
    c.query_documents.push_back(static_cast<int32_t>(i / 30 - (i % 11 == 0)));
  }
  for (int64_t j = 0; j < s.kv_len; ++j) {
    c.key_documents.push_back(static_cast<int32_t>(j / 40 - (j % 7 == 0)));
  }
}

void AddModifiers(AttentionCase& c, Random& random) {
  const Sizes& s = c.sizes;
  const size_t heads = static_cast<size_t>(s.num_heads);
  if (random.Chance(0.3)) c.scalars.softcap = 4.0;
  if (random.Chance(0.3)) c.scalars.scale = 0.5 * random.Normal();
  if (random.Chance(0.3)) c.alibi_slopes = AlibiSlopes(s.num_heads);
  if (random.Chance(0.3)) {
    c.bias = MakeBias(RandomPairs(s, random), random, 0.2, Layout::kPadded);
  }
  if (random.Chance(0.2)) c.scalars.dropout = {.p = 0.25, .seed = random.Next()};
  constexpr std::array<Normalize, 6> kNormalizers = {Normalize::kSoftmax, Normalize::kSoftmax,
                                                     Normalize::kSoftmax, Normalize::kSoftmax1,
                                                     Normalize::kSigmoid, Normalize::kAverage};
  c.scalars.normalize = Pick(random, kNormalizers);
  if (c.scalars.normalize == Normalize::kSoftmax && random.Chance(0.4)) c.sinks.assign(heads, 0.5f);
}

TEST_P(DeviceCombinations, MatchTheReference) {
  constexpr std::array<Layout, 4> kLayouts = {Layout::kDense, Layout::kBlhd, Layout::kPadded,
                                              Layout::kReversed};
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    Random random(seed);
    AttentionCase c = MakeCase(RandomSizes(random), seed, Pick(random, kLayouts));
    c.output_layout = Pick(random, kLayouts);
    AddKeepRules(c, random);
    AddModifiers(c, random);
    const DeviceChoices choices = {.layout = Pick(random, kLayouts),
                                   .processors = random.Chance(0.5) ? 1 : 100};
    ExpectDeviceMatches(c, GetParam(), choices);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace heed::testing
