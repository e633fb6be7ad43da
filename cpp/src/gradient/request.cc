// Gradients behind requests: which family, and whether the tensors are those of the plan.
#include "src/gradient/request.h"

#include <algorithm>
#include <string>

#include "heed/registry.h"
#include "src/from_javascript.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/param_checks.h"
#include "src/request_spans.h"
#include "src/word_lists.h"

namespace heed {
namespace {

#ifndef HEED_FEW_GRADIENTS
// What is no call of AttentionBackward(): a family, or one of its rows. Modules that train
// (HEED_TRAINING) have what a layer of them may hold.
struct Other {
  std::string_view name;
  const GradientVerbs* verbs;
};
constexpr Other kOthers[] = {
#ifndef HEED_TRAINING
    {"luong_concat", &kConcatGradient},
    {"luong_location", &kLocationGradient},
    {"attention_free", &kComposedGradient},
    {"attention_pooling", &kComposedGradient},
    {"differential", &kComposedGradient},
    {"external", &kComposedGradient},
    {"gated", &kComposedGradient},
    {"graph", &kComposedGradient},
    {"hopfield", &kComposedGradient},
    {"induced_set", &kComposedGradient},
    {"perceiver", &kComposedGradient},
    {"synthesizer", &kComposedGradient},
    {"talking_heads", &kComposedGradient},
    {"causal_conv", &kConvGradient},
    {"low_rank", &kLowRankGradient},
    {"block_mixture", &kChosenGradient},
    {"heavy_hitter", &kChosenGradient},
    {"indexed", &kChosenGradient},
    {"native_sparse", &kNativeSparseGradient},
    {"quest", &kChosenGradient},
    {"reformer", &kReformerGradient},
    {"routing", &kRoutingGradient},
    {"sinkhorn", &kSinkhornGradient},
    {"streaming", &kChosenGradient},
    {"layer", &kLayerGradient},
    {"position", &kLayerGradient},
#endif
    {"recurrent", &kRecurrentGradient},
};

const GradientVerbs* FindVerbs(std::string_view name) {
  for (const Other& other : kOthers) {
    if (other.name == name) return other.verbs;
  }
  return nullptr;
}
#endif

// Throws Error(kUnsupported) for a row without a gradient.
const GradientVerbs& VerbsOf(const Request& request) {
  const Mechanism* row = FindMechanism(request.id);
  if (row == nullptr) return kExactGradient;  // which lists the names
  if (!HasWord(row->capabilities, "gradient")) RefuseMechanism(request);
#ifndef HEED_FEW_GRADIENTS
  if (const GradientVerbs* verbs = FindVerbs(row->id)) return *verbs;
  if (const GradientVerbs* verbs = FindVerbs(row->family)) return *verbs;
#endif
  return kExactGradient;
}

// What is read and written through strides; everything else lies without gaps.
bool TakesStrides(std::string_view name) {
  for (const char* strided :
       {"q", "k", "v", "output", "x", "signal", "bias", "beta", "log_decay", "channel_log_decay",
        "compress_k", "compress_v", "window_k", "window_v"}) {
    if (name == strided) return true;
  }
  return false;
}

void CheckLayout(const NamedTensor& tensor, const char* what) {
  const AnyTensor& given = tensor.tensor;
  int64_t dense = 1;
  for (size_t axis = static_cast<size_t>(given.rank); axis-- > 0; dense *= given.shape[axis]) {
    if (given.shape[axis] <= 1 || given.strides[axis] == dense) continue;
    // The last of four dimensions is a row's.
    if (TakesStrides(tensor.name) && axis < 3) continue;
    Fail(ErrorCode::kShape, "{} \"{}\" has strides {}; it must be contiguous",
         {what, tensor.name, given.strides});
  }
}

// Tensors of these names, with the ranks, shapes and element types of the plan. `stored`: rows of
// numbers may take two bytes each.
void CheckTensors(std::span<const NamedTensor> tensors, const std::vector<OutputSpec>& specs,
                  bool stored, const char* what) {
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
    const bool row =
        tensor.name == "q" || tensor.name == "k" || tensor.name == "v" || tensor.name == "output";
    CheckLayout(tensor, what);
    if (!(stored && row) && given.dtype != DType::kFloat32) {
      Fail(ErrorCode::kDType, "{} \"{}\" has element type {}; expected float32",
           {what, tensor.name, DTypeName(given.dtype)});
    }
  }
}

void CheckComplete(std::span<const NamedTensor> tensors, const std::vector<OutputSpec>& specs) {
  for (const OutputSpec& spec : specs) {
    if (FindTensor(tensors, spec.name) != nullptr) continue;
    Fail(ErrorCode::kOption, "result \"{}\" is missing", {spec.name});
  }
}

void CheckGradientsApart(const Request& request, std::span<const NamedTensor> results,
                         std::span<const NamedTensor> d_results,
                         std::span<const NamedTensor> gradients) {
  const TensorList written = {"the gradient of \"{}\"", gradients};
  CheckResultsApart(written);
  CheckResultsApart(written, {"{}", request.inputs});
  CheckResultsApart(written, {"result \"{}\"", results});
  CheckResultsApart(written, {"what arrives at \"{}\"", d_results});
}

}  // namespace

void RefuseMechanism(const Request& request) {
#if defined(HEED_FEW_GRADIENTS) || defined(HEED_TRAINING)
  Fail(ErrorCode::kUnsupported,
       "mechanism \"{}\" has no gradient in this build; heed/gradients has those of more rows",
       {request.id});
#else
  Fail(ErrorCode::kUnsupported, "mechanism \"{}\" has no gradient in heed", {request.id});
#endif
}

const AnyTensor* FindTensor(std::span<const NamedTensor> tensors, std::string_view name) {
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor.tensor;
  }
  return nullptr;
}

// Before the families read the request, of which some lists are copied.
BackwardPlan PlanBackward(const Request& request) {
  return WithMemoryErrors("the plan of gradients", [&] {
    const GradientVerbs& verbs = VerbsOf(request);
    for (const NamedTensor& input : request.inputs) CheckData(input);
    return verbs.plan(request);
  });
}

void RunForward(const Request& request, std::span<const NamedTensor> results, ThreadPool* pool) {
  WithMemoryErrors("results for gradients", [&] {
    const BackwardPlan plan = PlanBackward(request);
    CheckTensors(results, plan.results, VerbsOf(request).two_bytes, "result");
    CheckComplete(results, plan.results);
    if (!kFromJavaScript) {
      CheckResultsApart({"result \"{}\"", results});
      CheckResultsApart({"result \"{}\"", results}, {"{}", request.inputs});
    }
    VerbsOf(request).forward(request, results, pool);
  });
}

void RunBackward(const Request& request, std::span<const NamedTensor> results,
                 std::span<const NamedTensor> d_results, std::span<const NamedTensor> gradients,
                 ThreadPool* pool) {
  WithMemoryErrors("gradients", [&] {
    const BackwardPlan plan = PlanBackward(request);
    const bool stored = VerbsOf(request).two_bytes;
    CheckTensors(results, plan.results, stored, "result");
    CheckComplete(results, plan.results);
    CheckTensors(d_results, plan.results, stored, "gradient of result");
    CheckTensors(gradients, plan.gradients, stored, "gradient of input");
    if (FindTensor(d_results, "output") == nullptr) {
      Fail(ErrorCode::kOption, "the gradient of result \"output\" is missing");
    }
    if (!kFromJavaScript) CheckGradientsApart(request, results, d_results, gradients);
    VerbsOf(request).backward(request, results, d_results, gradients, pool);
  });
}

}  // namespace heed
