// Windows of an image, with the cyclic shift and the mask of regions.
//
// Source: Liu et al. 2021, arXiv:2103.14030, section 3.2, figure 4; the regions are those of the
// published code: on the rolled image, the slices (0, -window), (-window, -shift), (-shift, end).
#include <string>
#include <vector>

#include "exact.h"
#include "patterns.h"

namespace heed::reference {
namespace {

struct Axis {
  int64_t extent, window, shift;

  int64_t Rolled(int64_t x) const { return (x - shift + extent) % extent; }
  int64_t Region(int64_t rolled) const {
    if (shift == 0 || rolled < extent - window) return 0;
    return rolled < extent - shift ? 1 : 2;
  }
  bool Together(int64_t x, int64_t y) const {
    const int64_t a = Rolled(x), b = Rolled(y);
    return a / window == b / window && Region(a) == Region(b);
  }
};

// Without a window size: the largest divisor up to 7.
int64_t DefaultWindow(int64_t extent) {
  int64_t window = 7;
  while (extent % window != 0) --window;
  return window;
}

}  // namespace

PairRule SwinWindowRule(const Request& request, const Qkv& qkv) {
  const std::vector<int64_t> grid = ReadGrid(request, qkv, 2, 2);
  const std::vector<int64_t> windows = ReadWholes(request, "window_size", 1);
  const std::vector<int64_t> shifts = ReadWholes(request, "shift", 0);
  if (windows.size() > 2 || shifts.size() > 2) {
    throw Error(ErrorCode::kShape, "window_size and shift: expected one number, or one an axis");
  }
  std::vector<Axis> axes;
  for (size_t n = 0; n < 2; ++n) {
    const int64_t window = windows.empty() ? DefaultWindow(grid[n]) : windows[n % windows.size()];
    const int64_t shift = shifts.empty() ? 0 : shifts[n % shifts.size()];
    if (window > grid[n] || shift >= window) {
      throw Error(ErrorCode::kRange, "window_size, shift: out of range");
    }
    if (grid[n] % window != 0) {
      throw Error(ErrorCode::kShape, "window_size does not divide the grid");
    }
    axes.push_back({grid[n], window, shift});
  }
  return [=](const Pair& at) {
    const auto query = Coordinates(at.p, grid), key = Coordinates(at.j, grid);
    return axes[0].Together(query[0], key[0]) && axes[1].Together(query[1], key[1]);
  };
}

namespace swin_window {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), SoftmaxNormalize(request, qkv));
}

}  // namespace swin_window
}  // namespace heed::reference
