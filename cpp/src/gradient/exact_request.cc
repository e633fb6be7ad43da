// Gradients of the exact family behind requests: from names to AttentionBackward().
#include <optional>
#include <string>
#include <utility>

#include "heed/gradient.h"
#include "heed/registry.h"
#include "src/exact/problem.h"
#include "src/exact/request.h"
#include "src/gradient/problem.h"
#include "src/gradient/request.h"
#include "src/message.h"

namespace heed {
namespace {

AttentionRequest ReadDifferentiable(const Request& request) {
  std::optional<AttentionRequest> r = ReadExactRequest(request);
  if (!r) RefuseMechanism(request);
  CheckIsDifferentiable(r->options);
  if (r->return_weights || r->return_scores || r->return_tiles) {
    Fail(ErrorCode::kUnsupported,
         "return_weights, return_scores and return_tiles give results without a gradient");
  }
  return *std::move(r);
}

// The tensor with leading extents of 1.
TensorView<float> LeadingView(const AnyTensor* tensor) {
  if (tensor == nullptr) return {};
  TensorView<float> view = {static_cast<float*>(tensor->data), {1, 1, 1, 1}, {0, 0, 0, 1}};
  const size_t rank = static_cast<size_t>(tensor->rank);
  for (size_t axis = 0; axis < rank; ++axis) {
    view.shape[4 - rank + axis] = tensor->shape[axis];
    view.strides[4 - rank + axis] = tensor->strides[axis];
  }
  return view;
}

StoredOutput Stored(const AnyTensor* tensor) {
  if (tensor == nullptr) return {};
  return {tensor->data, tensor->dtype, tensor->shape, tensor->strides};
}

StoredTensor StoredInput(const AnyTensor& tensor) {
  return {tensor.data, tensor.dtype, tensor.shape, tensor.strides};
}

std::span<float> Vector(const AnyTensor* tensor) {
  if (tensor == nullptr) return {};
  const TensorView<float> view = LeadingView(tensor);
  return {view.data, static_cast<size_t>(view.size())};
}

// [batch, num_heads, kv_len] as [batch, num_heads, 1, kv_len].
TensorView<float> Gates(const AnyTensor* tensor) {
  if (tensor == nullptr) return {};
  const auto& [batch, heads, len, none] = tensor->shape;
  const Extents& strides = tensor->strides;
  return {static_cast<float*>(tensor->data),
          {batch, heads, 1, len},
          {strides[0], strides[1], 0, strides[2]}};
}

// [batch, num_heads, q_len] as [batch, num_heads, q_len, 1].
TensorView<float> Rows(const AnyTensor* tensor) {
  if (tensor == nullptr) return {};
  const auto& [batch, heads, len, none] = tensor->shape;
  const Extents& strides = tensor->strides;
  return {static_cast<float*>(tensor->data),
          {batch, heads, len, 1},
          {strides[0], strides[1], strides[2], 1}};
}

void AddGradient(const Request& request, std::string_view name, BackwardPlan& plan) {
  const AnyTensor* input = FindTensor(request.inputs, name);
  if (input == nullptr) return;
  plan.gradients.push_back({std::string(name), input->rank, input->shape, input->dtype});
}

BackwardPlan PlanOf(const Request& request, const AttentionRequest& r) {
  const AttentionOptions options = OptionsOf(r);
  const AttentionProblem p = ValidateAttentionInputs(r.q, r.k, r.v, options, r.return_lse);
  BackwardPlan plan;
  plan.results.push_back({"output", 4, {p.batch, p.num_heads, p.q_len, p.head_dim_v}, p.q.dtype});
  if (HasLse(options)) plan.results.push_back({"lse", 3, {p.batch, p.num_heads, p.q_len, 0}});
  for (const char* name : {"q", "k", "v"}) AddGradient(request, name, plan);
  AddOptionGradients(request, plan);
  return plan;
}

}  // namespace

void AddOptionGradients(const Request& request, BackwardPlan& plan) {
  for (const TensorGradient& tensor : kTensorGradients) AddGradient(request, tensor.name, plan);
  for (const VectorGradient& vector : kVectorGradients) AddGradient(request, vector.name, plan);
}

AttentionGradients ReadOptionGradients(std::span<const NamedTensor> gradients) {
  AttentionGradients to;
  for (const TensorGradient& tensor : kTensorGradients) {
    to.*tensor.gradient = LeadingView(FindTensor(gradients, tensor.name));
  }
  to.d_log_gates = Gates(FindTensor(gradients, "log_gates"));
  for (const VectorGradient& vector : kVectorGradients) {
    to.*vector.gradient = Vector(FindTensor(gradients, vector.name));
  }
  return to;
}
namespace {

BackwardPlan PlanExactBackward(const Request& request) {
  const AttentionRequest r = ReadDifferentiable(request);
  AttentionGradients slopes;
  CompileSlopes(RequestReader(*FindMechanism(request.id), request), slopes);  // which may refuse
  return PlanOf(request, r);
}

void RunExactForward(const Request& request, std::span<const NamedTensor> results,
                     ThreadPool* pool) {
  const AttentionRequest r = ReadDifferentiable(request);
  AttentionOutputs outputs;
  outputs.stored_output = Stored(FindTensor(results, "output"));
  outputs.lse = Rows(FindTensor(results, "lse"));
  Attention(r.q, r.k, r.v, OptionsOf(r), outputs, pool);
}

void RunExactBackward(const Request& request, std::span<const NamedTensor> results,
                      std::span<const NamedTensor> d_results,
                      std::span<const NamedTensor> gradients, ThreadPool* pool) {
  const AttentionRequest r = ReadDifferentiable(request);
  AttentionGradients to = ReadOptionGradients(gradients);
  to.d_lse = Rows(FindTensor(d_results, "lse"));
  CompileSlopes(RequestReader(*FindMechanism(request.id), request), to);
  to.d_q = Stored(FindTensor(gradients, "q"));
  to.d_k = Stored(FindTensor(gradients, "k"));
  to.d_v = Stored(FindTensor(gradients, "v"));
  AttentionBackward(r.q, r.k, r.v, StoredInput(*FindTensor(results, "output")),
                    Rows(FindTensor(results, "lse")), StoredInput(*FindTensor(d_results, "output")),
                    OptionsOf(r), to, pool);
}

}  // namespace

const GradientVerbs kExactGradient = {PlanExactBackward, RunExactForward, RunExactBackward, true};

}  // namespace heed
