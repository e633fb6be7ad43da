// What the row kernel (row_kernel.h) is given beside the parameters that all kernels share.
#ifndef HEED_SRC_CUDA_ROW_PARAMS_H_
#define HEED_SRC_CUDA_ROW_PARAMS_H_

#include <cstdint>

#include "heed/attention.h"
#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"

namespace heed::cuda {

// A matrix [rows, cols] for all heads (head_stride 0) or one each; columns are contiguous.
// data == nullptr: absent.
struct HeadTable {
  const float* data;
  int64_t head_stride, row_stride;
  int32_t rows;

  HEED_DEVICE const float* Row(int head, int64_t row) const {
    return data + head * head_stride + row * row_stride;
  }
};

// A number for each distance -reach to reach, key minus query; those beyond are those at reach.
struct DistanceRows {
  const int32_t* rows;
  int64_t reach;

  HEED_DEVICE int32_t At(int64_t distance) const {
    const int64_t near = distance < -reach ? -reach : distance > reach ? reach : distance;
    return rows[near + reach];
  }
};

// A result [batch, num_heads, q_len, kv_len]; data == nullptr: not asked for.
struct PairOutput {
  float* data;
  int64_t strides[4];

  HEED_DEVICE void Store(int b, int h, int i, int j, float x) const {
    data[b * strides[0] + h * strides[1] + i * strides[2] + j * strides[3]] = x;
  }
};

struct RowParams {
  AttentionParams base;

  Score score;
  Kernel kernel;
  int64_t top_k;
  int32_t head_dim, depth;     // of q; of the products that make a score
  const float* inverse_width;  // [head_dim] or nullptr: kSquaredDistance
  const float* head_scale;     // [num_heads]: kCosine
  HeadTable score_matrix, query_weight, score_vector;
  const float* score_bias;  // [depth] or nullptr: kAdditive

  // Keys times key_weight, where kAdditive has one: made by a kernel of its own, and read as keys.
  DeviceRows key_source;
  HeadTable key_weight;
  float* projected_keys;  // [batch, num_kv_heads, kv_len, depth]

  HeadTable relative_keys, relative_queries, relative_values, content_bias, position_bias;
  DistanceRows relative_rows;
  HeadTable distance_bias, bucket_bias;
  DistanceRows buckets;
  DevicePairs<float> log_gates;  // stride 0 along queries
  HeadTable cope_table;

  PairOutput weights, scores;
  ScoreStage score_stage;

  int64_t num_rows;   // batch * num_heads * q_len
  int64_t num_slots;  // blocks; each takes every num_slots-th row
  float* slots;       // [num_slots, kv_len]: the scores, then weights, of a block's row
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_ROW_PARAMS_H_
