// What gradients by name share: tensors as views, and the checks of what requests cannot say.
#ifndef HEED_SRC_GRADIENT_BACKWARD_VIEWS_H_
#define HEED_SRC_GRADIENT_BACKWARD_VIEWS_H_

#include <array>
#include <initializer_list>
#include <span>
#include <string_view>

#include "heed/gradient.h"

namespace heed {

// A tensor as a view of rank 4: `axes` says which of its extents stands where, -1 is an extent of
// 1. Absent without a tensor.
TensorView<float> ViewOf(const AnyTensor* tensor, const std::array<int, 4>& axes);

// With leading extents of 1.
TensorView<float> LeadingViewOf(const AnyTensor* tensor);

// The numbers of a contiguous tensor; empty without one.
std::span<float> VectorOf(const AnyTensor* tensor);

// One entry for each input of these names that the request has.
std::vector<OutputSpec> GradientsOf(const Request& request,
                                    std::initializer_list<std::string_view> names);

// Rows of one element type: throws Error(kDType) unless all that arrives and leaves is float32.
void CheckAreFloats(std::span<const NamedTensor> d_results, std::span<const NamedTensor> gradients);

// Throws Error(kShape | kOption) where a gradient has no data, rows that are not contiguous, or two
// elements in one place.
void CheckAreRows(std::span<const NamedTensor> gradients);

}  // namespace heed

#endif  // HEED_SRC_GRADIENT_BACKWARD_VIEWS_H_
