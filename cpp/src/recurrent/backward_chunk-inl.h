// Memory of a worker of backward: what arrives at a chunk of tokens, and what leaves it.
#if defined(HEED_RECURRENT_BACKWARD_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_RECURRENT_BACKWARD_CHUNK_INL_H_
#undef HEED_RECURRENT_BACKWARD_CHUNK_INL_H_
#else
#define HEED_RECURRENT_BACKWARD_CHUNK_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "src/recurrent/chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Chunks whose states are kept at a time. Of those before them only the state is kept from which
// the tokens are run through again.
inline constexpr size_t kSegmentChunks = 32;

// Gradients of a row of features lie [token][plan.rows], a multiple of PanelCols().
struct BackwardScratch {
  size_t state_floats;
  AlignedFloats borders;          // states before each segment, each laid out as `state`
  AlignedFloats states;           // states before each chunk of a segment
  AlignedFloats d_state;          // what arrives at the state after the chunk, laid out as `state`
  AlignedFloats d_before;         // at the one before it
  AlignedFloats turned;           // a state transposed, [panel of rows][cols][PanelCols()]
  AlignedFloats values;           // as given, laid out as `writes`
  AlignedFloats write_rows;       // [token][cols]
  AlignedFloats write_columns;    // transposed, [panel of tokens][cols][PanelCols()]
  AlignedFloats arriving;         // at answers, [token][cols]
  AlignedFloats arriving_panels;  // laid out as `writes`
  AlignedFloats d_writes;         // laid out as `writes`
  AlignedFloats d_meets;          // [kChunkRows][kChunk]
  AlignedFloats key_panels;       // features in panels, [panel][kChunkRows][PanelCols()]
  AlignedFloats reader_panels;
  AlignedFloats moved;     // [token][rows]
  AlignedFloats part;      // [token][rows]
  AlignedFloats d_reader;  // [token][rows]: of queries, or of keys that erase
  AlignedFloats d_met;     // [token][rows]: of keys, by those that come after them
  AlignedFloats d_keys;    // [token][rows]: of keys, by all else
  // What passes factors, [token][decay_step]: from the state to reads, from writes to the state,
  // and from earlier tokens to reads.
  AlignedFloats reads, wrote, met;
  AlignedFloats row;  // [rows]

  BackwardScratch(const RecurrentPlan& plan, size_t segments)
      : state_floats(plan.rows * plan.cols),
        borders(segments * state_floats),
        states(std::min(segments == 0 ? 0 : kSegmentChunks, NumChunks(plan)) * state_floats),
        d_state(state_floats),
        d_before(state_floats),
        turned(state_floats),
        values(kChunkRows * plan.cols),
        write_rows(kChunkRows * plan.cols),
        write_columns(RoundUp(kChunk, PanelCols()) * plan.cols),
        arriving(kChunkRows * plan.cols),
        arriving_panels(kChunkRows * plan.cols),
        d_writes(kChunkRows * plan.cols),
        d_meets((kChunkRows + 1) * kChunk),
        key_panels(kChunkRows * plan.rows),
        reader_panels(kChunkRows * plan.rows),
        moved(kChunkRows * plan.rows),
        part(kChunkRows * plan.rows),
        d_reader(kChunkRows * plan.rows),
        d_met(kChunkRows * plan.rows),
        d_keys(kChunkRows * plan.rows),
        reads(kChunkRows * plan.decay_step),
        wrote(kChunkRows * plan.decay_step),
        met(kChunkRows * plan.decay_step),
        row(plan.rows) {}

  static size_t NumChunks(const RecurrentPlan& plan) {
    return (static_cast<size_t>(plan.problem->kv_len) + plan.chunk_len - 1) / plan.chunk_len;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_RECURRENT_BACKWARD_CHUNK_INL_H_
