// Which plugs sit in which socket for one problem. This file and its three neighbours are the only
// places where options become plugs.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/exact/plugs.cc"
#include "src/exact/keep/plugs.h"

#include <memory>
#include <utility>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/exact/modify/alibi-inl.h"
#include "src/exact/modify/bias-inl.h"
#include "src/exact/modify/distance_bias-inl.h"
#include "src/exact/modify/forgetting-inl.h"
#include "src/exact/modify/score_mod-inl.h"
#include "src/exact/modify/softcap-inl.h"
#include "src/exact/normalize/buffered-inl.h"
#include "src/exact/plugs-inl.h"
#include "src/exact/weights/dropout-inl.h"
#include "src/exact/weights/prob_mod-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace {

// Everything that is added to scores, in order.
std::vector<std::unique_ptr<Modify>> MakeAdditive(const AttentionProblem& p) {
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

// Plugs between weights and values. Those that want final weights come before dropout.
void AddWeightPlugs(const AttentionProblem& p, Plugs& plugs) {
  if (p.options.prob_mod) {
    plugs.weights.push_back(std::make_unique<ProbMod>(p.options.prob_mod));
  }
  if (p.options.dropout.p > 0) {
    plugs.weights.push_back(std::make_unique<DropoutWeights>(p.options.dropout));
  }
  bool needs_final = p.finishes_rows;
  for (const auto& plug : plugs.weights) needs_final = needs_final || plug->NeedsFinal();
  if (needs_final && plugs.rows == nullptr) {
    plugs.rows = std::make_unique<Buffered>(std::move(plugs.normalize), HasLse(p.options));
  }
}

}  // namespace

Plugs MakePlugs(const AttentionProblem& p) {
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
