#include "src/cuda/hopper_gradient_plan.h"

#include <algorithm>

#include "src/cuda/grid.h"

namespace heed::cuda {
namespace {

int64_t BlocksOf(int64_t len) { return CeilDiv(len, kOwnRows); }

}  // namespace

bool FitsHopperGradient(const DeviceGradient& call) {
  const AttentionProblem& p = call.problem.attention;
  const int64_t items = std::max(BlocksOf(p.q_len), BlocksOf(p.kv_len));
  return FitsHopper(AttentionOf(call)) &&
         std::max(p.head_dim, p.head_dim_v) <= kMaxHopperGradientDim &&
         FitsMap(call.problem.d_out) && call.problem.gradients.d_alibi_slopes.empty() &&
         items * p.batch * p.num_heads < kFar;
}

bool TakesHopperGradient(const DeviceGradient& call, TilePath path) {
  if (path == TilePath::kBase || !FitsHopperGradient(call)) return false;
  return path == TilePath::kHopper || call.problem.attention.q_len > kGroupRows;
}

HopperGradientPlan::HopperGradientPlan(const DeviceGradient& call) {
  const AttentionProblem& p = call.problem.attention;
  const AttentionGradients& to = call.problem.gradients;
  dim_ = std::max(p.head_dim, p.head_dim_v) <= 64 ? 64 : 128;
  heads_ = p.batch * p.num_heads;
  table_tiles_ = CeilDiv(p.q_len, kTableRows);
  const bool wants_keys = to.d_k.has_value() || to.d_v.has_value();
  key_items_ = wants_keys ? BlocksOf(p.kv_len) * p.batch * p.num_kv_heads : 0;
  query_items_ = to.d_q.has_value() ? BlocksOf(p.q_len) * heads_ : 0;
  q_ = p.q, k_ = p.k, v_ = p.v, d_out_ = call.problem.d_out;
}

GradientMaps<TileMap> HopperGradientPlan::Maps(HopperSums sums, int tile) const {
  const uint32_t own = kOwnRows, streaming = static_cast<uint32_t>(tile);
  if (sums == HopperSums::kKeys) {
    return {{MapOf(k_, own), MapOf(v_, own)}, {MapOf(q_, streaming), MapOf(d_out_, streaming)}};
  }
  return {{MapOf(q_, own), MapOf(d_out_, own)}, {MapOf(k_, streaming), MapOf(v_, streaming)}};
}

GradientParams HopperGradientPlan::Params(GradientParams params, uint32_t* row_table) const {
  params.row_table = row_table;
  params.table_tiles = static_cast<int32_t>(table_tiles_);
  return params;
}

}  // namespace heed::cuda
