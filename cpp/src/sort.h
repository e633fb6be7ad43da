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
  constexpr size_t kFew = 32;
  if (chosen.size() <= kFew) {
    // Most scores fall behind those kept so far: one comparison each.
    size_t kept = 0;
    for (size_t n = 0; n < scores.size(); ++n) {
      const double score = scores[n];
      const auto at = [&](size_t place) { return scores[static_cast<size_t>(chosen[place])]; };
      if (kept == chosen.size() && (kept == 0 || !(score > at(kept - 1)))) continue;
      size_t place = kept < chosen.size() ? kept++ : kept - 1;
      for (; place > 0 && score > at(place - 1); --place) chosen[place] = chosen[place - 1];
      chosen[place] = static_cast<int32_t>(n);
    }
    HeapSort(chosen.begin(), chosen.end());
    return;
  }
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
