// Attention composed of cuBLAS and a softmax of its own: product, softmax of whole rows, product.
// The scores are float32, the weights of the storage type; both go through memory.
#include <cublas_v2.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>

#include "native_bench/cuda/device_problem.h"
#include "native_bench/cuda/kernels.h"
#include "native_bench/cuda/peaks.h"
#include "native_bench/device_cases.h"
#include "native_bench/device_peer.h"

namespace heed::bench {
namespace {

void RequireCublas(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string("cuBLAS: ") + cublasGetStatusString(status));
}

// One for the program: creating it allocates.
cublasHandle_t Handle() {
  static cublasHandle_t handle = [] {
    cublasHandle_t created = nullptr;
    RequireCublas(cublasCreate(&created));
    return created;
  }();
  return handle;
}

cudaDataType TypeOf(DType dtype) {
  if (dtype == DType::kFloat16) return CUDA_R_16F;
  return dtype == DType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

// A batch of dense matrices in the order of cuBLAS, where the first index runs fastest.
struct Matrices {
  const void* data;
  cudaDataType type;
  int64_t rows;    // of memory: the leading dimension
  int64_t stride;  // elements from one matrix to the next
};

// c [m, n] = a b, or a^T b, summed in float32.
void Multiply(cublasOperation_t how, int64_t m, int64_t n, int64_t depth, const Matrices& a,
              const Matrices& b, const Matrices& c, int64_t count) {
  const float one = 1, zero = 0;
  RequireCublas(cublasGemmStridedBatchedEx_64(
      Handle(), how, CUBLAS_OP_N, m, n, depth, &one, a.data, a.type, a.rows, a.stride, b.data,
      b.type, b.rows, b.stride, &zero, const_cast<void*>(c.data), c.type, c.rows, c.stride, count,
      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

// The heads that share a key-value head are rows of one product. As many key-value heads at once as
// the scores and weights of have room.
class Composed {
 public:
  explicit Composed(const DeviceProblem& problem)
      : case_(problem.shape()),
        q_(problem.input("q")),
        k_(problem.input("k")),
        v_(problem.input("v")),
        output_(problem.output()),
        rows_(case_.heads.num_heads / case_.heads.num_kv_heads * case_.lengths.q_len),
        at_once_(
            std::clamp<int64_t>(kMostBytes / (Pairs() * (4 + ElementSize(q_.dtype))), 1, Groups())),
        scores_(static_cast<size_t>(at_once_ * Pairs() * 4)),
        weights_(static_cast<size_t>(at_once_ * Pairs() * ElementSize(q_.dtype))) {}

  void Run() const {
    for (int64_t first = 0; first < Groups(); first += at_once_) {
      RunGroups(first, std::min(at_once_, Groups() - first));
    }
  }

 private:
  static constexpr int64_t kMostBytes = int64_t{4} << 30;

  int64_t Groups() const { return case_.batch * case_.heads.num_kv_heads; }
  int64_t Pairs() const { return rows_ * case_.lengths.kv_len; }

  void RunGroups(int64_t first, int64_t count) const {
    const int64_t kv_len = case_.lengths.kv_len, dim = case_.head_dim, dim_v = case_.ValueDim();
    const cudaDataType type = TypeOf(q_.dtype);
    const auto at = [&](const void* data, int64_t elements) {
      return static_cast<const char*>(data) + first * elements * ElementSize(q_.dtype);
    };
    const Matrices queries = {at(q_.data, rows_ * dim), type, dim, rows_ * dim};
    const Matrices keys = {at(k_.data, kv_len * dim), type, dim, kv_len * dim};
    const Matrices values = {at(v_.data, kv_len * dim_v), type, dim_v, kv_len * dim_v};
    const Matrices output = {at(output_.data, rows_ * dim_v), type, dim_v, rows_ * dim_v};
    const Matrices scores = {scores_.get(), CUDA_R_32F, kv_len, Pairs()};
    const Matrices weights = {weights_.get(), type, kv_len, Pairs()};
    Multiply(CUBLAS_OP_T, kv_len, rows_, dim, keys, queries, scores, count);
    Softmax({.scores = static_cast<const float*>(scores_.get()),
             .weights = weights_.get(),
             .dtype = q_.dtype,
             .rows = count * rows_,
             .q_len = case_.lengths.q_len,
             .kv_len = kv_len,
             .scale = 1 / std::sqrt(static_cast<float>(dim)),
             .causal = case_.mask == Mask::kCausal});
    Multiply(CUBLAS_OP_N, dim_v, rows_, kv_len, values, weights, output, count);
  }

  Case case_;
  StoredTensor q_, k_, v_;
  StoredOutput output_;
  int64_t rows_;
  int64_t at_once_;
  DeviceBytes scores_, weights_;
};

std::string Details() {
  int version = 0;
  cublasGetProperty(MAJOR_VERSION, &version);
  std::string text = "cuBLAS " + std::to_string(version);
  cublasGetProperty(MINOR_VERSION, &version);
  return text + "." + std::to_string(version);
}

std::string Refuse(const Case& c) {
  if (!IsPlainAttention(c)) return "computes only scaled_dot_product, causal or not";
  if (c.dtype == DType::kFloat8E4M3) return "takes float32, float16 and bfloat16";
  return c.lengths.q_len > c.lengths.kv_len ? "has no rows without keys" : "";
}

std::function<void()> Prepare(DeviceProblem& problem) {
  return [composed = std::make_shared<Composed>(problem)] { composed->Run(); };
}

}  // namespace

double CublasFlops(DType dtype, const void* a, const void* b, void* c, int64_t size) {
  const cudaDataType type = TypeOf(dtype);
  const int64_t area = size * size;
  Multiply(CUBLAS_OP_T, size, size, size, {a, type, size, area}, {b, type, size, area},
           {c, type, size, area}, 1);
  return 2.0 * static_cast<double>(size) * static_cast<double>(area);
}

DevicePeer CublasPeer() {
  return {.id = "cublas",
          .summary =
              "cuBLAS: product, softmax of rows in a kernel of the benchmark, product; scores "
              "in float32, no TF32",
          .details = Details,
          .refuse = Refuse,
          .prepare = Prepare};
}

}  // namespace heed::bench
