// Blocks of a step between attentions, emulated one after the other.
#ifndef HEED_TESTS_CUDA_EMULATED_BLOCKS_H_
#define HEED_TESTS_CUDA_EMULATED_BLOCKS_H_

#include "gtest/gtest.h"
#include "host_block.h"
#include "src/cuda/step_kernels.h"

namespace heed::testing {

template <class Params>
void RunBlocks(const Params& params) {
  for (int64_t index = 0; index < cuda::NumBlocks(params); ++index) {
    HostBlock block;
    RunStep(block, params, index);
    ASSERT_EQ(block.complaint(), "") << "block " << index;
    const int bytes = cuda::SharedBytesOf<HostBlock, Params>();
    ASSERT_EQ(block.shared_bytes(), bytes);
  }
}

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_EMULATED_BLOCKS_H_
