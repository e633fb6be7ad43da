// What the kernels of clusters (routing attention) are given: plain numbers and device pointers.
#ifndef HEED_SRC_CUDA_CLUSTER_PARAMS_H_
#define HEED_SRC_CUDA_CLUSTER_PARAMS_H_

#include <cstdint>

#include "src/cuda/recurrent_params.h"

namespace heed::cuda {

// Products of centroids and the directions of tokens; 0 for a token of zeros.
struct ClusterScoreParams {
  FloatRows<const float> tokens;     // [batch, heads / group, len, width]
  FloatRows<const float> centroids;  // [1, heads, clusters, width]
  double* scores;                    // [batch, heads, clusters, len]
  int32_t batch, heads, group, clusters, len, width;
};

// The `count` best tokens of a cluster, ascending; -1 where there are no more.
struct MemberParams {
  const double* scores;    // [batch, heads, clusters, len]
  const int32_t* lengths;  // [batch]
  int32_t* members;        // [batch, heads, clusters, count]
  int32_t* places;         // [batch, heads, clusters, len]: where a token stands there, or -1
  int32_t batch, heads, clusters, len, count;
};

// The rows of members, one head for each cluster; zeros where there are none.
struct MemberRowParams {
  FloatRows<const float> tokens;  // [batch, heads / group, len, width]
  const int32_t* members;         // [batch, heads, clusters, count]
  FloatRows<float> out;           // [batch, heads * clusters, count, width]
  int32_t batch, heads, group, clusters, count, width;
};

// How many members of the keys those of the queries see: members ascend, so that these come first.
struct ClusterLengthParams {
  const int32_t *queries, *keys;     // [batch, heads, clusters, rows] and [..., cols]
  const int64_t* positions;          // [batch], of query 0, or nullptr: all keys are seen
  int32_t* seen;                     // [batch, heads, clusters, rows]
  int32_t batch, heads, rows, cols;  // heads: with the clusters
};

// Means of what a query's clusters give it, of those that show it a key.
struct ClusterMeanParams {
  const int32_t *query_places, *key_places;  // [batch, heads, clusters, len] and [..., kv_len]
  const int32_t* seen;                       // [batch, heads, clusters, rows]
  FloatRows<const float> within;             // [batch, heads * clusters, rows, width]
  FloatRows<const float> within_weights;     // [batch, heads * clusters, rows, cols], or absent
  FloatRows<float> output, weights;          // [batch, heads, len, width], [..., kv_len] or absent
  int32_t batch, heads, clusters, len, kv_len, rows, cols, width;
};

// Blocks of the kernels: a row each, or all rows of a cluster.
inline int64_t NumBlocks(const ClusterScoreParams& p) {
  return int64_t{p.batch} * p.heads * p.clusters;
}
inline int64_t NumBlocks(const MemberParams& p) { return int64_t{p.batch} * p.heads * p.clusters; }
inline int64_t NumBlocks(const MemberRowParams& p) {
  return int64_t{p.batch} * p.heads * p.clusters * p.count;
}
inline int64_t NumBlocks(const ClusterLengthParams& p) { return int64_t{p.batch} * p.heads; }
inline int64_t NumBlocks(const ClusterMeanParams& p) { return int64_t{p.batch} * p.heads * p.len; }

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_CLUSTER_PARAMS_H_
