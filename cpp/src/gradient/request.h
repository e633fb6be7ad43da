// Gradients behind requests, family by family. Tensors are checked against the plan by the caller,
// and d_results holds "output".
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

// Rows that compose attention (src/compose/backward_request.cc lists them).
BackwardPlan PlanComposedBackward(const Request& request);
void RunComposedForward(const Request& request, std::span<const NamedTensor> results,
                        ThreadPool* pool);
void RunComposedBackward(const Request& request, std::span<const NamedTensor> results,
                         std::span<const NamedTensor> d_results,
                         std::span<const NamedTensor> gradients, ThreadPool* pool);

BackwardPlan PlanExactBackward(const Request& request);
void RunExactForward(const Request& request, std::span<const NamedTensor> results,
                     ThreadPool* pool);
void RunExactBackward(const Request& request, std::span<const NamedTensor> results,
                      std::span<const NamedTensor> d_results,
                      std::span<const NamedTensor> gradients, ThreadPool* pool);

// luong_concat and luong_location, whose forward is RunExactForward().
BackwardPlan PlanConcatBackward(const Request& request);
void RunConcatBackward(const Request& request, std::span<const NamedTensor> results,
                       std::span<const NamedTensor> d_results,
                       std::span<const NamedTensor> gradients, ThreadPool* pool);
BackwardPlan PlanLocationBackward(const Request& request);
void RunLocationBackward(const Request& request, std::span<const NamedTensor> results,
                         std::span<const NamedTensor> d_results,
                         std::span<const NamedTensor> gradients, ThreadPool* pool);

// Layers and positions.
BackwardPlan PlanLayerBackward(const Request& request);
void RunLayerForward(const Request& request, std::span<const NamedTensor> results,
                     ThreadPool* pool);
void RunLayerBackward(const Request& request, std::span<const NamedTensor> results,
                      std::span<const NamedTensor> d_results,
                      std::span<const NamedTensor> gradients, ThreadPool* pool);

BackwardPlan PlanRecurrentBackward(const Request& request);
void RunRecurrentForward(const Request& request, std::span<const NamedTensor> results,
                         ThreadPool* pool);
void RunRecurrentBackward(const Request& request, std::span<const NamedTensor> results,
                          std::span<const NamedTensor> d_results,
                          std::span<const NamedTensor> gradients, ThreadPool* pool);

BackwardPlan PlanLowRankBackward(const Request& request);
void RunLowRankForward(const Request& request, std::span<const NamedTensor> results,
                       ThreadPool* pool);
void RunLowRankBackward(const Request& request, std::span<const NamedTensor> results,
                        std::span<const NamedTensor> d_results,
                        std::span<const NamedTensor> gradients, ThreadPool* pool);

BackwardPlan PlanConvBackward(const Request& request);
void RunConvForward(const Request& request, std::span<const NamedTensor> results, ThreadPool* pool);
void RunConvBackward(const Request& request, std::span<const NamedTensor> results,
                     std::span<const NamedTensor> d_results, std::span<const NamedTensor> gradients,
                     ThreadPool* pool);

BackwardPlan PlanReformerBackward(const Request& request);
void RunReformerForward(const Request& request, std::span<const NamedTensor> results,
                        ThreadPool* pool);
void RunReformerBackward(const Request& request, std::span<const NamedTensor> results,
                         std::span<const NamedTensor> d_results,
                         std::span<const NamedTensor> gradients, ThreadPool* pool);

BackwardPlan PlanRoutingBackward(const Request& request);
void RunRoutingForward(const Request& request, std::span<const NamedTensor> results,
                       ThreadPool* pool);
void RunRoutingBackward(const Request& request, std::span<const NamedTensor> results,
                        std::span<const NamedTensor> d_results,
                        std::span<const NamedTensor> gradients, ThreadPool* pool);

BackwardPlan PlanNativeSparseBackward(const Request& request);
void RunNativeSparseForward(const Request& request, std::span<const NamedTensor> results,
                            ThreadPool* pool);
void RunNativeSparseBackward(const Request& request, std::span<const NamedTensor> results,
                             std::span<const NamedTensor> d_results,
                             std::span<const NamedTensor> gradients, ThreadPool* pool);

BackwardPlan PlanSinkhornBackward(const Request& request);
void RunSinkhornForward(const Request& request, std::span<const NamedTensor> results,
                        ThreadPool* pool);
void RunSinkhornBackward(const Request& request, std::span<const NamedTensor> results,
                         std::span<const NamedTensor> d_results,
                         std::span<const NamedTensor> gradients, ThreadPool* pool);

// Rows whose gradient is that of attention to the keys they chose.
BackwardPlan PlanChosenBackward(const Request& request);
void RunChosenForward(const Request& request, std::span<const NamedTensor> results,
                      ThreadPool* pool);
void RunChosenBackward(const Request& request, std::span<const NamedTensor> results,
                       std::span<const NamedTensor> d_results,
                       std::span<const NamedTensor> gradients, ThreadPool* pool);

}  // namespace heed

#endif  // HEED_SRC_GRADIENT_REQUEST_H_
