// What the Hopper kernel is given.
#ifndef HEED_SRC_CUDA_HOPPER_PARAMS_H_
#define HEED_SRC_CUDA_HOPPER_PARAMS_H_

#include "src/cuda/attention_params.h"
#include "src/cuda/divisor.h"

namespace heed::cuda {

struct HopperParams : AttentionParams {
  // By what items and packed rows are divided: p.group, p.num_kv_heads, p.units.
  Divisor by_group, by_kv_heads, by_units;
  // Slopes of ALiBi times it are in units of scores as products leave them, or softcap.
  float alibi_factor;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_PARAMS_H_
