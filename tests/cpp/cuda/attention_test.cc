// Exact attention on the device path: sizes, layouts and every option it takes, against the oracle.
#include <cmath>
#include <limits>

#include "device_case.h"
#include "gtest/gtest.h"
#include "shared_cases.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class DeviceAttention : public OnDevice {};
HEED_IN_EVERY_TYPE(DeviceAttention);

AttentionCase Causal(int64_t q_len, int64_t kv_len) {
  return CausalCase(SeveralSizes(), q_len, kv_len);
}

TEST_P(DeviceAttention, MatchesReferenceAtEveryLength) {
  ForLengthsAroundTiles([](const AttentionCase& c) { ExpectDeviceMatches(c, GetParam()); });
}

TEST_P(DeviceAttention, MatchesReferenceForEveryHeadDim) {
  ForEveryHeadDim([](const AttentionCase& c) { ExpectDeviceMatches(c, GetParam()); });
}

TEST_P(DeviceAttention, QueryHeadsShareKvHeads) {
  ForSharedKvHeads([](const AttentionCase& c) { ExpectDeviceMatches(c, GetParam()); },
                   SeveralSizes());
}

TEST_P(DeviceAttention, TakesEveryLayout) {
  for (const Layout layout :
       {Layout::kDense, Layout::kBlhd, Layout::kPadded, Layout::kReversed, Layout::kOneBatch}) {
    Sizes sizes = SeveralSizes();
    sizes.head_dim = sizes.head_dim_v = 32;
    AttentionCase c = MakeCase(sizes, 5, layout);
    c.output_layout = layout == Layout::kOneBatch ? Layout::kPadded : layout;
    ExpectDeviceMatches(c, GetParam(), {.layout = layout});
  }
}

TEST_P(DeviceAttention, CausalWithAnyOffset) {
  ForCausalOffsets(SeveralSizes(),
                   [](const AttentionCase& c) { ExpectDeviceMatches(c, GetParam()); });
}

TEST_P(DeviceAttention, WindowsOfEverySide) {
  ForWindowsOfEverySide(SeveralSizes(),
                        [](const AttentionCase& c) { ExpectDeviceMatches(c, GetParam()); });
}

TEST_P(DeviceAttention, LengthsOfBatchesAndOfQueries) {
  ForLengths(SeveralSizes(), [](const AttentionCase& c) { ExpectDeviceMatches(c, GetParam()); });
}

TEST_P(DeviceAttention, PrefixesAndDocuments) {
  AttentionCase c = MakeCase(SeveralSizes());
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(10);
  c.prefix_lengths = {30, 0};
  ExpectDeviceMatches(c, GetParam());
  c = MakeCase(SeveralSizes());
  // Whole tiles without a document of any row, padding, and ids that differ between entries.
  for (int i = 0; i < 2 * 41; ++i) c.query_documents.push_back(i < 41 ? 1 + i / 20 : 7 - i % 3);
  for (int j = 0; j < 2 * 150; ++j) c.key_documents.push_back(j < 75 ? -1 : j < 140 ? 2 : j % 9);
  ExpectDeviceMatches(c, GetParam());
}

TEST_P(DeviceAttention, KeepAndBiasBroadcastAlongEveryAxis) {
  Random random(6);
  for (const Extents& shape :
       {Extents{2, 4, 41, 150}, Extents{1, 4, 1, 150}, Extents{2, 1, 41, 1}, Extents{1, 1, 1, 1}}) {
    AttentionCase c = MakeCase(SeveralSizes());
    c.bias = MakeBias(shape, random, 0.2, Layout::kPadded);
    ExpectDeviceMatches(c, GetParam());
    c.keep = MakeKeep(shape, random, 0.6, Layout::kPadded);
    ExpectDeviceMatches(c, GetParam());
  }
}

TEST_P(DeviceAttention, ModifiersTogether) {
  AttentionCase c = Causal(41, 150);
  c.scalars.softcap = 3.0;
  c.scalars.scale = -0.7;
  c.alibi_slopes = AlibiSlopes(4);
  c.sinks = {0, -kInf, 2, 30};
  ExpectDeviceMatches(c, GetParam());
  Random random(7);
  c.bias = MakeBias({1, 4, 41, 150}, random);
  ExpectDeviceMatches(c, GetParam());
}

TEST_P(DeviceAttention, NormalisersThatStream) {
  for (const Normalize normalize : {Normalize::kSoftmax1, Normalize::kSigmoid, Normalize::kRelu,
                                    Normalize::kReluSquared, Normalize::kAverage}) {
    const bool unbounded = normalize == Normalize::kRelu || normalize == Normalize::kReluSquared;
    if (unbounded && GetParam() == DType::kFloat16) continue;  // refused
    for (const int64_t processors : {1, 64}) {
      AttentionCase c = Causal(30, 500);
      c.scalars.normalize = normalize;
      c.key_lengths = {0, 450};
      ExpectDeviceMatches(c, GetParam(), {.processors = processors});
    }
  }
}

TEST_P(DeviceAttention, AverageDoesNotLookAtScores) {
  AttentionCase c = MakeCase(SeveralSizes());
  c.scalars.normalize = Normalize::kAverage;
  c.q(0, 0, 0, 0) = std::nanf("");
  c.k(1, 0, 3, 0) = kInf;
  ExpectDeviceMatches(c, GetParam());
}

TEST_P(DeviceAttention, DropoutHasTheBitsOfTheReference) {
  AttentionCase c = Causal(41, 150);
  c.scalars.dropout = {.p = 0.4, .seed = 0x123456789abcdefu};
  ExpectDeviceMatches(c, GetParam());
}

TEST_P(DeviceAttention, SplitKeysMerge) {
  for (const int64_t q_len : {1, 5, 64}) {
    AttentionCase c = Causal(q_len, 900);
    c.key_lengths = {900, 130};
    c.sinks = {0, 1, 2, 3};
    ExpectDeviceMatches(c, GetParam(), {.processors = 132});
    c.key_lengths = {0, 1};  // splits without a key
    ExpectDeviceMatches(c, GetParam(), {.processors = 132});
  }
}

TEST_P(DeviceAttention, HugeScoresAndUnderflow) {
  AttentionCase c = MakeCase(SeveralSizes());
  c.scalars.scale = 60.0;
  ExpectDeviceMatches(c, GetParam());
  ExpectDeviceMatches(c, GetParam(), {.processors = 64});
}

TEST_P(DeviceAttention, NothingToDoIsNotAnError) {
  for (const Sizes& sizes : {Sizes{.batch = 0}, Sizes{.q_len = 0},
                             Sizes{.num_heads = 0, .num_kv_heads = 0}, Sizes{.head_dim_v = 0}}) {
    AttentionCase c = MakeCase(sizes);
    EXPECT_EQ(RunDevice(c, GetParam()).output.size(), 0);
  }
}

TEST_P(DeviceAttention, WithoutKeysOrDimensions) {
  AttentionCase c = MakeCase({.q_len = 3, .kv_len = 0});
  const Results r = RunDevice(c, GetParam());
  for (const float x : r.output.Elements()) EXPECT_EQ(x, 0.0f);
  for (const float x : r.lse.Elements()) EXPECT_EQ(x, -kInf);
  c = MakeCase({.q_len = 3, .kv_len = 70, .head_dim = 0});
  c.scalars.scale = 1.0;
  ExpectDeviceMatches(c, GetParam());
}

}  // namespace
}  // namespace heed::testing
