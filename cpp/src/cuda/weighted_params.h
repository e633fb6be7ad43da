// What the kernels of weighted means that are no call of attention are given: sources of a node,
// channels by themselves, keys that join a softmax. Plain numbers and device pointers.
#ifndef HEED_SRC_CUDA_WEIGHTED_PARAMS_H_
#define HEED_SRC_CUDA_WEIGHTED_PARAMS_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/recurrent_params.h"

namespace heed::cuda {

// Graph attention. Edges are sorted by target: those that arrive at node i are begin[i] to
// begin[i + 1] - 1.
struct GraphParams {
  FloatRows<const float> q, k, v;          // [batch, heads or heads / group, nodes, width]
  FloatRows<float> output, lse, weights;   // lse and weights [batch, heads, ..., 1], or absent
  const int32_t *begin, *sources, *edges;  // [len + 1], [num_edges] and [num_edges] as given
  const float* score_weight;  // [heads, 2 head_dim], or [heads, head_dim] without `is_gat`
  float* scores;              // [batch, heads, num_edges]: scratch
  float negative_slope;
  bool is_gat;  // not GATv2
  int32_t batch, heads, group, len, head_dim, width, num_edges;
};

// An attention-free transformer: every channel weighs its keys by itself.
struct ChannelParams {
  FloatRows<const float> q, k, v;  // k and v [batch, heads / group, kv_len, width]
  FloatRows<const float> seen;     // [batch, heads, len, kv_len]: -infinity for hidden keys
  DevicePairs<float> bias;         // or absent
  const int64_t* positions;        // [batch], of query 0
  int64_t local;                   // keys so far away or farther have no bias; 0: all have it
  FloatRows<float> output;         // [batch, heads, len, width]
  int32_t batch, heads, group, len, kv_len, width;
};

// Learned keys and a key of zeros, which join the softmax of every row behind its own keys.
struct ExtraKeyParams {
  FloatRows<const float> q;      // [batch, heads, len, head_dim]
  FloatRows<float> output, lse;  // of the row's own keys, replaced
  FloatRows<float> weights;      // [batch, heads, len, kv_len + extra keys], or absent
  const float *bias_k, *bias_v;  // [heads / group, head_dim], [heads / group, width], or nullptr
  const float* sinks;            // [heads] or nullptr
  double scale, softcap;         // softcap 0: off
  bool adds_zero;
  int32_t batch, heads, group, len, kv_len, head_dim, width;
};

// A block has a row.
inline int64_t NumBlocks(const GraphParams& p) { return int64_t{p.batch} * p.heads * p.len; }
inline int64_t NumBlocks(const ChannelParams& p) { return int64_t{p.batch} * p.heads * p.len; }
inline int64_t NumBlocks(const ExtraKeyParams& p) { return int64_t{p.batch} * p.heads * p.len; }

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_WEIGHTED_PARAMS_H_
