// The plan of a call that the Hopper kernel runs, made on the host: which calls it takes, and what
// TMA is told. No CUDA here.
#ifndef HEED_SRC_CUDA_HOPPER_PLAN_H_
#define HEED_SRC_CUDA_HOPPER_PLAN_H_

#include <cstdint>

#include "src/cuda/hopper_layout.h"
#include "src/cuda/plan.h"

namespace heed::cuda {

// Which kernel of attention tiles a call wants.
enum class TilePath { kFastest, kBase, kHopper };

// Can the Hopper kernel compute the call? Types, sockets, strides.
bool FitsHopper(const DeviceProblem& call);

// Should it, on a GPU that has it? Where keys are split, or rows are few, the base path is made for
// the call. kBase and kHopper are what the caller wants instead.
bool TakesHopper(const DeviceProblem& call, const AttentionPlan& plan, TilePath path);

class HopperPlan {
 public:
  explicit HopperPlan(const DeviceProblem& call);

  int dim() const { return dim_; }  // 64 or 128 columns
  int64_t num_items() const { return row_blocks_ * units_; }
  const TileMap& keys() const { return keys_; }
  const TileMap& values() const { return values_; }

  // The parameters of the same call, made for the base path, with this schedule.
  AttentionParams Params(AttentionParams params) const;

 private:
  int dim_;
  int64_t row_blocks_, units_;
  TileMap keys_, values_;
};

// Columns of q, k and v that the Hopper kernel has room for: with 256 it spilled registers (nvcc
// 13.0).
inline constexpr int64_t kMaxHopperDim = 128;

// Calls body(HopperShape<T, dim>()).
template <class T, class Body>
void WithHopperShape(int dim, const Body& body) {
  if (dim == 64) return body(HopperShape<T, 64>());
  body(HopperShape<T, 128>());
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_PLAN_H_
