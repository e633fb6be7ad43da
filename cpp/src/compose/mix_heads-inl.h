// Mixing across heads: to[h] = sum over g of matrix[g, h] from[g], for a tile of all heads.
#if defined(HEED_COMPOSE_MIX_HEADS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_COMPOSE_MIX_HEADS_INL_H_
#undef HEED_COMPOSE_MIX_HEADS_INL_H_
#else
#define HEED_COMPOSE_MIX_HEADS_INL_H_
#endif

#include <algorithm>
#include <span>

#include "hwy/highway.h"
#include "src/exact/tile.h"
#include "src/parallel/worker_scratch.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Floats from one head's rows to the next head's. Not a power of two: the same columns of all
// heads, read together, must not fall into the same cache sets.
inline constexpr size_t kHeadFloats = kTileRows * kTileKeys + 16;

class HeadMixer {
 public:
  // `matrix` is [heads, heads], from row to column; empty = identity.
  HeadMixer(std::span<const float> matrix, size_t heads)
      : heads_(heads), matrix_(matrix.empty() ? 0 : heads * heads) {
    // As the left operand of a register tile: groups of kTileRows target heads, [heads][rows].
    for (size_t h = 0; !matrix.empty() && h < heads; ++h) {
      const size_t group = h / kTileRows * kTileRows;
      const size_t rows = std::min(kTileRows, heads - group);
      for (size_t g = 0; g < heads; ++g) {
        matrix_.get()[group * heads + g * rows + h - group] = matrix[g * heads + h];
      }
    }
  }

  // Both tiles are [heads][rows][kTileKeys], heads kHeadFloats apart; `columns` is a multiple of
  // PanelCols(). The tiles may not overlap.
  void Mix(const float* HWY_RESTRICT from, size_t rows, size_t columns,
           float* HWY_RESTRICT to) const {
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < columns; c += PanelCols()) {
        MixPanel(from + r * kTileKeys + c, to + r * kTileKeys + c);
      }
    }
  }

 private:
  void MixPanel(const float* HWY_RESTRICT from, float* HWY_RESTRICT to) const {
    if (matrix_.get() == nullptr) {
      for (size_t h = 0; h < heads_; ++h) {
        std::copy_n(from + h * kHeadFloats, PanelCols(), to + h * kHeadFloats);
      }
      return;
    }
    size_t h = 0;
    for (; h + kTileRows <= heads_; h += kTileRows) {
      MixGroup<kTileRows>(matrix_.get() + h * heads_, from, to + h * kHeadFloats);
    }
    if (h == heads_) return;
    WithRows(heads_ - h, [&]<size_t kRows>() HWY_ATTR {
      MixGroup<kRows>(matrix_.get() + h * heads_, from, to + h * kHeadFloats);
    });
  }

  template <size_t kRows>
  void MixGroup(const float* HWY_RESTRICT matrix, const float* HWY_RESTRICT from,
                float* HWY_RESTRICT to) const {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    VF sum0[kRows];
    VF sum1[kRows];
    for (size_t r = 0; r < kRows; ++r) sum0[r] = sum1[r] = hn::Zero(d);
    for (size_t g = 0; g < heads_; ++g) {
      const VF from0 = hn::Load(d, from + g * kHeadFloats);
      const VF from1 = hn::Load(d, from + g * kHeadFloats + lanes);
      for (size_t r = 0; r < kRows; ++r) {
        const VF factor = hn::Set(d, matrix[g * kRows + r]);
        sum0[r] = Fma(factor, from0, sum0[r]);
        sum1[r] = Fma(factor, from1, sum1[r]);
      }
    }
    for (size_t r = 0; r < kRows; ++r) {
      hn::Store(sum0[r], d, to + r * kHeadFloats);
      hn::Store(sum1[r], d, to + r * kHeadFloats + lanes);
    }
  }

  size_t heads_;
  AlignedFloats matrix_;  // empty = identity
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_COMPOSE_MIX_HEADS_INL_H_
