// Checks that the boundaries of composed mechanisms share.
#ifndef HEED_SRC_COMPOSE_CHECKS_H_
#define HEED_SRC_COMPOSE_CHECKS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "src/view_checks.h"

namespace heed {

// `count` is `expected`, or 0 for an option that is off.
inline void CheckValueCount(const std::string& name, size_t count, int64_t expected,
                            const std::string& meaning) {
  if (count == 0 || count == static_cast<size_t>(expected)) return;
  Fail(ErrorCode::kShape, name + " has " + std::to_string(count) + " values; expected " +
                              std::to_string(expected) + " (" + meaning + ")");
}

inline void CheckAllFinite(const std::string& name, std::span<const float> values) {
  for (const float value : values) CheckFinite(name, value);
}

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_CHECKS_H_
