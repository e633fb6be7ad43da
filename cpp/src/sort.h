// Sorting where short lists are sorted once a call and every byte of code is downloaded.
#ifndef HEED_SRC_SORT_H_
#define HEED_SRC_SORT_H_

#include <algorithm>

namespace heed {

// Ascending; O(n log n). Less code than std::sort, which is compiled once for each element type.
template <class Iterator>
void HeapSort(Iterator first, Iterator last) {
  std::make_heap(first, last);
  std::sort_heap(first, last);
}

}  // namespace heed

#endif  // HEED_SRC_SORT_H_
