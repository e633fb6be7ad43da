// Which keys exist: causal, query offsets, windows, key lengths and dense keep tensors.
#include <limits>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class AttentionKeep : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AttentionKeep);

AttentionCase Small(int64_t q_len, int64_t kv_len, int64_t batch = 1) {
  return MakeCase({.batch = batch,
                   .num_heads = 4,
                   .num_kv_heads = 2,
                   .q_len = q_len,
                   .kv_len = kv_len,
                   .head_dim = 16,
                   .head_dim_v = 16});
}

void ExpectEmptyRow(const Results& r, int64_t b, int64_t h, int64_t i) {
  for (int64_t d = 0; d < r.output.shape()[3]; ++d) EXPECT_EQ(r.output(b, h, i, d), 0.0f);
  EXPECT_EQ(r.lse(b, h, i, 0), -kInf);
  if (!r.weights.has_value()) return;
  for (int64_t j = 0; j < r.weights.shape()[3]; ++j) EXPECT_EQ(r.weights(b, h, i, j), 0.0f);
}

TEST_P(AttentionKeep, CausalMatchesReferenceAtEveryLength) {
  for (const int64_t len : {1, 3, 63, 65, 300, 600}) {
    AttentionCase c = Small(len, len);
    c.scalars.causal = true;
    ExpectMatchesReference(c);
  }
}

TEST_P(AttentionKeep, CausalFollowsANumericOffset) {
  for (const int64_t offset : {-200, -70, -3, -1, 0, 1, 35, 129, 1000}) {
    AttentionCase c = Small(70, 130);
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::At(offset);
    ExpectMatchesReference(c);
  }
}

TEST_P(AttentionKeep, CausalFollowsAnOffsetPerBatchEntry) {
  AttentionCase c = Small(33, 70, 4);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::PerBatch({-40, 0, 37, 500});
  ExpectMatchesReference(c);
}

TEST_P(AttentionKeep, EndPutsTheQueriesLast) {
  for (const auto& [q_len, kv_len] :
       std::vector<std::pair<int64_t, int64_t>>{{3, 70}, {70, 3}, {65, 65}, {1, 200}}) {
    AttentionCase c = Small(q_len, kv_len);
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::End();
    ExpectMatchesReference(c);
  }
}

TEST_P(AttentionKeep, EndFollowsTheKeyLengths) {
  AttentionCase c = Small(5, 70, 3);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::End();
  c.key_lengths = {70, 20, 3};
  ExpectMatchesReference(c);
}

TEST_P(AttentionKeep, QueriesBeforeTheFirstKeyAreEmpty) {
  AttentionCase c = Small(10, 10);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(-4);
  const Results r = RunAttention(c, {.lse = true, .weights = true});
  for (int64_t i = 0; i < 4; ++i) ExpectEmptyRow(r, 0, 1, i);
  EXPECT_NE(r.lse(0, 1, 4, 0), -kInf);
}

TEST_P(AttentionKeep, WindowsMatchReference) {
  const std::optional<int64_t> open;
  for (const Window& window :
       {Window{0, 0}, Window{1, 0}, Window{0, 1}, Window{5, 7}, Window{open, 0}, Window{0, open},
        Window{64, open}, Window{open, 64}, Window{127, 3}, Window{1000, 1000},
        Window{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max()}}) {
    AttentionCase c = Small(270, 270);
    c.scalars.window = window;
    ExpectMatchesReference(c);
    c.scalars.causal = true;
    ExpectMatchesReference(c);
  }
}

TEST_P(AttentionKeep, WindowsFollowTheOffset) {
  for (const int64_t offset : {-30, -5, 20, 200}) {
    AttentionCase c = Small(40, 170);
    c.scalars.window = Window{9, 4};
    c.scalars.query_offset = QueryOffset::At(offset);
    ExpectMatchesReference(c);
  }
}

TEST_P(AttentionKeep, ZeroWindowSeesOnlyItself) {
  AttentionCase c = Small(70, 70);
  c.scalars.window = Window{0, 0};
  const Results r = RunAttention(c);
  for (int64_t i = 0; i < 70; ++i) {
    for (int64_t d = 0; d < 16; ++d) EXPECT_EQ(r.output(0, 3, i, d), c.v(0, 1, i, d));
  }
}

TEST_P(AttentionKeep, KeyLengthsPerBatchEntryMatchReference) {
  AttentionCase c = Small(33, 390, 5);
  c.key_lengths = {0, 1, 64, 257, 390};
  ExpectMatchesReference(c);
  ExpectEmptyRow(RunAttention(c, {.lse = true, .weights = true}), 0, 0, 32);
}

TEST_P(AttentionKeep, KeyLengthsPerQueryMatchReference) {
  AttentionCase c = Small(20, 390, 2);
  Random random(4);
  for (int n = 0; n < 40; ++n) {
    c.key_lengths.push_back(static_cast<int32_t>(n % 5 == 0 ? 0 : random.Integer(0, 390)));
  }
  ExpectMatchesReference(c);
  ExpectEmptyRow(RunAttention(c, {.lse = true, .weights = true}), 1, 2, 0);
}

TEST_P(AttentionKeep, DenseKeepBroadcastsAlongEveryAxis) {
  const Extents full = {2, 4, 33, 390};
  for (unsigned ones = 0; ones < 16; ++ones) {
    Extents shape = full;
    for (unsigned axis = 0; axis < 4; ++axis) {
      if (ones >> axis & 1) shape[axis] = 1;
    }
    AttentionCase c = Small(33, 390, 2);
    Random random(ones + 10);
    c.keep = MakeKeep(shape, random, 0.5, ones % 2 ? Layout::kPadded : Layout::kDense);
    ExpectMatchesReference(c);
  }
}

TEST_P(AttentionKeep, KeepOfOneKeyGivesItsValueExactly) {
  for (const int64_t key : {0, 1, 255, 256, 389}) {
    AttentionCase c = Small(9, 390);
    c.keep = Buffer<uint8_t>({1, 1, 1, 390}, Layout::kDense, 0);
    c.keep(0, 0, 0, key) = 255;
    const Results r = RunAttention(c, {.lse = true, .weights = true});
    EXPECT_EQ(r.output(0, 0, 8, 5), c.v(0, 0, key, 5));
    EXPECT_EQ(r.weights(0, 0, 8, key), 1.0f);
  }
}

TEST_P(AttentionKeep, RowsThatKeepNothingAreEmptyWhateverTheirScores) {
  AttentionCase c = Small(33, 70);
  c.keep = Buffer<uint8_t>({1, 1, 33, 70}, Layout::kDense, 1);
  for (const int64_t i : {0, 7, 32}) {
    for (int64_t j = 0; j < 70; ++j) c.keep(0, 0, i, j) = 0;
  }
  c.sinks = {3, 0, -1, -kInf};
  ExpectMatchesReference(c);
  const Results r = RunAttention(c, {.lse = true, .weights = true});
  for (const int64_t i : {0, 7, 32}) {
    for (int64_t h = 0; h < 4; ++h) ExpectEmptyRow(r, 0, h, i);
  }
}

TEST_P(AttentionKeep, AllRulesHoldTogether) {
  AttentionCase c = Small(60, 390, 2);
  Random random(8);
  c.scalars.causal = true;
  c.scalars.window = Window{300, std::nullopt};
  c.scalars.query_offset = QueryOffset::At(290);
  c.key_lengths = {290, 390};
  c.keep = MakeKeep({1, 4, 60, 390}, random, 0.6);
  c.bias = MakeBias({2, 1, 1, 390}, random, 0.2);
  ExpectMatchesReference(c);
}

}  // namespace
}  // namespace heed::testing
