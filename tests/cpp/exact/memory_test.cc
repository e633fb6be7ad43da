// Memory: nothing is touched outside the caller's tensors, and nothing grows with q_len * kv_len.
#include "gtest/gtest.h"

#if defined(__unix__) || defined(__APPLE__)

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "heed/attention.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

// Bytes between two pages that cannot be touched, flush with the second or with the first one.
class GuardedMemory {
 public:
  enum class Flush { kEnd, kStart };

  GuardedMemory(size_t bytes, Flush flush) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    const size_t pages = (bytes + page_ - 1) / page_ + 2;
    bytes_ = pages * page_;
    void* memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    base_ = static_cast<char*>(memory);
    EXPECT_EQ(mprotect(base_, page_, PROT_NONE), 0);
    EXPECT_EQ(mprotect(base_ + bytes_ - page_, page_, PROT_NONE), 0);
    data_ = flush == Flush::kEnd ? base_ + bytes_ - page_ - bytes : base_ + page_;
  }
  ~GuardedMemory() { munmap(base_, bytes_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  void* data() const { return data_; }

 private:
  size_t page_;
  size_t bytes_;
  char* base_;
  char* data_;
};

// Places copies of tensors in guarded memory.
class Guard {
 public:
  explicit Guard(GuardedMemory::Flush flush) : flush_(flush) {}

  template <typename T>
  TensorView<T> Copy(const Buffer<T>& buffer) {
    const std::vector<T> elements = buffer.Elements();
    const size_t bytes = elements.size() * sizeof(T);
    blocks_.push_back(std::make_unique<GuardedMemory>(bytes, flush_));
    T* data = static_cast<T*>(blocks_.back()->data());
    std::memcpy(data, elements.data(), bytes);
    const Extents s = buffer.shape();
    return Contiguous(data, s[0], s[1], s[2], s[3]);
  }

 private:
  GuardedMemory::Flush flush_;
  std::vector<std::unique_ptr<GuardedMemory>> blocks_;
};

class AttentionMemory : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AttentionMemory);

// Runs a case with every tensor guarded; reading or writing one byte too many ends the program.
void ExpectGuardedRunMatches(const AttentionCase& c, GuardedMemory::Flush flush) {
  const Results expected =
      RunAttention(c, {.lse = true, .weights = true, .scores = ScoreStage::kBiased});
  Guard guard(flush);
  AttentionOptions options = c.options();
  if (c.bias.has_value()) options.bias = guard.Copy(c.bias);
  if (c.keep.has_value()) options.keep = guard.Copy(c.keep);
  const TensorView<float> output = guard.Copy(expected.output);
  const TensorView<float> lse = guard.Copy(expected.lse);
  const TensorView<float> weights = guard.Copy(expected.weights);
  const TensorView<float> scores = guard.Copy(expected.scores);
  std::memset(output.data, 0xff, static_cast<size_t>(output.size()) * sizeof(float));
  Attention(guard.Copy(c.q), guard.Copy(c.k), guard.Copy(c.v), options,
            {.output = output, .lse = lse, .weights = weights, .scores = scores});
  const std::vector<float> elements = expected.output.Elements();
  EXPECT_EQ(std::memcmp(output.data, elements.data(), elements.size() * sizeof(float)), 0)
      << c.Describe();
}

TEST_P(AttentionMemory, NothingOutsideTheTensorsIsTouched) {
  for (const int64_t len : {1, 2, 3, 5, 7, 8, 9, 15, 17, 31, 33, 63, 65, 127, 129, 131}) {
    for (const int64_t dim : {1, 3, 8, 13, 17}) {
      AttentionCase c = MakeCase({.num_heads = 2,
                                  .num_kv_heads = 1,
                                  .q_len = (len * 7) % 23 + 1,
                                  .kv_len = len,
                                  .head_dim = dim,
                                  .head_dim_v = 18 - dim});
      Random random(static_cast<uint64_t>(len * 100 + dim));
      c.keep = MakeKeep({1, 2, c.sizes.q_len, len}, random, 0.8);
      c.bias = MakeBias({1, 2, c.sizes.q_len, len}, random, 0.1);
      ExpectGuardedRunMatches(c, GuardedMemory::Flush::kEnd);
      ExpectGuardedRunMatches(c, GuardedMemory::Flush::kStart);
    }
  }
}

TEST_P(AttentionMemory, KeysBeyondTheLengthsAreNeverRead) {
  // k and v end where the longest length ends; the shapes say more.
  AttentionCase c = MakeCase({.num_heads = 2,
                              .num_kv_heads = 1,
                              .q_len = 9,
                              .kv_len = 75,
                              .head_dim = 13,
                              .head_dim_v = 11});
  Guard guard(GuardedMemory::Flush::kEnd);
  TensorView<const float> k = guard.Copy(c.k);
  TensorView<const float> v = guard.Copy(c.v);
  const Results expected = RunAttention(c);
  k.shape[2] = v.shape[2] = 400;
  const std::vector<int32_t> lengths = {75};
  AttentionOptions options = c.options();
  options.key_lengths = lengths;
  Buffer<float> output({1, 2, 9, 11}, Layout::kDense, 0.0f);
  Attention(c.q.view(), k, v, options, {.output = output.view()});
  EXPECT_EQ(Bits(output), Bits(expected.output));
  Buffer<float> scores({1, 2, 9, 400}, Layout::kDense, 0.0f);
  Attention(c.q.view(), k, v, options, {.output = output.view(), .scores = scores.view()});
  EXPECT_EQ(scores(0, 1, 8, 399), -std::numeric_limits<float>::infinity());
}

TEST_P(AttentionMemory, FutureKeysOfCausalAttentionAreNeverRead) {
  AttentionCase c = MakeCase({.num_heads = 2,
                              .num_kv_heads = 1,
                              .q_len = 70,
                              .kv_len = 70,
                              .head_dim = 13,
                              .head_dim_v = 11});
  c.scalars.causal = true;
  Guard guard(GuardedMemory::Flush::kEnd);
  TensorView<const float> k = guard.Copy(c.k);
  TensorView<const float> v = guard.Copy(c.v);
  const Results expected = RunAttention(c);
  k.shape[2] = v.shape[2] = 300;
  AttentionOptions options = c.options();
  options.query_offset = QueryOffset::At(0);
  Buffer<float> output({1, 2, 70, 11}, Layout::kDense, 0.0f);
  Attention(c.q.view(), k, v, options, {.output = output.view()});
  EXPECT_EQ(Bits(output), Bits(expected.output));
}

double PeakMebibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);
#else
  return static_cast<double>(usage.ru_maxrss) / (1 << 10);
#endif
}

// Attention over 8192 x 8192 pairs, which would be 256 MiB as a matrix; leaves the process with 0
// if the peak grew by less than 24 MiB.
[[noreturn]] void RunLongAttention() {
  const AttentionCase c = MakeCase({.num_heads = 1,
                                    .num_kv_heads = 1,
                                    .q_len = 8192,
                                    .kv_len = 8192,
                                    .head_dim = 8,
                                    .head_dim_v = 8});
  const auto pool = MakeThreadPool(2);
  const double before = PeakMebibytes();
  RunAttention(c, {}, pool.get());
  std::_Exit(PeakMebibytes() - before < 24 ? 0 : 1);
}

TEST(AttentionMemoryDeathTest, LongAttentionNeedsNoMatrix) {
  // In a process of its own, whose peak nothing else has raised.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(RunLongAttention(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace heed::testing

#endif
