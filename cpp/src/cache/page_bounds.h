// The smallest and the largest of some numbers; NaN where one of them is.
#ifndef HEED_SRC_CACHE_PAGE_BOUNDS_H_
#define HEED_SRC_CACHE_PAGE_BOUNDS_H_

#include <limits>

namespace heed {

struct Bounds {
  float max = -std::numeric_limits<float>::infinity();
  float min = std::numeric_limits<float>::infinity();

  void Add(float x) {
    const bool nan = x != x;
    if (x > max || nan) max = x;
    if (x < min || nan) min = x;
  }
};

}  // namespace heed

#endif  // HEED_SRC_CACHE_PAGE_BOUNDS_H_
