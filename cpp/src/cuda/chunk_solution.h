// The triangular system of the delta rule: what the values of a chunk become, if each takes off
// what those before it answer to its key.
#ifndef HEED_SRC_CUDA_CHUNK_SOLUTION_H_
#define HEED_SRC_CUDA_CHUNK_SOLUTION_H_

#include "src/cuda/chunk_params.h"
#include "src/cuda/device.h"

namespace heed::cuda {

// Rows of pairs of tokens are 4 floats longer than a chunk: threads that read a column meet no bank
// twice, and four neighbours are aligned.
inline constexpr int kSystemStride = kChunkTokens + 4;

// (1 + A)^-1 of a matrix A [tokens, tokens] that is 0 but below its diagonal, by blocks: those of
// 16 tokens on the diagonal by substitution, and of two neighbours, whose inverses are known, the
// block below them,
//
//   [ P      ]^-1   [  P^-1            ]
//   [ A    Q ]    = [ -Q^-1 A P^-1  Q^-1 ]
//
// of 16, then of 32 tokens. Its numbers are [tokens, kSystemStride].
template <class Block, class Floats>
class ChunkSolution {
 public:
  // The part of `pairs` above the diagonal is the transpose of A: what the key of each token
  // answers to those behind it. The inverse replaces the rest, from the diagonal down.
  HEED_DEVICE ChunkSolution(Block& block, Floats& pairs) : block_(block), pairs_(pairs) {}

  // Begins behind a barrier and ends with one.
  HEED_DEVICE void Run() {
    InvertDiagonal();
    InvertBelow<kFirst>();
    InvertBelow<2 * kFirst>();
  }

 private:
  static constexpr int kFirst = 16;  // tokens of the blocks on the diagonal
  static_assert(kChunkTokens == 4 * kFirst && kBlockThreads == 2 * kChunkTokens);

  // Half of the threads have a column of 16 rows each.
  HEED_DEVICE void InvertDiagonal() {
    typename Block::template Registers<float, kFirst> x;
    block_.Each([&](int t) {
      const int c = t % kFirst, first = t / kFirst * kFirst;
      if (t >= kChunkTokens) return;
      HEED_UNROLL for (int r = 0; r < kFirst; ++r) x(t, r) = r == c ? 1.0f : 0.0f;
      HEED_UNROLL for (int s = 0; s < kFirst; ++s) {
        HEED_UNROLL for (int r = s / 4 * 4; r < kFirst; r += 4) {
          float of_four[4];
          pairs_.LoadFour(t, (first + s) * kSystemStride + first + r, of_four);
          HEED_UNROLL for (int n = 0; n < 4; ++n) {
            if (r + n > s) x(t, r + n) -= of_four[n] * x(t, s);
          }
        }
      }
    });
    block_.Sync();  // all of A is read
    block_.Each([&](int t) {
      const int c = t % kFirst, first = t / kFirst * kFirst;
      if (t >= kChunkTokens) return;
      HEED_UNROLL for (int r = 0; r < kFirst; ++r) {
        pairs_.Store(t, (first + r) * kSystemStride + first + c, x(t, r));
      }
    });
    block_.Sync();
  }

  // The blocks of kSize tokens below pairs of them on the diagonal. A thread has a column and a
  // quarter of its rows. No row meets one behind it, whose numbers may not be finite.
  template <int kSize>
  HEED_DEVICE void InvertBelow() {
    constexpr int kRows = kSize / 4, kThreads = 4 * kSize;  // of a thread, of a pair
    static_assert(kChunkTokens / (2 * kSize) * kThreads == kBlockThreads);
    typename Block::template Registers<float, kRows> sums;
    const auto clear = [&](int t) { HEED_UNROLL for (int r = 0; r < kRows; ++r) sums(t, r) = 0; };
    // Of the pair's first token, of the rows in their block, of the column in all.
    const auto begin_of = [](int t) { return t / kThreads * 2 * kSize; };
    const auto row_of = [](int t) { return t % kThreads / kSize * kRows; };
    const auto col_of = [&](int t) { return begin_of(t) + t % kSize; };
    const auto store = [&](int t) {
      const int at = (begin_of(t) + kSize + row_of(t)) * kSystemStride + col_of(t);
      HEED_UNROLL for (int r = 0; r < kRows; ++r) {
        pairs_.Store(t, at + r * kSystemStride, sums(t, r));
      }
    };

    block_.Each([&](int t) {  // A P^-1
      clear(t);
      int inverse_at = begin_of(t) * kSystemStride + col_of(t);
      int system_at = begin_of(t) * kSystemStride + begin_of(t) + kSize + row_of(t);
      HEED_NO_UNROLL for (int s = 0; s < kSize; s += 4) {
        HEED_UNROLL for (int m = 0; m < 4; ++m) {
          const float known = pairs_.Load(t, inverse_at + m * kSystemStride);
          HEED_UNROLL for (int r = 0; r < kRows; r += 4) {
            float of_four[4];
            pairs_.LoadFour(t, system_at + m * kSystemStride + r, of_four);
            HEED_UNROLL for (int n = 0; n < 4; ++n) sums(t, r + n) += of_four[n] * known;
          }
        }
        inverse_at += 4 * kSystemStride;
        system_at += 4 * kSystemStride;
      }
      store(t);
    });
    block_.Sync();
    block_.Each([&](int t) {  // -Q^-1 of it
      clear(t);
      const int own = row_of(t);
      HEED_NO_UNROLL for (int s = 0; s < own; s += 4) SubtractFour<kSize>(t, s, own, sums);
      HEED_UNROLL for (int s = 0; s < kRows; s += 4) {
        SubtractFour<kSize>(t, own + s, own, sums, s);
      }
    });
    block_.Sync();  // all of A P^-1 is read
    block_.Each([&](int t) {
      store(t);
      // Right of the diagonal of a block that is the P^-1 of another are zeros.
      if (kSize > kFirst) return;
      const int at = (begin_of(t) + row_of(t)) * kSystemStride + col_of(t) + kSize;
      HEED_UNROLL for (int r = 0; r < kRows; ++r) pairs_.Store(t, at + r * kSystemStride, 0.0f);
    });
    block_.Sync();
  }
  // Four rows of A P^-1 from s on join the thread's rows, from `own` on, each times a number of
  // Q^-1. They lie `behind` rows behind `own`: all of them before it, or some of the thread's rows
  // lie before them and do not meet them.
  template <int kSize, class Sums>
  HEED_DEVICE void SubtractFour(int t, int s, int own, Sums& sums, int behind = -4) {
    constexpr int kRows = kSize / 4;
    const int begin = t / (4 * kSize) * 2 * kSize;
    float of_four[4];
    HEED_UNROLL for (int n = 0; n < 4; ++n) {
      of_four[n] = pairs_.Load(t, (begin + kSize + s + n) * kSystemStride + begin + t % kSize);
    }
    HEED_UNROLL for (int r = 0; r < kRows; ++r) {
      if (r < behind) continue;
      float known[4];
      pairs_.LoadFour(t, (begin + kSize + own + r) * kSystemStride + begin + kSize + s, known);
      HEED_UNROLL for (int n = 0; n < 4; ++n) {
        if (behind + n <= r) sums(t, r) -= known[n] * of_four[n];
      }
    }
  }

  Block& block_;
  Floats& pairs_;
};

template <class Block, class Floats>
HEED_DEVICE void SolveChunk(Block& block, Floats& pairs) {
  ChunkSolution<Block, Floats>(block, pairs).Run();
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_CHUNK_SOLUTION_H_
