// Loops over fixed pieces: the bits do not depend on the number of threads.
#ifndef HEED_SRC_PARALLEL_PIECES_H_
#define HEED_SRC_PARALLEL_PIECES_H_

#include <algorithm>
#include <cstdint>
#include <span>

#include "heed/thread_pool.h"

namespace heed {

// Elements that one task handles, at least: less is not worth waking a thread for.
inline constexpr int64_t kTaskElements = 16384;

inline ThreadPool& PoolOf(ThreadPool* pool) {
  return pool != nullptr ? *pool : DefaultThreadPool();
}

inline int64_t PiecesOf(int64_t count, int64_t piece_len) {
  return (count + piece_len - 1) / piece_len;
}

// Calls body(begin, end, piece) for pieces of `piece_len` of [0, count).
template <class Body>
void ForEachPiece(int64_t count, int64_t piece_len, ThreadPool* pool, const Body& body) {
  PoolOf(pool).Run(PiecesOf(count, piece_len), [&](int64_t piece, int) {
    body(piece * piece_len, std::min(count, (piece + 1) * piece_len), piece);
  });
}

// Calls body(begin, end) for rows of `dim` elements.
template <class Body>
void ForEachRows(int64_t rows, int64_t dim, ThreadPool* pool, const Body& body) {
  const int64_t len = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, dim));
  ForEachPiece(rows, len, pool, [&](int64_t begin, int64_t end, int64_t) { body(begin, end); });
}

// Columns that one task sums over all rows.
inline constexpr int64_t kTaskColumns = 64;

// to[c] += sum over rows i of term(i, c), summed in float64 and in ascending order.
template <class Term>
void AddColumnSums(int64_t rows, int64_t dim, ThreadPool* pool, float* to, const Term& term) {
  ForEachPiece(dim, kTaskColumns, pool, [&](int64_t begin, int64_t end, int64_t) {
    double sums[kTaskColumns] = {};
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t c = begin; c < end; ++c) sums[c - begin] += static_cast<double>(term(i, c));
    }
    for (int64_t c = begin; c < end; ++c) to[c] += static_cast<float>(sums[c - begin]);
  });
}

// to[n] += from[n].
inline void AddTo(const float* from, int64_t count, ThreadPool* pool, float* to) {
  ForEachPiece(count, kTaskElements, pool, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t n = begin; n < end; ++n) to[n] += from[n];
  });
}

// table[place(n)] += row n of `dim` elements, which row(n) gives by a function of the column; in
// ascending order, and a place below 0 is none. A task owns columns: rows with the same place meet
// in it.
template <class Place, class Row>
void AddToTable(int64_t count, int64_t dim, ThreadPool* pool, float* table, const Place& place,
                const Row& row) {
  ForEachPiece(dim, kTaskColumns, pool, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t n = 0; n < count; ++n) {
      const int64_t at = place(n);
      if (at < 0) continue;
      const auto element = row(n);
      for (int64_t c = begin; c < end; ++c) table[at * dim + c] += element(c);
    }
  });
}

// Writes 0.
inline void Clear(std::span<float> values, ThreadPool* pool) {
  ForEachPiece(static_cast<int64_t>(values.size()), kTaskElements, pool,
               [&](int64_t begin, int64_t end, int64_t) {
                 std::fill(values.begin() + begin, values.begin() + end, 0.0f);
               });
}

}  // namespace heed

#endif  // HEED_SRC_PARALLEL_PIECES_H_
