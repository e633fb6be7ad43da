// Narrow bands of keys over sequences too long to pack whole: the same results and bits, in memory
// that does not grow.
#include <cmath>
#include <limits>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gtest/gtest.h"
#include "heed/cost.h"
#include "heed/thread_pool.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class Bands : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Bands);

// One thread packs at most four tiles of 256 keys as wide as these: six do not fit.
AttentionCase LongCase(uint64_t seed, int64_t group = 1) {
  return MakeCase({.batch = group == 1 ? 1 : 2,
                   .num_heads = group,
                   .num_kv_heads = 1,
                   .q_len = 1300,
                   .kv_len = 1300,
                   .head_dim = 130,
                   .head_dim_v = 126},
                  seed);
}

std::vector<AttentionCase> BandCases() {
  std::vector<AttentionCase> cases;
  cases.push_back(LongCase(1));
  cases.back().scalars.window = Window::LastN(200);
  cases.push_back(LongCase(2));
  cases.back().scalars.window = Window{60, 90};
  cases.back().scalars.softcap = 5;
  // Queries before the first key, and a sequence that ends in the middle of a tile.
  cases.push_back(LongCase(3, 2));
  cases.back().scalars.window = Window{30, 30};
  cases.back().scalars.query_offset = QueryOffset::At(-700);
  cases.back().key_lengths = {1300, 290};
  // Documents of uneven lengths, and one row of blocks without any key.
  cases.push_back(LongCase(4));
  for (int i = 0; i < 1300; ++i) {
    cases.back().query_documents.push_back(i < 300 || i > 499 ? i / 217 : 99);
    cases.back().key_documents.push_back(i / 217);
  }
  // One row in the middle sees all keys: then there are no bands.
  cases.push_back(LongCase(5));
  cases.back().scalars.patterns = {Longformer{40, {}, {}}};
  cases.back().global_tokens = {610};
  cases.push_back(LongCase(6));
  cases.back().scalars.window = Window::LastN(150);
  cases.back().scalars.normalize = Normalize::kSparsemax;
  return cases;
}

// More threads pack more tiles, and these cases whole.
Results RunInBands(const AttentionCase& c) {
  static const auto one = MakeThreadPool(1);
  return RunAttention(c, {.lse = HasLse(c)}, one.get());
}

TEST_P(Bands, MatchReference) {
  for (const AttentionCase& c : BandCases()) {
    SCOPED_TRACE(c.Describe());
    ExpectResultsMatch(c, RunInBands(c), RunOracle(c));
  }
}

TEST_P(Bands, ThreadsChangeNoBit) {
  const auto three = MakeThreadPool(3);
  std::vector<AttentionCase> cases = BandCases();
  // Bands for three threads, which hold eleven tiles: two of them for each KV head.
  Sizes sizes = LongCase(10, 2).sizes;
  sizes.q_len = sizes.kv_len = 3400;
  cases.push_back(MakeCase(sizes, 10));
  cases.back().scalars.window = Window{100, 20};
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE(c.Describe());
    const Results expected = RunInBands(c);
    const Results r = RunAttention(c, {.lse = HasLse(c)}, three.get());
    EXPECT_EQ(Bits(r.output), Bits(expected.output));
    EXPECT_EQ(Bits(r.lse), Bits(expected.lse));
  }
}

// Bands change no bit either: the last rows alone, whose keys fit, are the same.
TEST_P(Bands, EqualTheSameRowsOfAShortSequence) {
  AttentionCase c = LongCase(7);
  c.scalars.window = Window::LastN(100);
  AttentionCase tail = c;
  tail.sizes.q_len = tail.sizes.kv_len = 276;
  const auto cut = [](const Buffer<float>& from) {
    Extents shape = from.shape();
    shape[2] = 276;
    Buffer<float> to(shape, Layout::kDense, 0.0f);
    to.ForEach(
        [&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) { x = from(b, h, 1024 + i, d); });
    return to;
  };
  tail.q = cut(c.q);
  tail.k = cut(c.k);
  tail.v = cut(c.v);
  const Results whole = RunInBands(c);
  const Results r = RunAttention(tail);
  for (int64_t i = 100; i < 276; ++i) {
    for (int64_t d = 0; d < c.sizes.head_dim_v; ++d) {
      ASSERT_EQ(r.output(0, 0, i, d), whole.output(0, 0, 1024 + i, d)) << i << " " << d;
    }
  }
}

// A value that is not finite joins the rows that see it and no others, wherever its tile was.
TEST_P(Bands, PoisonStaysInItsWindow) {
  AttentionCase c = LongCase(8);
  c.scalars.window = Window::LastN(50);
  const Results clean = RunInBands(c);
  c.v(0, 0, 900, 3) = std::numeric_limits<float>::quiet_NaN();
  const Results r = RunInBands(c);
  for (int64_t i = 0; i < 1300; ++i) {
    const bool sees = i >= 900 && i < 950;
    EXPECT_EQ(std::isnan(r.output(0, 0, i, 3)), sees) << i;
    if (!sees) {
      EXPECT_EQ(r.output(0, 0, i, 3), clean.output(0, 0, i, 3)) << i;
    }
  }
}

TEST_P(Bands, MemoryDoesNotGrowWithTheSequence) {
  const auto scratch = [](int64_t length) {
    AttentionCase c = LongCase(9);
    c.sizes.q_len = c.sizes.kv_len = length;
    c.q = c.k = Buffer<float>({1, 1, length, 130}, Layout::kDense, 0.0f);
    c.v = Buffer<float>({1, 1, length, 126}, Layout::kDense, 0.0f);
    c.scalars.window = Window::LastN(100);
    return EstimateCost(c.request(), 1).scratch_bytes.value();
  };
  // But for the list of tiles and bands: less than a byte a token.
  EXPECT_LT(scratch(30000) - scratch(3000), 27000);
}

}  // namespace
}  // namespace heed::testing
