// The triangular system of the delta rule: what the values of a chunk become, if each takes off
// what those before it answer to its key.
#ifndef HEED_SRC_CUDA_CHUNK_SOLUTION_H_
#define HEED_SRC_CUDA_CHUNK_SOLUTION_H_

#include "src/cuda/chunk_params.h"
#include "src/cuda/device.h"

namespace heed::cuda {

// Rows of pairs of tokens are 4 floats longer than a chunk: threads that read a column meet no bank
// twice, and four neighbours are aligned.
inline constexpr int kPairStride = kChunkTokens + 4;

// solution = (1 + the part of `system` below its diagonal)^-1, both [tokens, kPairStride]. A thread
// has a column, 16 rows of it in registers. The products of rows above them come first, then the 16
// among themselves. No barrier.
template <class Block, class Floats>
HEED_DEVICE void SolveChunk(Block& block, const Floats& system, Floats& solution) {
  constexpr int kRows = 16;
  typename Block::template Registers<float, kRows> x;
  HEED_NO_UNROLL for (int first = 0; first < kChunkTokens; first += kRows) {
    block.Each([&](int t) {
      if (t >= kChunkTokens) return;
      HEED_UNROLL for (int r = 0; r < kRows; ++r) x(t, r) = first + r == t ? 1.0f : 0.0f;
      HEED_NO_UNROLL for (int above = 0; above < first; above += 4) {
        float known[4], row[4];
        HEED_UNROLL for (int n = 0; n < 4; ++n) {
          known[n] = solution.Load(t, (above + n) * kPairStride + t);
        }
        HEED_UNROLL for (int r = 0; r < kRows; ++r) {
          system.LoadFour(t, (first + r) * kPairStride + above, row);
          HEED_UNROLL for (int n = 0; n < 4; ++n) x(t, r) -= row[n] * known[n];
        }
      }
      HEED_UNROLL for (int r = 0; r < kRows; ++r) {
        HEED_UNROLL for (int s = 0; s < r; ++s) {
          x(t, r) -= system.Load(t, (first + r) * kPairStride + first + s) * x(t, s);
        }
        solution.Store(t, (first + r) * kPairStride + t, x(t, r));
      }
    });
  }
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_CHUNK_SOLUTION_H_
