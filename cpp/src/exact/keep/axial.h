// Keep plug: axial attention, tokens of a grid that differ along one axis only. Source: Ho 2019,
// arXiv:1912.12180.
#ifndef HEED_SRC_EXACT_KEEP_AXIAL_H_
#define HEED_SRC_EXACT_KEEP_AXIAL_H_

#include <optional>

#include "heed/keep.h"
#include "src/exact/keep/grid.h"

namespace heed {

class AxialKeep final : public PatternKeep {
 public:
  explicit AxialKeep(const Axial& rule) : grid_(rule.grid), axis_(rule.axis) {}

  KeyRange Hull(int64_t, const Row& row) const override {
    KeyRange hull = {row.position, row.position + 1};
    ForEachLine(row, [&](const Grid::Product& line) {
      const KeyRange keys = grid_.HullOf(line);
      hull = {std::min(hull.begin, keys.begin), std::max(hull.end, keys.end)};
    });
    return hull;
  }

 protected:
  bool SameKeys(int64_t, const Row& a, const Row& b) const override { return a.query == b.query; }
  void SetKeys(int64_t, const Row& row, const KeyRange& keys, KeyBits& seen) const override {
    ForEachLine(row, [&](const Grid::Product& line) { grid_.SetProduct(keys, line, seen); });
  }

 private:
  // Calls visit with the line of tokens through the row's along the axis, or along each.
  template <class Visit>
  void ForEachLine(const Row& row, const Visit& visit) const {
    const Grid::Coordinates at = grid_.At(row.position);
    for (size_t axis = grid_.first_axis(); axis < 3; ++axis) {
      const int64_t number = static_cast<int64_t>(axis - grid_.first_axis());
      if (axis_ && *axis_ != number) continue;
      Grid::Product line = {AxisKeys{at[0], 1, 1}, AxisKeys{at[1], 1, 1}, AxisKeys{at[2], 1, 1}};
      line[axis] = {0, 1, grid_.extent(axis)};
      visit(line);
    }
  }

  Grid grid_;
  std::optional<int64_t> axis_;
};

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_AXIAL_H_
