// Score plug: scaled dot product. s = scale * q.k. The scale is folded into the packed queries.
#if defined(HEED_EXACT_SCORE_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SCORE_DOT_INL_H_
#undef HEED_EXACT_SCORE_DOT_INL_H_
#else
#define HEED_EXACT_SCORE_DOT_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/score/score-inl.h"
#include "src/exact/score_gradient-inl.h"
#include "src/exact/stored_keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class DotScore final : public ScorePlug {
 public:
  DotScore(float scale, size_t head_dim) : scale_(scale), head_dim_(head_dim) {}
  size_t Depth() const override { return head_dim_; }
  void PackQueries(const float* const* rows, const Row*, size_t count, float* to,
                   float*) const override {
    PackQueryGroup(rows, count, head_dim_, scale_, to);
  }
  void PackKeys(const float* const* rows, size_t count, int64_t, float* panel,
                float*) const override {
    PackTransposedPanel(RowPointers{rows}, count, head_dim_, panel);
  }
  void Fill(const float* queries, const float* panels, ScoreTile& tile) const override {
    FillDots(head_dim_, head_dim_, queries, panels, tile);
  }
  bool FillsStored(size_t num_queries, DType dtype) const override {
    return num_queries <= kTileRows && head_dim_ % hn::MaxLanes(DF()) == 0 && DotsStored(dtype);
  }
  void FillStored(const float* queries, DType dtype, const StoredRows& keys,
                  ScoreTile& tile) const override {
    DotStoredKeys(dtype, keys, queries, head_dim_, tile);
  }
  bool FillsFromRows(size_t num_queries) const override {
    return num_queries <= kTileRows && head_dim_ % hn::MaxLanes(DF()) == 0;
  }
  void PackQueryRows(const float* const* rows, size_t count, float* to) const override {
    for (size_t i = 0; i < count; ++i) {
      for (size_t t = 0; t < head_dim_; ++t) to[i * head_dim_ + t] = scale_ * rows[i][t];
    }
  }
  void FillFromRows(const float* queries, DType dtype, const StoredRows& keys,
                    ScoreTile& tile) const override {
    DotStoredRows(dtype, keys, queries, head_dim_, tile);
  }

 private:
  float scale_;
  size_t head_dim_;
};

// d_q = scale sum_j d_s_ij k_j, d_k = scale sum_i d_s_ij q_i.
class DotScoreGradient final : public ScoreGradient {
 public:
  // Packed queries are q times `packed_scale`, the scale in the units of the tile.
  DotScoreGradient(float scale, float packed_scale, size_t head_dim)
      : scale_(scale),
        key_scale_(packed_scale == 0 ? 0 : scale / packed_scale),
        head_dim_(head_dim) {}

  void Query(const Row&, const float*, const ScoreSums& sums, float* d_q, double*) const override {
    for (size_t t = 0; t < head_dim_; ++t) d_q[t] = scale_ * sums.vectors[t];
  }
  void Key(int64_t, const float*, const ScoreSums& sums, float* d_k, double*) const override {
    for (size_t t = 0; t < head_dim_; ++t) d_k[t] = key_scale_ * sums.vectors[t];
  }

 private:
  float scale_, key_scale_;
  size_t head_dim_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_DOT_INL_H_
