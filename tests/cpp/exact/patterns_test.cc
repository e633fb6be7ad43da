// What holds for every keep pattern: what it hides cannot matter, empty rows, threads, bad input.
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "composed_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/thread_pool.h"
#include "random_pattern.h"
#include "selective_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class AttentionPatterns : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AttentionPatterns);

AttentionCase PatternCase(uint64_t seed) {
  Random random(seed);
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = random.Integer(1, 300),
                              .kv_len = random.Integer(300, 700),
                              .head_dim = 8,
                              .head_dim_v = 9},
                             seed);
  c.scalars.query_offset = QueryOffset::At(random.Integer(0, 300));
  AddRandomPatterns(c, random);
  return c;
}

// Keys that no query of a batch entry and KV head sees are poisoned.
AttentionCase Poisoned(const AttentionCase& c, float poison) {
  const Values oracle = RunOracle(c);
  const std::vector<double>& scores = oracle.at("scores");
  const auto& s = c.sizes;
  AttentionCase poisoned = c;
  std::vector<bool> seen(static_cast<size_t>(s.batch * s.num_kv_heads * s.kv_len));
  for (size_t n = 0; n < scores.size(); ++n) {
    const int64_t at = static_cast<int64_t>(n);
    const int64_t head = at / (s.q_len * s.kv_len);  // of all batch entries
    const int64_t kv_head = head / (s.num_heads / s.num_kv_heads);
    if (scores[n] != -static_cast<double>(kInf)) {
      seen[static_cast<size_t>(kv_head * s.kv_len + at % s.kv_len)] = true;
    }
  }
  const auto hidden = [&](int64_t b, int64_t h, int64_t j) {
    return !seen[static_cast<size_t>((b * s.num_kv_heads + h) * s.kv_len + j)];
  };
  for (Buffer<float>* buffer : {&poisoned.k, &poisoned.v}) {
    buffer->ForEach([&](int64_t b, int64_t h, int64_t j, int64_t, float& x) {
      if (hidden(b, h, j)) x = poison;
    });
  }
  return poisoned;
}

TEST_P(AttentionPatterns, WhatNobodySeesMayBeAnything) {
  for (uint64_t seed = 1; seed <= 16; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const AttentionCase c = PatternCase(seed);
    const Results clean = RunAttention(c, {.lse = true, .weights = true});
    const Results actual =
        RunAttention(Poisoned(c, seed % 2 ? kNan : kInf), {.lse = true, .weights = true});
    EXPECT_EQ(Bits(clean.output), Bits(actual.output)) << c.Describe();
    EXPECT_EQ(Bits(clean.lse), Bits(actual.lse));
    EXPECT_EQ(Bits(clean.weights), Bits(actual.weights));
    if (HasFailure()) return;
  }
}

TEST_P(AttentionPatterns, PoisonReachesTheRowsThatSeeIt) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    AttentionCase c = PatternCase(seed);
    Random random(seed);
    for (int n = 0; n < 3; ++n) {
      c.k(random.Integer(0, 1), random.Integer(0, 1), random.Integer(0, 299), 3) = kNan;
      c.v(random.Integer(0, 1), random.Integer(0, 1), random.Integer(0, 299), 3) = kInf;
    }
    ExpectMatchesReference(c);
    if (HasFailure()) return;
  }
}

TEST_P(AttentionPatterns, AnyNumberOfThreadsGivesTheSameBits) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const AttentionCase c = PatternCase(seed);
    const Results one = RunAttention(c, {.lse = true, .weights = true});
    for (const int threads : {1, 2, 3, 7}) {
      const auto pool = MakeThreadPool(threads);
      const Results many = RunAttention(c, {.lse = true, .weights = true}, pool.get());
      EXPECT_EQ(Bits(one.output), Bits(many.output)) << threads << " threads, " << c.Describe();
      EXPECT_EQ(Bits(one.lse), Bits(many.lse));
      EXPECT_EQ(Bits(one.weights), Bits(many.weights));
    }
  }
}

TEST_P(AttentionPatterns, RowsWithoutKeysAreZeros) {
  AttentionCase c = MakeCase({.num_heads = 2, .num_kv_heads = 2, .q_len = 100, .kv_len = 300});
  c.lists.block_keep = Buffer<uint8_t>({1, 1, 2, 5}, Layout::kDense, 0);
  c.lists.block_keep(0, 0, 0, 3) = 1;
  c.sinks = {1, 2};
  ExpectMatchesReference(c);
  const Results r = RunAttention(c, {.lse = true, .weights = true});
  for (int64_t d = 0; d < 64; ++d) EXPECT_EQ(r.output(0, 1, 64, d), 0.0f);
  EXPECT_EQ(r.lse(0, 1, 99, 0), -kInf);
  EXPECT_NE(r.lse(0, 1, 63, 0), -kInf);
}

void ExpectRefused(const KeepPattern& pattern, ErrorCode code, const std::string& name) {
  AttentionCase c = MakeCase({.num_heads = 2, .num_kv_heads = 2, .q_len = 12, .kv_len = 12});
  c.scalars.patterns = {pattern};
  try {
    RunAttention(c);
    ADD_FAILURE() << name << ": no error";
  } catch (const Error& error) {
    EXPECT_STREQ(ErrorCodeName(error.code()), ErrorCodeName(code)) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(name));
  }
}

TEST(PatternErrors, NameTheArgument) {
  constexpr ErrorCode kRange = ErrorCode::kRange, kShape = ErrorCode::kShape;
  constexpr int64_t kHuge = int64_t{1} << 62;
  ExpectRefused(DilatedWindow{-1, {}}, kRange, "reach");
  ExpectRefused(DilatedWindow{kHuge, {}}, kRange, "reach");
  ExpectRefused(DilatedWindow{1, {0}}, kRange, "dilation");
  ExpectRefused(DilatedWindow{1 << 20, {int64_t{1} << 50}}, kRange, "dilation");
  ExpectRefused(DilatedWindow{1, {1, 2, 3}}, kShape, "dilation");
  ExpectRefused(BigBird{0, 3, 1, 1, 0}, kRange, "block_size");
  ExpectRefused(BigBird{4, 2, 1, 1, 0}, kRange, "window_blocks");
  ExpectRefused(BigBird{4, 3, -1, 1, 0}, kRange, "global_blocks");
  ExpectRefused(BigBird{4, 3, 1, -1, 0}, kRange, "random_blocks");
  ExpectRefused(BigBird{.last_blocks = -1}, kRange, "last_blocks");
  ExpectRefused(BigBird{.last_blocks = kHuge}, kRange, "last_blocks");
  ExpectRefused(Strided{0}, kRange, "stride");
  ExpectRefused(Fixed{4, 5}, kRange, "summary");
  ExpectRefused(Axial{{3, 5}, {}}, kShape, "grid");
  ExpectRefused(Axial{{12}, {}}, kShape, "grid");
  ExpectRefused(Axial{{3, 4}, 2}, kRange, "axis");
  ExpectRefused(Axial{{kHuge, kHuge}, 1}, kRange, "grid");
  ExpectRefused(SwinWindow{{3, 4}, {2}, {}}, kShape, "window_size");
  ExpectRefused(SwinWindow{{3, 4}, {3, 2}, {0, 2}}, kRange, "shift");
  ExpectRefused(SwinWindow{{3, 4}, {}, {}}, kShape, "window_size");
  ExpectRefused(Neighborhood{{3, 4}, {5}, {}}, kRange, "window_size");
  ExpectRefused(Neighborhood{{3, 4}, {2}, {2}}, kRange, "window_size");
  ExpectRefused(BlockList{0, 1, {}, {}, {}}, kRange, "block_size");
  ExpectRefused(BlockList{4, 4, {}, {}, {}}, ErrorCode::kOption, "block_keep");
  const std::vector<int32_t> odd = {1, 2, 3}, outside = {0, 12}, short_rows = {0, 1};
  const std::vector<int32_t> falling = {0, 2, 1, 1}, one = {3};
  ExpectRefused(PairList{odd}, kShape, "keep_pairs");
  ExpectRefused(PairList{outside}, kRange, "keep_pairs");
  ExpectRefused(BlockList{4, 4, {}, short_rows, one}, kShape, "block_indptr");
  ExpectRefused(BlockList{4, 4, {}, falling, one}, kRange, "block_indptr");
  const std::vector<int32_t> rows = {0, 1, 1, 1};
  ExpectRefused(BlockList{4, 4, {}, rows, one}, kRange, "block_indices");
}

TEST(PatternErrors, ListsOfNoNumbersAreRefusedByBoth) {
  using Case = std::pair<const char*, const char*>;
  for (const auto& [id, name] :
       {Case("longformer", "dilation"), Case("bigbird", "block_size"),
        Case("neighborhood", "window_size"), Case("swin_window", "shift")}) {
    RequestBuilder builder = SelectiveRequest(id, {}, 1);
    builder.Param(name, std::vector<double>());
    if (std::string_view(id) == "swin_window") builder.Param("grid", std::vector<double>{4, 4});
    ExpectBothRefuse(builder.request(), ErrorCode::kShape, name);
  }
}

TEST(PatternErrors, PositionsAreNeededAndChecked) {
  AttentionCase c = MakeCase({.num_heads = 2, .num_kv_heads = 2, .q_len = 5, .kv_len = 12});
  c.scalars.patterns = {Strided{4}};
  EXPECT_THROW(RunAttention(c), Error);
  c.scalars.patterns = {Axial{{3, 4}, {}}};
  for (const int64_t offset : {-1, 8}) {
    c.scalars.query_offset = QueryOffset::At(offset);
    EXPECT_THROW(RunAttention(c), Error) << offset;
  }
  c.scalars.patterns.clear();
  c.prefix_lengths = {13};
  EXPECT_THROW(RunAttention(c), Error);
  c.prefix_lengths.clear();
  c.query_documents = {0, 0, 0, 0, 0};
  EXPECT_THROW(RunAttention(c), Error);
}

}  // namespace
}  // namespace heed::testing
