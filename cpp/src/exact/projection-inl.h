// Projections of queries and keys on their way into the register tile. The weights are packed once.
#if defined(HEED_EXACT_PROJECTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_PROJECTION_INL_H_
#undef HEED_EXACT_PROJECTION_INL_H_
#else
#define HEED_EXACT_PROJECTION_INL_H_
#endif

#include <algorithm>

#include "heed/tensor.h"
#include "hwy/highway.h"
#include "src/exact/tile.h"
#include "src/parallel/worker_scratch.h"
#include "src/simd/pack-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Projects the queries of a row group, y = W x, with one W for all query heads or one each.
class QueryProjection {
 public:
  // W is [num_heads or 1][out][in], as weights [1, num_heads or 1, out, in] are stored, ...
  static QueryProjection Of(const TensorView<const float>& weight) {
    QueryProjection p(weight.shape[1], weight.shape[3], weight.shape[2]);
    for (int64_t h = 0; h < weight.shape[1]; ++h) {
      const Rows rows = {weight.data + h * weight.strides[1], weight.strides[2]};
      for (size_t c = 0; c < p.out_; c += PanelCols()) {
        PackTransposedPanel(Rows{rows.row(c), rows.stride}, std::min(PanelCols(), p.out_ - c),
                            p.in_, p.Panels(h) + c * p.in_);
      }
    }
    return p;
  }
  // ... or the transpose of the given [1, num_heads or 1, in, out].
  static QueryProjection OfTransposed(const TensorView<const float>& matrix) {
    QueryProjection p(matrix.shape[1], matrix.shape[2], matrix.shape[3]);
    for (int64_t h = 0; h < matrix.shape[1]; ++h) {
      const Rows rows = {matrix.data + h * matrix.strides[1], matrix.strides[2]};
      PackPanels(rows, p.in_, p.out_, p.in_, p.Panels(h));
    }
    return p;
  }

  size_t out() const { return out_; }
  size_t Scratch() const { return kTileRows * (in_ + out_cols_); }

  // Writes the projections as a row group, [out][count].
  void Project(const float* const* rows, const Row* queries, size_t count, float* to,
               float* scratch) const {
    float* const projected = scratch + kTileRows * in_;
    const float* pointers[kTileRows];
    for (size_t i = 0; i < count; ++i) pointers[i] = projected + i * out_cols_;
    for (size_t i = 0; i < count;) {
      const size_t end = num_heads_ == 1 ? count : EndOfHead(queries, i, count);
      ProjectRun(rows + i, end - i, num_heads_ == 1 ? 0 : queries[i].head, scratch,
                 projected + i * out_cols_);
      i = end;
    }
    TransposeRows(pointers, count, out_, to, count);
  }

 private:
  QueryProjection(int64_t num_heads, int64_t in, int64_t out)
      : num_heads_(num_heads),
        in_(static_cast<size_t>(in)),
        out_(static_cast<size_t>(out)),
        out_cols_(RoundUp(out_, PanelCols())),
        panels_(static_cast<size_t>(num_heads) * in_ * out_cols_) {}

  float* Panels(int64_t head) const {
    return panels_.get() + static_cast<size_t>(head) * in_ * out_cols_;
  }

  // One past the last of the queries from `i` on that belong to the same head.
  static size_t EndOfHead(const Row* queries, size_t i, size_t count) {
    size_t end = i + 1;
    while (end < count && queries[end].head == queries[i].head) ++end;
    return end;
  }

  void ProjectRun(const float* const* rows, size_t count, int64_t head, float* raw,
                  float* projected) const {
    PackQueryGroup(rows, count, in_, 1.0f, raw);
    for (size_t c = 0; c < out_; c += PanelCols()) {
      WithRows(count, [&]<size_t kRows>() HWY_ATTR {
        RegisterTile<ALayout<kRows, 1>, kRows>(MultiplyAccumulate(), raw, Panels(head) + c * in_,
                                               in_, projected + c, out_cols_, StoreOnly());
      });
    }
  }

  int64_t num_heads_;
  size_t in_, out_, out_cols_;
  AlignedFloats panels_;  // [head][panel of out][in][PanelCols()]
};

// Projects a panel of keys, y = W x, with one W for all KV heads or one each.
class KeyProjection {
 public:
  // W is [1, num_kv_heads or 1, out, in].
  explicit KeyProjection(const TensorView<const float>& weight)
      : num_heads_(weight.shape[1]),
        in_(static_cast<size_t>(weight.shape[3])),
        out_(static_cast<size_t>(weight.shape[2])),
        groups_(static_cast<size_t>(num_heads_) * in_ * out_) {
    for (int64_t h = 0; h < num_heads_; ++h) {
      const Rows rows = {weight.data + h * weight.strides[1], weight.strides[2]};
      for (size_t r = 0; r < out_; r += kTileRows) {
        const size_t count = std::min(kTileRows, out_ - r);
        const float* pointers[kTileRows];
        for (size_t i = 0; i < count; ++i) pointers[i] = rows.row(r + i);
        PackQueryGroup(pointers, count, in_, 1.0f, Groups(h) + r * in_);
      }
    }
  }

  size_t Scratch() const { return in_ * PanelCols(); }

  // Writes the projections of up to PanelCols() keys as a panel, [out][PanelCols()].
  void Project(const float* const* rows, size_t count, int64_t kv_head, float* panel,
               float* scratch) const {
    PackTransposedPanel(RowPointers{rows}, count, in_, scratch);
    const float* groups = Groups(num_heads_ == 1 ? 0 : kv_head);
    for (size_t r = 0; r < out_; r += kTileRows) {
      WithRows(std::min(kTileRows, out_ - r), [&]<size_t kRows>() HWY_ATTR {
        RegisterTile<ALayout<kRows, 1>, kRows>(MultiplyAccumulate(), groups + r * in_, scratch, in_,
                                               panel + r * PanelCols(), PanelCols(), StoreOnly());
      });
    }
  }

 private:
  float* Groups(int64_t head) const {
    return groups_.get() + static_cast<size_t>(head) * in_ * out_;
  }

  int64_t num_heads_;
  size_t in_, out_;
  AlignedFloats groups_;  // [head][group of out][in][kTileRows]; the last group may be shorter
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_PROJECTION_INL_H_
