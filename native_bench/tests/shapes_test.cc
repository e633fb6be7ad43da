#include "native_bench/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "heed/error.h"
#include "native_bench/problem.h"
#include "native_bench/verify.h"

namespace heed::bench {
namespace {

using ::testing::SizeIs;

TEST(Shapes, NamesAreDistinct) {
  std::set<std::string> names;
  for (const NamedShape& row : NamedShapes()) names.insert(row.Name());
  EXPECT_EQ(names.size(), NamedShapes().size());
}

TEST(Shapes, AModelStandsForItsPhases) {
  EXPECT_THAT(FindShapes({"gpt2"}), SizeIs(2));
  EXPECT_THAT(FindShapes({"gpt2:decode"}), SizeIs(1));
  EXPECT_THAT(FindShapes({"all"}), SizeIs(NamedShapes().size()));
  EXPECT_EQ(FindShapes({"gpt2:decode"})[0].model, "gpt2:decode");
}

TEST(Shapes, UnknownModelIsAnError) { EXPECT_THROW(FindShapes({"gpt2", "gpt9"}), Error); }

TEST(Shapes, MakeCasesOfEveryTypeAndThreadCount) {
  Grid grid;
  grid.mechanisms = {"scaled_dot_product"};
  grid.shapes = FindShapes({"gpt-oss:decode-window"});
  grid.dtypes = {DType::kFloat32, DType::kBFloat16};
  grid.threads = {1, 2};
  const std::vector<Case> cases = MakeCases(grid, "");
  ASSERT_THAT(cases, SizeIs(4));
  EXPECT_EQ(cases.back().Name(),
            "gpt-oss:decode-window/scaled_dot_product/h64:8/d64/l1x8192/causal/w127/sinks/bfloat16/"
            "t2");
}

TEST(Shapes, MechanismsWithoutAnOptionLeaveThemOut) {
  Grid grid;
  grid.mechanisms = {"kernel_regression"};
  grid.shapes = FindShapes({"gemma2-2b:decode", "bert-base"});
  grid.threads = {1};
  ASSERT_THAT(MakeCases(grid, ""), SizeIs(1));
  EXPECT_EQ(MakeCases(grid, "")[0].model, "bert-base:encode");
}

// Every option of the shapes, small, in every type that a peer takes.
TEST(Shapes, PeersMatchTheReference) {
  const auto pool = MakeThreadPool(1);
  for (const char* name : {"gpt-oss:prefill-window", "gemma2-2b:prefill-window",
                           "deepseek-v3:prefill", "llama3-8b:decode"}) {
    Case c = FindShapes({name})[0];
    c.mechanism = "scaled_dot_product";
    c.heads.num_heads = std::min<int64_t>(c.heads.num_heads, 8);
    c.heads.num_kv_heads = std::min<int64_t>(c.heads.num_kv_heads, 8);
    for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      c.dtype = dtype;
      for (const Peer& peer : Peers()) {
        if (!peer.refuse(c).empty()) continue;
        const Verdict verdict = VerifySmall(peer, c, 1, *pool);
        EXPECT_TRUE(verdict.Passed()) << peer.id << " on " << c.Name() << ": " << verdict.failure
                                      << verdict.max_error << " > " << verdict.bound;
      }
    }
  }
}

TEST(Shapes, AWindowHidesWhatIsOutsideIt) {
  Case c = FindShapes({"gpt-oss:prefill-window"})[0];
  c.mechanism = "scaled_dot_product";
  c.heads = {1, 1};
  c.lengths = {300, 300};
  const Problem problem(c, 1);
  EXPECT_EQ(problem.VisibleKeys(0), (std::pair<int64_t, int64_t>{0, 1}));
  EXPECT_EQ(problem.VisibleKeys(127), (std::pair<int64_t, int64_t>{0, 128}));
  EXPECT_EQ(problem.VisibleKeys(299), (std::pair<int64_t, int64_t>{172, 300}));
  EXPECT_NE(problem.sink(0), nullptr);
}

}  // namespace
}  // namespace heed::bench
