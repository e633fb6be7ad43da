// Tests that need a GPU, or the interpreter in its place: they skip, with the reason, without one.
#ifndef HEED_NATIVE_BENCH_TESTS_CUDA_NEEDS_GPU_H_
#define HEED_NATIVE_BENCH_TESTS_CUDA_NEEDS_GPU_H_

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "heed/cuda.h"
#include "native_bench/cuda/device_memory.h"

namespace heed::bench {

class NeedsGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    const cuda::Availability state = cuda::Available();
    if (!state.usable) {
      GTEST_SKIP() << "no GPU: found " << state.found << "; needed is " << state.needed;
    }
  }
};

// Of the compute capability of the current device.
inline int MajorCapability() {
  int device = 0, major = 0;
  Require(cudaGetDevice(&device));
  Require(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major;
}

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_TESTS_CUDA_NEEDS_GPU_H_
