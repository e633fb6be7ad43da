// What the device path lacks is refused by its name. No CUDA here.
#ifndef HEED_SRC_CUDA_REFUSE_H_
#define HEED_SRC_CUDA_REFUSE_H_

#include <cstdint>
#include <limits>

#include "src/message.h"

namespace heed::cuda {

// The most of tokens, and of heads of a batch: kernels count in 32 bits, up to 256 numbers for
// each.
inline constexpr int64_t kMaxDeviceCount = std::numeric_limits<int32_t>::max() / 256;

// Throws Error(kUnsupported) where `what` is asked for; `instead` is the function that has it.
inline void RefuseWhen(bool asked, const char* what, const char* instead) {
  if (!asked) return;
  Fail(ErrorCode::kUnsupported, "{} is not offered on the GPU yet; use heed::{}()",
       {what, instead});
}

// Throws Error(kUnsupported) where an extent is more than the kernels can count.
inline void RefuseAbove(int64_t most, const char* name, int64_t value) {
  if (value <= most) return;
  Fail(ErrorCode::kUnsupported, "{} = {}; on the GPU it is at most {}", {name, value, most});
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_REFUSE_H_
