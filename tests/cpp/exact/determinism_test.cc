// Same inputs, same bits: for any number of threads, for repeated and for concurrent calls.
#include <atomic>
#include <limits>
#include <thread>

#include "attention_case.h"
#include "gtest/gtest.h"
#include "heed/thread_pool.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class AttentionDeterminism : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AttentionDeterminism);

std::vector<AttentionCase> Cases() {
  std::vector<AttentionCase> cases;
  const Sizes big{.batch = 2,
                  .num_heads = 4,
                  .num_kv_heads = 2,
                  .q_len = 150,
                  .kv_len = 300,
                  .head_dim = 40,
                  .head_dim_v = 33};
  cases.push_back(MakeCase(big, 1));
  cases.push_back(MakeCase(big, 2));
  cases.back().scalars.causal = true;
  cases.back().scalars.query_offset = QueryOffset::End();
  cases.push_back(MakeCase({.num_heads = 8, .num_kv_heads = 2, .q_len = 1, .kv_len = 1100}, 3));
  cases.push_back(MakeCase({.num_heads = 1, .num_kv_heads = 1, .q_len = 700, .kv_len = 130}, 4));
  // So many KV heads that each of 9 threads has some to itself, and some are left over.
  cases.push_back(MakeCase({.num_heads = 20, .num_kv_heads = 20, .q_len = 100, .kv_len = 40}, 6));
  cases.push_back(MakeCase(big, 5));
  cases.back().scalars.window = Window{20, 10};
  cases.back().scalars.query_offset = QueryOffset::At(100);
  cases.back().key_lengths = {300, 170};
  return cases;
}

void ExpectSameBits(const Results& a, const Results& b, const AttentionCase& c) {
  EXPECT_EQ(Bits(a.output), Bits(b.output)) << c.Describe();
  EXPECT_EQ(Bits(a.lse), Bits(b.lse)) << c.Describe();
  EXPECT_EQ(Bits(a.weights), Bits(b.weights)) << c.Describe();
}

// Runs tasks in descending order and on the last worker only: legal for a caller's own pool.
class LastWorkerPool : public ThreadPool {
 public:
  int NumThreads() const override { return 9; }
  void Run(int64_t count, TaskRef task) override {
    for (int64_t index = count; index-- > 0;) task(index, 8);
  }
};

TEST_P(AttentionDeterminism, ThreadsChangeNoBit) {
  const auto one = MakeThreadPool(1);
  for (const AttentionCase& c : Cases()) {
    const Results expected = RunAttention(c, {.weights = true}, one.get());
    for (const int threads : {2, 3, 7}) {
      const auto pool = MakeThreadPool(threads);
      ExpectSameBits(expected, RunAttention(c, {.weights = true}, pool.get()), c);
      ExpectSameBits(expected, RunAttention(c, {.weights = true}, pool.get()), c);
    }
    ExpectSameBits(expected, RunAttention(c, {.weights = true}), c);
  }
}

TEST_P(AttentionDeterminism, AnyWorkerMayRunAnyTaskInAnyOrder) {
  LastWorkerPool last;
  for (const AttentionCase& c : Cases()) {
    ExpectSameBits(RunAttention(c), RunAttention(c, {}, &last), c);
  }
}

TEST_P(AttentionDeterminism, ConcurrentCallsDoNotDisturbEachOther) {
  const std::vector<AttentionCase> cases = Cases();
  std::vector<Results> expected;
  for (const AttentionCase& c : cases) expected.push_back(RunAttention(c));
  std::atomic<int> differences = 0;
  std::vector<std::thread> callers;
  for (size_t t = 0; t < 4; ++t) {
    callers.emplace_back([&, t] {
      for (size_t n = 0; n < 2 * cases.size(); ++n) {
        const size_t at = (n + t) % cases.size();
        const Results r = RunAttention(cases[at]);
        if (Bits(r.output) != Bits(expected[at].output)) ++differences;
        if (Bits(r.lse) != Bits(expected[at].lse)) ++differences;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(differences, 0);
}

// Copies one batch entry, one KV group or some rows out of a case.
Buffer<float> Slice(const Buffer<float>& from, const Extents& begin, const Extents& shape) {
  Buffer<float> to(shape, Layout::kDense, 0.0f);
  to.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
    x = from(begin[0] + b, begin[1] + h, begin[2] + i, begin[3] + d);
  });
  return to;
}

TEST_P(AttentionDeterminism, BatchEntryAndHeadGroupAloneHaveTheSameBits) {
  const AttentionCase whole = MakeCase(
      {.batch = 3, .num_heads = 4, .num_kv_heads = 2, .q_len = 70, .kv_len = 150, .head_dim = 24});
  AttentionCase part = MakeCase(
      {.batch = 1, .num_heads = 2, .num_kv_heads = 1, .q_len = 70, .kv_len = 150, .head_dim = 24});
  const Results all = RunAttention(whole);
  for (int64_t b = 0; b < 3; ++b) {
    for (int64_t g = 0; g < 2; ++g) {
      part.q = Slice(whole.q, {b, 2 * g, 0, 0}, part.q.shape());
      part.k = Slice(whole.k, {b, g, 0, 0}, part.k.shape());
      part.v = Slice(whole.v, {b, g, 0, 0}, part.v.shape());
      const Results r = RunAttention(part);
      EXPECT_EQ(Bits(r.output), Bits(Slice(all.output, {b, 2 * g, 0, 0}, r.output.shape())));
      EXPECT_EQ(Bits(r.lse), Bits(Slice(all.lse, {b, 2 * g, 0, 0}, r.lse.shape())));
    }
  }
}

// Few rows meet keys and values where they lie, many meet packed ones. A hidden key may be NaN.
TEST_P(AttentionDeterminism, FewQueryRowsHaveTheBitsThatTheyHaveAmongMany) {
  for (const int64_t head_dim : {16, 40, 64, 96}) {
    Sizes sizes = {.num_heads = 2, .num_kv_heads = 1, .q_len = 70, .kv_len = 301};
    sizes.head_dim = sizes.head_dim_v = head_dim;
    AttentionCase whole = MakeCase(sizes);
    whole.key_lengths = {300};
    whole.k(0, 0, 300, 1) = std::numeric_limits<float>::quiet_NaN();
    const Results all = RunAttention(whole);
    for (const int64_t count : {1, 2, 3, 4}) {
      sizes.q_len = count;
      AttentionCase rows = MakeCase(sizes);
      rows.k = whole.k;
      rows.v = whole.v;
      rows.key_lengths = whole.key_lengths;
      for (const int64_t i : {0, 5, 33, 64, 66}) {
        rows.q = Slice(whole.q, {0, 0, i, 0}, rows.q.shape());
        const Results r = RunAttention(rows);
        EXPECT_EQ(Bits(r.output), Bits(Slice(all.output, {0, 0, i, 0}, r.output.shape())))
            << i << " " << rows.Describe();
        EXPECT_EQ(Bits(r.lse), Bits(Slice(all.lse, {0, 0, i, 0}, r.lse.shape()))) << i;
      }
    }
  }
}

// Rows of a group that a window lets see other keys.
TEST_P(AttentionDeterminism, RowsHaveTheSameBitsWithoutThoseBeforeThem) {
  for (const int64_t table_rows : {0, 5, 39}) {
    Random random(7);
    AttentionCase whole = MakeCase({.num_heads = 1,
                                    .num_kv_heads = 1,
                                    .q_len = 200,
                                    .kv_len = 200,
                                    .head_dim = 64,
                                    .head_dim_v = 64});
    whole.scalars.causal = true;
    whole.scalars.window = Window{37, 0};
    if (table_rows != 0) whole.AddTensor("relative_values", {table_rows, 64}, random);
    const Results all = RunAttention(whole);
    for (const int64_t first : {1, 5, 150, 199}) {
      AttentionCase rows = whole;
      rows.sizes.q_len = 200 - first;
      rows.q = Slice(whole.q, {0, 0, first, 0}, {1, 1, 200 - first, 64});
      rows.scalars.query_offset = QueryOffset::At(first);
      const Results r = RunAttention(rows);
      EXPECT_EQ(Bits(r.output), Bits(Slice(all.output, {0, 0, first, 0}, r.output.shape())))
          << rows.Describe();
      EXPECT_EQ(Bits(r.lse), Bits(Slice(all.lse, {0, 0, first, 0}, r.lse.shape()))) << first;
    }
  }
}

}  // namespace
}  // namespace heed::testing
