// What Normalize::kSigmoid adds to scores where nobody says.
#ifndef HEED_SRC_EXACT_NORMALIZE_SIGMOID_BIAS_H_
#define HEED_SRC_EXACT_NORMALIZE_SIGMOID_BIAS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace heed {

inline float DefaultSigmoidBias(int64_t kv_len) {
  return static_cast<float>(-std::log(std::max(1.0, static_cast<double>(kv_len))));
}

}  // namespace heed

#endif  // HEED_SRC_EXACT_NORMALIZE_SIGMOID_BIAS_H_
