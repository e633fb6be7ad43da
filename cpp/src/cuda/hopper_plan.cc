#include "src/cuda/hopper_plan.h"

#include <algorithm>
#include <cmath>

namespace heed::cuda {
namespace {

constexpr int64_t kVector = 16;  // bytes that TMA and copies of queries want rows to be aligned to
constexpr int64_t kMostBytes = int64_t{1} << 40;  // of a stride
constexpr int64_t kMostRows = (int64_t{1} << 31) - 1;
// Rows by which a call's blocks are counted when a kernel is chosen. Items of three groups have
// more, and keep fewer multiprocessors busy, which should still pass the base path (H200, 64
// columns: 365 TFLOP/s of two groups, 139 of the base path).
constexpr int64_t kChoiceRows = TwoConsumers::kRows;

int64_t RowBlocksOf(const AttentionProblem& p, int64_t rows) {
  return (p.group * p.q_len + rows - 1) / rows;
}

// Queries are read 16 bytes at a time.
bool HasVectors(const StoredTensor& q) {
  const int64_t size = ElementSize(q.dtype);
  return FitsMap(q) && q.shape[3] * size % kVector == 0;
}

// Do positions fit 32 bits, with room to spare?
bool IsNear(const AttentionProblem& p) {
  bool near = p.group * p.q_len < kFar && p.kv_len < kFar &&
              RowBlocksOf(p, kGroupRows) * p.batch * p.num_kv_heads < kFar;
  for (const int64_t position : p.position) near = near && -kFar < position && position < kFar;
  return near;
}

}  // namespace

bool FitsMap(const StoredTensor& t) {
  const int64_t size = ElementSize(t.dtype);
  bool fits = reinterpret_cast<uintptr_t>(t.data) % kVector == 0;
  for (int axis = 0; axis < 4; ++axis) {
    fits = fits && t.shape[static_cast<size_t>(axis)] > 0 &&
           t.shape[static_cast<size_t>(axis)] <= kMostRows;
  }
  for (size_t axis = 0; axis < 3; ++axis) {
    const int64_t bytes = t.strides[axis] * size;
    fits =
        fits && (t.shape[axis] == 1 || (bytes > 0 && bytes < kMostBytes && bytes % kVector == 0));
  }
  return fits;
}

TileMap MapOf(const StoredTensor& t, uint32_t rows) {
  const int64_t size = ElementSize(t.dtype);
  TileMap map{};
  map.data = static_cast<const char*>(t.data);
  map.dtype = t.dtype;
  map.rows = rows;
  for (size_t n = 0; n < 4; ++n) map.sizes[n] = static_cast<uint64_t>(t.shape[3 - n]);
  for (size_t n = 0; n < 3; ++n) {
    const bool one = t.shape[2 - n] == 1;
    map.strides[n] = static_cast<uint64_t>(one ? kVector : t.strides[2 - n] * size);
  }
  return map;
}

// What a score of 1 is where ALiBi joins it. Those of float8, whose scales are in device memory,
// are multiplied before.
float AlibiUnitOf(const AttentionProblem& p) {
  if (p.options.softcap.value_or(0) != 0) return static_cast<float>(*p.options.softcap);
  return p.q.dtype == DType::kFloat8E4M3 ? 1 : static_cast<float>(p.scale);
}
// Those of ALiBi are 1 at most. What a slope gives to the keys of a tile is rounded apart from what
// it gives to their first: of 16, to some 3e-4. Larger ones go by the base path, and so do those
// whose biases are not finite in units of scores, over 2^30 keys.
bool HasSmallSlopes(const AttentionProblem& p) {
  constexpr float kMostSlope = 16, kMostUnits = 1e28f;
  const float factor = 1 / AlibiUnitOf(p);
  return std::ranges::all_of(p.options.alibi_slopes, [&](float slope) {
    return std::abs(slope) <= kMostSlope && std::abs(slope * factor) < kMostUnits;
  });
}

// Scores between them are multiplied by log2(e) and divided by the softcap in float32.
bool HasUsualSoftcap(const AttentionProblem& p) {
  constexpr double kLeast = 1e-30, kMost = 1e30;
  const double softcap = p.options.softcap.value_or(1);
  return kLeast <= softcap && softcap <= kMost && p.scale / softcap <= kMost;
}

bool FitsHopper(const DeviceProblem& call) {
  const AttentionProblem& p = call.problem;
  const bool narrow = p.q.dtype == DType::kFloat8E4M3 || p.q.dtype == DType::kFloat16 ||
                      p.q.dtype == DType::kBFloat16;
  const bool intervals = SeesIntervals(call) && call.seen.row_lengths == nullptr;
  // The scale joins the multiplication by log2(e), after the maximum.
  const bool scales = p.scale > 0 && std::isfinite(p.scale);
  return narrow && intervals && scales && HasUsualSoftcap(p) && IsNear(p) &&
         call.table == nullptr && std::max(p.head_dim, p.head_dim_v) <= kMaxHopperDim &&
         HasVectors(p.q) && FitsMap(p.k) && FitsMap(p.v);
}

bool TakesHopper(const DeviceProblem& call, const AttentionPlan& plan, TilePath path) {
  const AttentionProblem& p = call.problem;
  if (path == TilePath::kBase || !FitsHopper(call) || !HasSmallSlopes(p)) return false;
  if (path == TilePath::kHopper) return true;
  const int64_t blocks = RowBlocksOf(p, kChoiceRows) * p.batch * p.num_kv_heads;
  return p.group * p.q_len > kGroupRows && plan.FillsProcessors(blocks);
}

HopperColumns HopperColumnsOf(int64_t head_dim, int64_t head_dim_v) {
  const int64_t dim = std::max(head_dim, head_dim_v);
  if (dim <= 64) return {64, 64};
  if (dim <= 128) return {128, 128};
  if (head_dim <= 192 && head_dim_v <= 128) return {192, 128};
  return {256, 256};
}

HopperPlan::HopperPlan(const DeviceProblem& call) {
  const AttentionProblem& p = call.problem;
  columns_ = HopperColumnsOf(p.head_dim, p.head_dim_v);
  is_plain_ = p.options.softcap.value_or(0) == 0 && p.options.alibi_slopes.empty();
  alibi_unit_ = AlibiUnitOf(p);
  units_ = p.batch * p.num_kv_heads;
  WithHopperElement(p.q.dtype, [&](auto element) {
    WithHopperKernel<decltype(element)>(*this, [&](auto shape) {
      row_blocks_ = RowBlocksOf(p, decltype(shape)::kRows);
      keys_ = MapOf(p.k, decltype(shape)::kKeys);
      values_ = MapOf(p.v, decltype(shape)::kKeys);
    });
  });
}

HopperParams HopperPlan::Params(const AttentionParams& params) const {
  HopperParams result{params, Divisor(params.group), Divisor(params.num_kv_heads), Divisor(units_),
                      1 / alibi_unit_};
  result.row_blocks = row_blocks_;
  result.splits = 1;
  return result;
}

}  // namespace heed::cuda
