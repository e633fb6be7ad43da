// The small functions around the options structs.
#include <cmath>
#include <string>
#include <utility>

#include "heed/attention.h"
#include "src/message.h"

namespace heed {

QueryOffset QueryOffset::At(int64_t position) {
  QueryOffset offset;
  offset.kind_ = Kind::kNumber;
  offset.positions_ = {position};
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
  const auto geometric = [max_exponent](int64_t n) {
    std::vector<double> slopes;
    for (int64_t i = 1; i <= n; ++i) {
      slopes.push_back(std::exp2(-max_exponent * static_cast<double>(i) / static_cast<double>(n)));
    }
    return slopes;
  };
  int64_t power = 1;
  while (power * 2 <= num_heads) power *= 2;
  std::vector<double> slopes = geometric(power);
  const std::vector<double> doubled = geometric(2 * power);
  for (size_t i = 0; slopes.size() < static_cast<size_t>(num_heads); i += 2) {
    slopes.push_back(doubled[i]);
  }
  return {slopes.begin(), slopes.end()};
}

}  // namespace heed
