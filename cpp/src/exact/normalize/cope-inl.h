// Normalize plug: contextual positions. The position of a key is the sum of the gates sigmoid(s)
// from it to the last visible key; the logit of that position, q.e[position], joins the score
// before the softmax. Source: Golovneva et al. 2024, arXiv:2405.18719.
#if defined(HEED_EXACT_NORMALIZE_COPE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_NORMALIZE_COPE_INL_H_
#undef HEED_EXACT_NORMALIZE_COPE_INL_H_
#else
#define HEED_EXACT_NORMALIZE_COPE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "src/exact/normalize/rows-inl.h"
#include "src/simd/convert-inl.h"
#include "src/simd/sigmoid-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class Cope final : public SingleRowNormalize {
 public:
  // table [1, 1 or num_heads, num_positions, head_dim].
  Cope(const TensorView<const float>& table, std::span<const float> sinks)
      : table_(table), sinks_(sinks) {}

  // The logits of all positions, and the query where it is not stored as floats.
  size_t ScratchFloats() const override {
    return static_cast<size_t>(table_.shape[2] + table_.shape[3]);
  }

  float NormalizeRow(const ScoreRows& rows, size_t r) const override {
    const float row_max = RowMax(rows, r);
    if (row_max == kMinusInfinity) return kMinusInfinity;
    if (std::isnan(row_max)) return LoseRow(rows, r);
    FillLogits(rows, r);
    double position = 0;
    for (size_t t = rows.tiles.size(); t-- > 0;) {
      position = AddPositions(rows.tiles[t], r, rows.scratch, position);
    }
    const size_t head = static_cast<size_t>(rows.tiles[0].rows[r].head);
    return SoftmaxRow(rows, r, sinks_.empty() ? kMinusInfinity : sinks_[head]);
  }

  // The query as floats, converted if need be.
  static const float* Query(const ScoreTile& tile, const Row& row, float* converted) {
    const StoredTensor& q = tile.problem->q;
    const void* query = q.Row(tile.batch, row.head, row.query);
    if (q.dtype == DType::kFloat32) return static_cast<const float*>(query);
    StoredRowToFloats(q.dtype, query, 1.0f, static_cast<size_t>(q.shape[3]), converted);
    return converted;
  }

  // e[p] of a query head.
  const float* Entry(int64_t head, int64_t p) const {
    return &table_(0, table_.shape[1] == 1 ? 0 : head, p, 0);
  }

 private:
  // scratch[p] = q.e[p].
  void FillLogits(const ScoreRows& rows, size_t r) const {
    const ScoreTile& tile = rows.tiles[0];
    const Row& row = tile.rows[r];
    const float* query = Query(tile, row, rows.scratch + table_.shape[2]);
    for (int64_t p = 0; p < table_.shape[2]; ++p) {
      rows.scratch[p] = Dot(query, Entry(row.head, p), static_cast<size_t>(table_.shape[3]));
    }
  }

  static float Dot(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, size_t count) {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    VF sum = hn::Zero(d);
    size_t c = 0;
    for (; c + lanes <= count; c += lanes) {
      sum = Fma(hn::LoadU(d, a + c), hn::LoadU(d, b + c), sum);
    }
    if (c < count) {
      sum = Fma(hn::LoadN(d, a + c, count - c), hn::LoadN(d, b + c, count - c), sum);
    }
    return hn::ReduceSum(d, sum);
  }

  // Adds the logits of the positions to the scores of a tile; returns the position of its first
  // key.
  double AddPositions(const ScoreTile& tile, size_t r, const float* HWY_RESTRICT logits,
                      double position) const {
    const DF d;
    HWY_ALIGN float gates[kTileKeys];
    float* HWY_RESTRICT row = tile.row_scores(r);
    for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
      hn::Store(Sigmoid(d, hn::Load(d, row + c)), d, gates + c);
    }
    const int64_t last = table_.shape[2] - 1;
    for (size_t c = tile.last; c-- > tile.first;) {
      if (row[c] == kMinusInfinity) continue;
      position += static_cast<double>(gates[c]);
      const double here = std::min(position, static_cast<double>(last));
      const int64_t whole = static_cast<int64_t>(here);
      const float rest = static_cast<float>(here - static_cast<double>(whole));
      const float low = logits[whole];
      const float high = logits[std::min(whole + 1, last)];
      row[c] += (1 - rest) * low + rest * high;
    }
    return position;
  }

  TensorView<const float> table_;
  std::span<const float> sinks_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_COPE_INL_H_
