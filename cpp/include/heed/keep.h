// Keep patterns: which keys exist for which query, as a rule instead of a matrix. Exact attention
// visits only the panels of keys that a pattern leaves, so its cost follows the pattern.
//
// Patterns and all other keep rules (causal, window, lengths, documents, dense keep) hold together:
// a key is visible when each of them says so. A union is a pattern of its own (Longformer,
// BigBird).
//
// "Position" is query + query_offset; patterns of positions ask for query_offset when q_len and
// kv_len differ. All pictures: rows are queries, columns keys, x = visible.
#ifndef HEED_KEEP_H_
#define HEED_KEEP_H_

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "heed/tensor.h"

namespace heed {

// Keys at the distances 0, d, 2d, ..., reach * d before and after the position, d the dilation.
//
//   reach = 1, dilation = 2:   x . x . .
//                              . x . x .
//                              x . x . x
//                              . x . x .
//                              . . x . x
struct DilatedWindow {
  int64_t reach = 256;            // keys on each side; >= 0
  std::vector<int64_t> dilation;  // empty = 1, one for all heads, or num_heads; each >= 1
};

// A (dilated) window, and global tokens that see every key and are seen by every query.
//
//   reach = 1, global 0:   x x x x x
//                          x x x . .
//                          x x x x .
//                          x . x x x
//                          x . . x x
// Source: Beltagy et al. 2020, arXiv:2004.05150, section 3.1; its window of size w has reach w / 2.
struct Longformer {
  int64_t reach = 256;
  std::vector<int64_t> dilation;       // as above
  std::vector<int64_t> global_tokens;  // positions, any order; those beyond the keys are legal
};

// Blocks of `block_size` tokens: a window of blocks around the query's own, global blocks at the
// start (and, if asked for, at the end) that see and are seen by all, and random blocks.
//
//   window 1, global 1, random 1, seed 0, head 0, a block each:   x x x x x
//                                                                 x x x . .
//                                                                 x . x . x
//                                                                 x x . x .
//                                                                 x . x . x
//
// The random blocks of block i and head h: SplitMix64, begun in the state N(N(seed + h) + i), where
// N(s) is its first number from the state s (all modulo 2^64), is asked for block numbers, each
// modulo the number of blocks; global blocks, those of the window and repetitions are passed over,
// until random_blocks are found or no block is left. Every batch entry has the same ones.
//
// The last `last_blocks` blocks see and are seen by all too. Blocks are those of the positions
// [0, kv_len), ceil(kv_len / block_size) of them, for queries as for keys: query_offset moves a
// query to the block of its position, key_lengths moves no block, a partial block at the end is the
// last one, and where there are no more than global_blocks + last_blocks blocks everyone sees all.
// They change no drawing: a random block may be one of the last, and what a query sees without
// last_blocks it sees with them. The authors' code has global_blocks 1 and last_blocks 1, and draws
// other random blocks.
//
//   the same, last 1:   x x x x x
//                       x x x . x
//                       x . x . x
//                       x x . x x
//                       x x x x x
// Positions lie in [0, kv_len). Source: Zaheer et al. 2020, arXiv:2007.14062, section 2.
struct BigBird {
  int64_t block_size = 64;    // tokens, >= 1
  int64_t window_blocks = 3;  // odd, the own block included
  int64_t global_blocks = 2;  // >= 0
  int64_t random_blocks = 3;  // >= 0
  uint64_t seed = 0;
  int64_t last_blocks = 0;  // >= 0
};

// Sparse Transformer, strided: the last `stride` keys, and every stride-th before them.
//
//   stride = 2:   x . . . .
//                 x x . . .
//                 x x x . .
//                 . x x x .
//                 x . x x x
// Source: Child et al. 2019, arXiv:1904.10509, section 4.3: j in [i - l, i] or (i - j) mod l = 0,
// j <= i.
struct Strided {
  int64_t stride = 128;  // >= 1
};

// Sparse Transformer, fixed: the keys of the own block of `stride` tokens up to the query, and the
// last `summary` keys of every block before it.
//
//   stride = 2, summary = 1:   x . . . .
//                              x x . . .
//                              . x x . .
//                              . x x x .
//                              . x . x x
// Source: Child et al. 2019, arXiv:1904.10509, section 4.3 (l and c).
struct Fixed {
  int64_t stride = 128;  // >= 1
  int64_t summary = 8;   // 1 to stride: a stride below 8 needs a summary of its own
};

// Tokens of a grid, row by row, that differ along one axis only: the one given, or any.
//
//   grid 2 x 3, axis 1:   x x x . . .     axis 0:   x . . x . .
//                         x x x . . .               . x . . x .
//                         x x x . . .               . . x . . x
//                         . . . x x x               x . . x . .
// Positions lie in the grid, whose size is kv_len; so for the next two patterns.
// Source: Ho et al. 2019, arXiv:1912.12180, section 3.
struct Axial {
  std::vector<int64_t> grid;  // 2 or 3 extents, the last one contiguous
  std::optional<int64_t> axis;
};

// Windows of an image, row by row. With a shift the image is rolled by it first, and what came
// around the edge attends only to itself (the mask of regions).
//
//   one row of 4, window 2:   x x . .     shift 1:   x . . .
//                             x x . .                . x x .
//                             . . x x                . x x .
//                             . . x x                . . . x
// Source: Liu et al. 2021, arXiv:2103.14030, section 3.2 and its published code.
struct SwinWindow {
  std::vector<int64_t> grid;         // height, width
  std::vector<int64_t> window_size;  // one for both, or two; each divides its extent; no default
  std::vector<int64_t> shift;        // empty = 0, one, or two; 0 <= shift < window_size
};

// The `window_size` nearest tokens along each axis. At a border the window slides inwards: every
// token has as many neighbours. With dilation d, neighbours are those of the same residue modulo d.
//
//   one row of 5, window 3:   x x x . .
//                             x x x . .
//                             . x x x .
//                             . . x x x
//                             . . x x x
// Source: Hassani et al. 2023, arXiv:2204.07143, section 3; Hassani & Shi 2022, arXiv:2209.15001.
struct Neighborhood {
  std::vector<int64_t> grid;  // 1 to 3 extents
  // One for all axes, or one each; times dilation <= extent. No default.
  std::vector<int64_t> window_size;
  std::vector<int64_t> dilation;  // empty = 1, one, or one each
};

// A list of visible blocks of q_block queries and kv_block keys, counted from query 0 and key 0;
// the last ones may be shorter. Give `keep`, or `indptr` with `indices`.
//
//   2 x 2 blocks, keep {{1, 0}, {1, 1}}:   x x . .
//                                          x x . .
//                                          x x x x
//                                          x x x x
// With blocks of one query and one key, `indptr` and `indices` are a sparse matrix in CSR.
struct BlockList {
  int64_t q_block = 64;
  int64_t kv_block = 64;
  TensorView<const uint8_t> keep{};  // [1, 1 | num_heads, q_blocks, kv_blocks], nonzero = visible
  std::span<const int32_t> indptr;   // [q_blocks + 1], or [num_heads * q_blocks + 1]
  std::span<const int32_t> indices;  // blocks of keys, row after row, in any order
};

// A graph, or a sparse matrix in COO: pairs (query, key) in any order; repetitions are legal. Where
// edges are (source, target) and targets attend, the target is the query.
struct PairList {
  std::span<const int32_t> pairs;  // [num_pairs, 2]
};

using KeepPattern = std::variant<DilatedWindow, Longformer, BigBird, Strided, Fixed, Axial,
                                 SwinWindow, Neighborhood, BlockList, PairList>;

// Document ids of `len` tokens packed one document after the other: cu_seqlens holds the starts and
// the end, {0, 3, 5} for documents of 3 and 2 tokens. Tokens beyond the end are padding (-1).
// Throws Error(kRange) when it does not begin with 0, decreases, or ends beyond len.
std::vector<int32_t> DocumentsFromCuSeqlens(std::span<const int32_t> cu_seqlens, int64_t len);

// A dense keep [q_len, kv_len] from a sparse matrix: pairs (row, column), or rows in CSR. Throws
// Error(kRange) for an index outside. BlockList and PairList use the same arrays without the
// matrix.
std::vector<uint8_t> KeepFromCoo(std::span<const int32_t> rows, std::span<const int32_t> cols,
                                 int64_t q_len, int64_t kv_len);
std::vector<uint8_t> KeepFromCsr(std::span<const int32_t> indptr, std::span<const int32_t> indices,
                                 int64_t q_len, int64_t kv_len);

}  // namespace heed

#endif  // HEED_KEEP_H_
