// Gradients behind requests, family by family.
#ifndef HEED_SRC_GRADIENT_REQUEST_H_
#define HEED_SRC_GRADIENT_REQUEST_H_

#include <span>
#include <string_view>

#include "heed/gradient.h"

namespace heed {

// Throws Error(kUnsupported).
[[noreturn]] void RefuseMechanism(const Request& request);

// The tensor of this name, or nullptr.
const AnyTensor* FindTensor(std::span<const NamedTensor> tensors, std::string_view name);

// Adds the gradient of every input that is an option of attention to the plan, if the request has
// it.
void AddOptionGradients(const Request& request, BackwardPlan& plan);
// Where those gradients go.
AttentionGradients ReadOptionGradients(std::span<const NamedTensor> gradients);

// What a family, or a row of its own, does behind PlanBackward(), RunForward() and RunBackward().
// Tensors are checked against the plan by the caller, and d_results holds "output".
struct GradientVerbs {
  BackwardPlan (*plan)(const Request&);
  void (*forward)(const Request&, std::span<const NamedTensor> results, ThreadPool*);
  void (*backward)(const Request&, std::span<const NamedTensor> results,
                   std::span<const NamedTensor> d_results, std::span<const NamedTensor> gradients,
                   ThreadPool*);
  bool two_bytes = false;  // q, k, v and the output may be stored in two bytes
};

extern const GradientVerbs kExactGradient;
extern const GradientVerbs kConcatGradient;    // luong_concat
extern const GradientVerbs kLocationGradient;  // luong_location
extern const GradientVerbs kComposedGradient;  // src/compose/backward_request.cc lists its rows
extern const GradientVerbs kRecurrentGradient;
extern const GradientVerbs kConvGradient;  // causal_conv
extern const GradientVerbs kLowRankGradient;
extern const GradientVerbs
    kChosenGradient;  // rows whose gradient is that of attention to their keys
extern const GradientVerbs kReformerGradient;
extern const GradientVerbs kRoutingGradient;
extern const GradientVerbs kNativeSparseGradient;
extern const GradientVerbs kSinkhornGradient;
extern const GradientVerbs kLayerGradient;  // and positions

}  // namespace heed

#endif  // HEED_SRC_GRADIENT_REQUEST_H_
