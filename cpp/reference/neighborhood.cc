// Neighbourhood attention: the window_size nearest tokens along each axis of a grid.
//
// Source: Hassani et al. 2023, arXiv:2204.07143, section 3.1 (at a border the window stays whole
// and moves inwards); dilated: Hassani & Shi 2022, arXiv:2209.15001, section 3.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "exact.h"
#include "patterns.h"

namespace heed::reference {
namespace {

// Of all windows of `size` successive tokens with x's residue, is y in the one that begins nearest
// to size / 2 tokens before x?
bool Near(int64_t x, int64_t y, int64_t extent, int64_t size, int64_t dilation) {
  std::vector<int64_t> members;
  for (int64_t n = x % dilation; n < extent; n += dilation) members.push_back(n);
  const int64_t wish = x / dilation - size / 2;
  int64_t best = 0;
  for (int64_t begin = 0; begin + size <= static_cast<int64_t>(members.size()); ++begin) {
    if (std::abs(begin - wish) < std::abs(best - wish)) best = begin;
  }
  const auto begin = members.begin() + best;
  return std::find(begin, begin + size, y) != begin + size;
}

}  // namespace

PairRule NeighborhoodRule(const Request& request, const Qkv& qkv) {
  const std::vector<int64_t> grid = ReadGrid(request, qkv, 1, 3);
  std::vector<int64_t> windows = ReadWholes(request, "window_size", 1);
  std::vector<int64_t> dilations = ReadWholes(request, "dilation", 1);
  if ((windows.size() > 1 && windows.size() != grid.size()) ||
      (dilations.size() > 1 && dilations.size() != grid.size())) {
    throw Error(ErrorCode::kShape, "window_size and dilation: expected one number, or one an axis");
  }
  if (dilations.empty()) dilations = {1};
  dilations.resize(grid.size(), dilations[0]);
  for (size_t axis = 0; axis < grid.size() && FindParam(request, "window_size") == nullptr;
       ++axis) {
    windows.push_back(std::min<int64_t>(7, grid[axis] / dilations[axis]));
  }
  windows.resize(grid.size(), windows[0]);
  for (size_t axis = 0; axis < grid.size(); ++axis) {
    if (dilations[axis] > grid[axis] || windows[axis] > grid[axis] / dilations[axis]) {
      throw Error(ErrorCode::kRange, "window_size * dilation is more than an axis has");
    }
  }
  return [=](const Pair& at) {
    const auto query = Coordinates(at.p, grid), key = Coordinates(at.j, grid);
    for (size_t axis = 0; axis < grid.size(); ++axis) {
      if (!Near(query[axis], key[axis], grid[axis], windows[axis], dilations[axis])) return false;
    }
    return true;
  };
}

namespace neighborhood {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), SoftmaxNormalize(request, qkv));
}

}  // namespace neighborhood
}  // namespace heed::reference
