// Which derivatives sit in the sockets for one problem. Modules with HEED_FEW_GRADIENTS go without
// those of backward_plugs.cc; what needs them is refused before (differentiable.cc).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/gradient/plugs.cc"
#include <memory>
#include <utility>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/exact/normalize/entmax15-inl.h"
#include "src/exact/normalize/hard-inl.h"
#include "src/exact/normalize/pointwise-inl.h"
#include "src/exact/normalize/softmax-inl.h"
#include "src/exact/normalize/sparsemax-inl.h"
#include "src/exact/normalize/stick_breaking-inl.h"
#include "src/exact/normalize/top_k-inl.h"
#include "src/exact/score/bilinear-inl.h"
#include "src/exact/score/cosine-inl.h"
#include "src/exact/score/dot-inl.h"
#include "src/exact/score/squared_distance-inl.h"
#include "src/gradient/plan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace {

std::unique_ptr<NormalizeGradient> MakeNormalizeGradient(const AttentionProblem& p) {
  std::unique_ptr<NormalizeGradient> gradient;
  const bool pointwise = WithPointwise(p, [&]<class Weight>(Weight weight, double power) {
    gradient = std::make_unique<PointwiseGradient<Weight>>(weight, power);
  });
  if (pointwise) return gradient;
  if (FoldsLog2E(p)) return std::make_unique<SoftmaxGradient<Log2Units>>();
  return std::make_unique<SoftmaxGradient<NaturalUnits>>();
}

std::unique_ptr<RowGradient> MakeRowGradient(const AttentionProblem& p) {
  switch (p.options.normalize) {
    case Normalize::kHard:
      return std::make_unique<HardGradient>();
    case Normalize::kStickBreaking:
      return std::make_unique<StickBreakingGradient>();
    case Normalize::kTopK:
      return std::make_unique<TopKGradient>();
    case Normalize::kSparsemax:
      return std::make_unique<SparsemaxGradient>();
    case Normalize::kEntmax15:
      return std::make_unique<Entmax15Gradient>();
#ifndef HEED_FEW_GRADIENTS
    case Normalize::kKernelSum:
      return MakeKernelSumGradient(p);
    case Normalize::kCope:
      return MakeCopeGradient(p);
#endif
    default:
      return nullptr;
  }
}

std::unique_ptr<ScoreGradient> MakeScoreGradient(const AttentionProblem& p) {
  const float units = FoldsLog2E(p) ? Log2Units::kPerNat : NaturalUnits::kPerNat;
  const size_t head_dim = static_cast<size_t>(p.head_dim);
  if (p.options.normalize != Normalize::kAverage) {
    switch (p.options.score) {
      case Score::kSquaredDistance:
        return std::make_unique<SquaredDistanceGradient>(p);
      case Score::kCosine:
        return std::make_unique<CosineGradient>(p, units);
#ifndef HEED_FEW_GRADIENTS
      case Score::kAdditive:
        return MakeAdditiveGradient(p);
#endif
      case Score::kBilinear:
        return std::make_unique<BilinearGradient>(p, units);
      default:
        break;
    }
#ifndef HEED_FEW_GRADIENTS
    if (HasRelativeScore(p.options)) return MakeRelativeDotGradient(p, p.scale * units);
#endif
  }
  return std::make_unique<DotScoreGradient>(p.scale, p.scale * units, head_dim);
}

}  // namespace

GradientPlugs MakeGradientPlugs(const GradientProblem& g) {
  const AttentionProblem& p = g.attention;
  const AttentionOptions& o = p.options;
  GradientPlugs plugs;
  plugs.score = MakeScoreGradient(p);
  plugs.rows = MakeRowGradient(p);
  if (plugs.rows == nullptr) plugs.normalize = MakeNormalizeGradient(p);
  if (o.softcap) plugs.softcap = std::make_unique<Softcap>(static_cast<float>(*o.softcap));
  if (o.dropout.p > 0) plugs.dropout = std::make_unique<DropoutWeights>(o.dropout);
#ifndef HEED_FEW_GRADIENTS
  if (o.prob_mod) {
    plugs.rows = MakeProbModGradient(g, plugs.normalize.get(), std::move(plugs.rows));
  }
  if (o.relative_values.has_value()) plugs.relative_values = MakeRelativeValuesGradient(p);
#endif
  return plugs;
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();
