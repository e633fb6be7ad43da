// Attention over all keys from attention over parts of them, one part after the other. What
// heed/merge.h does for parts that are all at hand.
#ifndef HEED_SRC_DISTRIBUTED_PARTIAL_SUMS_H_
#define HEED_SRC_DISTRIBUTED_PARTIAL_SUMS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "heed/tensor.h"
#include "heed/thread_pool.h"
#include "src/distributed/kept_array.h"

namespace heed::distributed {

// For every row the largest lse so far, and sums relative to it, in float64.
class PartialSums {
 public:
  // Of [batch, num_heads, q_len, head_dim_v].
  explicit PartialSums(const Extents& shape);

  // Adds a part, which is about rows [begin, begin + part_output.shape[2]) of every head.
  void Add(int64_t begin, TensorView<const float> part_output, TensorView<const float> part_lse,
           ThreadPool& pool);

  // Closes the rows. `sinks` are one logit a head, or none; they join rows that have seen a key.
  // `lse` may be absent.
  void Write(std::span<const float> sinks, const StoredOutput& output, TensorView<float> lse,
             ThreadPool& pool);

 private:
  size_t Row(int64_t b, int64_t h, int64_t i) const {
    return static_cast<size_t>((b * shape_[1] + h) * shape_[2] + i);
  }
  void AddRow(size_t row, const float* values, double lse);
  void WriteRow(int64_t b, int64_t h, int64_t i, std::span<const float> sinks,
                const StoredOutput& output, const TensorView<float>& lse);

  Extents shape_;
  std::vector<double> max_, sum_;
  KeptArray<double> values_;  // of rows that have seen a key
};

}  // namespace heed::distributed

#endif  // HEED_SRC_DISTRIBUTED_PARTIAL_SUMS_H_
