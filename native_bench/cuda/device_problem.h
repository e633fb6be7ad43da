// The tensors of one case in device memory, as every peer on the GPU gets them.
#ifndef HEED_NATIVE_BENCH_CUDA_DEVICE_PROBLEM_H_
#define HEED_NATIVE_BENCH_CUDA_DEVICE_PROBLEM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/cost.h"
#include "heed/request.h"
#include "heed/tensor.h"
#include "native_bench/cuda/device_memory.h"
#include "native_bench/problem.h"
#include "native_bench/row_oracle.h"

namespace heed::bench {

// All tensors are contiguous, their first element at a multiple of 256 bytes.
class DeviceProblem {
 public:
  // Softmax attention to q, k and v ~ N(0, 1) that are drawn on the device; of float8 they are
  // divided by Float8Scales() first, one a KV head. Throws std::bad_alloc.
  DeviceProblem(const Case& c, uint64_t seed);
  // Copies of the inputs of a problem, which outlives this one.
  explicit DeviceProblem(const Problem& problem);

  const Case& shape() const { return shape_; }
  // The input, of rank 4 with leading extents of 1; without data where there is none of that name.
  StoredTensor input(std::string_view name) const;
  TensorView<const float> floats(std::string_view name) const;
  // The scales of an input of float8, [batch, num_kv_heads, 1, 1]; without data for other types.
  TensorView<const float> scales(std::string_view name) const;
  // [batch, num_heads, q_len, head_dim_v].
  StoredOutput output() const;

  // What heed::EstimateCost says of the request; scratch memory is the CPU's and left out.
  const Cost& cost() const { return cost_; }

  // Makes a stale result unmistakable.
  void FillOutputWithNan();
  // Waits for the device, and copies the output to where the problem on the host has its own.
  void FetchOutput(const Problem& problem) const;
  // `count` rows of a tensor or of the output from row [b, h, i], as floats.
  std::vector<float> FetchRows(const StoredTensor& tensor, int64_t b, int64_t h, int64_t i,
                               int64_t count) const;
  // Of softmax attention, for RowOracle: what a row is made of, as numbers, and the row.
  RowInputs FetchRowInputs(const OutputRow& at) const;
  std::vector<float> FetchOutputRow(const OutputRow& at) const;

 private:
  struct Tensor {
    std::string name;
    StoredTensor view;
    DeviceBytes bytes;
    std::vector<float> scales = {};  // of float8
    std::optional<DeviceBytes> device_scales = {};
  };
  StoredTensor Add(const std::string& name, DType dtype, const Extents& shape);
  const Tensor* Find(std::string_view name) const;
  int64_t NumKvHeads() const { return shape_.batch * shape_.heads.num_kv_heads; }
  void Draw(Tensor& tensor, uint64_t seed);

  Case shape_;
  std::vector<Tensor> tensors_;
  StoredTensor output_;
  Cost cost_;
};

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_CUDA_DEVICE_PROBLEM_H_
