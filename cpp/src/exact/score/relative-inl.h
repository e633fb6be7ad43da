// Score plug: a scaled dot product with relative terms, s = scale * ((q + content_bias).k +
// (q + position_bias).keys[distance] + k.queries[distance]). Sources: Shaw 2018 (arXiv:1803.02155),
// Dai 2019 (Transformer-XL, arXiv:1901.02860), He 2021 (DeBERTa, arXiv:2006.03654).
//
// The products with the few table rows that a tile needs are register tiles too; they lie in a
// buffer on the stack and are added askew. No matrix of q_len x kv_len distances exists.
#if defined(HEED_EXACT_SCORE_RELATIVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SCORE_RELATIVE_INL_H_
#undef HEED_EXACT_SCORE_RELATIVE_INL_H_
#else
#define HEED_EXACT_SCORE_RELATIVE_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/relative_tables-inl.h"
#include "src/exact/score/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class RelativeDotScore final : public ScorePlug {
 public:
  RelativeDotScore(const AttentionProblem& p, float scale)
      : scale_(scale),
        head_dim_(static_cast<size_t>(p.head_dim)),
        content_bias_(p.options.content_bias),
        position_bias_(p.options.position_bias),
        index_(p) {
    // Keys as columns, because queries (already scaled) stand on the left; queries as rows.
    if (p.options.relative_keys.has_value()) {
      keys_ = {p.options.relative_keys, index_, RelativeTables::Form::kPanels, 1.0f};
    }
    if (p.options.relative_queries.has_value()) {
      queries_ = {p.options.relative_queries, index_, RelativeTables::Form::kGroups, scale};
    }
  }

  size_t Depth() const override { return head_dim_; }
  // Content queries, then position queries.
  size_t QueryDepth() const override { return 2 * head_dim_; }

  void PackQueries(const float* const* rows, const Row* queries, size_t count, float* to,
                   float*) const override {
    for (const TensorView<const float>* bias : {&content_bias_, &position_bias_}) {
      TransposeRows(rows, count, head_dim_, to, count);
      for (size_t i = 0; i < count; ++i) {
        for (size_t t = 0; t < head_dim_; ++t) {
          float& x = to[t * count + i];
          if (bias->has_value()) x += (*bias)(0, 0, queries[i].head, static_cast<int64_t>(t));
          x *= scale_;
        }
      }
      to += count * head_dim_;
    }
  }

  void PackKeys(const float* const* rows, size_t count, int64_t, float* panel,
                float*) const override {
    PackTransposedPanel(RowPointers{rows}, count, head_dim_, panel);
  }

  void Fill(const float* queries, const float* panels, ScoreTile& tile) const override {
    FillDots(head_dim_, QueryDepth(), queries, panels, tile);
    if (keys_.has_value()) AddQueryTerms(queries, tile);
    if (queries_.has_value()) AddKeyTerms(panels, tile);
  }

 private:
  void AddQueryTerms(const float* queries, ScoreTile& tile) const {
    ForEachRowGroup(tile, [&]<size_t kRows>(size_t r, const ColumnRange& group) HWY_ATTR {
      const ColumnRange panels = PanelsOf(group);
      const ColumnRange columns = {std::max(panels.begin, tile.first),
                                   std::min(panels.end, tile.last)};
      if (columns.begin >= columns.end) return;
      const float* a = queries + r * QueryDepth() + kRows * head_dim_;
      if (AreNeighbours(tile, r, kRows)) return AddQueryTerms<kRows, kRows>(a, tile, r, columns);
      for (size_t i = 0; i < kRows; ++i) AddQueryTerms<kRows, 1>(a + i, tile, r + i, columns);
    });
  }

  // kCount rows from r on, of a packed group of kGroup.
  template <size_t kGroup, size_t kCount>
  void AddQueryTerms(const float* a, ScoreTile& tile, size_t r, const ColumnRange& columns) const {
    HWY_ALIGN float products[kCount * kTileTableRows];
    const TableRange table = TableRowsOf(index_, tile, r, kCount, columns.begin, columns.end);
    const size_t base = table.begin / PanelCols() * PanelCols();
    ForEachTable(keys_, tile, r, kCount, [&](int64_t head) HWY_ATTR {
      for (size_t c = base; c < table.end; c += PanelCols()) {
        RegisterTile<ALayout<kGroup, 1>, kCount>(
            MultiplyAccumulate(), a, keys_.Of(head) + c * head_dim_, head_dim_,
            products + (c - base), kTileTableRows, StoreOnly());
      }
      for (size_t i = 0; i < kCount; ++i) {
        if (keys_.per_head() && tile.rows[r + i].head != head) continue;
        AddAskew(tile, r + i, columns, base, products + i * kTileTableRows);
      }
    });
  }

  // scores[c] += products[table row of c - base].
  void AddAskew(const ScoreTile& tile, size_t r, const ColumnRange& columns, size_t base,
                const float* products) const {
    const DF d;
    const hn::RebindToSigned<DF> di;
    const size_t lanes = hn::Lanes(d);
    float* scores = tile.row_scores(r);
    for (size_t c = columns.begin; c < columns.end; c += lanes) {
      const int32_t* rows = TableRowsFrom(index_, tile, r, c);
      const size_t spread = static_cast<size_t>(rows[lanes - 1] - rows[0]);
      const float* from = products + (static_cast<size_t>(rows[0]) - base);
      VF term;
      if (spread == lanes - 1) {
        term = hn::LoadU(d, from);
      } else if (spread == 0) {
        term = hn::Set(d, *from);
      } else {
        term = hn::GatherIndex(d, from, hn::Sub(hn::LoadU(di, rows), hn::Set(di, rows[0])));
      }
      hn::StoreU(hn::Add(hn::LoadU(d, scores + c), term), d, scores + c);
    }
  }

  void AddKeyTerms(const float* panels, ScoreTile& tile) const {
    for (size_t c = tile.first; c < tile.last; c += PanelCols()) {
      ForEachRowGroup(tile, [&]<size_t kRows>(size_t r, const ColumnRange& group) HWY_ATTR {
        if (c + PanelCols() <= group.begin || c >= group.end) return;
        const size_t step = AreNeighbours(tile, r, kRows) ? kRows : 1;
        for (size_t i = 0; i < kRows; i += step) AddKeyTerms(panels, tile, r + i, step, c);
      });
    }
  }

  // `count` rows from r on and the panel of keys at column c.
  void AddKeyTerms(const float* panels, ScoreTile& tile, size_t r, size_t count, size_t c) const {
    HWY_ALIGN float products[kPanelTableRows * PanelCols()];
    const TableRange table = TableRowsOf(index_, tile, r, count, c, c + PanelCols());
    const size_t base = table.begin / kTileRows * kTileRows;
    ForEachTable(queries_, tile, r, count, [&](int64_t head) HWY_ATTR {
      for (size_t n = base; n < table.end; n += kTileRows) {
        RegisterTile<ALayout<kTileRows, 1>, kTileRows>(
            MultiplyAccumulate(), queries_.Of(head) + n * head_dim_, panels + c * head_dim_,
            head_dim_, products + (n - base) * PanelCols(), PanelCols(), StoreOnly());
      }
      for (size_t i = 0; i < count; ++i) {
        if (queries_.per_head() && tile.rows[r + i].head != head) continue;
        AddDiagonal(tile, r + i, c, base, products);
      }
    });
  }

  // scores[c + x] += products[table row of c + x - base][x], x < PanelCols().
  void AddDiagonal(const ScoreTile& tile, size_t r, size_t c, size_t base,
                   const float* products) const {
    const DF d;
    const hn::RebindToSigned<DF> di;
    const auto cols = hn::Set(di, static_cast<int32_t>(PanelCols()));
    const auto first = hn::Set(di, static_cast<int32_t>(base));
    float* scores = tile.row_scores(r) + c;
    for (size_t x = 0; x < PanelCols(); x += hn::Lanes(d)) {
      const auto rows = hn::Sub(hn::LoadU(di, TableRowsFrom(index_, tile, r, c + x)), first);
      const auto at = hn::Add(hn::Mul(rows, cols), hn::Iota(di, static_cast<int32_t>(x)));
      const VF term = hn::GatherIndex(d, products, at);
      hn::StoreU(hn::Add(hn::LoadU(d, scores + x), term), d, scores + x);
    }
  }

  float scale_;
  size_t head_dim_;
  TensorView<const float> content_bias_, position_bias_;
  RelativeIndex index_;
  RelativeTables keys_, queries_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_RELATIVE_INL_H_
