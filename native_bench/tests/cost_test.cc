// heed::EstimateCost of every mechanism of the registry, on the problems that the benchmark times:
// scratch memory against what calls allocate, FLOPs against formulas that know nothing of the code.
#include "heed/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "heed/registry.h"
#include "heed/scratch.h"
#include "heed/thread_pool.h"
#include "native_bench/problem.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace heed::bench {
namespace {

constexpr int64_t kBatch = 2, kHeads = 4, kLen = 1024, kDim = 32;

Problem MakeProblem(std::string_view id, int64_t kv_heads = kHeads) {
  return Problem({.mechanism = std::string(id),
                  .batch = kBatch,
                  .heads = {kHeads, kv_heads},
                  .lengths = {kLen, kLen},
                  .head_dim = kDim},
                 7);
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

// Notes how much memory is in use when tasks are to be run, and runs none: sizes do not depend on
// them.
class WatchingPool final : public ThreadPool {
 public:
  explicit WatchingPool(int threads) : threads_(threads) {}
  int NumThreads() const override { return threads_; }
  void Run(int64_t, TaskRef) override { most_ = std::max(most_, BytesInUse()); }
  int64_t most() const { return most_; }

 private:
  int threads_;
  int64_t most_ = 0;
};

TEST(Cost, ScratchIsWhatEveryMechanismAllocates) {
  const NoKeptScratch none;
  for (const Mechanism& mechanism : Mechanisms()) {
    const Problem problem = MakeProblem(mechanism.id);
    for (const int threads : {1, 5}) {
      SCOPED_TRACE(std::string(mechanism.id) + ", threads " + std::to_string(threads));
      const Cost cost = EstimateCost(problem.request(), threads);
      ASSERT_TRUE(cost.scratch_bytes.has_value());
      WatchingPool pool(threads);
      const int64_t before = BytesInUse();
      heed::Run(problem.request(), problem.results(), &pool);
      if (pool.most() == 0 && threads == 1) continue;  // one thread may not ask its pool
      ASSERT_GT(pool.most(), 0);
      const int64_t really = pool.most() - before;
      // One thread may not ask its pool in the moment of most.
      if (threads > 1) {
        EXPECT_GE(really, *cost.scratch_bytes);
      }
      // Alignment and book-keeping.
      EXPECT_LE(really, *cost.scratch_bytes + 32 * 1024 * (threads + 1));
    }
  }
}

#endif

// 2 a multiply-add: what follows counts by hand.
class Products {
 public:
  explicit Products(std::string_view id, int64_t kv_heads = kHeads)
      : problem_(MakeProblem(id, kv_heads)) {}

  // Elements of inputs of these names.
  double Size(const std::vector<std::string>& names) const {
    double sum = 0;
    for (const std::string& name : names) sum += static_cast<double>(problem_.input(name)->size());
    return sum;
  }
  // So many rows of each batch entry times matrices.
  double Rows(int64_t rows, const std::vector<std::string>& names) const {
    return 2.0 * static_cast<double>(kBatch * rows) * Size(names);
  }
  // Dot products of `depth` and sums of rows of `width`.
  static double Pairs(int64_t q_len, int64_t kv_len, int64_t depth, int64_t width) {
    return 2.0 * static_cast<double>(kBatch * kHeads * q_len * kv_len * (depth + width));
  }
  double Estimate() const { return *EstimateCost(problem_.request(), 2).flops; }

 private:
  Problem problem_;
};

constexpr int64_t kEmbed = kHeads * kDim;

TEST(Cost, FlopsOfLayersAreThoseOfTheirMatrices) {
  const double attention = Products::Pairs(kLen, kLen, kDim, kDim);
  for (const int64_t kv_heads : {kHeads, kHeads / 2}) {
    const Products p("grouped_query", kv_heads);
    EXPECT_EQ(p.Estimate(), p.Rows(kLen, {"w_q", "w_k", "w_v", "w_o"}) + attention);
  }
  const Products multi_head("multi_head");
  EXPECT_EQ(multi_head.Estimate(), multi_head.Rows(kLen, {"w_q", "w_k", "w_v", "w_o"}) + attention);
  const Products multi_query("multi_query", 1);
  EXPECT_EQ(multi_query.Estimate(),
            multi_query.Rows(kLen, {"w_q", "w_k", "w_v", "w_o"}) + attention);
  const std::vector<std::string> self = {"w_q", "w_k", "w_v", "w_o"};
  const Products block("transformer_block");
  EXPECT_EQ(block.Estimate(),
            block.Rows(kLen, self) + block.Rows(kLen, {"w_up", "w_down"}) + attention);
  const Products classifier("attention_classifier");
  EXPECT_EQ(classifier.Estimate(), classifier.Rows(kLen, self) + attention +
                                       2.0 * kBatch * kLen * kEmbed +  // the mean
                                       classifier.Rows(1, {"w_class"}));
  const Products latent("multi_head_latent");
  EXPECT_EQ(latent.Estimate(),
            latent.Rows(kLen, {"w_dq", "w_uq", "w_qr", "w_dkv", "w_kr", "w_uk", "w_uv", "w_o"}) +
                Products::Pairs(kLen, kLen, kDim + kDim / 2, kDim));
}

TEST(Cost, FlopsOfCompositions) {
  const double attention = Products::Pairs(kLen, kLen, kDim, kDim);
  EXPECT_EQ(Products("gated").Estimate(), attention);
  EXPECT_EQ(Products("differential").Estimate(), 2 * Products::Pairs(kLen, kLen, kDim / 2, kDim));
  // Two mixings of as many heads.
  EXPECT_EQ(Products("talking_heads").Estimate(),
            Products::Pairs(kLen, kLen, kDim, kDim + 2 * kHeads));
  const Products external("external");
  const int64_t units = 64;
  EXPECT_EQ(external.Estimate(),
            Products::Pairs(units, kLen, kDim, 0) + Products::Pairs(kLen, units, kDim, kDim));
  // One more dimension carries the bias of the keys.
  EXPECT_EQ(Products("synthesizer").Estimate(), Products::Pairs(kLen, kLen, kDim + 1, kDim));
  // Without a bias every channel of a head keeps one sum of values over all its rows.
  EXPECT_EQ(Products("attention_free").Estimate(), 2.0 * kBatch * kHeads * kLen * kDim);
  // Once a source and once a target for the scores (every node has edges or not), then 8 a node.
  const double edges = 8.0 * kLen;
  const double graph = Products("graph").Estimate() / (2.0 * kBatch * kHeads * kDim);
  EXPECT_GE(graph, edges + kLen);
  EXPECT_LE(graph, edges + 2 * kLen);
}

TEST(Cost, FlopsOfSetsCountBothBlocks) {
  const Products sets("induced_set");
  const int64_t inducing = 32;
  EXPECT_EQ(sets.Estimate(), 2.0 * kBatch * kEmbed * kEmbed * (5 * inducing + 5 * kLen) +
                                 2 * Products::Pairs(inducing, kLen, kDim, kDim));
  const Products perceiver("perceiver");
  const int64_t latents = static_cast<int64_t>(perceiver.Size({"latents"})) / kEmbed / kBatch;
  EXPECT_EQ(perceiver.Estimate(), perceiver.Rows(latents, {"w_q", "w_o", "w_up", "w_down"}) +
                                      perceiver.Rows(kLen, {"w_k", "w_v"}) +
                                      Products::Pairs(latents, kLen, kDim, kDim));
}

TEST(Cost, FlopsOfARetrievalAreThoseOfAllItsSteps) {
  const Problem problem = MakeProblem("hopfield");
  Request request = problem.request();
  std::erase_if(request.params, [](const NamedParam& param) { return param.name == "steps"; });
  request.params.push_back({"steps", 1.0});
  const auto estimate = [&](double steps) {
    request.params.back().value = steps;
    return EstimateCost(request, 1);
  };
  const double one = Products::Pairs(kLen, kLen, kDim, kDim);
  EXPECT_EQ(*estimate(1).flops, one);
  EXPECT_EQ(*estimate(2).flops, 2 * one);
  EXPECT_EQ(*estimate(1000).flops, 1000 * one);
  // Memory is counted at the time when there is most of it: steps give theirs back.
  EXPECT_EQ(*estimate(1000).scratch_bytes, *estimate(2).scratch_bytes);
}

TEST(Cost, RotationsAreProductsAndSumsAreFree) {
  const Products rope("rope");
  EXPECT_EQ(rope.Estimate(), 4 * rope.Size({"x"}));  // 2 x 2 for a pair
  EXPECT_EQ(Products("sinusoidal").Estimate(), 0);
  EXPECT_EQ(Products("learned_position").Estimate(), 0);
}

TEST(Cost, FlopsOfRecurrencesGrowWithTheLength) {
  const double tokens = kBatch * kHeads * kLen;
  // The state is written and read once a token; tokens meet half of their chunk of 64.
  const double state = 2.0 * tokens * kDim * kDim, meets = 2.0 * tokens * 32 * 2 * kDim;
  EXPECT_EQ(Products("retention").Estimate(), 2 * state + meets);
  EXPECT_EQ(Products("gated_delta_rule").Estimate(), 3 * state + 2 * meets);
  // Two things are written a token, in chunks of half as many tokens.
  EXPECT_EQ(Products("rwkv7").Estimate(), 4 * state + 2 * meets);
  // Gradients read the model, and tokens of a mini-batch of 16 meet.
  EXPECT_EQ(Products("ttt_linear").Estimate(),
            2.0 * tokens * (kDim + 1) * kDim * 3 + 2.0 * tokens * 8 * (2 * kDim + 1));
  // The projection of queries and keys, and a state of 256 features and one more column.
  EXPECT_EQ(Products("performer").Estimate(), 2.0 * tokens * 256 * (2 * (kDim + 1) + 2 * kDim));
}

TEST(Cost, EveryMechanismIsCounted) {
  for (const Mechanism& mechanism : Mechanisms()) {
    const Cost cost = EstimateCost(MakeProblem(mechanism.id).request(), 3);
    EXPECT_EQ(cost.flops.has_value(), cost.scratch_bytes.has_value()) << mechanism.id;
    EXPECT_TRUE(cost.flops.has_value()) << mechanism.id;
  }
}

}  // namespace
}  // namespace heed::bench
