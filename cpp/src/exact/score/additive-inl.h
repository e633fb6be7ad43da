// Score plug: additive. s = scale * v^T tanh(W_q q + W_k k + b). Queries and keys are projected
// while they are packed; what is left for each pair is hidden_dim times a tanh. Source: Bahdanau
// 2014, arXiv:1409.0473, appendix A.1.2.
#if defined(HEED_EXACT_SCORE_ADDITIVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SCORE_ADDITIVE_INL_H_
#undef HEED_EXACT_SCORE_ADDITIVE_INL_H_
#else
#define HEED_EXACT_SCORE_ADDITIVE_INL_H_
#endif

#include <algorithm>
#include <optional>
#include <span>

#include "hwy/highway.h"
#include "src/exact/projection-inl.h"
#include "src/exact/score/score-inl.h"
#include "src/simd/tanh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class AdditiveScore final : public ScorePlug {
 public:
  // Absent weights are the identity; `bias` has hidden_dim values or none; `vector` is
  // [1, 1, num_heads or 1, hidden_dim], all ones when absent.
  AdditiveScore(float scale, size_t hidden_dim, const TensorView<const float>& query_weight,
                const TensorView<const float>& key_weight, std::span<const float> bias,
                const TensorView<const float>& vector)
      : hidden_dim_(hidden_dim),
        bias_(bias),
        vectors_(hidden_dim * static_cast<size_t>(vector.has_value() ? vector.shape[2] : 1)),
        vector_stride_(vector.has_value() && vector.shape[2] > 1 ? hidden_dim : 0) {
    if (query_weight.has_value()) queries_.emplace(QueryProjection::Of(query_weight));
    if (key_weight.has_value()) keys_.emplace(key_weight);
    if (!vector.has_value()) {
      std::fill_n(vectors_.get(), hidden_dim, scale);
      return;
    }
    for (int64_t h = 0; h < vector.shape[2]; ++h) {
      float* to = vectors_.get() + static_cast<size_t>(h) * vector_stride_;
      for (size_t t = 0; t < hidden_dim; ++t) {
        to[t] = scale * vector(0, 0, h, static_cast<int64_t>(t));
      }
    }
  }

  size_t Depth() const override { return hidden_dim_; }
  size_t QueryScratch() const override { return queries_ ? queries_->Scratch() : 0; }
  size_t KeyScratch() const override { return keys_ ? keys_->Scratch() : 0; }

  void PackQueries(const float* const* rows, const Row* queries, size_t count, float* to,
                   float* scratch) const override {
    if (queries_) {
      queries_->Project(rows, queries, count, to, scratch);
    } else {
      PackQueryGroup(rows, count, hidden_dim_, 1.0f, to);
    }
    for (size_t t = 0; t < bias_.size(); ++t) {
      for (size_t i = 0; i < count; ++i) to[t * count + i] += bias_[t];
    }
  }

  void PackKeys(const float* const* rows, size_t count, int64_t kv_head, float* panel,
                float* scratch) const override {
    if (keys_) {
      keys_->Project(rows, count, kv_head, panel, scratch);
    } else {
      PackTransposedPanel(RowPointers{rows}, count, hidden_dim_, panel);
    }
  }

  void Fill(const float* queries, const float* panels, ScoreTile& tile) const override {
    for (size_t c = tile.first; c < tile.last; c += PanelCols()) {
      const float* panel = panels + c * hidden_dim_;
      ForEachRowGroup(tile, [&]<size_t kRows>(size_t r, const ColumnRange& columns) HWY_ATTR {
        if (c + PanelCols() <= columns.begin || c >= columns.end) return;
        const float* group = queries + r * hidden_dim_;
        for (size_t i = 0; i + 2 <= kRows; i += 2) FillRows<kRows, 2>(group, i, panel, r, c, tile);
        if constexpr (kRows % 2 == 1) FillRows<kRows, 1>(group, kRows - 1, panel, r, c, tile);
      });
    }
  }

 private:
  // Rows i to i + kCount of the group that starts at row r, for one panel. Two rows by two vectors
  // keep four independent tanh in flight, as many as the registers hold.
  template <size_t kGroupRows, size_t kCount>
  HWY_INLINE void FillRows(const float* HWY_RESTRICT group, size_t i,
                           const float* HWY_RESTRICT panel, size_t r, size_t c,
                           const ScoreTile& tile) const {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    const float* vectors[kCount];
    VF sum[2 * kCount];
    for (size_t n = 0; n < kCount; ++n) {
      vectors[n] = vectors_.get() + static_cast<size_t>(tile.rows[r + i + n].head) * vector_stride_;
      sum[2 * n] = sum[2 * n + 1] = hn::Zero(d);
    }
    for (size_t t = 0; t < hidden_dim_; ++t) {
      const VF low = hn::LoadU(d, panel + t * 2 * lanes);
      const VF high = hn::LoadU(d, panel + t * 2 * lanes + lanes);
      VF x[2 * kCount];
      for (size_t n = 0; n < kCount; ++n) {
        const VF query = hn::Set(d, group[t * kGroupRows + i + n]);
        x[2 * n] = hn::Add(query, low);
        x[2 * n + 1] = hn::Add(query, high);
      }
      Tanh(d, x);
      for (size_t n = 0; n < kCount; ++n) {
        const VF weight = hn::Set(d, vectors[n][t]);
        sum[2 * n] = Fma(weight, x[2 * n], sum[2 * n]);
        sum[2 * n + 1] = Fma(weight, x[2 * n + 1], sum[2 * n + 1]);
      }
    }
    for (size_t n = 0; n < kCount; ++n) {
      float* to = tile.row_scores(r + i + n) + c;
      hn::StoreU(sum[2 * n], d, to);
      hn::StoreU(sum[2 * n + 1], d, to + lanes);
    }
  }

  size_t hidden_dim_;
  std::optional<QueryProjection> queries_;
  std::optional<KeyProjection> keys_;
  std::span<const float> bias_;
  AlignedFloats vectors_;  // [head or 1][hidden_dim], times the scale
  size_t vector_stride_;   // 0 when all heads share one
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_ADDITIVE_INL_H_
