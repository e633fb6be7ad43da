// The derivative of contextual positions (normalize/cope-inl.h).
#if defined(HEED_EXACT_COPE_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_COPE_GRADIENT_INL_H_
#undef HEED_EXACT_COPE_GRADIENT_INL_H_
#else
#define HEED_EXACT_COPE_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/exact/normalize/cope-inl.h"
#include "src/exact/problem.h"
#include "src/exact/row_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// With z_j = s_j + logit(position_j) and d_z the gradient through softmax: a gate is part of the
// positions of its key and of those before it, so
//   d_s_j = d_z_j + sigmoid'(s_j) sum of d_z_l logit'(position_l) over the keys l up to j,
// and d_z_j goes to the logits of the two whole positions around it, logit_p = q.e[p].
class CopeGradient final : public RowGradient {
 public:
  explicit CopeGradient(const AttentionProblem& p)
      : forward_(p.options.cope_table, p.options.sinks),
        table_(p.options.cope_table),
        group_(p.group),
        keys_(RoundUp(static_cast<size_t>(p.kv_len), kTileKeys)) {}

  // Of a row: its scores, later the slopes of their gates, and what every key gives to the gates
  // from it on. Then the gradients of the logits of all rows, and a query.
  size_t ScratchFloats(size_t /*num_tiles*/) const override {
    return 2 * keys_ + kScoreRows * Positions() + Dim();
  }

  void Apply(const RowNormalize&, const RowPair& rows, const GradientRows& terms) const override {
    std::fill_n(Logits(rows, 0), rows.scores.num_rows * Positions(), 0.0f);
    for (size_t r = 0; r < rows.scores.num_rows; ++r) ApplyToRow(rows, r, terms.mean[r]);
  }

  size_t TableSize() const override { return Positions() * Dim(); }

  void AddSums(const RowPair& rows, const RowSums& sums) const override {
    if (rows.scores.tiles.empty()) return;
    const ScoreTile& tile = rows.scores.tiles[0];
    for (size_t r = 0; r < rows.scores.num_rows; ++r) {
      const int64_t head = tile.rows[r].head;
      const float* query = Cope::Query(tile, tile.rows[r], Logits(rows, kScoreRows));
      float* const to = sums.queries == nullptr ? nullptr : sums.queries + r * Dim();
      double* const table = sums.table == nullptr
                                ? nullptr
                                : sums.table + static_cast<size_t>(head % group_) * TableSize();
      for (size_t p = 0; p < Positions(); ++p) {
        const float g = Logits(rows, r)[p];
        if (g == 0) continue;
        const float* entry = forward_.Entry(head, static_cast<int64_t>(p));
        for (size_t t = 0; t < Dim() && to != nullptr; ++t) to[t] += g * entry[t];
        for (size_t t = 0; t < Dim() && table != nullptr; ++t) {
          table[p * Dim() + t] += static_cast<double>(g) * static_cast<double>(query[t]);
        }
      }
    }
  }

 private:
  // The cells of a row and a tile.
  struct RowTile {
    const ScoreTile& tile;
    const float* weights;
    float* gradients;
    float mean;
  };

  // Sums over the keys between the same two positions, which follow each other.
  struct Span {
    int64_t low_position = 0;
    double low = 0, high = 0;
  };

  size_t Positions() const { return static_cast<size_t>(table_.shape[2]); }
  size_t Dim() const { return static_cast<size_t>(table_.shape[3]); }
  // Gradients of the logits of row r.
  float* Logits(const RowPair& rows, size_t r) const {
    return rows.gradients.scratch + 2 * keys_ + r * Positions();
  }

  static RowTile TileOf(const RowPair& rows, size_t t, size_t r, float mean) {
    const ScoreTile& tile = rows.scores.tiles[t];
    return {tile, tile.row_scores(r), rows.gradients.tiles[t].row_scores(r), mean};
  }

  void ApplyToRow(const RowPair& rows, size_t r, float mean) const {
    float* const scores = rows.gradients.scratch;
    for (const ScoreTile& tile : rows.scores.tiles) {
      const float* row = tile.row_scores(r);
      std::copy(row + tile.first, row + tile.last, scores + tile.key_begin + tile.first);
    }
    const float lse = forward_.NormalizeRow(rows.scores, r);
    float* const logits = Logits(rows, r);
    if (!std::isfinite(lse)) {
      // Empty or lost: no key has a position.
      if (std::isnan(lse)) std::fill_n(logits, Positions(), lse);
      return LoseGradients(rows, r);
    }
    double position = 0;
    Span span;
    for (size_t t = rows.scores.tiles.size(); t-- > 0;) {
      position = ReadPositions(TileOf(rows, t, r, mean), rows.scores.scratch, scores, position,
                               span, logits);
    }
    Write(span, logits);
    double before = 0;
    for (size_t t = 0; t < rows.scores.tiles.size(); ++t) {
      before = AddGates(TileOf(rows, t, r, mean), scores, before);
    }
  }

  // NaN where a key is visible, 0 elsewhere.
  static void LoseGradients(const RowPair& rows, size_t r) {
    const DF d;
    ReplaceGradients(rows, r, [&](VF weight, VF) HWY_ATTR {
      const auto hidden = hn::Eq(weight, hn::Set(d, kMinusInfinity));
      return hn::IfThenZeroElse(hidden, hn::Set(d, std::numeric_limits<float>::quiet_NaN()));
    });
  }

  // From the last key to the first: gradients of weights become d_z, scores the slopes of their
  // gates. Returns the position of the first key.
  double ReadPositions(const RowTile& row, const float* logits, float* scores, double position,
                       Span& span, float* d_logits) const {
    const DF d;
    const ScoreTile& tile = row.tile;
    HWY_ALIGN float gates[kTileKeys];
    float* const slopes = scores + tile.key_begin;
    for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
      const VF score = hn::Load(d, slopes + c);
      const VF gate = Sigmoid(d, score);
      hn::Store(gate, d, gates + c);
      hn::Store(hn::Mul(gate, Sigmoid(d, hn::Neg(score))), d, slopes + c);
    }
    const int64_t last = table_.shape[2] - 1;
    for (size_t c = tile.last; c-- > tile.first;) {
      if (row.weights[c] == kMinusInfinity) continue;
      position += static_cast<double>(gates[c]);
      const double here = std::min(position, static_cast<double>(last));
      const int64_t whole = static_cast<int64_t>(here);
      const double rest = here - static_cast<double>(whole);
      if (whole != span.low_position) Write(span, d_logits);
      span.low_position = whole;
      const float d_z = row.weights[c] * (row.gradients[c] - row.mean);
      span.low += (1 - rest) * static_cast<double>(d_z);
      span.high += rest * static_cast<double>(d_z);
      slopes[keys_ + c] = d_z * (logits[std::min(whole + 1, last)] - logits[whole]);
      row.gradients[c] = d_z;
    }
    return position;
  }

  void Write(Span& span, float* d_logits) const {
    const int64_t high = std::min(span.low_position + 1, table_.shape[2] - 1);
    d_logits[span.low_position] += static_cast<float>(span.low);
    d_logits[high] += static_cast<float>(span.high);
    span = {};
  }

  // From the first key to the last: d_z become the gradients of scores. `before` is what the keys
  // before the tile give to its gates; returns it for the next tile.
  double AddGates(const RowTile& row, const float* scores, double before) const {
    const float* const slopes = scores + row.tile.key_begin;
    for (size_t c = row.tile.first; c < row.tile.last; ++c) {
      if (row.weights[c] == kMinusInfinity) {
        row.gradients[c] = 0;
        continue;
      }
      before += static_cast<double>(slopes[keys_ + c]);
      row.gradients[c] += static_cast<float>(static_cast<double>(slopes[c]) * before);
    }
    return before;
  }

  Cope forward_;
  TensorView<const float> table_;
  int64_t group_;
  size_t keys_;  // whole tiles
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_COPE_GRADIENT_INL_H_
