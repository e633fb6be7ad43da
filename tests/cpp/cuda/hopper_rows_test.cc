// What the rows of an item of the Hopper kernel see, by its first and its last row.
#include "src/cuda/hopper_rows.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "random.h"

namespace heed::testing {
namespace {

// What every row sees, one after the other.
cuda::KeysOfRows KeysOfAll(const cuda::RowRules& rules, int64_t first, int64_t last, int32_t length,
                           int32_t kv_len) {
  cuda::KeysOfRows keys = {{kv_len, 0}, {0, kv_len}};
  for (int64_t position = first; position <= last; ++position) {
    keys = cuda::Join(keys, cuda::KeysOfRow(rules, 0, position, length, kv_len));
  }
  return keys;
}

struct Totals {
  int whole = 0;   // cases with keys that all rows see
  int exact = 0;   // whose keys are found as they are
  int beyond = 0;  // others
};

void ExpectFound(const cuda::RowRules& rules, int64_t first, int64_t last, int32_t length,
                 int32_t kv_len, Totals& totals) {
  const auto bounds = [&](int64_t position) {
    return cuda::BoundsOfRow(rules, 0, position, length, kv_len);
  };
  const cuda::KeysOfRows found = cuda::KeysBetween(bounds(first), bounds(last));
  const cuda::KeysOfRows expected = KeysOfAll(rules, first, last, length, kv_len);
  const bool some = expected.some.begin < expected.some.end;
  if (some) {
    ASSERT_LE(found.some.begin, expected.some.begin);
    ASSERT_GE(found.some.end, expected.some.end);
  }
  ASSERT_GE(found.some.begin, 0);
  ASSERT_LE(found.some.end, kv_len);
  const bool all = expected.all.begin < expected.all.end;
  ASSERT_EQ(found.all.begin < found.all.end, all);
  if (all) {
    ASSERT_EQ(found.all.begin, expected.all.begin);
    ASSERT_EQ(found.all.end, expected.all.end);
  }
  totals.whole += all;
  const bool exact =
      some ? found.some.begin == expected.some.begin && found.some.end == expected.some.end
           : found.some.begin >= found.some.end;
  ++(exact ? totals.exact : totals.beyond);
  // Where each row sees something, nothing is visited in vain.
  const cuda::RowKeys low = bounds(first), high = bounds(last);
  ASSERT_TRUE(exact || low.begin >= low.end || high.begin >= high.end);
}

TEST(HopperRows, KeysAreFoundByTheFirstAndTheLastRow) {
  Random random(1);
  Totals totals;
  for (int n = 0; n < 200000; ++n) {
    const int32_t kv_len = static_cast<int32_t>(random.Integer(1, 40));
    const int32_t length = static_cast<int32_t>(random.Integer(0, kv_len));
    const int32_t prefix = static_cast<int32_t>(random.Integer(0, kv_len));
    cuda::RowRules rules{};
    rules.causal = random.Integer(0, 1) == 1;
    rules.window_left = random.Integer(-8, 12);
    rules.window_right = random.Integer(-8, 12);
    if (random.Integer(0, 2) == 0) rules.prefix_lengths = &prefix;
    const int64_t first = random.Integer(-50, 60);
    ExpectFound(rules, first, first + random.Integer(0, 30), length, kv_len, totals);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(totals.whole, 1000);
  EXPECT_GT(totals.exact, 20 * totals.beyond);
}

TEST(HopperRows, CausalRowsSeeWhatTheFirstOneDoes) {
  cuda::RowRules rules{};
  rules.causal = true;
  rules.window_left = rules.window_right = -1;
  const auto bounds = [&](int64_t position) {
    return cuda::BoundsOfRow(rules, 0, position, 1000, 1000);
  };
  const cuda::KeysOfRows keys = cuda::KeysBetween(bounds(128), bounds(255));
  EXPECT_EQ(keys.some.begin, 0);
  EXPECT_EQ(keys.some.end, 256);
  EXPECT_EQ(keys.all.begin, 0);
  EXPECT_EQ(keys.all.end, 129);
}

}  // namespace
}  // namespace heed::testing
