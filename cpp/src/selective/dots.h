// Dot products by which keys are chosen: the same bits on every SIMD target.
#ifndef HEED_SRC_SELECTIVE_DOTS_H_
#define HEED_SRC_SELECTIVE_DOTS_H_

#include <cstddef>
#include <cstdint>

#include "src/parallel/worker_scratch.h"

namespace heed {

// Vectors of floats in panels of kPanel: dimension by dimension, one vector a lane.
class DotPanels {
 public:
  static constexpr int64_t kPanel = 8;

  DotPanels() = default;
  // Not initialised.
  DotPanels(int64_t count, int64_t dim);

  int64_t count() const { return count_; }
  int64_t dim() const { return dim_; }
  float& at(int64_t vector, int64_t d) const {
    return memory_.get()[(vector / kPanel * dim_ + d) * kPanel + vector % kPanel];
  }
  const float* panel(int64_t index) const { return memory_.get() + index * dim_ * kPanel; }
  // Zeros in the lanes behind the last vector.
  void FillGap() const;

 private:
  int64_t count_ = 0, dim_ = 0;
  AlignedFloats memory_;
};

// Rows of one call.
inline constexpr size_t kDotRows = 4;

// dots[r * stride + n] = sum over d, ascending and in double, of rows[r][d] * vector n. A product
// of floats is exact in double, with a fused multiply-add and without: only the order of sums
// matters. Computes the first `count` vectors, rounded up to panels, for up to kDotRows rows.
void ExactDots(const float* const* rows, size_t num_rows, const DotPanels& vectors, int64_t count,
               double* dots, size_t stride);

}  // namespace heed

#endif  // HEED_SRC_SELECTIVE_DOTS_H_
