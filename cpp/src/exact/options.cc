// The small functions around the options structs.
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "heed/attention.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {

QueryOffset QueryOffset::At(int64_t position) {
  QueryOffset offset;
  offset.kind_ = Kind::kNumber;
  WithMemoryErrors("a query offset", [&] { offset.positions_ = {position}; });
  return offset;
}

QueryOffset QueryOffset::PerBatch(std::vector<int64_t> positions) {
  QueryOffset offset;
  offset.kind_ = Kind::kPerBatch;
  offset.positions_ = std::move(positions);
  return offset;
}

QueryOffset QueryOffset::End() {
  QueryOffset offset;
  offset.kind_ = Kind::kEnd;
  return offset;
}

Window Window::LastN(int64_t n) {
  if (n < 1) {
    Fail(ErrorCode::kRange, "n = {}; the last n keys need n >= 1", {n});
  }
  return {n - 1, 0};
}

std::vector<float> AlibiSlopes(int64_t num_heads, double max_exponent) {
  if (num_heads < 1) {
    Fail(ErrorCode::kRange, "num_heads = {}; it must be at least 1", {num_heads});
  }
  if (!(max_exponent > 0) || !std::isfinite(max_exponent)) {
    Fail(ErrorCode::kRange, "max_exponent = {}; it must be positive and finite", {max_exponent});
  }
  std::vector<float> slopes = VectorOf("slopes", num_heads, 0.0f);
  const int64_t power = std::bit_floor(static_cast<uint64_t>(num_heads));
  for (int64_t i = 0; i < num_heads; ++i) {
    // The others stand between the first ones of half as many steps.
    const double steps = static_cast<double>(i < power ? i + 1 : 2 * (i - power) + 1);
    const double of = static_cast<double>(power) * (i < power ? 1 : 2);
    slopes[static_cast<size_t>(i)] = static_cast<float>(std::exp2(-max_exponent * steps / of));
  }
  return slopes;
}

}  // namespace heed
