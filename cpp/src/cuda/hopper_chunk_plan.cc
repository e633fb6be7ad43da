#include "src/cuda/hopper_chunk_plan.h"

#include "src/cuda/grid.h"
#include "src/view_checks.h"

namespace heed::cuda {
namespace {

int64_t SlicesOf(const RecurrentProblem& p) { return CeilDiv(p.head_dim_v, kSliceCols); }
int64_t BlocksOf(const RecurrentProblem& p) { return p.batch * p.num_heads * SlicesOf(p); }

// Blocks of one KV head begin with the same state, which one of them may overwrite before another
// has read it.
bool KeepsInitialState(const RecurrentProblem& p) {
  const TensorView<const float>& from = p.options.initial_state;
  const TensorView<float>& to = p.outputs.final_state;
  if (from.data == nullptr || to.data == nullptr) return true;
  return from.data != to.data || p.group * SlicesOf(p) == 1;
}

}  // namespace

bool FitsHopperChunks(const StoredRecurrentProblem& call) {
  const RecurrentProblem& p = call.problem;
  return TakesChunks(call) && call.q.dtype == DType::kBFloat16 && p.head_dim <= kHopperChunkDim &&
         p.options.key_lengths.empty() && p.kv_len < kFar && BlocksOf(p) < kFar &&
         KeepsInitialState(p) && FitsMap(call.q) && FitsMap(call.k) && FitsMap(call.v);
}

bool FillsTurns(int64_t blocks, int64_t processors) {
  return 4 * blocks >= 3 * CeilDiv(blocks, processors) * processors;
}

bool TakesHopperChunks(const StoredRecurrentProblem& call, int64_t processors, TilePath path) {
  if (path == TilePath::kBase || !FitsHopperChunks(call)) return false;
  return path == TilePath::kHopper || FillsTurns(BlocksOf(call.problem), processors);
}

HopperChunkPlan::HopperChunkPlan(const StoredRecurrentProblem& call) : plan_(call, 1) {
  const RecurrentProblem& p = call.problem;
  const bool has_gates = p.options.log_decay.data != nullptr || p.options.beta.data != nullptr;
  gates_ = has_gates ? TokenGates::kSome : TokenGates::kNone;
  row_end_ = p.options.normalize ? ChunkRowEnd::kNormalized : ChunkRowEnd::kScaled;
  num_blocks_ = BlocksOf(p);
  maps_ = {MapOf(call.q, kChunkTokens), MapOf(call.k, kChunkTokens), MapOf(call.v, kChunkTokens)};
}

}  // namespace heed::cuda
