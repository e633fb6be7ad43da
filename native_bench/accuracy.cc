#include "native_bench/accuracy.h"

#include <string>

#include "heed/attention.h"
#include "heed/attention_free.h"
#include "heed/gradient.h"
#include "heed/graph.h"
#include "heed/latent.h"
#include "heed/layers.h"
#include "heed/low_rank.h"
#include "heed/position.h"
#include "heed/recurrent.h"
#include "heed/registry.h"
#include "heed/set_attention.h"

namespace heed::bench {
namespace {

struct Promise {
  std::string_view mechanism;
  Accuracy accuracy;
};

// A pair of dimensions is up to sqrt(2) times as long as its largest element.
constexpr double kPairMaxError = 1.42 * kRopeMaxError;
// The example's lambda is lambda_init = 0.8; the norm's result is multiplied by 1 - 0.8.
constexpr double kDifferentialMaxError = (1 + 0.8) * kAttentionMaxError * (1 - 0.8);

// Rows that promise something else than kAttentionMaxError. Where a header's measure is larger than
// the output, the output is taken: the bound is stricter here.
constexpr Promise kPromises[] = {
    {"differential", {kDifferentialMaxError, RelativeTo::kNormedValues}},
    {"luong_dot", {kAttentionMaxError, RelativeTo::kUnscaled}},
    {"luong_general", {kAttentionMaxError, RelativeTo::kUnscaled}},
    {"luong_location", {kAttentionMaxError, RelativeTo::kUnscaled}},
    {"luong_concat", {kAttentionMaxError, RelativeTo::kUnscaled}},
    {"additive", {kAttentionMaxError, RelativeTo::kUnscaled}},
    {"t5_relative", {kAttentionMaxError, RelativeTo::kUnscaled}},
    // Factors of docs/accuracy.md; normal scores leave some four keys a weight.
    {"sparsemax", {4 * kAttentionMaxError, RelativeTo::kValues}},
    {"entmax15", {4 * kAttentionMaxError, RelativeTo::kValues}},
    {"stick_breaking", {4 * kAttentionMaxError, RelativeTo::kValues}},
    {"external", {3 * kAttentionMaxError, RelativeTo::kValues}},
    {"routing", {2 * kAttentionMaxError, RelativeTo::kValues}},
    {"sinkhorn", {4 * kAttentionMaxError, RelativeTo::kValues}},
    {"native_sparse", {3 * kAttentionMaxError, RelativeTo::kValues}},
    {"reformer", {2 * kAttentionMaxError, RelativeTo::kValues}},
    {"graph", {kGraphMaxError, RelativeTo::kValues}},
    {"attention_free", {kAttentionFreeMaxError, RelativeTo::kValues}},
    {"induced_set", {kSetBlockMaxError, RelativeTo::kResults}},
    {"perceiver", {kSetBlockMaxError, RelativeTo::kResults}},
    // Normal weights of convolutions make keys and values of any size.
    {"memory_compressed", {kLowRankMaxError, RelativeTo::kResults}},
    {"multi_head", {kMultiHeadMaxError, RelativeTo::kResults}},
    {"multi_query", {kMultiHeadMaxError, RelativeTo::kResults}},
    {"grouped_query", {kMultiHeadMaxError, RelativeTo::kResults}},
    {"attention_classifier", {kMultiHeadMaxError, RelativeTo::kResults}},
    {"transformer_block", {kTransformerBlockMaxError, RelativeTo::kResults}},
    {"multi_head_latent", {kLatentMaxError, RelativeTo::kResults}},
    {"rope", {kPairMaxError, RelativeTo::kResults}},
    {"xpos", {kPairMaxError, RelativeTo::kResults}},
    {"sinusoidal", {kPositionCodeMaxError, RelativeTo::kResults}},
    {"learned_position", {kPositionCodeMaxError, RelativeTo::kResults}},
};

struct GradientPromise {
  std::string_view name;  // a family, or one of its rows
  double max_error;
};
constexpr GradientPromise kGradientPromises[] = {
    {"attention_free", kComposedGradientMaxError},
    {"attention_pooling", kComposedGradientMaxError},
    {"differential", kComposedGradientMaxError},
    {"external", kComposedGradientMaxError},
    {"gated", kComposedGradientMaxError},
    {"graph", kComposedGradientMaxError},
    {"hopfield", kComposedGradientMaxError},
    {"induced_set", kComposedGradientMaxError},
    {"perceiver", kComposedGradientMaxError},
    {"synthesizer", kComposedGradientMaxError},
    {"talking_heads", kComposedGradientMaxError},
    {"causal_conv", kConvGradientMaxError},
    {"exact", kGradientMaxError},
    {"selective", kGradientMaxError},
    {"low_rank", kLowRankGradientMaxError},
    {"recurrent", kRecurrentGradientMaxError},
    {"layer", kLayerGradientMaxError},
    {"position", kPositionGradientMaxError},
};

[[noreturn]] void FailUnknown(std::string_view mechanism) {
  throw Error(ErrorCode::kUnsupported,
              "heed-bench knows no accuracy bound for '" + std::string(mechanism) + "'");
}

}  // namespace

Accuracy AccuracyOf(std::string_view mechanism) {
  for (const Promise& promise : kPromises) {
    if (promise.mechanism == mechanism) return promise.accuracy;
  }
  const Mechanism* row = FindMechanism(mechanism);
  if (row != nullptr && row->family == "recurrent") {
    return {kRecurrentMaxError, RelativeTo::kResults};
  }
  if (row != nullptr && (row->family == "exact" || row->family == "selective"))
    return {kAttentionMaxError, RelativeTo::kValues};
  if (row != nullptr && row->family == "low_rank") return {kLowRankMaxError, RelativeTo::kValues};
  FailUnknown(mechanism);
}

double GradientMaxErrorOf(std::string_view mechanism) {
  const Mechanism* row = FindMechanism(mechanism);
  for (const GradientPromise& promise : kGradientPromises) {
    if (row != nullptr && (promise.name == row->id || promise.name == row->family)) {
      return promise.max_error;
    }
  }
  FailUnknown(mechanism);
}

}  // namespace heed::bench
