// The plan of a call that the Hopper kernel runs, made on the host: which calls it takes, and what
// TMA is told. No CUDA here.
#ifndef HEED_SRC_CUDA_HOPPER_PLAN_H_
#define HEED_SRC_CUDA_HOPPER_PLAN_H_

#include <cstdint>

#include "src/cuda/hopper_layout.h"
#include "src/cuda/hopper_params.h"
#include "src/cuda/plan.h"

namespace heed::cuda {

// Which kernel of attention tiles a call wants.
enum class TilePath { kFastest, kBase, kHopper };

// May TMA read the tensor? ("cuTensorMapEncodeTiled", CUDA driver API.) Strides of dimensions of
// one entry do not matter.
bool FitsMap(const StoredTensor& t);
// What TMA is told of it; boxes have `rows` rows.
TileMap MapOf(const StoredTensor& t, uint32_t rows);
// Positions, packed rows and items are 32 bits wide in the kernels: below this.
inline constexpr int64_t kFar = int64_t{1} << 30;

// Can the Hopper kernel compute the call? Types, sockets, strides.
bool FitsHopper(const DeviceProblem& call);

// Should it, on a GPU that has it? Where rows are few, or its items leave multiprocessors without
// work that split keys would give them, the base path is made for the call. kBase and kHopper are
// what the caller wants instead.
bool TakesHopper(const DeviceProblem& call, const AttentionPlan& plan, TilePath path);

// Columns of q and k, and of v, that a kernel has room for.
struct HopperColumns {
  int keys;
  int values;
};
inline constexpr int64_t kMaxHopperDim = 256;
// The smallest kernel for the call, head_dim and head_dim_v at most kMaxHopperDim.
HopperColumns HopperColumnsOf(int64_t head_dim, int64_t head_dim_v);

class HopperPlan {
 public:
  explicit HopperPlan(const DeviceProblem& call);

  HopperColumns columns() const { return columns_; }
  bool is_plain() const { return is_plain_; }  // neither softcap nor ALiBi
  int64_t num_items() const { return row_blocks_ * units_; }
  const TileMap& keys() const { return keys_; }
  const TileMap& values() const { return values_; }

  // The parameters of the same call, made for the base path, with this schedule.
  HopperParams Params(const AttentionParams& params) const;

 private:
  HopperColumns columns_;
  bool is_plain_;
  int64_t row_blocks_, units_;
  float alibi_unit_;
  TileMap keys_, values_;
};

// Calls body(T()) with the element type of a call that FitsHopper().
template <class Body>
void WithHopperElement(DType dtype, const Body& body) {
  if (dtype == DType::kFloat8E4M3) return body(Float8E4M3());
  if (dtype == DType::kFloat16) return body(Float16());
  body(BFloat16());
}

// Calls body(HopperShape<T, columns.keys, columns.values, kPlain>()).
template <class T, bool kPlain = false, class Body>
void WithHopperShape(HopperColumns columns, const Body& body) {
  if (columns.keys == 64) return body(HopperShape<T, 64, 64, kPlain>());
  if (columns.keys == 128) return body(HopperShape<T, 128, 128, kPlain>());
  if (columns.keys == 192) return body(HopperShape<T, 192, 128, kPlain>());
  body(HopperShape<T, 256, 256, kPlain>());
}
// The shape of the plan's kernel.
template <class T, class Body>
void WithHopperKernel(const HopperPlan& plan, const Body& body) {
  if (plan.is_plain()) return WithHopperShape<T, true>(plan.columns(), body);
  WithHopperShape<T, false>(plan.columns(), body);
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_PLAN_H_
