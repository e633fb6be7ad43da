// Values by distance: o_i += sum_j p_ij values[distance]. Source: Shaw 2018, arXiv:1803.02155,
// equation 3.
#if defined(HEED_EXACT_RELATIVE_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_RELATIVE_VALUES_INL_H_
#undef HEED_EXACT_RELATIVE_VALUES_INL_H_
#else
#define HEED_EXACT_RELATIVE_VALUES_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "src/exact/relative_tables-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class RelativeValues {
 public:
  explicit RelativeValues(const AttentionProblem& p)
      : v_cols_(RoundUp(static_cast<size_t>(p.head_dim_v), PanelCols())),
        index_(p),
        values_(p.options.relative_values, index_, RelativeTables::Form::kValues, 1.0f) {}

  // Adds weights x table to the output rows of a tile of weights. The weights of a row are summed
  // by table row first: what is left is a product like that with the values.
  void Add(const ScoreTile& tile, float* output) const {
    HWY_ALIGN float sums[kTileRows * kTileTableRows];
    ForEachRowGroup(tile, [&]<size_t kRows>(size_t r, const ColumnRange& group) HWY_ATTR {
      // Whole panels: sums of vectors may not begin where the neighbours of a row say.
      const ColumnRange panels = PanelsOf(group);
      const size_t first = std::max(panels.begin, tile.first);
      const size_t last = std::min({panels.end, tile.last, tile.num_keys});
      if (first >= last) return;
      float* to = output + r * v_cols_;
      const bool one_table = !values_.per_head() || tile.problem->group == 1;
      if (one_table && AreNeighbours(tile, r, kRows)) {
        const TableRange table = TableRowsOf(index_, tile, r, kRows, first, last);
        for (size_t i = 0; i < kRows; ++i) {
          SumByRow(tile, r + i, {first, last}, table, sums + i * kTileTableRows);
        }
        return Multiply<kRows>(sums, table, tile.rows[r].head, to);
      }
      for (size_t i = 0; i < kRows; ++i) {
        const TableRange table = TableRowsOf(index_, tile, r + i, 1, first, last);
        SumByRow(tile, r + i, {first, last}, table, sums);
        Multiply<1>(sums, table, tile.rows[r + i].head, to + i * v_cols_);
      }
    });
  }

 private:
  template <size_t kRows>
  HWY_INLINE void Multiply(const float* sums, const TableRange& table, int64_t head,
                           float* to) const {
    for (size_t c = 0; c < v_cols_; c += PanelCols()) {
      RegisterTile<ALayout<1, kTileTableRows>, kRows>(
          MultiplyAccumulate(), sums,
          values_.Of(head) + c * values_.rows() + table.begin * PanelCols(),
          table.end - table.begin, to + c, v_cols_, AddToStored());
    }
  }

  // sums[n] = the weights of score row r whose table row is table.begin + n.
  void SumByRow(const ScoreTile& tile, size_t r, const ColumnRange& columns,
                const TableRange& table, float* sums) const {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    std::fill_n(sums, table.end - table.begin, 0.0f);
    const float* weights = tile.row_scores(r);
    size_t c = columns.begin;
    for (; c + lanes <= columns.end; c += lanes) {
      const int32_t* rows = TableRowsFrom(index_, tile, r, c);
      float* to = sums + (static_cast<size_t>(rows[0]) - table.begin);
      const VF weight = hn::LoadU(d, weights + c);
      const size_t spread = static_cast<size_t>(rows[lanes - 1] - rows[0]);
      if (spread == lanes - 1) {
        hn::StoreU(hn::Add(hn::LoadU(d, to), weight), d, to);
      } else if (spread == 0) {
        *to += hn::ReduceSum(d, weight);
      } else {
        for (size_t x = 0; x < lanes; ++x) to[rows[x] - rows[0]] += weights[c + x];
      }
    }
    const int32_t* rows = TableRowsFrom(index_, tile, r, c);
    for (size_t x = 0; c + x < columns.end; ++x) {
      sums[static_cast<size_t>(rows[x]) - table.begin] += weights[c + x];
    }
  }

  size_t v_cols_;
  RelativeIndex index_;
  RelativeTables values_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_RELATIVE_VALUES_INL_H_
