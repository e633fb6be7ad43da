#include "src/cuda/gradient_plan.h"

#include <algorithm>

#include "src/cuda/gradient_bias_kernel.h"
#include "src/cuda/gradient_row_kernels.h"
#include "src/cuda/grid.h"

namespace heed::cuda {
namespace {

// [batch, num_heads, q_len, 1].
DevicePairs<float> RowNumbersOf(const TensorView<const float>& view) {
  DevicePairs<float> numbers{};
  numbers.data = view.data;
  std::copy_n(view.strides.begin(), 3, numbers.strides);
  return numbers;
}

DeviceSums SumsOf(const TensorView<float>& view) {
  DeviceSums sums{};
  if (view.size() == 0) return sums;
  sums.data = view.data;
  for (size_t axis = 0; axis < 4; ++axis) {
    sums.strides[axis] = view.strides[axis];
    sums.extents[axis] = view.strides[axis] == 0 ? 1 : static_cast<int32_t>(view.shape[axis]);
  }
  return sums;
}

float* DataOf(std::span<float> values) { return values.empty() ? nullptr : values.data(); }

}  // namespace

DeviceProblem AttentionOf(const DeviceGradient& call) {
  DeviceProblem attention;
  attention.problem = call.problem.attention;
  attention.arrays = call.arrays;
  return attention;
}

GradientPlan::GradientPlan(const DeviceGradient& call) : attention_(AttentionOf(call), 1, 1) {
  const GradientProblem& g = call.problem;
  const AttentionGradients& to = g.gradients;
  params_.attention = attention_.Params(host_arrays().data(), nullptr, nullptr, nullptr);
  params_.attention.units = g.attention.batch * g.attention.num_kv_heads;
  params_.out = RowsOf(g.out);
  params_.d_out = RowsOf(g.d_out);
  params_.lse = RowNumbersOf(g.lse);
  params_.d_lse = RowNumbersOf(to.d_lse);
  params_.d_q = OutputOf(to.d_q);
  params_.d_k = OutputOf(to.d_k);
  params_.d_v = OutputOf(to.d_v);
  params_.d_bias = SumsOf(to.d_bias);
  params_.d_alibi_slopes = DataOf(to.d_alibi_slopes);
  params_.d_sinks = DataOf(to.d_sinks);
}

int64_t GradientPlan::rows() const { return params_.attention.units * params_.attention.rows; }

int64_t GradientPlan::num_delta_blocks() const { return CeilDiv(rows(), kDeltaRows); }

int64_t GradientPlan::num_query_blocks() const {
  const bool wanted = params_.d_q.data != nullptr || params_.d_alibi_slopes != nullptr;
  return wanted ? params_.attention.row_blocks * params_.attention.units : 0;
}

int64_t GradientPlan::num_key_blocks() const {
  const bool wanted = params_.d_k.data != nullptr || params_.d_v.data != nullptr;
  return wanted ? CeilDiv(params_.attention.kv_len, kBlockRows) * params_.attention.units : 0;
}

int64_t GradientPlan::num_bias_blocks(int tile_keys) const {
  if (params_.d_bias.data == nullptr) return 0;
  int64_t blocks = 1;
  for (int axis = 0; axis < 4; ++axis) {
    if (params_.d_bias.extents[axis] != 1) {
      blocks *= TilesOfAxis(params_.attention, axis, tile_keys);
    }
  }
  return blocks;
}

int64_t GradientPlan::num_head_blocks() const {
  const bool wanted = params_.d_sinks != nullptr || params_.d_alibi_slopes != nullptr;
  return wanted ? params_.attention.num_heads : 0;
}

int64_t GradientPlan::scratch_floats() const {
  return params_.d_alibi_slopes != nullptr ? 2 * rows() : rows();
}

GradientParams GradientPlan::Params(const char* arrays, float* scratch, Fault* fault) const {
  GradientParams params = params_;
  params.attention = attention_.Params(arrays, nullptr, nullptr, fault);
  params.attention.units = params_.attention.units;
  params.delta = scratch;
  params.slope_terms = params_.d_alibi_slopes != nullptr ? scratch + rows() : nullptr;
  return params;
}

}  // namespace heed::cuda
