// Sinusoidal position code: sines and cosines of the position at many wavelengths, added to x.
//
// Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5. "concatenated" and "closed" are the
// arrangement of the authors' code.
#include <cmath>
#include <vector>

#include "positions.h"

namespace heed::reference::sinusoidal {
namespace {

struct Code {
  int64_t dim;
  bool interleaved, closed;
  double base;

  double Frequency(int64_t t) const {
    const int64_t count = interleaved ? (dim + 1) / 2 : dim / 2;
    if (closed) return count == 1 ? 1.0 : std::pow(base, -static_cast<double>(t) / (count - 1));
    if (interleaved) return std::pow(base, -2.0 * t / dim);
    return std::pow(base, -static_cast<double>(t) / count);
  }

  double operator()(int64_t position, int64_t column) const {
    if (interleaved) {
      const double angle = position * Frequency(column / 2);
      return column % 2 == 0 ? std::sin(angle) : std::cos(angle);
    }
    const int64_t count = dim / 2;
    if (column < count) return std::sin(position * Frequency(column));
    if (column < 2 * count) return std::cos(position * Frequency(column - count));
    return 0.0;
  }
};

}  // namespace

std::vector<Result> Run(const Request& request) {
  const PositionedInput in = ReadPositioned(request);
  const Code code{
      .dim = in.dim,
      .interleaved = ReadWord(request, "code_layout", {"interleaved", "concatenated"})
                         .value_or("interleaved") == "interleaved",
      .closed = ReadWord(request, "spacing", {"open", "closed"}).value_or("open") == "closed",
      .base = ReadBase(request)};
  std::vector<double> y;
  for (int64_t b = 0; b < in.batch; ++b) {
    for (int64_t h = 0; h < in.num_heads; ++h) {
      for (int64_t i = 0; i < in.len; ++i) {
        const auto x = in.x.Row(b, h, i);
        for (int64_t c = 0; c < in.dim; ++c) y.push_back(x[c] + code(in.Position(b, i), c));
      }
    }
  }
  return OutputLike(in, std::move(y));
}

}  // namespace heed::reference::sinusoidal
