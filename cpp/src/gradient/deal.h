// Which blocks of queries a part of the work takes.
#ifndef HEED_SRC_GRADIENT_DEAL_H_
#define HEED_SRC_GRADIENT_DEAL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace heed {

// Deals blocks to parts of about equal cost: the most expensive first, each to the part that has
// least (of several, the first). Returns the part of each block. Depends on the costs alone.
inline std::vector<int64_t> DealBlocks(std::span<const int64_t> costs, int64_t parts) {
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return costs[a] > costs[b]; });
  std::vector<int64_t> loads(static_cast<size_t>(parts));
  std::vector<int64_t> part_of(costs.size());
  for (const size_t block : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += costs[block];
    part_of[block] = least - loads.begin();
  }
  return part_of;
}

}  // namespace heed

#endif  // HEED_SRC_GRADIENT_DEAL_H_
