// How blocks of queries are dealt to the parts of a backward call.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "src/gradient/deal.h"

namespace heed {
namespace {

std::vector<int64_t> LoadsOf(const std::vector<int64_t>& costs, int64_t parts) {
  const std::vector<int64_t> part_of = DealBlocks(costs, parts);
  std::vector<int64_t> loads(static_cast<size_t>(parts));
  for (size_t block = 0; block < costs.size(); ++block) {
    loads[static_cast<size_t>(part_of[block])] += costs[block];
  }
  return loads;
}

TEST(DealBlocks, OfOneCostGoRound) {
  EXPECT_EQ(DealBlocks(std::vector<int64_t>(7, 5), 3), (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0}));
}

TEST(DealBlocks, ThatCostNothingHaveAPart) {
  for (const int64_t part : DealBlocks(std::vector<int64_t>(5, 0), 2)) {
    EXPECT_TRUE(part == 0 || part == 1);
  }
}

TEST(DealBlocks, OfACausalTriangleTakeTheSameTime) {
  for (const int64_t blocks : {22, 23, 86}) {
    for (const int64_t parts : {2, 4, 8}) {
      std::vector<int64_t> costs;
      for (int64_t n = 1; n <= blocks; ++n) costs.push_back(n);
      costs.back() /= 3;  // the last block has fewer rows
      const std::vector<int64_t> loads = LoadsOf(costs, parts);
      const double mean = static_cast<double>(std::accumulate(costs.begin(), costs.end(), 0L)) /
                          static_cast<double>(parts);
      EXPECT_LE(static_cast<double>(*std::max_element(loads.begin(), loads.end())), 1.15 * mean)
          << blocks << " blocks, " << parts << " parts";
    }
  }
}

}  // namespace
}  // namespace heed
