// Which plugs sit in which socket for one problem: the only place that reads the options.
#if defined(HEED_EXACT_PLUGS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_PLUGS_INL_H_
#undef HEED_EXACT_PLUGS_INL_H_
#else
#define HEED_EXACT_PLUGS_INL_H_
#endif

#include <memory>
#include <utility>
#include <vector>

#include "src/exact/keep/plugs.h"
#include "src/exact/modify/alibi-inl.h"
#include "src/exact/modify/bias-inl.h"
#include "src/exact/modify/distance_bias-inl.h"
#include "src/exact/modify/forgetting-inl.h"
#include "src/exact/modify/score_mod-inl.h"
#include "src/exact/modify/softcap-inl.h"
#include "src/exact/normalize/buffered-inl.h"
#include "src/exact/normalize/cope-inl.h"
#include "src/exact/normalize/entmax15-inl.h"
#include "src/exact/normalize/hard-inl.h"
#include "src/exact/normalize/kernel_sum-inl.h"
#include "src/exact/normalize/pointwise-inl.h"
#include "src/exact/normalize/softmax-inl.h"
#include "src/exact/normalize/sparsemax-inl.h"
#include "src/exact/normalize/stick_breaking-inl.h"
#include "src/exact/normalize/top_k-inl.h"
#include "src/exact/problem.h"
#include "src/exact/relative_values-inl.h"
#include "src/exact/score/additive-inl.h"
#include "src/exact/score/bilinear-inl.h"
#include "src/exact/score/constant-inl.h"
#include "src/exact/score/cosine-inl.h"
#include "src/exact/score/dot-inl.h"
#include "src/exact/score/relative-inl.h"
#include "src/exact/score/squared_distance-inl.h"
#include "src/exact/weights/dropout-inl.h"
#include "src/exact/weights/prob_mod-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// The four sockets, filled. Shared by all threads, never written after construction.
struct Plugs {
  std::unique_ptr<ScorePlug> score;
  std::unique_ptr<Modify> softcap;                // apart, because scores can be asked for after it
  std::vector<std::unique_ptr<Modify>> additive;  // ALiBi, bias, user function
  std::vector<std::unique_ptr<CellKeep>> keep;    // range plugs live in the rows
  // One of the two: a normaliser that streams, or one that needs whole rows.
  std::unique_ptr<NormalizePlug> normalize;
  std::unique_ptr<RowNormalize> rows;
  std::vector<std::unique_ptr<WeightPlug>> weights;  // between normalize and the values, in order
  std::unique_ptr<RelativeValues> relative_values;
};

// Can the scores be kept in units of log2(e)? Only if no plug and no output reads them.
inline bool FoldsLog2E(const AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  const bool exponential = o.normalize == Normalize::kSoftmax ||
                           o.normalize == Normalize::kSoftmax1 ||
                           (o.normalize == Normalize::kKernelSum && o.kernel == Kernel::kGaussian);
  return exponential && !o.softcap && !o.bias.has_value() && o.alibi_slopes.empty() &&
         !o.distance_bias.has_value() && !o.bucket_bias.has_value() && !o.log_gates.has_value() &&
         !o.score_mod && !p.outputs.scores.has_value() && !p.outputs.running_max.has_value();
}

inline std::unique_ptr<NormalizePlug> MakeSoftmax(const AttentionProblem& p) {
  const float sink = p.options.normalize == Normalize::kSoftmax1 ? 0.0f : kMinusInfinity;
  if (FoldsLog2E(p)) return std::make_unique<Softmax<Log2Units>>(p.options.sinks, sink);
  return std::make_unique<Softmax<NaturalUnits>>(p.options.sinks, sink);
}

inline std::unique_ptr<NormalizePlug> MakeKernelSum(const AttentionProblem& p) {
  switch (p.options.kernel) {
    case Kernel::kBoxcar:
      return std::make_unique<KernelSum<BoxcarKernel>>();
    case Kernel::kTriangular:
      return std::make_unique<KernelSum<TriangularKernel>>();
    case Kernel::kEpanechnikov:
      return std::make_unique<KernelSum<EpanechnikovKernel>>();
    case Kernel::kConstant:
      return std::make_unique<KernelSum<ConstantKernel>>();
    case Kernel::kGaussian:
      break;
  }
  return MakeSoftmax(p);
}

inline std::unique_ptr<ScorePlug> MakeScore(const AttentionProblem& p) {
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
  return std::make_unique<DotScore>(p.scale * units, head_dim);
}

// Everything that is added to scores, in order.
inline std::vector<std::unique_ptr<Modify>> MakeAdditive(const AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  std::vector<std::unique_ptr<Modify>> additive;
  const auto distance_bias = [&](DistanceBias bias) {
    additive.push_back(std::make_unique<DistanceBias>(std::move(bias)));
  };
  if (!o.alibi_slopes.empty()) additive.push_back(std::make_unique<Alibi>(o.alibi_slopes));
  if (o.distance_bias.has_value()) distance_bias(DistanceBias::OfTable(p, o.distance_bias));
  if (o.bucket_bias.has_value()) distance_bias(DistanceBias::OfBuckets(p));
  if (o.log_gates.has_value()) additive.push_back(std::make_unique<Forgetting>(p));
  // The bias comes last: what it hides must stay hidden, and -inf + inf would be NaN.
  if (o.bias.has_value()) additive.push_back(std::make_unique<Bias>(o.bias));
  if (o.score_mod) additive.push_back(std::make_unique<ScoreMod>(o.score_mod));
  return additive;
}

template <class Weight>
std::unique_ptr<NormalizePlug> MakePointwise(Weight weight, double power) {
  return std::make_unique<Pointwise<Weight>>(weight, power);
}

// nullptr for a normaliser that needs whole rows.
inline std::unique_ptr<NormalizePlug> MakeNormalize(const AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  switch (o.normalize) {
    case Normalize::kSoftmax:
    case Normalize::kSoftmax1:
      return MakeSoftmax(p);
    case Normalize::kKernelSum:
      return MakeKernelSum(p);
    case Normalize::kSigmoid:
      return MakePointwise(SigmoidWeight{p.sigmoid_bias}, 0);
    case Normalize::kRelu:
      return MakePointwise(ReluWeight(), o.length_power);
    case Normalize::kReluSquared:
      return MakePointwise(ReluSquaredWeight(), o.length_power);
    case Normalize::kAverage:
      return MakePointwise(AverageWeight(), 1);
    default:
      return nullptr;
  }
}

// nullptr for a normaliser that streams.
inline std::unique_ptr<RowNormalize> MakeRowNormalize(const AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  switch (o.normalize) {
    case Normalize::kHard:
      return std::make_unique<Hard>();
    case Normalize::kTopK:
      return std::make_unique<TopK>(o.top_k, o.sinks);
    case Normalize::kSparsemax:
      return std::make_unique<Sparsemax>();
    case Normalize::kEntmax15:
      return std::make_unique<Entmax15>();
    case Normalize::kStickBreaking:
      return std::make_unique<StickBreaking>();
    case Normalize::kCope:
      return std::make_unique<Cope>(o.cope_table, o.sinks);
    default:
      return nullptr;
  }
}

// Plugs between weights and values. Those that want final weights come before dropout.
inline void AddWeightPlugs(const AttentionProblem& p, Plugs& plugs) {
  if (p.options.prob_mod) {
    plugs.weights.push_back(std::make_unique<ProbMod>(p.options.prob_mod));
  }
  if (p.options.dropout.p > 0) {
    plugs.weights.push_back(std::make_unique<DropoutWeights>(p.options.dropout));
  }
  bool needs_final = false;
  for (const auto& plug : plugs.weights) needs_final = needs_final || plug->NeedsFinal();
  if (needs_final && plugs.rows == nullptr) {
    plugs.rows = std::make_unique<Buffered>(std::move(plugs.normalize), HasLse(p.options));
  }
}

inline Plugs MakePlugs(const AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  Plugs plugs;
  plugs.score = MakeScore(p);
  if (o.softcap) plugs.softcap = std::make_unique<Softcap>(static_cast<float>(*o.softcap));
  plugs.additive = MakeAdditive(p);
  plugs.keep = MakeKeepPlugs(p);
  plugs.normalize = MakeNormalize(p);
  plugs.rows = MakeRowNormalize(p);
  AddWeightPlugs(p, plugs);
  if (o.relative_values.has_value()) plugs.relative_values = std::make_unique<RelativeValues>(p);
  return plugs;
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_PLUGS_INL_H_
