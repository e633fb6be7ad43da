// T5 buckets: values worked out from the definition, shape, bounds.
#include <cstdint>
#include <limits>
#include <utility>

#include "gtest/gtest.h"
#include "heed/position.h"

namespace heed::testing {
namespace {

// 32 buckets, bidirectional: 16 a side, 8 exact, then 8 + floor(8 log(n / 8) / log(16)), so a new
// bucket starts at 8 * 16^(b / 8) = 8, 11.3, 16, 22.6, 32, 45.3, 64, 90.5.
TEST(T5Bucket, BidirectionalByHand) {
  const std::pair<int64_t, int64_t> expected[] = {
      {0, 0},   {1, 1},   {7, 7},   {8, 8},   {11, 8},   {12, 9},   {15, 9},
      {16, 10}, {22, 10}, {23, 11}, {31, 11}, {32, 12},  {45, 12},  {46, 13},
      {63, 13}, {64, 14}, {90, 14}, {91, 15}, {127, 15}, {128, 15}, {100000, 15}};
  for (const auto& [distance, bucket] : expected) {
    EXPECT_EQ(T5Bucket(-distance, T5Direction::kBidirectional), bucket) << -distance;
    if (distance > 0) {
      EXPECT_EQ(T5Bucket(distance, T5Direction::kBidirectional), 16 + bucket) << distance;
    }
  }
}

// 32 buckets, causal: 16 exact, then 16 + floor(16 log(n / 16) / log(8)): 17 starts at 18.2, 24 at
// 45.3, 31 at 112.4.
TEST(T5Bucket, CausalByHand) {
  const std::pair<int64_t, int64_t> expected[] = {
      {0, 0},    {-1, 1},    {-15, 15},  {-16, 16},  {-18, 16},   {-19, 17}, {-45, 23},
      {-46, 24}, {-112, 30}, {-113, 31}, {-128, 31}, {-5000, 31}, {1, 0},    {500, 0}};
  for (const auto& [relative, bucket] : expected) {
    EXPECT_EQ(T5Bucket(relative, T5Direction::kCausal), bucket) << relative;
  }
}

TEST(T5Bucket, GrowsWithTheDistanceAndStaysInRange) {
  for (const auto& [buckets, most] : {std::pair(32, 128), std::pair(8, 20), std::pair(64, 10000)}) {
    int64_t last = 0;
    for (int64_t distance = 0; distance < 3 * most; ++distance) {
      const int64_t bucket = T5Bucket(-distance, T5Direction::kCausal, buckets, most);
      EXPECT_GE(bucket, last);
      EXPECT_LE(bucket, last + 1);
      last = bucket;
    }
    EXPECT_EQ(last, buckets - 1);
  }
}

TEST(T5Bucket, TheFarthestPositionsAreInTheLastBucket) {
  EXPECT_EQ(T5Bucket(std::numeric_limits<int64_t>::min(), T5Direction::kCausal), 31);
  EXPECT_EQ(T5Bucket(std::numeric_limits<int64_t>::min(), T5Direction::kBidirectional), 15);
  EXPECT_EQ(T5Bucket(std::numeric_limits<int64_t>::max(), T5Direction::kBidirectional), 31);
}

TEST(T5Bucket, RefusesImpossibleTables) {
  EXPECT_THROW(T5Bucket(0, T5Direction::kBidirectional, 3), Error);
  EXPECT_THROW(T5Bucket(0, T5Direction::kBidirectional, 2), Error);
  EXPECT_THROW(T5Bucket(0, T5Direction::kCausal, 1), Error);
  EXPECT_THROW(T5Bucket(0, T5Direction::kCausal, 32, 16), Error);
}

}  // namespace
}  // namespace heed::testing
