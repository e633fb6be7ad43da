// xPos: a rotation whose pairs also shrink or grow with the position.
//
// Source: Sun et al. 2022, arXiv:2212.10554, algorithm 1; gamma 0.4 and the division of the
// exponent by 512 are those of the authors' code.
#include <cmath>
#include <vector>

#include "positions.h"

namespace heed::reference::xpos {
namespace {

double ReadPositive(const Request& request, const char* name, double fallback) {
  const double value = ReadNumber(request, name).value_or(fallback);
  if (value > 0) return value;
  throw Error(ErrorCode::kRange, std::string(name) + " must be positive");
}

// The logarithm of the scale of each pair, per position.
std::vector<double> ReadGrowth(const Request& request, int64_t rotary_dim) {
  const double gamma = ReadPositive(request, "gamma", 0.4);
  const double scale_base = ReadPositive(request, "scale_base", 512.0);
  const double sign = ReadChoice(request, "side", {"query", "key"}) == "query" ? 1.0 : -1.0;
  std::vector<double> growth;
  for (int64_t t = 0; t < rotary_dim / 2; ++t) {
    const double zeta = (2.0 * t / rotary_dim + gamma) / (1.0 + gamma);
    growth.push_back(sign * std::log(zeta) / scale_base);
  }
  return growth;
}

void CheckRange(const PositionedInput& in, const std::vector<double>& growth, double center) {
  for (const double g : growth) {
    double distance = 64.0;
    for (const int64_t position : in.position) {
      distance = std::max(distance, std::abs(position - center));
    }
    if (!(std::abs(g) * distance <= 80.0)) {
      throw Error(ErrorCode::kRange, "xPos scales must stay within e^+-80: raise scale_base");
    }
  }
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const PositionedInput in = ReadPositioned(request);
  const std::string pairing = ReadChoice(request, "pairing", {"half", "interleaved"});
  const int64_t rotary_dim = ReadRotaryDim(request, in, 2);
  const Rotation rotation =
      ReadRotation(request, rotary_dim, in.LargestPosition() + 1, ReadBase(request));
  const std::vector<double> growth = ReadGrowth(request, rotary_dim);
  const double center = ReadNumber(request, "center").value_or(0.0);
  const double sign = ReadFlag(request, "inverse") ? -1.0 : 1.0;
  CheckRange(in, growth, center);
  std::vector<double> y = in.x.values;
  for (int64_t b = 0; b < in.batch; ++b) {
    for (int64_t h = 0; h < in.num_heads; ++h) {
      for (int64_t i = 0; i < in.len; ++i) {
        const auto x = in.x.Row(b, h, i);
        double* row = &y[((b * in.num_heads + h) * in.len + i) * in.dim];
        const double position = static_cast<double>(in.Position(b, i));
        for (int64_t t = 0; t < rotary_dim / 2; ++t) {
          const auto [first, second] = DimsOfPair(pairing, t, rotary_dim);
          const double size = std::exp(sign * growth[t] * (position - center)) *
                              (sign > 0 ? rotation.magnitude : 1.0 / rotation.magnitude);
          const double angle = sign * position * rotation.frequency[t];
          row[first] = size * (x[first] * std::cos(angle) - x[second] * std::sin(angle));
          row[second] = size * (x[second] * std::cos(angle) + x[first] * std::sin(angle));
        }
      }
    }
  }
  return OutputLike(in, std::move(y));
}

}  // namespace heed::reference::xpos
