// Where the Hopper kernel keeps its tiles in shared memory, and how it tells the tensor cores:
// plain functions of numbers, tested on the host.
//
// A tile of `rows` rows lies in panels of 64 columns (128 of float8), one panel after the other. A
// row of a panel is 128 bytes, eight chunks of 16; eight rows are 1024 bytes. Chunk c of row r
// stands at place c ^ (r % 8) of its row: "128-byte swizzle", as TMA stores it and wgmma reads it
// (PTX ISA 9.0, "Swizzling modes" of tensors and "Shared memory matrix layout" of wgmma).
#ifndef HEED_SRC_CUDA_HOPPER_LAYOUT_H_
#define HEED_SRC_CUDA_HOPPER_LAYOUT_H_

#include <cstdint>
#include <type_traits>

#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"

namespace heed::cuda {

inline constexpr int kGroupThreads = 128;  // a warp group: four warps, what wgmma works with
inline constexpr int kGroupWarps = kGroupThreads / 32;
inline constexpr int kGroupRows = 64;  // of a group that computes

// The warp groups of a block: one loads, kConsumers compute. A thread of each kind keeps so many
// registers (setmaxnreg), of the 65536 of a multiprocessor.
template <int kConsumers_, int kProducerRegisters_, int kConsumerRegisters_>
struct BlockGroups {
  static constexpr int kConsumers = kConsumers_;
  static constexpr int kGroups = kConsumers + 1;
  static constexpr int kThreads = kGroups * kGroupThreads;
  static constexpr int kRows = kConsumers * kGroupRows;  // computed at a time
  static constexpr int kProducerRegisters = kProducerRegisters_;
  static constexpr int kConsumerRegisters = kConsumerRegisters_;
  static_assert(kGroupThreads * (kProducerRegisters + kConsumers * kConsumerRegisters) <= 65536);
};
using TwoConsumers = BlockGroups<2, 40, 232>;
using TwoBesideTransposer = BlockGroups<2, 56, 224>;  // the group that loads transposes too
using ThreeConsumers = BlockGroups<3, 32, 160>;
inline constexpr int kMaxGroups = ThreeConsumers::kGroups;

// Keys of a tile of 16-bit types with 128 columns of both, without softcap and ALiBi, which leave
// no registers for more than 128.
inline constexpr int kKeysOf128 = 160;

inline constexpr int kPanelCols = 64;    // 16-bit numbers in 128 bytes
inline constexpr int kPanelBytes = 128;  // of a row
inline constexpr int kSwizzleBytes = 1024;

// Where byte `byte` of row `row` lies in a tile of `rows` rows.
HEED_DEVICE constexpr int SwizzledByte(int rows, int row, int byte) {
  const int chunk = byte % kPanelBytes / 16 ^ row % 8;
  return (byte / kPanelBytes * rows + row) * kPanelBytes + chunk * 16 + byte % 16;
}
// The same of column `col` of 16-bit numbers.
HEED_DEVICE constexpr int SwizzledOffset(int rows, int row, int col) {
  return SwizzledByte(rows, row, 2 * col);
}

// wgmma's matrix descriptor (PTX ISA 9.0, "Matrix descriptor format"): a matrix of 128-byte swizzle
// whose first byte has this address in shared memory. `leading` is the distance of panels of 64
// columns where columns are the n of the product (keys are its k); a matrix whose columns are the k
// ignores it. Groups of eight rows are 1024 bytes apart.
HEED_DEVICE constexpr uint64_t SwizzledDescriptor(uint32_t address, int leading) {
  constexpr uint64_t kSwizzle128 = 1;
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) |
         static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(kSwizzleBytes >> 4) << 32 | kSwizzle128 << 62;
}

// The same matrix `bytes` further on: a multiple of 16, within shared memory. Addresses do not
// leave their 14 bits, so the upper half stays what it is, a constant.
HEED_DEVICE constexpr uint64_t AdvancedDescriptor(uint64_t matrix, int bytes) {
  const uint32_t lower = static_cast<uint32_t>(matrix) + static_cast<uint32_t>(bytes >> 4);
  return matrix >> 32 << 32 | lower;
}

// How the right operand of a product lies, of which panels of rows are as above: rows are its n and
// hold k, or the other way round ("transposed").
enum class RightOperand { kRowsOfN, kRowsOfK };

// A tensor [batch, heads, len, width] as TMA sees it, innermost dimension first, read in boxes of
// kPanelBytes (64 columns of 16-bit numbers) by `rows` rows. What lies outside of the tensor is
// read as 0.
struct TileMap {
  const char* data;
  DType dtype;
  uint64_t sizes[4];    // width, len, heads, batch
  uint64_t strides[3];  // bytes, of len, heads and batch
  uint32_t rows;
};

// Sizes of the kernel on elements T: head_dim up to kDim, head_dim_v up to kValueDim.
//
// Products of float8 want both operands with the k of the product contiguous. Those of values are
// transposed for that (float8_tiles.h): they arrive as raw tiles, and become a row of keys for each
// column.
//
// kPlain: without softcap and ALiBi, whose code would stand in the way of the rest.
template <class T, int kDim_, int kValueDim_, bool kPlain_ = false>
struct HopperShape {
  static constexpr bool kPlain = kPlain_;
  using Element = T;
  static constexpr bool kIsFloat8 = std::is_same_v<T, Float8E4M3>;
  static constexpr int kPanelColumns = kPanelBytes / static_cast<int>(sizeof(T));
  HEED_DEVICE static constexpr int PanelsOf(int columns) {
    return (columns + kPanelColumns - 1) / kPanelColumns;
  }
  static constexpr int kDim = kDim_;
  static constexpr int kValueDim = kValueDim_;
  using Groups = std::conditional_t<kIsFloat8, TwoBesideTransposer,
                                    std::conditional_t<kDim == 64, ThreeConsumers, TwoConsumers>>;
  static constexpr int kConsumers = Groups::kConsumers;
  static constexpr int kRows = Groups::kRows;  // packed rows of an item
  // Keys of a tile, and those of it that a consumer takes at once. Rows of transposed values are
  // 128 keys long, of which registers have no room for as many scores beside 256 columns.
  static constexpr bool kIsLong = !kIsFloat8 && kPlain && kDim == 128;
  static constexpr int kPartKeys = kIsLong ? kKeysOf128 : kValueDim <= 128 ? 128 : 64;
  static constexpr int kKeys = kIsFloat8 ? 128 : kPartKeys;
  static constexpr int kParts = kKeys / kPartKeys;
  // Tiles of keys (and of values) on their way. Those that three groups read are short, and leave
  // room for more.
  static constexpr int kStages = kConsumers > 2 ? 4 : 2;
  static constexpr int kQueryBytes = PanelsOf(kDim) * kGroupRows * kPanelBytes;
  static constexpr int kPanelOfKeys = kKeys * kPanelBytes;
  static constexpr int kKeyBytes = PanelsOf(kDim) * kPanelOfKeys;
  static constexpr int kRawBytes = kIsFloat8 ? PanelsOf(kValueDim) * kPanelOfKeys : 0;
  static constexpr int kValueBytes =
      kIsFloat8 ? kValueDim * kPanelBytes : PanelsOf(kValueDim) * kPanelOfKeys;
  static_assert(!kIsFloat8 || kKeys == kPanelBytes);

  // Offsets in shared memory, of which the tiles are multiples of kSwizzleBytes.
  HEED_DEVICE static constexpr int QueriesAt(int consumer) { return consumer * kQueryBytes; }
  HEED_DEVICE static constexpr int KeysAt(int stage) {
    return QueriesAt(kConsumers) + stage * kKeyBytes;
  }
  HEED_DEVICE static constexpr int ValuesAt(int stage) {
    return KeysAt(kStages) + stage * kValueBytes;
  }
  HEED_DEVICE static constexpr int RawAt(int stage) {
    return ValuesAt(kStages) + stage * kRawBytes;
  }
  // What a consumer's rows see stands behind the tiles, four words a row, where three groups share
  // the registers, or softcap and ALiBi take more of them.
  static constexpr bool kRowsInMemory = !kIsFloat8 && (kConsumers > 2 || !kPlain);
  static constexpr int kRowTableBytes = kRowsInMemory ? kGroupRows * 16 : 0;
  HEED_DEVICE static constexpr int RowsAt(int consumer) {
    return RawAt(kStages) + consumer * kRowTableBytes;
  }
  // Behind them, what is known of all rows of a consumer, four words.
  static constexpr int kGroupTableBytes = 16;
  HEED_DEVICE static constexpr int GroupAt(int consumer) {
    return RowsAt(kConsumers) + consumer * kGroupTableBytes;
  }
  static constexpr int kBytes = kConsumers * (kQueryBytes + kRowTableBytes + kGroupTableBytes) +
                                kStages * (kKeyBytes + kValueBytes + kRawBytes);
};

// Barriers (mbarrier) of a block: a tile is there, or is read.
template <int kStages>
struct HopperBarriers {
  HEED_DEVICE static constexpr int KeysFull(int stage) { return stage; }
  HEED_DEVICE static constexpr int KeysEmpty(int stage) { return kStages + stage; }
  HEED_DEVICE static constexpr int ValuesFull(int stage) { return 2 * kStages + stage; }
  HEED_DEVICE static constexpr int ValuesEmpty(int stage) { return 3 * kStages + stage; }
  HEED_DEVICE static constexpr int RawFull(int stage) { return 4 * kStages + stage; }
  static constexpr int kCount = 5 * kStages;
};
inline constexpr int kMaxBarriers = 24;
// Behind the tiles: barriers, and what warps of a group tell each other.
inline constexpr int kExtraBytes = 8 * kMaxBarriers + kMaxGroups * 4 * 4 * 4;

// The n-th tile that a block reads: its stage, and the parity of the barriers' phase that fills it.
template <int kStages>
struct TileTurn {
  int stage = 0;
  uint32_t parity = 0;

  HEED_DEVICE constexpr void Advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  HEED_DEVICE constexpr TileTurn Before() const {
    if (stage > 0) return {stage - 1, parity};
    return {kStages - 1, parity ^ 1};
  }
};

// The item that block `block` of a grid of `blocks` computes in its round `round`. Items are
// sorted, longest first, and dealt out there and back, so that who had the longest of a round has
// the shortest of the next. A block is done at its first item that does not exist.
HEED_DEVICE constexpr int32_t ItemOf(int32_t block, int32_t blocks, int32_t round) {
  return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_LAYOUT_H_
