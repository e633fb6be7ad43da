#include "native_bench/cuda/cublaslt.h"

#include <stdexcept>
#include <string>

namespace heed::bench {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;

void RequireCublasLt(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string("cuBLASLt: ") + cublasLtGetStatusString(status));
}

template <class T>
void SetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t name,
                  const T& value) {
  RequireCublasLt(cublasLtMatmulDescSetAttribute(product, name, &value, sizeof(value)));
}

}  // namespace

Float8Product::Float8Product(int64_t size) : size_(size), workspace_(kWorkspaceBytes) {
  cublasLtHandle_t handle = nullptr;
  RequireCublasLt(cublasLtCreate(&handle));
  handle_.reset(handle);
  cublasLtMatmulDesc_t product = nullptr;
  RequireCublasLt(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  product_.reset(product);
  SetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);  // the one form of float8
  SetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  SetAttribute(product, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
  factor_ = LayoutOf(CUDA_R_8F_E4M3);
  result_ = LayoutOf(CUDA_R_16BF);
  Plan();
}

Float8Product::Owned<cublasLtMatrixLayout_t> Float8Product::LayoutOf(cudaDataType type) const {
  const uint64_t extent = static_cast<uint64_t>(size_);
  cublasLtMatrixLayout_t layout = nullptr;
  RequireCublasLt(cublasLtMatrixLayoutCreate(&layout, type, extent, extent, size_));
  return Owned<cublasLtMatrixLayout_t>(layout);
}

void Float8Product::Plan() {
  cublasLtMatmulPreference_t preference = nullptr;
  RequireCublasLt(cublasLtMatmulPreferenceCreate(&preference));
  cublasStatus_t status =
      cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &kWorkspaceBytes, sizeof(kWorkspaceBytes));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  if (status == CUBLAS_STATUS_SUCCESS) {
    status =
        cublasLtMatmulAlgoGetHeuristic(handle_.get(), product_.get(), factor_.get(), factor_.get(),
                                       result_.get(), result_.get(), preference, 1, &found, &count);
  }
  cublasLtMatmulPreferenceDestroy(preference);
  RequireCublasLt(status);
  if (count == 0) throw std::runtime_error("cuBLASLt: no product of float8_e4m3");
  algorithm_ = found.algo;
}

double Float8Product::Run(const void* a, const void* b, void* c) const {
  const float one = 1, zero = 0;
  RequireCublasLt(cublasLtMatmul(handle_.get(), product_.get(), &one, a, factor_.get(), b,
                                 factor_.get(), &zero, c, result_.get(), c, result_.get(),
                                 &algorithm_, workspace_.get(), workspace_.size(), nullptr));
  const double extent = static_cast<double>(size_);
  return 2 * extent * extent * extent;
}

}  // namespace heed::bench
