// Keep plug: a dense 0/1 tensor, broadcast to [batch, num_heads, q_len, kv_len].
#if defined(HEED_EXACT_KEEP_DENSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_KEEP_DENSE_INL_H_
#undef HEED_EXACT_KEEP_DENSE_INL_H_
#else
#define HEED_EXACT_KEEP_DENSE_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "src/exact/keep/keep-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class DenseKeep final : public CellKeep {
 public:
  explicit DenseKeep(const TensorView<const uint8_t>& keep) : keep_(keep) {}

  TileClass Classify(const ScoreTile& tile) const override {
    bool some = false;
    bool all = true;
    for (size_t r = 0; r < tile.num_rows; ++r) {
      const ColumnRange columns = VisibleColumns(tile, r);
      const size_t count = columns.end - columns.begin;
      if (count == 0) continue;
      const uint8_t* cells = Cells(tile, r, columns.begin);
      if (keep_.strides[3] == 0) {
        some = some || *cells != 0;
        all = all && *cells != 0;
      } else {
        const bool whole = std::memchr(cells, 0, count) == nullptr;
        all = all && whole;
        some = some || whole || AnyNonzero(cells, count);
      }
    }
    if (!some) return TileClass::kEmpty;
    return all ? TileClass::kFull : TileClass::kPartial;
  }

  void Apply(ScoreTile& tile) const override {
    for (size_t r = 0; r < tile.num_rows; ++r) {
      const ColumnRange columns = VisibleColumns(tile, r);
      if (columns.begin == columns.end) continue;
      const uint8_t* cells = Cells(tile, r, columns.begin);
      float* row = tile.row_scores(r);
      if (keep_.strides[3] == 0) {
        if (*cells == 0) HideColumns(row, columns.begin, columns.end);
      } else {
        HideWhereZero(cells, columns.end - columns.begin, row + columns.begin);
      }
    }
  }

 private:
  const uint8_t* Cells(const ScoreTile& tile, size_t r, size_t column) const {
    const Row& row = tile.rows[r];
    return keep_.data + tile.batch * keep_.strides[0] + row.head * keep_.strides[1] +
           row.query * keep_.strides[2] +
           (tile.key_begin + static_cast<int64_t>(column)) * keep_.strides[3];
  }

  static bool AnyNonzero(const uint8_t* cells, size_t count) {
    uint64_t bits = 0;
    size_t c = 0;
    for (; c + 8 <= count; c += 8) {
      uint64_t word;
      std::memcpy(&word, cells + c, 8);
      bits |= word;
    }
    for (; c < count; ++c) bits |= cells[c];
    return bits != 0;
  }

  static void HideWhereZero(const uint8_t* HWY_RESTRICT cells, size_t count,
                            float* HWY_RESTRICT row) {
    const float hidden = -std::numeric_limits<float>::infinity();
    for (size_t c = 0; c < count; ++c) row[c] = cells[c] != 0 ? row[c] : hidden;
  }

  TensorView<const uint8_t> keep_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_KEEP_DENSE_INL_H_
