// The derivative of kernel sums (normalize/kernel_sum-inl.h) but for the gaussian, which is that of
// softmax, and for kernels of steps, which are flat.
#if defined(HEED_EXACT_KERNEL_SUM_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_KERNEL_SUM_GRADIENT_INL_H_
#undef HEED_EXACT_KERNEL_SUM_GRADIENT_INL_H_
#else
#define HEED_EXACT_KERNEL_SUM_GRADIENT_INL_H_
#endif

#include <memory>

#include "src/exact/normalize/hard-inl.h"
#include "src/exact/normalize/kernel_sum-inl.h"
#include "src/exact/problem.h"
#include "src/exact/row_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Slopes by s = -u^2 / 2 of the kernels that have some: 0 at the edge and, of the triangle, at its
// tip, where both sides differ.
struct TriangularSlope : TriangularKernel {
  static HWY_INLINE VF Slope(DF d, VF u2) {
    const VF one = hn::Set(d, 1.0f);
    const auto inside = hn::And(hn::Gt(u2, hn::Zero(d)), hn::Lt(u2, one));
    return hn::IfThenElseZero(inside, hn::Div(one, hn::Sqrt(u2)));
  }
};
struct EpanechnikovSlope : EpanechnikovKernel {
  static HWY_INLINE VF Slope(DF d, VF u2) {
    return hn::IfThenElseZero(hn::Lt(u2, hn::Set(d, 1.0f)), hn::Set(d, 2.0f));
  }
};

// With p = K / Z: d_s_j = K'_j / Z (d_p_j - sum of p_l d_p_l over the keys with a weight).
template <class KernelFunction>
class KernelSumGradient final : public RowGradient {
 public:
  // The slopes of a row.
  size_t ScratchFloats(size_t num_tiles) const override { return num_tiles * kTileKeys; }

  void Apply(const RowNormalize&, const RowPair& rows, const GradientRows&) const override {
    for (size_t r = 0; r < rows.scores.num_rows; ++r) {
      const float mass = Weigh(rows, r);
      if (mass == 0) {
        Empty(rows, r);
      } else {
        Finish(rows, r, 1 / mass);
      }
    }
  }

 private:
  static float* Slopes(const RowPair& rows, const ScoreTile& tile) {
    return rows.gradients.scratch + tile.key_begin;
  }

  // Scores become kernels, -inf stays where a key is hidden. Returns their sum.
  static float Weigh(const RowPair& rows, size_t r) {
    const DF d;
    const VF hidden = hn::Set(d, kMinusInfinity);
    for (const ScoreTile& tile : rows.scores.tiles) {
      float* HWY_RESTRICT row = tile.row_scores(r);
      float* HWY_RESTRICT slopes = Slopes(rows, tile);
      for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
        const VF s = hn::Load(d, row + c);
        const VF u2 = hn::Mul(s, hn::Set(d, -2.0f));
        const VF weight = hn::IfThenElse(hn::IsNaN(u2), u2, KernelFunction::Weight(d, u2));
        hn::Store(hn::IfThenElse(hn::Eq(s, hidden), hidden, weight), d, row + c);
        hn::Store(KernelFunction::Slope(d, u2), d, slopes + c);
      }
    }
    return static_cast<float>(SumOver(
        rows.scores, r, [&](VF weight) HWY_ATTR { return RaiseToBound(weight, hn::Zero(d)); }));
  }

  // Without mass, as without keys.
  static void Empty(const RowPair& rows, size_t r) {
    const DF d;
    ForEachVector(rows.scores, r, [&](float* HWY_RESTRICT at, VF) HWY_ATTR {
      hn::Store(hn::Set(d, kMinusInfinity), d, at);
    });
    ReplaceGradients(rows, r, [&](VF, VF) HWY_ATTR { return hn::Zero(d); });
  }

  static void Finish(const RowPair& rows, size_t r, float factor) {
    const DF d;
    const VF scale = hn::Set(d, factor);
    ReplaceVisible(rows.scores, r, [&](VF weight) HWY_ATTR { return hn::Mul(weight, scale); });
    const VF mean =
        hn::Set(d, static_cast<float>(SumOverPairs(rows, r, [&](VF weight, VF g) HWY_ATTR {
                  return hn::IfThenElseZero(InSupport(d, weight), hn::Mul(weight, g));
                })));
    for (size_t t = 0; t < rows.scores.tiles.size(); ++t) {
      const ScoreTile& tile = rows.scores.tiles[t];
      const float* HWY_RESTRICT weights = tile.row_scores(r);
      const float* HWY_RESTRICT slopes = Slopes(rows, tile);
      float* HWY_RESTRICT gradients = rows.gradients.tiles[t].row_scores(r);
      for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
        const VF slope = hn::Mul(hn::Load(d, slopes + c), scale);
        const VF g = hn::Mul(slope, hn::Sub(hn::Load(d, gradients + c), mean));
        const auto counts = InSupport(d, hn::Load(d, weights + c));
        hn::Store(hn::IfThenElseZero(counts, g), d, gradients + c);
      }
    }
  }
};

inline std::unique_ptr<RowGradient> KernelGradientOf(Kernel kernel) {
  switch (kernel) {
    case Kernel::kTriangular:
      return std::make_unique<KernelSumGradient<TriangularSlope>>();
    case Kernel::kEpanechnikov:
      return std::make_unique<KernelSumGradient<EpanechnikovSlope>>();
    case Kernel::kBoxcar:
    case Kernel::kConstant:  // flat, as choices are
      return std::make_unique<HardGradient>();
    case Kernel::kGaussian:
      break;
  }
  return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_KERNEL_SUM_GRADIENT_INL_H_
