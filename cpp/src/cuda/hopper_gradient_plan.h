// The plan of an AttentionBackward() that the Hopper kernels run, made on the host: which calls
// they take, and what TMA is told. No CUDA here.
#ifndef HEED_SRC_CUDA_HOPPER_GRADIENT_PLAN_H_
#define HEED_SRC_CUDA_HOPPER_GRADIENT_PLAN_H_

#include <cstdint>

#include "src/cuda/gradient_plan.h"
#include "src/cuda/hopper_gradient_layout.h"
#include "src/cuda/hopper_plan.h"

namespace heed::cuda {

inline constexpr int64_t kMaxHopperGradientDim = 128;

// Can the Hopper kernels compute the gradients? What forward's kernel takes, of 128 columns at
// most, and no gradient of slopes.
bool FitsHopperGradient(const DeviceGradient& call);

// Should they, on a GPU that has them? Few rows would leave most of a tile empty. kBase and kHopper
// are what the caller wants instead.
bool TakesHopperGradient(const DeviceGradient& call, TilePath path);

class HopperGradientPlan {
 public:
  // The call fits.
  explicit HopperGradientPlan(const DeviceGradient& call);

  int dim() const { return dim_; }  // columns of the kernels: 64 or 128
  int64_t num_table_blocks() const { return heads_ * table_tiles_; }
  int64_t table_words() const { return num_table_blocks() * kTableTileWords; }
  // Items of each kernel; 0 where nothing that it gives is wanted.
  int64_t num_items(HopperSums sums) const {
    return sums == HopperSums::kKeys ? key_items_ : query_items_;
  }

  // What TMA is told for a kernel whose streaming tiles have `tile` rows.
  GradientMaps<TileMap> Maps(HopperSums sums, int tile) const;

  // The parameters of the same call, made for the base path, with a row table.
  GradientParams Params(GradientParams params, uint32_t* row_table) const;

 private:
  int dim_;
  int64_t heads_;  // of all batch entries
  int64_t table_tiles_, key_items_, query_items_;
  StoredTensor q_, k_, v_, d_out_;
};

// Calls body(HopperGradientShape<T, dim, kSums>()).
template <class T, HopperSums kSums, class Body>
void WithHopperGradientShape(int dim, const Body& body) {
  if (dim == 64) return body(HopperGradientShape<T, 64, kSums>());
  body(HopperGradientShape<T, 128, kSums>());
}

// Calls body(shape) for both kernels of a plan of element type T.
template <class T, class Body>
void ForHopperGradients(const HopperGradientPlan& plan, const Body& body) {
  WithHopperGradientShape<T, HopperSums::kKeys>(plan.dim(), body);
  WithHopperGradientShape<T, HopperSums::kQueries>(plan.dim(), body);
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_GRADIENT_PLAN_H_
