// Keep plug: windows of an image, shifted or not. Source: Liu 2021, arXiv:2103.14030.
#ifndef HEED_SRC_EXACT_KEEP_SWIN_WINDOW_H_
#define HEED_SRC_EXACT_KEEP_SWIN_WINDOW_H_

#include <vector>

#include "heed/keep.h"
#include "src/exact/keep/grid.h"

namespace heed {

class SwinWindowKeep final : public ProductKeep {
 public:
  explicit SwinWindowKeep(const SwinWindow& rule) : ProductKeep(rule.grid) {
    for (size_t axis = 0; axis < 2; ++axis) {
      window_[axis] = rule.window_size[rule.window_size.size() == 1 ? 0 : axis];
      if (!rule.shift.empty()) shift_[axis] = rule.shift[rule.shift.size() == 1 ? 0 : axis];
    }
  }

 protected:
  // In the rolled image, windows begin at multiples of the window. Rolled back, the last one is cut
  // in two by the edge; each part keeps to itself.
  AxisKeys Along(size_t axis, int64_t x, int64_t extent) const override {
    const int64_t window = window_[axis];
    const int64_t shift = shift_[axis];
    if (x < shift) return {0, 1, shift};
    const int64_t begin = (x - shift) / window * window + shift;
    return {begin, 1, std::min(begin + window, extent) - begin};
  }

 private:
  int64_t window_[2];
  int64_t shift_[2] = {0, 0};
};

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_SWIN_WINDOW_H_
