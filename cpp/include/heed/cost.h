// What a call will cost, before it is made.
#ifndef HEED_COST_H_
#define HEED_COST_H_

#include <cstdint>
#include <optional>

#include "heed/request.h"

namespace heed {

// Work and memory of one request.
struct Cost {
  // Bytes of all inputs and of all results, once each, as they are stored: what must move at least.
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  // Multiply-adds of the matrix products, each counted as 2; exponentials, norms, activations and
  // other sums are free. Absent where nobody has counted.
  std::optional<double> flops;
  // The most memory that the call holds at one time beside inputs and results, on this machine's
  // SIMD target. Without the book-keeping of tasks: some 20 KiB a thread. Absent as flops is.
  std::optional<int64_t> scratch_bytes;
};

// Validates the request as PlanOutputs() does and estimates heed::Run() with `num_threads` threads.
//
// flops of an attention: 2 * sum over rows of (keys seen) * (depth of the score + head_dim_v), and
// 2 * (keys seen) * depth again for weights or scores. Rules that hide single cells are asked about
// every tile of keys that they may leave, which takes a fraction of the call's time. Layers and
// compositions add up their attentions and projections; beyond those count
//   talking_heads          2 * num_heads for every pair and mixing
//   graph                  2 * head_dim_v an edge; 2 * head_dim an edge (gatv2), or for each source
//                          and each target that has edges (gat)
//   attention_free         2 * head_dim for every key that joins a sum
//   attention_classifier   2 * out_dim a row that is averaged, twice that for attention pooling
//   multi_head             2 * (head_dim + head_dim_v) a query and head for bias_k
//   rope, xpos             a 2 x 2 matrix for every pair: 8
// sinusoidal and learned_position only add: 0.
//
// What only the data know is an upper bound: hopfield counts all its steps, though it may come to
// rest before; biases and scores of -inf hide no keys and no edges here.
//
// Errors  Error, as PlanOutputs(); kRange for num_threads < 1; kMemory. The call is made without
//         its work: nothing of the size of a result is allocated, no element of q, k, v or of rows
//         x is read.
Cost EstimateCost(const Request& request, int num_threads);

}  // namespace heed

#endif  // HEED_COST_H_
