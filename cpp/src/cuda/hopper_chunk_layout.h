// What the kernel of chunked recurrent attention on Hopper keeps in shared memory
// (hopper_chunk_kernel.h): plain numbers, tested on the host.
#ifndef HEED_SRC_CUDA_HOPPER_CHUNK_LAYOUT_H_
#define HEED_SRC_CUDA_HOPPER_CHUNK_LAYOUT_H_

#include <cstdint>

#include "src/cuda/chunk_params.h"
#include "src/cuda/device.h"
#include "src/cuda/hopper_layout.h"

namespace heed::cuda {

// Do tokens decay, or write with a beta?
enum class TokenGates { kNone, kSome };
// Are results multiplied by the scale, or divided by the sum of their weights?
enum class ChunkRowEnd { kScaled, kNormalized };

// Columns of values, and features, that a block has room for.
inline constexpr int kHopperChunkDim = 64;

// Groups of a block: one makes what concerns tokens alone, one carries the state, the others read
// it, chunk by chunk in turn. A thread of each kind keeps so many registers.
struct ChunkGroups {
  static constexpr int kReaders = 2;
  static constexpr int kConsumers = 1 + kReaders;  // all but the first
  static constexpr int kThreads = (1 + kConsumers) * kGroupThreads;
  static constexpr int kTokenRegisters = 96;
  static constexpr int kStateRegisters = 104;
  static constexpr int kReaderRegisters = 152;
  static_assert(kGroupThreads * (kTokenRegisters + kStateRegisters + kReaders * kReaderRegisters) <=
                65536);
};
static_assert(ChunkGroups::kThreads <= kMaxGroups * kGroupThreads);

// A chunk on its way is a stage: its queries, keys and values, the state before it, and what is
// known of its tokens.
template <TokenGates kGates_, ChunkRowEnd kRowEnd_>
struct HopperChunkShape {
  static constexpr TokenGates kGates = kGates_;
  static constexpr ChunkRowEnd kRowEnd = kRowEnd_;
  static constexpr bool kHasGates = kGates == TokenGates::kSome;
  static constexpr bool kNormalizes = kRowEnd == ChunkRowEnd::kNormalized;

  static constexpr int kStages = 6;
  // A stage has one reader, who fills it again.
  static_assert(kStages % ChunkGroups::kReaders == 0);
  static constexpr int kTileBytes = kChunkTokens * kPanelBytes;  // of 64 rows of 64 columns
  // The sums of keys, a right operand of eight columns: even ones are the sums rounded to bfloat16,
  // odd ones what is left of them. So each thread has both parts of its rows' answers.
  static constexpr int kSumRows = 8;
  static constexpr int kSumBytes = kSumRows * kPanelBytes;
  static constexpr int kTokenBytes = kChunkTokens * 4;

  HEED_DEVICE static constexpr int QueriesAt(int stage) { return stage * 4 * kTileBytes; }
  HEED_DEVICE static constexpr int KeysAt(int stage) { return QueriesAt(stage) + kTileBytes; }
  HEED_DEVICE static constexpr int ValuesAt(int stage) { return QueriesAt(stage) + 2 * kTileBytes; }
  HEED_DEVICE static constexpr int StateAt(int stage) { return QueriesAt(stage) + 3 * kTileBytes; }
  HEED_DEVICE static constexpr int SumsAt(int stage) {
    return QueriesAt(kStages) + stage * kSumBytes;
  }
  // A right operand of eight columns whose even ones are ones, and whose odd ones zeros.
  HEED_DEVICE static constexpr int OnesAt() { return SumsAt(kStages); }

  // Words of a stage, of tokens but for the last two kinds.
  HEED_DEVICE static constexpr int DecaysAt(int stage) {  // the sum of logarithms, and its rest
    return OnesAt() + kSumBytes + stage * kWordBytes;
  }
  HEED_DEVICE static constexpr int BetasAt(int stage) { return DecaysAt(stage) + 2 * kTokenBytes; }
  HEED_DEVICE static constexpr int StrengthsAt(int stage) {
    return DecaysAt(stage) + 3 * kTokenBytes;
  }
  // Of columns: the first token whose value is not finite.
  HEED_DEVICE static constexpr int FirstPoisonAt(int stage) {
    return DecaysAt(stage) + 4 * kTokenBytes;
  }
  // Sums of eight logarithms in float64.
  HEED_DEVICE static constexpr int EightsAt(int stage) { return DecaysAt(stage) + 5 * kTokenBytes; }
  HEED_DEVICE static constexpr int ChunkDecayAt(int stage) { return EightsAt(stage) + 64; }
  HEED_DEVICE static constexpr int HasPoisonAt(int stage) { return EightsAt(stage) + 68; }
  static constexpr int kWordBytes = 5 * kTokenBytes + 80;

  static constexpr int kBytes = kStages * (4 * kTileBytes + kSumBytes + kWordBytes) + kSumBytes;
  static_assert(kBytes + kExtraBytes + kSwizzleBytes <= 227 * 1024);
};

// Barriers (mbarrier) of a block: tiles of a stage are there; its keys are features, and its gates
// and poison are found; the state before it is there; all of it is read.
template <int kStages>
struct HopperChunkBarriers {
  HEED_DEVICE static constexpr int Full(int stage) { return stage; }
  HEED_DEVICE static constexpr int Found(int stage) { return kStages + stage; }
  HEED_DEVICE static constexpr int Ready(int stage) { return 2 * kStages + stage; }
  HEED_DEVICE static constexpr int Empty(int stage) { return 3 * kStages + stage; }
  static constexpr int kCount = 4 * kStages;
  static_assert(kCount <= kMaxBarriers);
};

// What TMA is told of the tensors of a call, in boxes of a chunk and 64 columns.
template <class Map>
struct ChunkMaps {
  Map q, k, v;
};

// What a block computes: a query head and kSliceCols columns of its values.
struct ChunkItem {
  int batch, head, kv_head;
  int slice;
  bool is_first;  // of the heads of its group
};
HEED_DEVICE ChunkItem ItemOfChunks(const ChunkParams& p, int32_t index) {
  const int heads = p.num_kv_heads * p.group;
  const int head = index / p.slices % heads;
  return {index / p.slices / heads, head, head / p.group, index % p.slices, head % p.group == 0};
}

// Places of a thread in a tile of 64 rows, found once: others are one exclusive or away.
//
// Numbers n and n + 1 of an accumulator, which begin at `first` = PairAt(t).
HEED_DEVICE constexpr int PairAt(int t) {
  const int lane = t % 32;
  return SwizzledOffset(kChunkTokens, t / 32 * 16 + lane / 4, lane % 4 * 2);
}
HEED_DEVICE constexpr int NextPair(int first, int n) {
  return (first ^ (n / 4 * 16)) + n % 4 / 2 * 8 * kPanelBytes;
}
// 16 bytes of row t / 8; the next of its rows are 16 apart.
HEED_DEVICE constexpr int EightAt(int t) { return SwizzledByte(kChunkTokens, t / 8, t % 8 * 16); }
inline constexpr int kEightRows = kGroupThreads / 8;
inline constexpr int kEightsOfTile = kChunkTokens / kEightRows;  // of a thread
HEED_DEVICE constexpr int NextEight(int first, int n) {
  return first + n * kEightRows * kPanelBytes;
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_CHUNK_LAYOUT_H_
