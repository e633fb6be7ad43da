// Gradients of luong_concat and luong_location. Each is a call of another row that one of its
// tensors is taken apart for: a matrix that is two side by side, and keys that all batch entries
// share.
#include <algorithm>
#include <string_view>
#include <vector>

#include "src/gradient/request.h"
#include "src/parallel/dry_run.h"

namespace heed {
namespace {

std::vector<NamedTensor> Without(std::span<const NamedTensor> tensors, std::string_view name) {
  std::vector<NamedTensor> others;
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name != name) others.push_back(tensor);
  }
  return others;
}

// The call of another row, without the input that is taken apart.
Request CallOf(const Request& request, const char* id, std::string_view without) {
  return {id, Without(request.inputs, without), request.params};
}

// A tensor of its own for a gradient that is to be put together.
AnyTensor Room(ScratchVector<float>& memory, std::span<const int64_t> shape) {
  size_t size = 1;
  for (const int64_t extent : shape) size *= static_cast<size_t>(extent);
  memory.resize(size);
  return ContiguousTensor(DType::kFloat32, memory.data(), shape);
}

// Columns [begin, end) of a matrix.
AnyTensor Columns(AnyTensor matrix, int64_t begin, int64_t end) {
  matrix.data = static_cast<float*>(matrix.data) + begin * matrix.strides[1];
  matrix.shape[1] = end - begin;
  return matrix;
}

void CopyMatrix(const AnyTensor& from, const AnyTensor& to) {
  for (int64_t row = 0; row < to.shape[0]; ++row) {
    for (int64_t col = 0; col < to.shape[1]; ++col) {
      static_cast<float*>(to.data)[row * to.strides[0] + col * to.strides[1]] =
          static_cast<const float*>(from.data)[row * from.strides[0] + col * from.strides[1]];
    }
  }
}

// The keys of luong_location: its weight for every batch entry, and for every head unless it has
// one for each.
AnyTensor KeysOf(const Request& request) {
  const AnyTensor& weight = *FindTensor(request.inputs, "location_weight");
  const AnyTensor& v = *FindTensor(request.inputs, "v");
  const size_t rows = weight.rank == 2 ? 0 : 1;
  return {weight.dtype,
          weight.data,
          4,
          {v.shape[0], v.shape[1], weight.shape[rows], weight.shape[rows + 1]},
          {0, rows == 0 ? 0 : weight.strides[0], weight.strides[rows], weight.strides[rows + 1]}};
}

// Sums over what shares the weight, in ascending order.
void SumKeys(const AnyTensor& d_keys, const AnyTensor& to) {
  const auto& [batch, heads, len, dim] = d_keys.shape;
  const size_t rows = static_cast<size_t>(to.rank - 2);
  const int64_t size = (rows == 0 ? 1 : heads) * len * dim;
  for (int64_t n = 0; n < size; ++n) {
    double sum = 0;
    for (int64_t at = n; at < batch * heads * len * dim; at += size) {
      sum += static_cast<double>(static_cast<const float*>(d_keys.data)[at]);
    }
    const int64_t head = rows == 0 ? 0 : n / (len * dim) * to.strides[0];
    const int64_t row = n / dim % len * to.strides[rows];
    static_cast<float*>(to.data)[head + row + n % dim * to.strides[rows + 1]] =
        static_cast<float>(sum);
  }
}

BackwardPlan PlanWith(const Request& request, const char* name) {
  BackwardPlan plan = kExactGradient.plan(request);
  const AnyTensor& weight = *FindTensor(request.inputs, name);
  plan.gradients.push_back({name, weight.rank, weight.shape});
  return plan;
}

void RunForwardOfRow(const Request& request, std::span<const NamedTensor> results,
                     ThreadPool* pool) {
  kExactGradient.forward(request, results, pool);
}

BackwardPlan PlanConcatBackward(const Request& request) {
  return PlanWith(request, "concat_weight");
}

BackwardPlan PlanLocationBackward(const Request& request) {
  return PlanWith(request, "location_weight");
}

void RunConcatBackward(const Request& request, std::span<const NamedTensor> results,
                       std::span<const NamedTensor> d_results,
                       std::span<const NamedTensor> gradients, ThreadPool* pool) {
  const AnyTensor& weight = *FindTensor(request.inputs, "concat_weight");
  const int64_t split = FindTensor(request.inputs, "q")->shape[3];
  Request call = CallOf(request, "additive", "concat_weight");
  call.inputs.push_back({"query_weight", Columns(weight, 0, split)});
  call.inputs.push_back({"key_weight", Columns(weight, split, weight.shape[1])});
  const AnyTensor* to = FindTensor(gradients, "concat_weight");
  std::vector<NamedTensor> wanted = Without(gradients, "concat_weight");
  ScratchVector<float> queries, keys;
  if (to != nullptr) {
    wanted.push_back({"query_weight", Room(queries, {{weight.shape[0], split}})});
    wanted.push_back({"key_weight", Room(keys, {{weight.shape[0], weight.shape[1] - split}})});
  }
  kExactGradient.backward(call, results, d_results, wanted, pool);
  if (to == nullptr || DryRun::Current() != nullptr) return;
  CopyMatrix(*FindTensor(wanted, "query_weight"), Columns(*to, 0, split));
  CopyMatrix(*FindTensor(wanted, "key_weight"), Columns(*to, split, weight.shape[1]));
}

void RunLocationBackward(const Request& request, std::span<const NamedTensor> results,
                         std::span<const NamedTensor> d_results,
                         std::span<const NamedTensor> gradients, ThreadPool* pool) {
  const AnyTensor keys = KeysOf(request);
  Request call = CallOf(request, "luong_dot", "location_weight");
  call.inputs.push_back({"k", keys});
  const AnyTensor* to = FindTensor(gradients, "location_weight");
  std::vector<NamedTensor> wanted = Without(gradients, "location_weight");
  ScratchVector<float> sums;
  if (to != nullptr) wanted.push_back({"k", Room(sums, keys.shape)});
  kExactGradient.backward(call, results, d_results, wanted, pool);
  if (to == nullptr || DryRun::Current() != nullptr) return;
  SumKeys(wanted.back().tensor, *to);
}

}  // namespace

const GradientVerbs kLocationGradient = {PlanLocationBackward, RunForwardOfRow, RunLocationBackward,
                                         true};
const GradientVerbs kConcatGradient = {PlanConcatBackward, RunForwardOfRow, RunConcatBackward,
                                       true};

}  // namespace heed
