// Patterns of tokens that form a grid, row by row: what a token sees is a product of one set of
// coordinates per axis.
#ifndef HEED_SRC_EXACT_KEEP_GRID_H_
#define HEED_SRC_EXACT_KEEP_GRID_H_

#include <array>
#include <span>

#include "src/exact/keep/pattern.h"

namespace heed {

// Coordinates begin, begin + step, ..., `count` of them, at least one.
struct AxisKeys {
  int64_t begin;
  int64_t step;
  int64_t count;
  int64_t last() const { return begin + (count - 1) * step; }
};

// A grid of up to three axes; leading extents are 1 when there are fewer.
class Grid {
 public:
  using Coordinates = std::array<int64_t, 3>;
  using Product = std::array<AxisKeys, 3>;

  explicit Grid(std::span<const int64_t> extents) : axes_(extents.size()) {
    std::copy(extents.begin(), extents.end(), extents_.end() - static_cast<int64_t>(axes_));
  }

  size_t axes() const { return axes_; }
  // Axis 0 of `axes()` as an index into coordinates.
  size_t first_axis() const { return 3 - axes_; }
  int64_t extent(size_t axis) const { return extents_[axis]; }

  Coordinates At(int64_t token) const {
    const int64_t line = token / extents_[2];
    return {line / extents_[1], line % extents_[1], token % extents_[2]};
  }
  int64_t Token(int64_t z, int64_t y, int64_t x) const {
    return (z * extents_[1] + y) * extents_[2] + x;
  }

  KeyRange HullOf(const Product& p) const {
    return {Token(p[0].begin, p[1].begin, p[2].begin),
            Token(p[0].last(), p[1].last(), p[2].last()) + 1};
  }

  // Sets the bits of the product's tokens that lie in a tile.
  void SetProduct(const KeyRange& keys, const Product& p, KeyBits& seen) const {
    if (keys.begin >= keys.end) return;
    const int64_t first_line = keys.begin / extents_[2];
    const int64_t last_line = (keys.end - 1) / extents_[2];
    ForEachWithin(p[0], first_line / extents_[1], last_line / extents_[1], [&](int64_t z) {
      const int64_t base = z * extents_[1];
      ForEachWithin(p[1], first_line - base, last_line - base, [&](int64_t y) {
        const int64_t line = Token(z, y, 0);
        SetSteps(keys, line + p[2].begin, line + p[2].last() + 1, p[2].step, seen);
      });
    });
  }

 private:
  // Calls visit(coordinate) for those in [low, high].
  template <class Visit>
  static void ForEachWithin(const AxisKeys& axis, int64_t low, int64_t high, const Visit& visit) {
    int64_t from = axis.begin;
    if (from < low) from += (low - from + axis.step - 1) / axis.step * axis.step;
    for (int64_t x = from; x <= std::min(high, axis.last()); x += axis.step) visit(x);
  }

  size_t axes_;
  std::array<int64_t, 3> extents_ = {1, 1, 1};
};

// A pattern in which every token sees one product.
class ProductKeep : public PatternKeep {
 public:
  explicit ProductKeep(std::span<const int64_t> extents) : grid_(extents) {}

  KeyRange Hull(int64_t, const Row& row) const final { return grid_.HullOf(Seen(row.position)); }

 protected:
  bool SameKeys(int64_t, const Row& a, const Row& b) const final { return a.query == b.query; }
  void SetKeys(int64_t, const Row& row, const KeyRange& keys, KeyBits& seen) const final {
    grid_.SetProduct(keys, Seen(row.position), seen);
  }
  // What the token with coordinate x sees along an axis with extents; `axis` counts from the
  // grid's first.
  virtual AxisKeys Along(size_t axis, int64_t x, int64_t extent) const = 0;

 private:
  Grid::Product Seen(int64_t token) const {
    const Grid::Coordinates at = grid_.At(token);
    Grid::Product product = {AxisKeys{0, 1, 1}, AxisKeys{0, 1, 1}, AxisKeys{0, 1, 1}};
    for (size_t axis = grid_.first_axis(); axis < 3; ++axis) {
      product[axis] = Along(axis - grid_.first_axis(), at[axis], grid_.extent(axis));
    }
    return product;
  }

  Grid grid_;
};

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_GRID_H_
