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

}  // namespace heed

#endif  // HEED_SRC_GRADIENT_REQUEST_H_
