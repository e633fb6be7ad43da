// Relative tables, packed for the register tile, and the short run of their rows that a score tile
// needs: distances change by one from key to key and from query to query.
#if defined(HEED_EXACT_RELATIVE_TABLES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_RELATIVE_TABLES_INL_H_
#undef HEED_EXACT_RELATIVE_TABLES_INL_H_
#else
#define HEED_EXACT_RELATIVE_TABLES_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "src/exact/relative.h"
#include "src/exact/row_groups-inl.h"
#include "src/exact/tile.h"
#include "src/parallel/worker_scratch.h"
#include "src/simd/pack-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Most table rows that a row group of a score tile needs, and that a panel of its keys needs, with
// what aligning both ends adds: rows change by at most one from one distance to the next.
inline constexpr size_t kTileTableRows = kTileKeys + kScoreRows + 2 * PanelCols();
inline constexpr size_t kPanelTableRows = PanelCols() + kScoreRows + 2 * kTileRows;

// One packed table, or one per query head.
class RelativeTables {
 public:
  enum class Form {
    kPanels,  // [panel of rows][dim][PanelCols()]: queries times rows
    kGroups,  // [group of rows][dim][kTileRows]: rows times keys
    kValues,  // [panel of dims][row][PanelCols()]: weights times rows
  };

  RelativeTables() = default;
  RelativeTables(const TensorView<const float>& tables, const RelativeIndex& index, Form form,
                 float factor)
      : num_tables_(tables.shape[1]), rows_(static_cast<size_t>(tables.shape[2])) {
    dim_ = static_cast<size_t>(tables.shape[3]);
    stride_ = form == Form::kPanels   ? RoundUp(rows_, PanelCols()) * dim_
              : form == Form::kGroups ? RoundUp(rows_, kTileRows) * dim_
                                      : rows_ * RoundUp(dim_, PanelCols());
    const size_t count = static_cast<size_t>(num_tables_) * stride_;
    packed_ = AlignedFloats(count);
    std::fill_n(packed_.get(), count, 0.0f);
    for (int64_t h = 0; h < num_tables_; ++h) {
      // Ascending distances: the last row first where the table runs the other way.
      Rows rows = {tables.data + h * tables.strides[1], tables.strides[2]};
      if (index.reversed()) {
        rows.data += (tables.shape[2] - 1) * rows.stride;
        rows.stride = -rows.stride;
      }
      Pack(rows, form, packed_.get() + static_cast<size_t>(h) * stride_);
    }
    for (size_t n = 0; n < count; ++n) packed_.get()[n] *= factor;
  }

  bool has_value() const { return num_tables_ > 0; }
  bool per_head() const { return num_tables_ > 1; }
  size_t rows() const { return rows_; }
  const float* Of(int64_t head) const {
    return packed_.get() + (per_head() ? static_cast<size_t>(head) * stride_ : 0);
  }

 private:
  void Pack(const Rows& rows, Form form, float* to) const {
    if (form == Form::kValues) {
      PackPanels(rows, rows_, dim_, rows_, to);
      return;
    }
    const size_t width = form == Form::kPanels ? PanelCols() : kTileRows;
    for (size_t r = 0; r < rows_; ++r) {
      float* column = to + r / width * width * dim_ + r % width;
      for (size_t t = 0; t < dim_; ++t) column[t * width] = rows.row(r)[t];
    }
  }

  int64_t num_tables_ = 0;
  size_t rows_ = 0, dim_ = 0, stride_ = 0;
  AlignedFloats packed_;
};

// Table rows [begin, end).
struct TableRange {
  size_t begin;
  size_t end;
};

// The positions of `count` score rows from r on.
struct Positions {
  int64_t near;
  int64_t far;
};

inline Positions PositionsOf(const ScoreTile& tile, size_t r, size_t count) {
  Positions span = {tile.rows[r].position, tile.rows[r].position};
  for (size_t i = 1; i < count; ++i) {
    span.near = std::min(span.near, tile.rows[r + i].position);
    span.far = std::max(span.far, tile.rows[r + i].position);
  }
  return span;
}

// Do the rows need a short run of table rows together? Not where two packed sequences meet.
inline bool AreNeighbours(const ScoreTile& tile, size_t r, size_t count) {
  const Positions span = PositionsOf(tile, r, count);
  return span.far - span.near < static_cast<int64_t>(kScoreRows);
}

// Rows that `count` score rows from r on, all neighbours, need for columns [first, last).
inline TableRange TableRowsOf(const RelativeIndex& index, const ScoreTile& tile, size_t r,
                              size_t count, size_t first, size_t last) {
  const auto [near, far] = PositionsOf(tile, r, count);
  const int64_t begin = tile.key_begin + static_cast<int64_t>(first) - far;
  const int64_t end = tile.key_begin + static_cast<int64_t>(last) - near;
  return {static_cast<size_t>(index.Row(begin)), static_cast<size_t>(index.Row(end - 1)) + 1};
}

// The table rows of the columns from c on, for score row r.
inline const int32_t* TableRowsFrom(const RelativeIndex& index, const ScoreTile& tile, size_t r,
                                    size_t c) {
  return index.From(tile.key_begin + static_cast<int64_t>(c) - tile.rows[r].position);
}

// Calls visit(head) for each head among `count` score rows from r on, or once when all rows share
// one table.
template <class Visit>
HWY_INLINE void ForEachTable(const RelativeTables& tables, const ScoreTile& tile, size_t r,
                             size_t count, const Visit& visit) {
  const size_t heads = tables.per_head() ? static_cast<size_t>(tile.problem->group) : 1;
  for (size_t i = 0; i < std::min(heads, count); ++i) visit(tile.rows[r + i].head);
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_RELATIVE_TABLES_INL_H_
