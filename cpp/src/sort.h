// Sorting and choosing where short lists are sorted once a call and every byte of code is
// downloaded.
#ifndef HEED_SRC_SORT_H_
#define HEED_SRC_SORT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

namespace heed {

// Ascending; O(n log n). Less code than std::sort, which is compiled once for each element type.
template <class Iterator>
void HeapSort(Iterator first, Iterator last) {
  std::make_heap(first, last);
  std::sort_heap(first, last);
}

// The indices of the largest scores, as many as `chosen` holds, ascending; of equal ones the lower.
// `order` is scratch of scores.size() indices.
inline void ChooseBest(std::span<const double> scores, std::span<int32_t> order,
                       std::span<int32_t> chosen) {
  std::iota(order.begin(), order.end(), 0);
  const auto middle = order.begin() + static_cast<ptrdiff_t>(chosen.size());
  std::nth_element(order.begin(), middle, order.end(), [&](int32_t a, int32_t b) {
    const double x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  std::copy(order.begin(), middle, chosen.begin());
  HeapSort(chosen.begin(), chosen.end());
}

}  // namespace heed

#endif  // HEED_SRC_SORT_H_
