// Whether the environment and the device want Hopper kernels. Only in builds with CUDA.
#ifndef HEED_SRC_CUDA_HOPPER_PATH_H_
#define HEED_SRC_CUDA_HOPPER_PATH_H_

#include <cstdlib>
#include <string_view>

#include "src/cuda/hopper_plan.h"
#include "src/cuda/runtime.h"

namespace heed::cuda {

#ifdef HEED_CUDA_HOPPER
inline constexpr bool kHopperIsCompiled = true;
#else
inline constexpr bool kHopperIsCompiled = false;
#endif

// The faster of both for a call. HEED_CUDA_PATH=base takes the base path always,
// HEED_CUDA_PATH=hopper the Hopper kernels wherever they can compute the call: for tests and
// comparisons.
inline TilePath PathOfEnvironment() {
  const char* name = std::getenv("HEED_CUDA_PATH");
  if (name == nullptr) return TilePath::kFastest;
  if (std::string_view(name) == "base") return TilePath::kBase;
  return std::string_view(name) == "hopper" ? TilePath::kHopper : TilePath::kFastest;
}

// The same, as far as the device has the kernels.
inline TilePath PathOn(const Device& device) {
  return kHopperIsCompiled && device.is_hopper ? PathOfEnvironment() : TilePath::kBase;
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_PATH_H_
