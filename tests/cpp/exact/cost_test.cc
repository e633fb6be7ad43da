// heed::EstimateCost against what calls really allocate and against counted pairs.
#include "heed/cost.h"

#include <vector>

#include "attention_case.h"
#include "gtest/gtest.h"
#include "heed/registry.h"
#include "heed/scratch.h"
#include "request_builder.h"
#include "simd_targets.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace heed::testing {
namespace {

class CostTest : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(CostTest);

// Shapes that run in every way there is: one block a head, several, few queries and many keys.
std::vector<AttentionCase> CostCases() {
  std::vector<AttentionCase> cases;
  cases.push_back(MakeCase({.num_heads = 8, .num_kv_heads = 8, .q_len = 64, .kv_len = 512}));
  cases.push_back(MakeCase({.batch = 2,
                            .num_heads = 4,
                            .num_kv_heads = 2,
                            .q_len = 700,
                            .kv_len = 700,
                            .head_dim = 80,
                            .head_dim_v = 40}));
  cases.push_back(MakeCase({.num_heads = 4, .num_kv_heads = 4, .q_len = 1, .kv_len = 9000}));
  cases.push_back(MakeCase({.num_heads = 1, .num_kv_heads = 1, .q_len = 300, .kv_len = 3000}));
  cases.back().scalars.score = Score::kSquaredDistance;
  cases.back().scalars.normalize = Normalize::kKernelSum;
  return cases;
}

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)

// While it lives, memory is given back when a call is over.
struct NoKeptScratch {
  NoKeptScratch() { SetKeptScratch(0); }
  ~NoKeptScratch() { SetKeptScratch(kDefaultKeptScratch); }
};

int64_t BytesInUse() {
  const auto info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// Notes how much memory is in use while tasks run.
class WatchingPool final : public ThreadPool {
 public:
  explicit WatchingPool(int threads) : threads_(threads) {}
  int NumThreads() const override { return threads_; }
  void Run(int64_t count, TaskRef task) override {
    most_ = std::max(most_, BytesInUse());
    for (int64_t index = 0; index < count; ++index) {
      task(index, static_cast<int>(index % threads_));
    }
  }
  int64_t most() const { return most_; }

 private:
  int threads_;
  int64_t most_ = 0;
};

TEST_P(CostTest, ScratchIsWhatIsAllocated) {
  const NoKeptScratch none;
  for (AttentionCase& c : CostCases()) {
    for (const int threads : {1, 5}) {
      SCOPED_TRACE(c.Describe() + ", threads " + std::to_string(threads));
      const Cost cost = EstimateCost(c.request(), threads);
      ASSERT_TRUE(cost.scratch_bytes.has_value());
      Buffer<float> output({c.sizes.batch, c.sizes.num_heads, c.sizes.q_len, c.sizes.head_dim_v},
                           Layout::kDense, 0);
      WatchingPool pool(threads);
      const int64_t before = BytesInUse();
      Attention(c.q.view(), c.k.view(), c.v.view(), c.options(), {.output = output.view()}, &pool);
      if (pool.most() == 0) continue;  // a single task never asks the pool
      const int64_t really = pool.most() - before;
      EXPECT_GE(really, *cost.scratch_bytes);
      // Alignment and book-keeping.
      EXPECT_LE(really, *cost.scratch_bytes + 32 * 1024 * (threads + 1));
    }
  }
}

#endif

TEST_P(CostTest, CountsWhatCausalAndWindowLeave) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = 100,
                              .kv_len = 100,
                              .head_dim = 16,
                              .head_dim_v = 8});
  const double rows = 2 * 4;
  const auto flops = [&] { return *EstimateCost(c.request(), 1).flops; };
  EXPECT_EQ(flops(), rows * 100 * 100 * 2 * (16 + 8));
  c.scalars.causal = true;
  EXPECT_EQ(flops(), rows * (100 * 101 / 2) * 2 * (16 + 8));
  c.scalars.window = Window::LastN(10);
  EXPECT_EQ(flops(), rows * (100 * 10 - 45) * 2 * (16 + 8));
  c.key_lengths = {0, 0};
  EXPECT_EQ(flops(), 0);
}

TEST_P(CostTest, CountsTheCellsThatKeepRulesLeave) {
  const int64_t len = 700;
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = len,
                              .kv_len = len,
                              .head_dim = 16,
                              .head_dim_v = 8});
  Request request = c.request();
  request.id = "block_sparse";
  request.params.push_back({"pattern", std::string("strided")});
  request.params.push_back({"stride", 100.0});
  const auto visible = [&](int64_t i, int64_t j) {
    return j <= i && (i - j <= 100 || (i - j) % 100 == 0);
  };
  double pairs = 0;
  for (int64_t i = 0; i < len; ++i) {
    for (int64_t j = 0; j < len; ++j) pairs += visible(i, j);
  }
  EXPECT_EQ(*EstimateCost(request, 1).flops, 2 * 4 * pairs * 2 * (16 + 8));
  // Together with another rule.
  request.params.push_back({"window_left", 300.0});
  pairs = 0;
  for (int64_t i = 0; i < len; ++i) {
    for (int64_t j = std::max<int64_t>(0, i - 300); j < len; ++j) pairs += visible(i, j);
  }
  EXPECT_EQ(*EstimateCost(request, 1).flops, 2 * 4 * pairs * 2 * (16 + 8));
}

TEST_P(CostTest, WeightsCostTheScoresAgain) {
  const AttentionCase c = MakeCase({.q_len = 10, .kv_len = 20, .head_dim = 4, .head_dim_v = 6});
  Request request = c.request();
  request.params.push_back({"return_weights", true});
  const Cost cost = EstimateCost(request, 2);
  EXPECT_EQ(*cost.flops, 2.0 * 10 * 20 * 2 * (4 + 6 + 4));
  EXPECT_EQ(cost.bytes_read, 4 * 2 * (10 * 4 + 20 * 4 + 20 * 6));
  EXPECT_EQ(cost.bytes_written, 4 * 2 * (10 * 6 + 10 * 20));
}

TEST(Cost, NeverAllocatesTheProblem) {
  // 2^28 keys: they would take 8 GiB, and packed copies as much again.
  float nothing = 0;
  const int64_t len = int64_t{1} << 28;
  const AnyTensor tensor = {DType::kFloat32, &nothing, 4, {1, 1, len, 8}, {0, 0, 0, 1}};
  const AnyTensor query = {DType::kFloat32, &nothing, 4, {1, 1, 4, 8}, {0, 0, 0, 1}};
  const Request request = {"scaled_dot_product", {{"q", query}, {"k", tensor}, {"v", tensor}}, {}};
  EXPECT_EQ(*EstimateCost(request, 1).flops, 4.0 * static_cast<double>(len) * 32);
}

TEST(Cost, OfSumsIsWhatMoves) {
  const std::vector<float> zeros(2 * 6, 0.0f);
  const Cost cost =
      EstimateCost(RequestBuilder("sinusoidal").Floats("x", {1, 2, 6}, zeros).request(), 1);
  EXPECT_EQ(cost.bytes_read, 4 * 12);
  EXPECT_EQ(cost.bytes_written, 4 * 12);
  EXPECT_EQ(*cost.flops, 0);
  EXPECT_GT(*cost.scratch_bytes, 0);
}

TEST(Cost, OfALayerNeverAllocatesItsRows) {
  // 2^26 rows of 8: queries, keys, values and heads would take 2 GiB each.
  float nothing = 0;
  const int64_t len = int64_t{1} << 26;
  const AnyTensor rows = {DType::kFloat32, &nothing, 3, {1, len, 8, 0}, {0, 0, 1, 0}};
  const std::vector<float> weight(64, 0.0f);
  RequestBuilder builder("multi_head");
  for (const char* name : {"w_q", "w_k", "w_v"}) builder.Floats(name, {2, 4, 8}, weight);
  Request request = builder.Param("window_left", 0.0).Param("causal", true).request();
  for (const char* name : {"query", "key", "value"}) request.inputs.push_back({name, rows});
  const Cost cost = EstimateCost(request, 1);
  EXPECT_EQ(*cost.flops, static_cast<double>(len) * (3 * 2 * 64 + 2 * 2 * 8));
  EXPECT_GT(*cost.scratch_bytes, 3 * 4 * 8 * len);
}

TEST(Cost, RefusesWhatRunRefuses) {
  const AttentionCase c = MakeCase({.q_len = 3, .kv_len = 5});
  EXPECT_THROW(EstimateCost(c.request(), 0), Error);
  Request causal = c.request();
  causal.params.push_back({"causal", true});
  EXPECT_THROW(EstimateCost(causal, 1), Error);
}

}  // namespace
}  // namespace heed::testing
