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
  // Multiply-adds of the matrix products, each counted as 2; exponentials and the like are free.
  // Absent for mechanisms outside the exact family.
  std::optional<double> flops;
  // Memory that the call allocates beside its results on this machine's SIMD target. Without the
  // book-keeping of tasks: some 20 KiB a thread. Absent as flops is.
  std::optional<int64_t> scratch_bytes;
};

// Validates the request as PlanOutputs() does and estimates heed::Run() with `num_threads` threads.
//
// flops of the exact family: 2 * sum over rows of (keys seen) * (depth of the score + head_dim_v),
// and 2 * (keys seen) * depth again for weights or scores. Rules that hide single cells are asked
// about every tile of keys that they may leave, which takes a fraction of the call's time.
//
// Errors  Error, as PlanOutputs(); kRange for num_threads < 1. Nothing of the size of a result is
//         allocated, no element of q, k or v is read.
Cost EstimateCost(const Request& request, int num_threads);

}  // namespace heed

#endif  // HEED_COST_H_
