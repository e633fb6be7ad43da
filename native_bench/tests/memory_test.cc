#include "native_bench/memory.h"

#include <gtest/gtest.h>

#include <memory>

namespace heed::bench {
namespace {

constexpr size_t kSize = size_t{64} << 20;
// The system counts pages in batches, some behind.
constexpr int64_t kSlack = int64_t{1} << 20;

// Writes every page of a block of kSize and lets go of it.
void TouchAndRelease() {
  const auto block = std::make_unique_for_overwrite<char[]>(kSize);
  volatile char* bytes = block.get();  // so that the writes are not optimised away
  for (size_t at = 0; at < kSize; at += 4096) bytes[at] = 1;
}

TEST(HighWater, SeesWhatWasReleasedSince) {
  const HighWater mark;
  if (!mark.Bytes().has_value()) GTEST_SKIP() << "this system does not say";
  TouchAndRelease();
  EXPECT_GE(*mark.Bytes(), static_cast<int64_t>(kSize) - kSlack);
  EXPECT_LT(*mark.Bytes(), static_cast<int64_t>(2 * kSize));
}

TEST(HighWater, ForgetsWhatWasBefore) {
  TouchAndRelease();
  const HighWater mark;
  if (!mark.Bytes().has_value()) GTEST_SKIP() << "this system does not say";
  EXPECT_LT(*mark.Bytes(), static_cast<int64_t>(kSize / 8));
}

}  // namespace
}  // namespace heed::bench
