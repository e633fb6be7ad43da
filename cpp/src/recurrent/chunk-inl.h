// Sizes of a recurrent call and the memory of a worker: one chunk of tokens of one KV head.
#if defined(HEED_RECURRENT_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_RECURRENT_CHUNK_INL_H_
#undef HEED_RECURRENT_CHUNK_INL_H_
#else
#define HEED_RECURRENT_CHUNK_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "src/parallel/worker_scratch.h"
#include "src/recurrent/problem.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Row stride of the matrices of a chunk: [token][token].
inline constexpr size_t kChunk = static_cast<size_t>(kMaxChunkLen);
// Rows of those, whole register tiles of them: of the only row of each token, or of every second
// one.
inline constexpr size_t kChunkRows = 2 * RoundUp(kChunk / 2, kTileRows);
static_assert(kChunkRows >= RoundUp(kChunk, kTileRows));
// Tokens whose decays per channel meet directly; those of earlier tokens meet at the first of them.
inline constexpr size_t kBlockTokens = 16;

// Sizes of one call, padded to whole vectors and register tiles.
struct RecurrentPlan {
  const RecurrentProblem* problem;
  size_t dim;                // feature_dim
  size_t rows;               // feature_dim, whole register tiles and multiples of `width`
  size_t cols;               // columns of the state, whole panels
  size_t decay_step;         // from the factors of one token to those of the next
  size_t chunk_len;          // tokens; rows of a chunk are what they write, p.parts() each
  AlignedFloats projection;  // of random features, [panel][head_dim][PanelCols()]; filled later

  explicit RecurrentPlan(const RecurrentProblem& p, size_t width = hn::Lanes(DF()))
      : problem(&p),
        dim(static_cast<size_t>(p.feature_dim)),
        rows(RoundUp(RoundUp(dim, kTileRows), width)),
        cols(RoundUp(static_cast<size_t>(p.state_cols), PanelCols())),
        decay_step(p.decays_channels ? rows : 1),
        chunk_len(static_cast<size_t>(p.ChunkLen())),
        projection(p.has_peaks() ? RoundUp(dim, PanelCols()) * HeadDim() : 0) {}
  size_t HeadDim() const { return static_cast<size_t>(problem->head_dim); }
};

// Memory of one worker.
struct RecurrentScratch {
  AlignedFloats state;    // [panel][rows][PanelCols()]
  AlignedFloats keys;     // [token][rows]: features
  AlignedFloats erasers;  // what reads what is erased, where that is not the key; of levels queries
  AlignedFloats queries;  // the same of one query head
  AlignedFloats decays;   // [token][decay_step]: factors
  AlignedFloats along;    // [token][rows]: products of factors
  AlignedFloats panels;   // keys as panels of columns, [panel][rows][PanelCols()]
  AlignedFloats writes;   // u, [panel][kChunkRows][PanelCols()]
  AlignedFloats meets;    // [kChunkRows][kChunk]: keys with keys, or queries with keys
  AlignedFloats results;  // [kChunkRows][cols]
  AlignedFloats betas;    // [token]
  AlignedFloats packed;   // rows that meet the projection, [head_dim][kTileRows]
  AlignedFloats levels;   // [num_states], each as `state`
  AlignedFloats peaks;    // [2][rows]: of random features, and those to come

  explicit RecurrentScratch(const RecurrentPlan& plan)
      : state(plan.rows * plan.cols),
        keys(kChunkRows * plan.rows),
        erasers(plan.problem->parts() > 1 || plan.problem->has_levels() ? kChunkRows * plan.rows
                                                                        : 0),
        queries(kChunkRows * plan.rows),
        decays(RoundUp(kChunkRows * plan.decay_step, hn::Lanes(DF()))),
        along(kChunkRows * plan.rows),
        panels(RoundUp(kChunk, PanelCols()) * plan.rows),
        writes(kChunkRows * plan.cols),
        meets(kChunkRows * kChunk),
        results(kChunkRows * plan.cols),
        betas(kChunk),
        packed(plan.problem->has_peaks() ? plan.HeadDim() * kTileRows : 0),
        levels(static_cast<size_t>(plan.problem->num_states) * plan.rows * plan.cols),
        peaks(plan.problem->has_peaks() ? 2 * plan.rows : 0) {}
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_RECURRENT_CHUNK_INL_H_
