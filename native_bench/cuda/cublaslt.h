// Products of float8 by cuBLASLt: cuBLAS itself has none. A peak, not a peer. Only where
// HEED_BENCH_CUBLAS is defined.
#ifndef HEED_NATIVE_BENCH_CUDA_CUBLASLT_H_
#define HEED_NATIVE_BENCH_CUDA_CUBLASLT_H_

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <type_traits>

#include "native_bench/cuda/device_memory.h"

namespace heed::bench {

// c = a^T b of square matrices of float8_e4m3, c of bfloat16: planned once, by the first algorithm
// that its heuristics offer. Sums stay in the tensor cores, as those of the wgmma probe do ("fast
// accumulation"; docs/cuda_kernels.md tells what that costs in accuracy).
class Float8Product {
 public:
  // Throws std::runtime_error where cuBLASLt has no such product: it wants compute capability 8.9.
  explicit Float8Product(int64_t size);

  // Puts one into the default stream; returns its floating-point operations.
  double Run(const void* a, const void* b, void* c) const;

 private:
  struct Destroy {
    void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
    void operator()(cublasLtMatmulDesc_t product) const { cublasLtMatmulDescDestroy(product); }
    void operator()(cublasLtMatrixLayout_t layout) const { cublasLtMatrixLayoutDestroy(layout); }
  };
  template <class Handle>
  using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy>;
  Owned<cublasLtMatrixLayout_t> LayoutOf(cudaDataType type) const;
  void Plan();

  int64_t size_;
  Owned<cublasLtHandle_t> handle_;
  Owned<cublasLtMatmulDesc_t> product_;
  Owned<cublasLtMatrixLayout_t> factor_, result_;
  cublasLtMatmulAlgo_t algorithm_{};
  DeviceBytes workspace_;
};

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_CUDA_CUBLASLT_H_
