// From a plan's type and sizes to the kernel's template arguments.
#ifndef HEED_SRC_CUDA_KERNEL_CHOICE_H_
#define HEED_SRC_CUDA_KERNEL_CHOICE_H_

#include <type_traits>

#include "src/cuda/float_products.h"
#include "src/cuda/plan.h"
#include "src/cuda/products.h"

namespace heed::cuda {

// Calls body(Products()) with the products of the plan's shape on elements T: ShapeOf() in plan.h.
template <class T, class Body>
void WithProductsOf(const KernelShape& shape, const Body& body) {
  constexpr bool kIsFloat = std::is_same_v<T, float>;
  constexpr int kNarrowKeys = TileKeysOf(kIsFloat, 64), kWideKeys = TileKeysOf(kIsFloat, 256);
  if constexpr (kIsFloat) {
    // With four tiles of values at once two blocks share a multiprocessor, not three.
    if (shape.dim == 64) return body(FloatProducts<64, kNarrowKeys, 2>());
    if (shape.dim == 128) return body(FloatProducts<128, kNarrowKeys, 2>());
    body(FloatProducts<256, kWideKeys>());
  } else {
    const bool by_keys = shape.kernel == TileKernel::kByKeys;
    if (by_keys && shape.dim == 64) return body(MmaProducts<T, 64, kNarrowKeys, true>());
    if (by_keys && shape.dim == 128) return body(MmaProducts<T, 128, kNarrowKeys, true>());
    if (shape.dim == 64) return body(MmaProducts<T, 64, kNarrowKeys>());
    if (shape.dim == 128) return body(MmaProducts<T, 128, kNarrowKeys>());
    body(MmaProducts<T, 256, kWideKeys>());
  }
}

// Calls body(T()) with the type that tensors of `dtype` are multiplied in.
template <class Body>
void WithElement(DType dtype, const Body& body) {
  if (dtype == DType::kFloat16) return body(Float16());
  if (dtype == DType::kBFloat16 || dtype == DType::kFloat8E4M3) return body(BFloat16());
  body(float());
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_KERNEL_CHOICE_H_
