// Keep plug: a dense 0/1 tensor, broadcast to [batch, num_heads, q_len, kv_len].
#ifndef HEED_SRC_EXACT_KEEP_DENSE_H_
#define HEED_SRC_EXACT_KEEP_DENSE_H_

#include <bit>
#include <cstring>

#include "heed/tensor.h"
#include "src/exact/keep/keep.h"

namespace heed {

class DenseKeep final : public CellKeep {
 public:
  explicit DenseKeep(const TensorView<const uint8_t>& keep) : keep_(keep) {}

  void Narrow(const KeepTile& tile, KeyBits* bits) const override {
    for (size_t r = 0; r < tile.num_rows; ++r) {
      const ColumnRange columns = VisibleColumns(tile.rows[r], tile.key_begin, tile.num_keys);
      const size_t count = columns.end - columns.begin;
      if (count == 0) continue;
      const uint8_t* cells = Cells(tile, tile.rows[r], columns.begin);
      if (keep_.strides[3] == 0) {
        if (*cells == 0) bits[r] = {};
      } else if (std::memchr(cells, 0, count) != nullptr) {
        KeyBits kept;
        SetWhereNonzero(cells, columns, kept);
        bits[r] &= kept;
      }
    }
  }

 private:
  const uint8_t* Cells(const KeepTile& tile, const Row& row, size_t column) const {
    return keep_.data + tile.batch * keep_.strides[0] + row.head * keep_.strides[1] +
           row.query * keep_.strides[2] +
           (tile.key_begin + static_cast<int64_t>(column)) * keep_.strides[3];
  }

  // One bit for each of eight bytes: set when the byte is not zero.
  static uint64_t NonzeroBytes(const uint8_t* cells) {
    uint64_t bytes;
    std::memcpy(&bytes, cells, 8);
    constexpr uint64_t kLow = 0x7f7f7f7f7f7f7f7fu;
    const uint64_t high = (((bytes & kLow) + kLow) | bytes) & ~kLow;
    return (high >> 7) * 0x0102040810204080u >> 56;
  }

  // Columns are those of `cells`; words of eight start where the range does.
  static void SetWhereNonzero(const uint8_t* cells, const ColumnRange& columns, KeyBits& kept) {
    size_t c = columns.begin;
    if constexpr (std::endian::native == std::endian::little) {
      for (; c + 8 <= columns.end; c += 8, cells += 8) {
        const uint64_t eight = NonzeroBytes(cells);
        kept.words[c / 64] |= eight << (c % 64);
        if (c % 64 > 56) kept.words[c / 64 + 1] |= eight >> (64 - c % 64);
      }
    }
    for (; c < columns.end; ++c, ++cells) {
      if (*cells != 0) kept.Set(c);
    }
  }

  TensorView<const uint8_t> keep_;
};

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_DENSE_H_
