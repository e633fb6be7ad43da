// From a plan's type and width to the template arguments of the kernels of attention backwards.
#ifndef HEED_SRC_CUDA_GRADIENT_CHOICE_H_
#define HEED_SRC_CUDA_GRADIENT_CHOICE_H_

#include <type_traits>

#include "src/cuda/float_products.h"
#include "src/cuda/gradient_key_kernel.h"
#include "src/cuda/kernel_choice.h"
#include "src/cuda/products.h"

namespace heed::cuda {

// Pairs of a tile beside 64 rows, or 64 keys: as many as leave registers for the sums and, of
// float32 and 256 columns, shared memory.
template <class T, int kDim>
struct GradientShape {
  static constexpr bool kIsFloat = std::is_same_v<T, float>;
  static constexpr int kQueryTile = kDim <= 128 ? 32 : kIsFloat ? 8 : 16;
  static constexpr int kKeyTile = kDim == 64 || (kDim == 128 && !kIsFloat) ? 32
                                  : kIsFloat && kDim == 256                ? 8
                                                                           : 16;
  template <int kKeys>
  using Products =
      std::conditional_t<kIsFloat, FloatProducts<kDim, kKeys>, MmaProducts<T, kDim, kKeys>>;
  using QueryProducts = Products<kQueryTile>;
  using KeyProducts = Products<kKeyTile>;
  // Sums of 256 columns of both kinds would take every register there is; beside those of 128,
  // products of float32 spill.
  static constexpr bool kSumsTogether = kDim == 64 || (kDim == 128 && !kIsFloat);
};

// Calls body(GradientShape<T, dim>()).
template <class T, class Body>
void WithGradientShape(int dim, const Body& body) {
  if (dim == 64) return body(GradientShape<T, 64>());
  if (dim == 128) return body(GradientShape<T, 128>());
  body(GradientShape<T, 256>());
}

// Calls body.template operator()<KeySums>() for each kernel of keys and values that the plan needs.
template <class Shape, class Body>
void ForKeyKernels(const GradientParams& params, const Body& body) {
  if constexpr (Shape::kSumsTogether) {
    body.template operator()<KeySums::kBoth>();
  } else {
    if (params.d_k.data != nullptr) body.template operator()<KeySums::kKeys>();
    if (params.d_v.data != nullptr) body.template operator()<KeySums::kValues>();
  }
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GRADIENT_CHOICE_H_
