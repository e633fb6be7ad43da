// Where the gradient kernels for Hopper keep their tiles in shared memory, and what the row table
// says of queries: plain functions of numbers, tested on the host.
#ifndef HEED_SRC_CUDA_HOPPER_GRADIENT_LAYOUT_H_
#define HEED_SRC_CUDA_HOPPER_GRADIENT_LAYOUT_H_

#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/hopper_layout.h"

namespace heed::cuda {

// The row table has a tile for each kTableRows queries of a head: an array of words for each of
// RowNumber, then four words of TileNumber. It is in global memory, and tiles of it travel beside
// those of q and d_out.
inline constexpr int kTableRows = 48;
enum RowNumber {
  kRowLse,       // a float, in base 2
  kRowDelta,     // a float
  kRowBegin,     // the keys that the row sees; 0, 0: none, no weight, or behind the last row
  kRowEnd,       //
  kRowPosition,  // of the query among the keys
  kRowSlope,     // a float: of ALiBi
  kRowNumbers
};
// The keys that some row of the tile sees (none: begin >= end) by causal, window and lengths, alike
// in all heads, and those that all rows see.
enum TileNumber { kSomeBegin, kSomeEnd, kAllBegin, kAllEnd, kTileNumbers };
HEED_DEVICE constexpr int RowWordAt(RowNumber number, int row) { return number * kTableRows + row; }
HEED_DEVICE constexpr int TileWordAt(TileNumber number) {
  return kRowNumbers * kTableRows + number;
}
inline constexpr int kTableTileWords = kRowNumbers * kTableRows + kTileNumbers;
inline constexpr int kTableTileBytes = 4 * kTableTileWords;
static_assert(kTableTileBytes % 16 == 0, "a bulk copy");

using GradientGroups = TwoConsumers;
inline constexpr int kOwnRows = GradientGroups::kRows;  // of a block

// Which sums the blocks of a kernel carry: d_k and d_v of their own keys past the queries, or d_q
// of their own queries past the keys.
enum class HopperSums { kKeys, kQueries };

// Sizes of a kernel on elements T: head_dim and head_dim_v up to kDim. A block owns kOwnRows
// rows of two tensors, k and v or q and d_out. Tiles of the two others stream past them.
template <class T, int kDim_, HopperSums kSums_>
struct HopperGradientShape {
  using Element = T;
  static constexpr int kDim = kDim_;
  static constexpr HopperSums kSums = kSums_;
  static constexpr bool kByKeys = kSums == HopperSums::kKeys;
  static constexpr int kTile = kByKeys ? kTableRows : 80;  // rows of a tile
  static constexpr int kStages = 3;                        // pairs of tiles on their way
  static constexpr int kPanels = kDim / kPanelCols;
  static constexpr int kOwnPanel = kOwnRows * kPanelBytes;
  static constexpr int kTilePanel = kTile * kPanelBytes;
  static constexpr int kOwnBytes = kPanels * kOwnPanel;
  static constexpr int kTileBytes = kPanels * kTilePanel;
  static constexpr int kTableBytes = kByKeys ? kTableTileBytes : 0;  // with each pair of tiles
  // Of the queries that a group owns: an array for each of RowNumber.
  static constexpr int kOwnTableBytes = kByKeys ? 0 : 4 * kRowNumbers * kGroupRows;

  // Offsets in shared memory; `which` is 0 for k or q, 1 for v or d_out.
  HEED_DEVICE static constexpr int OwnAt(int which) { return which * kOwnBytes; }
  HEED_DEVICE static constexpr int TileAt(int stage, int which) {
    return 2 * kOwnBytes + (2 * stage + which) * kTileBytes;
  }
  HEED_DEVICE static constexpr int TableAt(int stage) {
    return TileAt(kStages, 0) + stage * kTableBytes;
  }
  HEED_DEVICE static constexpr int OwnTableAt(int consumer) {
    return TableAt(kStages) + consumer * kOwnTableBytes;
  }
  static constexpr int kBytes = 2 * kOwnBytes + 2 * kStages * kTileBytes + kStages * kTableBytes +
                                GradientGroups::kConsumers * kOwnTableBytes;
};

// What TMA reads: the tensors of which a block owns rows (k and v, or q and d_out), and those whose
// tiles stream past them (q and d_out, or k and v).
template <class Map>
struct GradientMaps {
  Map own[2];
  Map tiles[2];
};

// Barriers of a block: what it owns is there, or is read; a pair of tiles is there, or is read.
template <int kStages>
struct HopperGradientBarriers {
  HEED_DEVICE static constexpr int OwnFull() { return 0; }
  HEED_DEVICE static constexpr int OwnEmpty() { return 1; }
  HEED_DEVICE static constexpr int Full(int stage) { return 2 + stage; }
  HEED_DEVICE static constexpr int Empty(int stage) { return 2 + kStages + stage; }
  static_assert(2 + 2 * kStages <= kMaxBarriers);
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_GRADIENT_LAYOUT_H_
