// Gradients of the recurrent family behind requests: from names to RecurrentBackward().
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/gradient.h"
#include "src/gradient/backward_views.h"
#include "src/gradient/request.h"
#include "src/message.h"
#include "src/parallel/dry_run.h"
#include "src/recurrent/backward_problem.h"
#include "src/recurrent/request.h"

namespace heed {
namespace {

// Inputs that may have a gradient, as requests call them.
constexpr std::string_view kDifferentiable[] = {
    "q",    "k",    "v",     "channel_log_decay", "log_decay", "head_log_decay",
    "beta", "skip", "bonus", "initial_state"};

RecurrentRequest ReadDifferentiable(const Request& request) {
  for (const std::string_view name : {"q", "k", "v"}) {
    const AnyTensor* tensor = FindTensor(request.inputs, name);
    if (tensor == nullptr || tensor->dtype == DType::kFloat32) continue;
    Fail(ErrorCode::kDType,
         "{} has element type {}; gradients of recurrent mechanisms are those of float32",
         {name, DTypeName(tensor->dtype)});
  }
  std::optional<RecurrentRequest> r = ReadRecurrentRequest(request);
  if (!r) RefuseMechanism(request);
  CheckIsDifferentiable(r->options);
  return *std::move(r);
}

TensorView<float> Whole(const AnyTensor* tensor) { return ViewOf(tensor, {0, 1, 2, 3}); }
TensorView<float> PerToken(const AnyTensor* tensor) { return ViewOf(tensor, {0, 1, 2, -1}); }

RecurrentGradients ReadGradients(std::span<const NamedTensor> d_results,
                                 std::span<const NamedTensor> gradients) {
  RecurrentGradients to;
  to.d_final_state = Whole(FindTensor(d_results, "state"));
  to.d_q = Whole(FindTensor(gradients, "q"));
  to.d_k = Whole(FindTensor(gradients, "k"));
  to.d_v = Whole(FindTensor(gradients, "v"));
  to.d_log_decay = Whole(FindTensor(gradients, "channel_log_decay"));
  if (!to.d_log_decay.has_value()) to.d_log_decay = PerToken(FindTensor(gradients, "log_decay"));
  if (!to.d_log_decay.has_value()) {
    to.d_log_decay = ViewOf(FindTensor(gradients, "head_log_decay"), {-1, 0, -1, -1});
  }
  to.d_beta = PerToken(FindTensor(gradients, "beta"));
  if (const AnyTensor* skip = FindTensor(gradients, "skip")) {
    to.d_skip = {static_cast<float*>(skip->data), static_cast<size_t>(skip->shape[0])};
  }
  to.d_bonus = ViewOf(FindTensor(gradients, "bonus"), {-1, 0, -1, 1});
  to.d_initial_state = Whole(FindTensor(gradients, "initial_state"));
  return to;
}

void AddRows(const TensorView<float>& from, const TensorView<float>& to) {
  for (int64_t b = 0; b < to.shape[0]; ++b) {
    for (int64_t h = 0; h < to.shape[1]; ++h) {
      for (int64_t t = 0; t < to.shape[2]; ++t) {
        for (int64_t c = 0; c < to.shape[3]; ++c) to(b, h, t, c) += from(b, h, t, c);
      }
    }
  }
}

}  // namespace

BackwardPlan PlanRecurrentBackward(const Request& request) {
  const RecurrentRequest r = ReadDifferentiable(request);
  const RecurrentProblem p = ValidateRecurrent(r.q, r.k, r.v, r.Options());
  BackwardPlan plan;
  plan.results.push_back({"output", 4, {p.batch, p.num_heads, p.q_len, p.head_dim_v}});
  if (r.return_state) plan.results.push_back({"state", 4, StateShape(p)});
  for (const std::string_view name : kDifferentiable) {
    const AnyTensor* input = FindTensor(request.inputs, name);
    if (input == nullptr) continue;
    plan.gradients.push_back({std::string(name), input->rank, input->shape});
  }
  return plan;
}

void RunRecurrentForward(const Request& request, std::span<const NamedTensor> results,
                         ThreadPool* pool) {
  const RecurrentRequest r = ReadDifferentiable(request);
  RecurrentAttention(r.q, r.k, r.v, r.Options(),
                     {Whole(FindTensor(results, "output")), Whole(FindTensor(results, "state"))},
                     pool);
}

void RunRecurrentBackward(const Request& request, std::span<const NamedTensor>,
                          std::span<const NamedTensor> d_results,
                          std::span<const NamedTensor> gradients, ThreadPool* pool) {
  CheckAreFloats(d_results, gradients);
  const RecurrentRequest r = ReadDifferentiable(request);
  RecurrentGradients to = ReadGradients(d_results, gradients);
  // hgrn2: the same logarithms are gates and keys.
  ScratchVector<float> as_keys;
  const bool both = r.options.feature_map == FeatureMap::kComplement && to.d_log_decay.has_value();
  if (both) {
    as_keys.resize(static_cast<size_t>(r.k.size()));
    const auto& [batch, heads, len, dim] = r.k.shape;
    to.d_k = Contiguous(as_keys.data(), batch, heads, len, dim);
  }
  RecurrentBackward(r.q, r.k, r.v, Whole(FindTensor(d_results, "output")), r.Options(), to, pool);
  if (both && DryRun::Current() == nullptr) AddRows(to.d_k, to.d_log_decay);
}

}  // namespace heed
