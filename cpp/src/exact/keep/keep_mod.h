// Keep plug: a user's function that says which keys a query may attend to.
#ifndef HEED_SRC_EXACT_KEEP_KEEP_MOD_H_
#define HEED_SRC_EXACT_KEEP_KEEP_MOD_H_

#include <algorithm>

#include "heed/expression.h"
#include "src/exact/keep/keep.h"

namespace heed {

class KeepMod final : public CellKeep {
 public:
  explicit KeepMod(const TileFunction& function) : function_(function) {}

  // The function starts from ones, row by row, so that doing nothing keeps everything. NaN does not
  // keep.
  void Narrow(const KeepTile& tile, KeyBits* bits) const override {
    float values[kTileKeys];
    for (size_t r = 0; r < tile.num_rows; ++r) {
      const Row& row = tile.rows[r];
      const ColumnRange columns = VisibleColumns(row, tile.key_begin, tile.num_keys);
      const size_t count = columns.end - columns.begin;
      if (count == 0 || bits[r].None()) continue;
      std::fill_n(values, kTileKeys, 0.0f);
      float* const visible = values + columns.begin;
      std::fill_n(visible, count, 1.0f);
      const PairTile::Row user_row = {row.head, row.query, row.position};
      function_({tile.batch, &user_row, 1, tile.key_begin + static_cast<int64_t>(columns.begin),
                 count, visible, kTileKeys});
      KeepNonzero(values, bits[r]);
    }
  }

 private:
  // Without branches: with KeyBits::Set() a keep_mod costs twice as much (WASM, kv_len 1024).
  static void KeepNonzero(const float* values, KeyBits& bits) {
    for (uint64_t& word : bits.words) {
      uint64_t kept = 0;
      for (size_t c = 0; c < 64; ++c) {
        kept |= static_cast<uint64_t>((values[c] > 0) | (values[c] < 0)) << c;
      }
      word &= kept;
      values += 64;
    }
  }

  const TileFunction& function_;
};

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_KEEP_MOD_H_
