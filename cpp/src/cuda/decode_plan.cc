#include "src/cuda/decode_plan.h"

#include <bit>
#include <cstdlib>

#include "src/cuda/plan.h"

namespace heed::cuda {
namespace {

// No option but sinks changes a score.
bool HasPlainScores(const AttentionOptions& o) {
  return !o.softcap.has_value() && o.alibi_slopes.empty();
}

// Rows that can be read 16 bytes at a time, and whose distance from one to the next has 32 bits.
bool HasSteps(const StoredTensor& t) {
  const DeviceRows rows = RowsOf(t);
  return rows.vectors && std::abs(rows.strides[2]) < int64_t{1} << 31;
}

bool HasPagesOfSteps(const DeviceProblem& call) {
  const uint64_t tokens = static_cast<uint64_t>(call.k_pages.shape[2]);
  return std::has_single_bit(tokens) && tokens >= kDecodeStepKeys &&
         call.k_pages.dtype == call.problem.q.dtype && call.v_pages.dtype == call.problem.q.dtype &&
         HasSteps(call.k_pages) && HasSteps(call.v_pages);
}

}  // namespace

bool TakesDecoding(const DeviceProblem& call) {
  const AttentionProblem& p = call.problem;
  const bool type = p.q.dtype == DType::kFloat16 || p.q.dtype == DType::kBFloat16;
  const bool columns = (p.head_dim == 64 || p.head_dim == 128) && p.head_dim_v == p.head_dim;
  if (p.q_len != 1 || p.group > kDecodeHeads || !type || !columns || !SeesIntervals(call))
    return false;
  if (!HasPlainScores(p.options) || !RowsOf(p.q).vectors) return false;
  return call.table == nullptr ? HasSteps(p.k) && HasSteps(p.v) : HasPagesOfSteps(call);
}

}  // namespace heed::cuda
