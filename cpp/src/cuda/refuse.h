// What the device path lacks is refused by its name. No CUDA here.
#ifndef HEED_SRC_CUDA_REFUSE_H_
#define HEED_SRC_CUDA_REFUSE_H_

#include "src/message.h"

namespace heed::cuda {

// Throws Error(kUnsupported) where `what` is asked for; `instead` is the function that has it.
inline void RefuseWhen(bool asked, const char* what, const char* instead) {
  if (!asked) return;
  Fail(ErrorCode::kUnsupported, "{} is not offered on the GPU yet; use heed::{}()",
       {what, instead});
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_REFUSE_H_
