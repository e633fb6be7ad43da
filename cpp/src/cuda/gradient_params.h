// What the kernels of AttentionBackward() are given: plain numbers and device pointers, by value.
#ifndef HEED_SRC_CUDA_GRADIENT_PARAMS_H_
#define HEED_SRC_CUDA_GRADIENT_PARAMS_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"

namespace heed::cuda {

// A gradient [batch, num_heads, q_len, kv_len], summed over axes of extent 1; data == nullptr: not
// wanted.
struct DeviceSums {
  float* data;
  int64_t strides[4];
  int32_t extents[4];
};

struct GradientParams {
  AttentionParams attention;      // of the call whose gradient it is, without results
  DeviceRows out, d_out;          // d_out is of the type of q, out of any
  DevicePairs<float> lse, d_lse;  // [batch, num_heads, q_len, 1]; d_lse.data == nullptr: zeros
  DeviceOutput d_q, d_k, d_v;     // data == nullptr: not wanted
  DeviceSums d_bias;
  float* d_alibi_slopes;  // [num_heads] or nullptr
  float* d_sinks;         // [num_heads] or nullptr

  // Scratch, [batch, num_heads, q_len]: D_i = d_out_i . out_i - d_lse_i, and what the pairs of a
  // row add to the gradient of its head's slope (nullptr: not wanted).
  float* delta;
  float* slope_terms;
  // For the Hopper kernels: tiles of the row table (hopper_gradient_layout.h), [batch, num_heads,
  // table_tiles]. nullptr: the base path runs.
  uint32_t* row_table;
  int32_t table_tiles;
};

// Where a row's number lies in scratch.
HEED_DEVICE int64_t ScratchRow(const AttentionParams& p, int64_t batch, int64_t head,
                               int64_t query) {
  return (batch * p.num_heads + head) * p.q_len + query;
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GRADIENT_PARAMS_H_
