// The tensors of a gradient request by name, for rows whose every float input is differentiable.
#ifndef HEED_SRC_GRADIENT_BACKWARD_PLACES_H_
#define HEED_SRC_GRADIENT_BACKWARD_PLACES_H_

#include <span>
#include <string_view>
#include <vector>

#include "heed/gradient.h"

namespace heed {

// Throws Error(kDType) if an input has floats of another type than float32.
void CheckFloat32Inputs(const Request& request);

// One gradient for every input of floats.
std::vector<OutputSpec> FloatInputs(const Request& request);

// Where gradients go: contiguous float32, absent where a name is not wanted.
class GradientPlaces {
 public:
  // Throws Error(kShape | kDType).
  explicit GradientPlaces(std::span<const NamedTensor> tensors);

  std::span<const NamedTensor> tensors() const { return tensors_; }
  // With leading extents of 1.
  TensorView<float> Tensor(std::string_view name) const;
  // [batch, len, dim] as [batch, 1, len, dim].
  TensorView<float> Rows(std::string_view name) const;
  // All its elements.
  std::span<float> Vector(std::string_view name) const;

 private:
  std::span<const NamedTensor> tensors_;
};

}  // namespace heed

#endif  // HEED_SRC_GRADIENT_BACKWARD_PLACES_H_
