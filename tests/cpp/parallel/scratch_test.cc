// Scratch memory that outlives its call: found again, bounded, given back, from any thread.
#include "heed/scratch.h"

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/attention.h"
#include "heed/error.h"
#include "src/parallel/worker_scratch.h"

namespace heed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kFloats = size_t{1} << 18;
constexpr int64_t kBytes = int64_t{kFloats} * 4;

// Starts with nothing kept, and leaves what others expect.
class Scratch : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef HEED_EXACT_MEMORY
    GTEST_SKIP() << "memory checkers see memory that was never anything else";
#endif
    SetKeptScratch(0);
    SetKeptScratch(kDefaultKeptScratch);
  }
  void TearDown() override { SetKeptScratch(kDefaultKeptScratch); }
};

TEST_F(Scratch, IsFoundAgain) {
  const float* first = nullptr;
  {
    const AlignedFloats memory(kFloats);
    first = memory.get();
    EXPECT_EQ(KeptScratch(), 0);
  }
  EXPECT_GE(KeptScratch(), kBytes);
  const AlignedFloats other(kFloats - kFloats / 4), same(kFloats);
  EXPECT_EQ(other.get(), first) << "a little less";
  EXPECT_NE(same.get(), first) << "is in use";
  EXPECT_EQ(KeptScratch(), 0);
}

TEST_F(Scratch, IsNotSpentOnFarLess) {
  { const AlignedFloats memory(kFloats); }
  const AlignedFloats little(kFloats / 4);
  EXPECT_GE(KeptScratch(), kBytes);
}

TEST_F(Scratch, StartsAtACacheLine) {
  for (const size_t count : {size_t{1}, size_t{1500}, kFloats + 1}) {
    const AlignedFloats memory(count);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % 64, 0u);
    std::memset(memory.get(), 1, count * sizeof(float));
  }
}

TEST_F(Scratch, StaysBelowTheLimit) {
  SetKeptScratch(3 * kBytes);
  {
    std::vector<AlignedFloats> blocks;
    for (int i = 0; i < 5; ++i) blocks.emplace_back(kFloats);
  }
  EXPECT_EQ(KeptScratch(), 3 * kBytes);
  { const AlignedFloats too_large(4 * kFloats); }
  EXPECT_EQ(KeptScratch(), 3 * kBytes);
  { const AlignedFloats pushes_out(2 * kFloats); }
  EXPECT_EQ(KeptScratch(), 3 * kBytes);
  SetKeptScratch(kBytes);
  EXPECT_EQ(KeptScratch(), 0) << "two blocks' worth do not fit in one's";
  SetKeptScratch(0);
  { const AlignedFloats memory(kFloats); }
  EXPECT_EQ(KeptScratch(), 0);
}

TEST_F(Scratch, OfManySizesStaysBelowTheLimitToo) {
  for (size_t count = 2000; count < 40 * kFloats; count += count / 3) {
    const AlignedFloats memory(count);
    memory.get()[count - 1] = 1;
  }
  EXPECT_LE(KeptScratch(), kDefaultKeptScratch);
  EXPECT_GT(KeptScratch(), 0);
}

TEST_F(Scratch, RefusesFewerBytesThanNone) {
  try {
    SetKeptScratch(-1);
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRange);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("bytes"), HasSubstr("-1")));
  }
}

TEST_F(Scratch, BelongsToOneThreadAtATime) {
  std::vector<std::thread> threads;
  std::vector<int> spoiled(4);
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([number, &spoiled] {
      for (size_t turn = 0; turn < 500; ++turn) {
        const size_t count = 1024 * (1 + turn % 7);
        const AlignedFloats memory(count);
        for (size_t i = 0; i < count; i += 64) memory.get()[i] = static_cast<float>(number);
        if (turn % 50 == 0) SetKeptScratch(turn % 100 == 0 ? 1 << 15 : 1 << 20);
        for (size_t i = 0; i < count; i += 64) {
          spoiled[static_cast<size_t>(number)] += memory.get()[i] != static_cast<float>(number);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(spoiled, ::testing::Each(0));
}

// What a call left behind must not be seen by the next one: garbage stands for it.
TEST_F(Scratch, IsNeverReadBeforeItIsWritten) {
  constexpr int64_t kLen = 300, kDim = 40;
  std::vector<float> rows(static_cast<size_t>(kLen * kDim)), clean(rows.size()), after(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 37) / 37 - 0.5f;
  const auto x = ContiguousBlhd<const float>(rows.data(), 1, kLen, 1, kDim);
  const auto run = [&](std::vector<float>& to) {
    AttentionOutputs outputs;
    outputs.output = ContiguousBlhd(to.data(), 1, kLen, 1, kDim);
    Attention(x, x, x, {}, outputs, &DefaultThreadPool());
  };
  run(clean);
  {
    std::vector<AlignedFloats> blocks;
    for (size_t count = 1024; count < kFloats; count += count / 4) {
      for (int i = 0; i < 2; ++i) {
        blocks.emplace_back(count);
        std::memset(blocks.back().get(), 0xff, count * sizeof(float));  // NaN
      }
    }
  }
  run(after);
  EXPECT_EQ(std::memcmp(clean.data(), after.data(), clean.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace heed::testing
