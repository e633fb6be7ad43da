// The kernels of all steps (composed_steps.h): RunStep(block, params, index) is block `index` of
// the step that the parameters belong to.
#ifndef HEED_SRC_CUDA_STEP_KERNELS_H_
#define HEED_SRC_CUDA_STEP_KERNELS_H_

#include <type_traits>

#include "src/cuda/choice_kernels.h"
#include "src/cuda/cluster_kernels.h"
#include "src/cuda/composed_kernels.h"
#include "src/cuda/composed_steps.h"
#include "src/cuda/elementwise_kernels.h"
#include "src/cuda/hash_kernels.h"
#include "src/cuda/layer_kernels.h"
#include "src/cuda/policy_kernels.h"
#include "src/cuda/sort_kernels.h"
#include "src/cuda/weighted_kernels.h"

namespace heed::cuda {

// Is Params one of the others?
template <class Params, class... Others>
inline constexpr bool kIsOneOf = (std::is_same_v<Params, Others> || ...);

// Shared memory of a block.
template <class Block, class Params>
constexpr int SharedBytesOf() {
  if (std::is_same_v<Params, MultiplyParams>) return MultiplyKernel<Block>::kSharedBytes;
  if (std::is_same_v<Params, ChooseParams>) return ChooseKernel<Block>::kSharedBytes;
  const bool writes =
      kIsOneOf<Params, StreamKeepParams, HeavyKeepParams, HashKeepParams, SortKeepParams>;
  const bool folds = kIsOneOf<Params, InverseParams, ResidualParams, NormParams, GateParams,
                              RestParams, GraphParams, ExtraKeyParams, CompressedScoreParams,
                              HeavyKeepParams, SortKeepParams, PoolParams>;
  return (writes ? KeptRowWriter<Block>::kSharedBytes : 0) +
         (folds ? RowBlock<Block>::kSharedBytes : 0);
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_STEP_KERNELS_H_
