// Normal numbers, and inputs of requests that consist of them.
#ifndef HEED_TESTS_NORMAL_INPUT_H_
#define HEED_TESTS_NORMAL_INPUT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "random.h"
#include "request_builder.h"

namespace heed::testing {

// ~ N(0, size^2).
inline std::vector<float> NormalFloats(int64_t count, uint64_t seed, float size = 1) {
  Random random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = size * random.Normal();
  return values;
}

// Adds a tensor of them.
inline void AddNormal(RequestBuilder& builder, const std::string& name, std::vector<int64_t> shape,
                      uint64_t seed, float size = 1) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  builder.Floats(name, std::move(shape), NormalFloats(count, seed, size));
}

}  // namespace heed::testing

#endif  // HEED_TESTS_NORMAL_INPUT_H_
