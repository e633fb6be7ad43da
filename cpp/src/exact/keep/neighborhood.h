// Keep plug: the nearest tokens along each axis of a grid. Source: Hassani 2023, arXiv:2204.07143;
// dilated: Hassani & Shi 2022, arXiv:2209.15001.
#ifndef HEED_SRC_EXACT_KEEP_NEIGHBORHOOD_H_
#define HEED_SRC_EXACT_KEEP_NEIGHBORHOOD_H_

#include <vector>

#include "heed/keep.h"
#include "src/exact/keep/grid.h"

namespace heed {

class NeighborhoodKeep final : public ProductKeep {
 public:
  explicit NeighborhoodKeep(const Neighborhood& rule)
      : ProductKeep(rule.grid), window_(rule.window_size), dilation_(rule.dilation) {
    if (dilation_.empty()) dilation_ = {1};
    window_.resize(rule.grid.size(), window_[0]);
    dilation_.resize(rule.grid.size(), dilation_[0]);
  }

 protected:
  // Among the tokens of the same residue the window begins window / 2 before the token, and slides
  // inwards where it would leave them.
  AxisKeys Along(size_t axis, int64_t x, int64_t extent) const override {
    const int64_t step = dilation_[axis];
    const int64_t residue = x % step;
    const int64_t members = (extent - residue + step - 1) / step;
    const int64_t begin =
        std::clamp<int64_t>(x / step - window_[axis] / 2, 0, members - window_[axis]);
    return {residue + begin * step, step, window_[axis]};
  }

 private:
  std::vector<int64_t> window_;
  std::vector<int64_t> dilation_;
};

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_NEIGHBORHOOD_H_
