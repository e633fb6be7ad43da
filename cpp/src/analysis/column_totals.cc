#include "src/analysis/column_totals.h"

#include <algorithm>

#include "src/analysis/tile_sums.h"

namespace heed {

ColumnTotals::ColumnTotals(const AttentionProblem& p, int64_t parts, int64_t series)
    : p_(p), parts_(parts), series_(series == kPerHead ? p.group : series) {
  const int64_t tile = static_cast<int64_t>(kTileKeys);
  stride_ = (p.kv_len + tile - 1) / tile * tile;
  const int64_t units = p.batch * p.num_kv_heads;
  sums_.resize(static_cast<size_t>(units * parts_ * series_ * stride_));
}

double* ColumnTotals::Sums(int64_t part, int64_t series) {
  return &sums_[static_cast<size_t>((part * series_ + series) * stride_)];
}

void ColumnTotals::Add(const ScoreTile& tile, size_t first, size_t step, const float* factors,
                       double* to) {
  float sums[kTileKeys];
  SumTileColumns(tile, first, step, factors, sums);
  to += tile.key_begin;
  const size_t end = std::min(tile.last, tile.num_keys);
  for (size_t c = tile.first; c < end; ++c) to[c] += static_cast<double>(sums[c]);
}

// The heads of a group are the innermost of a tile's rows: every group-th row is of the same head.
void ColumnTotals::AddHeads(const ScoreTile& tile, int64_t part) {
  float ones[kMaxTileRows];
  std::fill_n(ones, kMaxTileRows, 1.0f);
  const size_t group = static_cast<size_t>(p_.group);
  for (size_t first = 0; first < std::min(group, tile.num_rows); ++first) {
    Add(tile, first, group, ones, Sums(part, tile.rows[first].head % p_.group));
  }
}

void ColumnTotals::AddMixtures(const ScoreTile& tile, int64_t part,
                               const TensorView<const float>& mixtures, int64_t first,
                               float factor) {
  for (int64_t n = 0; n < series_ && first + n < mixtures.shape[2]; ++n) {
    float factors[kMaxTileRows];
    bool any = false;
    for (size_t r = 0; r < tile.num_rows; ++r) {
      factors[r] = factor * mixtures(tile.batch, 0, first + n, tile.rows[r].query);
      any = any || factors[r] != 0.0f;
    }
    if (any) Add(tile, 0, 1, factors, Sums(part, n));
  }
}

double ColumnTotals::Total(int64_t unit, int64_t series, int64_t key) const {
  double total = 0;
  for (int64_t part = unit * parts_; part < (unit + 1) * parts_; ++part) {
    total += sums_[static_cast<size_t>((part * series_ + series) * stride_ + key)];
  }
  return total;
}

double ColumnTotals::OfHead(int64_t b, int64_t h, int64_t key) const {
  return Total(b * p_.num_kv_heads + h / p_.group, h % p_.group, key);
}

void ColumnTotals::Write(TensorView<float> sums) const {
  for (int64_t b = 0; b < p_.batch; ++b) {
    for (int64_t h = 0; h < p_.num_heads; ++h) {
      for (int64_t j = 0; j < p_.kv_len; ++j) {
        sums(b, h, j, 0) = static_cast<float>(OfHead(b, h, j));
      }
    }
  }
}

double ColumnTotals::OfMixture(int64_t b, int64_t series, int64_t key) const {
  double total = 0;
  for (int64_t h = 0; h < p_.num_kv_heads; ++h) {
    total += Total(b * p_.num_kv_heads + h, series, key);
  }
  return total;
}

}  // namespace heed
