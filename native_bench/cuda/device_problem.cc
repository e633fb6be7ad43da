#include "native_bench/cuda/device_problem.h"

#include <algorithm>
#include <utility>

#include "native_bench/cuda/kernels.h"
#include "native_bench/device_cases.h"

namespace heed::bench {
namespace {

Extents DenseStrides(const Extents& shape) {
  return {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
}

Extents RankFour(const AnyTensor& tensor) {
  Extents shape = {1, 1, 1, 1};
  std::copy_n(tensor.shape.begin(), tensor.rank, shape.end() - tensor.rank);
  return shape;
}

size_t BytesOf(const StoredTensor& tensor) {
  return static_cast<size_t>(tensor.size() * ElementSize(tensor.dtype));
}

float ToFloat(const char* data, DType dtype, int64_t at) {
  if (dtype == DType::kFloat32) return reinterpret_cast<const float*>(data)[at];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(data)[at];
  return dtype == DType::kFloat16 ? heed::ToFloat(Float16{bits}) : heed::ToFloat(BFloat16{bits});
}

}  // namespace

DeviceProblem::DeviceProblem(const Case& c, uint64_t seed) : shape_(c) {
  const AttentionShapes shapes = ShapesOf(c);
  Add("q", c.dtype, shapes.q);
  Add("k", c.dtype, shapes.k);
  Add("v", c.dtype, shapes.v);
  for (const Tensor& tensor : tensors_) {
    FillNormal(tensor.bytes.get(), c.dtype, tensor.view.size(), seed++);
  }
  output_ = Add("output", c.dtype, shapes.output);
  cost_ = CostOf(c);
}

DeviceProblem::DeviceProblem(const Problem& problem) : shape_(problem.shape()) {
  for (const NamedTensor& input : problem.request().inputs) {
    const StoredTensor copy = Add(input.name, input.tensor.dtype, RankFour(input.tensor));
    Require(cudaMemcpy(const_cast<void*>(copy.data), input.tensor.data, BytesOf(copy),
                       cudaMemcpyHostToDevice));
  }
  const AnyTensor output = problem.stored_output().any();
  output_ = Add("output", output.dtype, RankFour(output));
  cost_ = problem.EstimateCost();
  cost_.scratch_bytes.reset();
}

StoredTensor DeviceProblem::Add(const std::string& name, DType dtype, const Extents& shape) {
  StoredTensor view(nullptr, dtype, shape, DenseStrides(shape));
  DeviceBytes bytes(BytesOf(view));
  view.data = bytes.get();
  tensors_.push_back({name, view, std::move(bytes)});
  return view;
}

StoredTensor DeviceProblem::input(std::string_view name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const Tensor& tensor) { return tensor.name == name; });
  return found == tensors_.end() ? StoredTensor() : found->view;
}

TensorView<const float> DeviceProblem::floats(std::string_view name) const {
  const StoredTensor tensor = input(name);
  return {static_cast<const float*>(tensor.data), tensor.shape, tensor.strides};
}

StoredOutput DeviceProblem::output() const {
  return {const_cast<void*>(output_.data), output_.dtype, output_.shape, output_.strides};
}

void DeviceProblem::FillOutputWithNan() {
  // 0xffff is a NaN of float16 and of bfloat16, and 0xffffffff one of float32.
  Require(cudaMemset(const_cast<void*>(output_.data), 0xff, BytesOf(output_)));
}

void DeviceProblem::FetchOutput(const Problem& problem) const {
  Require(cudaMemcpy(problem.stored_output().any().data, output_.data, BytesOf(output_),
                     cudaMemcpyDeviceToHost));
}

std::vector<float> DeviceProblem::FetchRows(const StoredTensor& tensor, int64_t b, int64_t h,
                                            int64_t i, int64_t count) const {
  const int64_t size = count * tensor.shape[3];
  std::vector<char> bytes(static_cast<size_t>(size * ElementSize(tensor.dtype)));
  Require(cudaMemcpy(bytes.data(), tensor.Row(b, h, i), bytes.size(), cudaMemcpyDeviceToHost));
  std::vector<float> floats(static_cast<size_t>(size));
  for (int64_t n = 0; n < size; ++n) {
    floats[static_cast<size_t>(n)] = ToFloat(bytes.data(), tensor.dtype, n);
  }
  return floats;
}

}  // namespace heed::bench
