// Learned position code: a row of a table per position, added to x.
//
// Source: Gehring et al. 2017, arXiv:1705.03122, section 3.1. Interpolation resamples the rows
// linearly with cell centres aligned, as images are resized.
#include <algorithm>
#include <cmath>
#include <vector>

#include "positions.h"

namespace heed::reference::learned_position {
namespace {

Array ReadTable(const Request& request, const PositionedInput& in) {
  const AnyTensor& tensor = *FindInput(request, "table");
  Array table = ReadFloats(request, "table");
  if (tensor.rank != 2 || table.shape[3] != in.dim) {
    throw Error(ErrorCode::kShape, Describe("table", tensor) + ": expected [max_len, dim]");
  }
  return table;
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const PositionedInput in = ReadPositioned(request);
  const Array table = ReadTable(request, in);
  const int64_t max_len = table.shape[2];
  const bool interpolate = ReadFlag(request, "interpolate");
  const ParamValue* offset = FindParam(request, "position_offset");
  bool moved = false;
  if (offset != nullptr) {
    const auto* list = std::get_if<std::vector<double>>(offset);
    moved = list != nullptr ? *list != std::vector<double>{0.0} : std::get<double>(*offset) != 0.0;
  }
  if (interpolate && (moved || FindInput(request, "positions") != nullptr)) {
    throw Error(ErrorCode::kOption, "positions and interpolate are both given");
  }
  for (const int64_t position : in.position) {
    if (max_len == 0 || (!interpolate && (position < 0 || position >= max_len))) {
      throw Error(ErrorCode::kRange, "positions reach beyond the rows of table");
    }
  }
  std::vector<double> y;
  for (int64_t b = 0; b < in.batch; ++b) {
    for (int64_t h = 0; h < in.num_heads; ++h) {
      for (int64_t i = 0; i < in.len; ++i) {
        const int64_t position = in.Position(b, i);
        double place = static_cast<double>(position);
        if (interpolate) {
          place = (i + 0.5) * static_cast<double>(max_len) / static_cast<double>(in.len) - 0.5;
          place = std::clamp(place, 0.0, static_cast<double>(max_len - 1));
        }
        const int64_t below = static_cast<int64_t>(std::floor(place));
        const double weight = place - static_cast<double>(below);
        const auto x = in.x.Row(b, h, i);
        for (int64_t c = 0; c < in.dim; ++c) {
          double code = table(0, 0, below, c);
          if (weight > 0) code += weight * (table(0, 0, below + 1, c) - code);
          y.push_back(x[c] + code);
        }
      }
    }
  }
  return OutputLike(in, std::move(y));
}

}  // namespace heed::reference::learned_position
