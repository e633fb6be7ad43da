#include "native_bench/device_run.h"

namespace heed::bench {

void RefuseDevice(const cuda::Availability& state) {
  throw Error(ErrorCode::kUnsupported,
              "--device cuda: found " + state.found + "; needed is " + state.needed);
}

}  // namespace heed::bench
