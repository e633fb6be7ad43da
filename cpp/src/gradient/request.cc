// Gradients behind requests: from names to AttentionBackward().
#include "src/exact/request.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "heed/gradient.h"
#include "heed/registry.h"
#include "src/exact/problem.h"
#include "src/gradient/problem.h"
#include "src/message.h"

namespace heed {
namespace {

// Inputs that may have a gradient, as requests call them.
constexpr std::string_view kDifferentiable[] = {
    "q", "k", "v", "bias", "alibi_slopes", "sinks", "width", "temperature", "score_matrix"};
// Float inputs that have one, which nobody computes yet.
constexpr std::string_view kNotYet[] = {"distance_bias", "bucket_bias", "log_gates"};

// Words are separated by one space.
bool HasWord(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

const AnyTensor* Find(std::span<const NamedTensor> tensors, std::string_view name) {
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor.tensor;
  }
  return nullptr;
}

AttentionRequest ReadDifferentiable(const Request& request) {
  std::optional<AttentionRequest> r = ReadExactRequest(request);
  if (!r || !HasWord(FindMechanism(request.id)->capabilities, "gradient")) {
    Fail(ErrorCode::kUnsupported, "mechanism \"{}\" has no gradient in heed", {request.id});
  }
  CheckIsDifferentiable(r->options);
  if (r->return_weights || r->return_scores || r->return_tiles) {
    Fail(ErrorCode::kUnsupported,
         "return_weights, return_scores and return_tiles give results without a gradient");
  }
  for (const std::string_view name : kNotYet) {
    if (Find(request.inputs, name) == nullptr) continue;
    Fail(ErrorCode::kUnsupported, "{} has no gradient in heed", {name});
  }
  return *std::move(r);
}

// The tensor with leading extents of 1.
template <class T>
TensorView<T> LeadingView(const AnyTensor* tensor) {
  if (tensor == nullptr) return {};
  TensorView<T> view = {static_cast<T*>(tensor->data), {1, 1, 1, 1}, {0, 0, 0, 1}};
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
  const TensorView<float> view = LeadingView<float>(tensor);
  return {view.data, static_cast<size_t>(view.size())};
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

// Tensors of these names, with the ranks, shapes and element types of the plan.
void CheckTensors(std::span<const NamedTensor> tensors, const std::vector<OutputSpec>& specs,
                  const char* what) {
  for (const NamedTensor& tensor : tensors) {
    const auto spec = std::find_if(specs.begin(), specs.end(),
                                   [&](const OutputSpec& s) { return s.name == tensor.name; });
    if (spec == specs.end()) {
      Fail(ErrorCode::kOption, "{} \"{}\" is none of this request", {what, tensor.name});
    }
    const AnyTensor& given = tensor.tensor;
    const size_t rank = static_cast<size_t>(spec->rank);
    if (given.rank != spec->rank ||
        !std::equal(spec->shape.begin(), spec->shape.begin() + rank, given.shape.begin())) {
      Fail(ErrorCode::kShape, "{} \"{}\" has another shape than the plan says",
           {what, tensor.name});
    }
    const bool stored =
        tensor.name == "q" || tensor.name == "k" || tensor.name == "v" || tensor.name == "output";
    if (!stored && given.dtype != DType::kFloat32) {
      Fail(ErrorCode::kDType, "{} \"{}\" has element type {}; expected float32",
           {what, tensor.name, DTypeName(given.dtype)});
    }
  }
}

void CheckComplete(std::span<const NamedTensor> tensors, const std::vector<OutputSpec>& specs) {
  for (const OutputSpec& spec : specs) {
    if (Find(tensors, spec.name) != nullptr) continue;
    Fail(ErrorCode::kOption, "result \"{}\" is missing", {spec.name});
  }
}

BackwardPlan PlanOf(const Request& request, const AttentionRequest& r) {
  const AttentionOptions options = OptionsOf(r);
  const AttentionProblem p = ValidateAttentionInputs(r.q, r.k, r.v, options, r.return_lse);
  BackwardPlan plan;
  plan.results.push_back({"output", 4, {p.batch, p.num_heads, p.q_len, p.head_dim_v}, p.q.dtype});
  if (HasLse(options)) plan.results.push_back({"lse", 3, {p.batch, p.num_heads, p.q_len, 0}});
  for (const std::string_view name : kDifferentiable) {
    const AnyTensor* input = Find(request.inputs, name);
    if (input == nullptr) continue;
    plan.gradients.push_back({std::string(name), input->rank, input->shape, input->dtype});
  }
  return plan;
}

}  // namespace

BackwardPlan PlanBackward(const Request& request) {
  return PlanOf(request, ReadDifferentiable(request));
}

void RunForward(const Request& request, std::span<const NamedTensor> results, ThreadPool* pool) {
  const AttentionRequest r = ReadDifferentiable(request);
  const BackwardPlan plan = PlanOf(request, r);
  CheckTensors(results, plan.results, "result");
  CheckComplete(results, plan.results);
  AttentionOutputs outputs;
  outputs.stored_output = Stored(Find(results, "output"));
  outputs.lse = Rows(Find(results, "lse"));
  Attention(r.q, r.k, r.v, OptionsOf(r), outputs, pool);
}

void RunBackward(const Request& request, std::span<const NamedTensor> results,
                 std::span<const NamedTensor> d_results, std::span<const NamedTensor> gradients,
                 ThreadPool* pool) {
  const AttentionRequest r = ReadDifferentiable(request);
  const BackwardPlan plan = PlanOf(request, r);
  CheckTensors(results, plan.results, "result");
  CheckComplete(results, plan.results);
  CheckTensors(d_results, plan.results, "gradient of result");
  CheckTensors(gradients, plan.gradients, "gradient of input");
  const AnyTensor* d_output = Find(d_results, "output");
  if (d_output == nullptr) Fail(ErrorCode::kOption, "the gradient of result \"output\" is missing");
  AttentionGradients to;
  to.d_lse = Rows(Find(d_results, "lse"));
  to.d_q = Stored(Find(gradients, "q"));
  to.d_k = Stored(Find(gradients, "k"));
  to.d_v = Stored(Find(gradients, "v"));
  to.d_bias = LeadingView<float>(Find(gradients, "bias"));
  to.d_alibi_slopes = Vector(Find(gradients, "alibi_slopes"));
  to.d_sinks = Vector(Find(gradients, "sinks"));
  to.d_width = Vector(Find(gradients, "width"));
  to.d_temperature = Vector(Find(gradients, "temperature"));
  to.d_score_matrix = LeadingView<float>(Find(gradients, "score_matrix"));
  AttentionBackward(r.q, r.k, r.v, StoredInput(*Find(results, "output")),
                    Rows(Find(results, "lse")), StoredInput(*d_output), OptionsOf(r), to, pool);
}

}  // namespace heed
