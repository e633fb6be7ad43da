// Which blocks of queries a part of the work takes.
#ifndef HEED_SRC_GRADIENT_DEAL_H_
#define HEED_SRC_GRADIENT_DEAL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "src/sort.h"

namespace heed {

// Deals blocks to parts of about equal cost: the most expensive first (of equal ones the first),
// each to the part that has least (of several, the first). Returns the part of each block. Depends
// on the costs alone.
inline std::vector<int64_t> DealBlocks(std::span<const int64_t> costs, int64_t parts) {
  std::vector<std::pair<int64_t, size_t>> order;  // of minus the cost
  for (size_t block = 0; block < costs.size(); ++block) order.emplace_back(-costs[block], block);
  HeapSort(order.begin(), order.end());
  std::vector<int64_t> loads(static_cast<size_t>(parts));
  std::vector<int64_t> part_of(costs.size());
  for (const auto& [minus_cost, block] : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least -= minus_cost;
    part_of[block] = least - loads.begin();
  }
  return part_of;
}

}  // namespace heed

#endif  // HEED_SRC_GRADIENT_DEAL_H_
