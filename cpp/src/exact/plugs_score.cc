// Which score plug sits in its socket for one problem.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/exact/plugs_score.cc"
#include <memory>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/exact/plugs-inl.h"
#include "src/exact/score/additive-inl.h"
#include "src/exact/score/bilinear-inl.h"
#include "src/exact/score/constant-inl.h"
#include "src/exact/score/cosine-inl.h"
#include "src/exact/score/dot-inl.h"
#include "src/exact/score/pair_dot-inl.h"
#include "src/exact/score/relative-inl.h"
#include "src/exact/score/squared_distance-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
std::unique_ptr<ScorePlug> MakeScore(const AttentionProblem& p) {
  const float units = FoldsLog2E(p) ? Log2Units::kPerNat : NaturalUnits::kPerNat;
  const size_t head_dim = static_cast<size_t>(p.head_dim);
  if (p.options.normalize == Normalize::kAverage) return std::make_unique<ConstantScore>();
  switch (p.options.score) {
    case Score::kSquaredDistance:
      return std::make_unique<SquaredDistanceScore>(
          p.scale * units, head_dim, p.inverse_width.empty() ? nullptr : p.inverse_width.data());
    case Score::kCosine:
      return std::make_unique<CosineScore>(p.head_scale, units, head_dim);
    case Score::kBilinear:
      return std::make_unique<BilinearScore>(p.scale * units, p.options.score_matrix);
    case Score::kAdditive:
      return std::make_unique<AdditiveScore>(p.scale * units, static_cast<size_t>(p.hidden_dim),
                                             p.options.query_weight, p.options.key_weight,
                                             p.options.score_bias, p.options.score_vector);
    case Score::kDot:
      break;
  }
  if (HasRelativeScore(p.options)) return std::make_unique<RelativeDotScore>(p, p.scale * units);
#if HWY_NATIVE_DOT_BF16
  if (MultipliesPairs(p)) {
    return std::make_unique<PairDotScore>(p.scale * units, head_dim, UsableTileUnit());
  }
#endif
  return std::make_unique<DotScore>(p.scale * units, head_dim);
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();
