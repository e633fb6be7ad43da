#include "native_bench/cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heed/error.h"

namespace heed::bench {
namespace {

using ::testing::ElementsAre;

Case MakeCase(Heads heads, Lengths lengths, int64_t head_dim, Mask mask) {
  Case c;
  c.mechanism = "scaled_dot_product";
  c.heads = heads;
  c.lengths = lengths;
  c.head_dim = head_dim;
  c.mask = mask;
  return c;
}

Grid SmallGrid() {
  Grid grid;
  grid.mechanisms = {"scaled_dot_product"};
  grid.heads = {{8, 8}};
  grid.head_dims = {64};
  grid.lengths = {{128, 128}, {1024, 1024}};
  grid.masks = {Mask::kFull, Mask::kCausal};
  grid.threads = {1, 2};
  return grid;
}

std::vector<std::string> Names(const std::vector<Case>& cases) {
  std::vector<std::string> names;
  for (const Case& c : cases) names.push_back(c.Name());
  return names;
}

TEST(Cases, NameTellsTheWholeShape) {
  Case c = MakeCase({32, 8}, {1, 4096}, 128, Mask::kCausal);
  c.batch = 2;
  c.threads = 4;
  EXPECT_EQ(c.Name(), "scaled_dot_product/b2/h32:8/d128/l1x4096/causal/t4");
  EXPECT_EQ(MakeCase({8, 8}, {64, 64}, 64, Mask::kFull).Name(),
            "scaled_dot_product/h8/d64/l64/full/t1");
}

TEST(Cases, FlopCountIsFourPerPairAndDimension) {
  const Case full = MakeCase({8, 8}, {1024, 1024}, 64, Mask::kFull);
  EXPECT_DOUBLE_EQ(FlopCount(full), 4.0 * 8 * 1024 * 1024 * 64);
}

TEST(Cases, CausalHalvesASquare) {
  const Case full = MakeCase({8, 2}, {512, 512}, 64, Mask::kFull);
  const Case causal = MakeCase({8, 2}, {512, 512}, 64, Mask::kCausal);
  EXPECT_DOUBLE_EQ(FlopCount(causal), FlopCount(full) / 2);
}

TEST(Cases, CausalDecodingSeesNearlyEverything) {
  const Case causal = MakeCase({1, 1}, {1, 4096}, 1, Mask::kCausal);
  EXPECT_DOUBLE_EQ(FlopCount(causal), 4.0 * 4095.5);
}

TEST(Cases, CausalRowsBeforeTheFirstKeyCostNothing) {
  const Case causal = MakeCase({1, 1}, {100, 10}, 1, Mask::kCausal);
  EXPECT_DOUBLE_EQ(FlopCount(causal), 4.0 * 10 * 10 / 2);
}

TEST(Cases, GridIsAProductWithThreadsInnermost) {
  EXPECT_THAT(Names(MakeCases(SmallGrid(), "l128/")),
              ElementsAre("scaled_dot_product/h8/d64/l128/full/t1",
                          "scaled_dot_product/h8/d64/l128/full/t2",
                          "scaled_dot_product/h8/d64/l128/causal/t1",
                          "scaled_dot_product/h8/d64/l128/causal/t2"));
  EXPECT_EQ(MakeCases(SmallGrid(), "").size(), 8u);
}

TEST(Cases, ValuesOfTheirOwnSizeCount) {
  Case c = MakeCase({8, 8}, {1024, 1024}, 192, Mask::kFull);
  c.head_dim_v = 128;
  EXPECT_DOUBLE_EQ(FlopCount(c), 2.0 * 8 * 1024 * 1024 * (192 + 128));
  EXPECT_EQ(c.Name(), "scaled_dot_product/h8/d192:128/l1024/full/t1");
}

TEST(Cases, UnknownMechanismIsAnError) {
  Grid grid = SmallGrid();
  grid.mechanisms = {"no_such_thing"};
  EXPECT_THROW(MakeCases(grid, ""), Error);
}

TEST(Cases, MalformedFilterIsAnError) { EXPECT_THROW(MakeCases(SmallGrid(), "l(128"), Error); }

}  // namespace
}  // namespace heed::bench
