// Shows what the loop carries from tile to tile.
#if defined(HEED_EXACT_TRACE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_TRACE_INL_H_
#undef HEED_EXACT_TRACE_INL_H_
#else
#define HEED_EXACT_TRACE_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/exact/normalize/normalize-inl.h"
#include "src/exact/tile.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Writes the states of some rows after tile t, and what it multiplied them by.
inline void WriteTrace(const AttentionProblem& p, int64_t batch, const Row* rows, size_t num_rows,
                       RowStates states, const float* rescale, size_t t) {
  const AttentionOutputs& out = p.outputs;
  const int64_t tile = static_cast<int64_t>(t);
  for (size_t r = 0; r < num_rows; ++r) {
    if (out.tiles_of_query && *out.tiles_of_query != rows[r].query) continue;
    const int64_t query = out.tiles_of_query ? 0 : rows[r].query;
    const float none = -std::numeric_limits<float>::infinity();
    const bool seen = states.row_sum[r] != 0.0f;
    out.running_max(batch, rows[r].head, query, tile) = seen ? states.row_max[r] : none;
    out.running_sum(batch, rows[r].head, query, tile) = states.row_sum[r];
    out.rescale(batch, rows[r].head, query, tile) = seen ? rescale[r] : kNoRescale;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_TRACE_INL_H_
