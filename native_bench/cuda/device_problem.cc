#include "native_bench/cuda/device_problem.h"

#include <algorithm>
#include <utility>

#include "native_bench/cuda/kernels.h"
#include "native_bench/device_cases.h"
#include "native_bench/float8.h"

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
  if (dtype == DType::kFloat8E4M3) return heed::ToFloat(Float8E4M3{static_cast<uint8_t>(data[at])});
  const uint16_t bits = reinterpret_cast<const uint16_t*>(data)[at];
  return dtype == DType::kFloat16 ? heed::ToFloat(Float16{bits}) : heed::ToFloat(BFloat16{bits});
}

}  // namespace

DeviceProblem::DeviceProblem(const Case& c, uint64_t seed) : shape_(c) {
  const AttentionShapes shapes = ShapesOf(c);
  Add("q", c.dtype, shapes.q);
  Add("k", c.dtype, shapes.k);
  Add("v", c.dtype, shapes.v);
  for (Tensor& tensor : tensors_) Draw(tensor, seed++);
  output_ = Add("output", c.OutputDType(), shapes.output);
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

// All heads that one scale is for stand beside each other, those of q that share a KV head too.
void DeviceProblem::Draw(Tensor& tensor, uint64_t seed) {
  Scales scales;
  if (shape_.dtype == DType::kFloat8E4M3) {
    tensor.scales = Float8Scales(NumKvHeads(), seed);
    const size_t bytes = tensor.scales.size() * sizeof(float);
    void* copy = tensor.device_scales.emplace(bytes).get();
    Require(cudaMemcpy(copy, tensor.scales.data(), bytes, cudaMemcpyHostToDevice));
    scales = {static_cast<const float*>(copy), tensor.view.size() / NumKvHeads()};
  }
  FillNormal(tensor.bytes.get(), shape_.dtype, tensor.view.size(), seed, scales);
}

const DeviceProblem::Tensor* DeviceProblem::Find(std::string_view name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const Tensor& tensor) { return tensor.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

StoredTensor DeviceProblem::input(std::string_view name) const {
  const Tensor* found = Find(name);
  return found == nullptr ? StoredTensor() : found->view;
}

TensorView<const float> DeviceProblem::scales(std::string_view name) const {
  const Tensor* found = Find(name);
  if (found == nullptr || !found->device_scales.has_value()) return {};
  return Contiguous(static_cast<const float*>(found->device_scales->get()), shape_.batch,
                    shape_.heads.num_kv_heads, 1, 1);
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

RowInputs DeviceProblem::FetchRowInputs(const OutputRow& at) const {
  const auto [num_heads, num_kv_heads] = shape_.heads;
  const int64_t kv_head = at.head / (num_heads / num_kv_heads);
  const size_t scale_at = static_cast<size_t>(at.batch * num_kv_heads + kv_head);
  const auto fetch = [&](const char* name, int64_t head, int64_t first, int64_t count) {
    const Tensor& tensor = *Find(name);
    std::vector<float> numbers = FetchRows(tensor.view, at.batch, head, first, count);
    if (!tensor.scales.empty()) {
      for (float& x : numbers) x *= tensor.scales[scale_at];
    }
    return numbers;
  };
  return {.q = fetch("q", at.head, at.query, 1),
          .k = fetch("k", kv_head, 0, shape_.lengths.kv_len),
          .v = fetch("v", kv_head, 0, shape_.lengths.kv_len)};
}

std::vector<float> DeviceProblem::FetchOutputRow(const OutputRow& at) const {
  return FetchRows(output_, at.batch, at.head, at.query, 1);
}

}  // namespace heed::bench
