// Checks that the boundaries of composed mechanisms share.
#ifndef HEED_SRC_COMPOSE_CHECKS_H_
#define HEED_SRC_COMPOSE_CHECKS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "src/message.h"
#include "src/view_checks.h"

namespace heed {

// `count` is `expected`, or 0 for an option that is off.
inline void CheckValueCount(std::string_view name, size_t count, int64_t expected,
                            std::string_view meaning) {
  if (count == 0 || count == static_cast<size_t>(expected)) return;
  Fail(ErrorCode::kShape, "{} has {} values; expected {} ({})", {name, count, expected, meaning});
}

inline void CheckAllFinite(std::string_view name, std::span<const float> values) {
  for (const float value : values) CheckFinite(name, value);
}

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_CHECKS_H_
