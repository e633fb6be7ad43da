// Gradients of the recurrent family behind requests: from names to RecurrentBackward().
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/gradient.h"
#include "heed/linear.h"
#include "src/gradient/backward_views.h"
#include "src/gradient/request.h"
#include "src/message.h"
#include "src/parallel/dry_run.h"
#include "src/recurrent/backward_problem.h"
#include "src/recurrent/request.h"

namespace heed {
namespace {

// Inputs that may have a gradient, as requests call them.
constexpr std::string_view kDifferentiable[] = {"q",
                                                "k",
                                                "v",
                                                "channel_log_decay",
                                                "log_decay",
                                                "beta",
                                                "skip",
                                                "bonus",
                                                "head_log_decay",
                                                "initial_state",
                                                "erase_key",
                                                "erase_rate",
                                                "level_weights",
                                                "projection",
                                                "inner_norm_weight",
                                                "inner_norm_bias",
                                                "position_rate"};

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
  if (r->return_projection) {
    Fail(ErrorCode::kUnsupported, "return_projection gives a result without a gradient");
  }
  return *std::move(r);
}

TensorView<float> Whole(const AnyTensor* tensor) { return ViewOf(tensor, {0, 1, 2, 3}); }
TensorView<float> PerToken(const AnyTensor* tensor) { return ViewOf(tensor, {0, 1, 2, -1}); }

// With directions drawn from their seed, where they are not given.
RecurrentOptions OptionsOf(const RecurrentRequest& r, ScratchVector<float>& drawn) {
  RecurrentOptions options = r.Options();
  if (!r.seed) return options;
  const int64_t features = options.projection.shape[2], dim = options.projection.shape[3];
  drawn.resize(static_cast<size_t>(features * dim));
  options.projection = MatrixView<const float>(drawn.data(), features, dim);
  if (DryRun::Current() == nullptr) {
    DrawRandomFeatures(*r.seed, MatrixView(drawn.data(), features, dim));
  }
  return options;
}

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
  to.d_skip = VectorOf(FindTensor(gradients, "skip"));
  to.d_bonus = ViewOf(FindTensor(gradients, "bonus"), {-1, 0, -1, 1});
  to.d_erase_key = Whole(FindTensor(gradients, "erase_key"));
  to.d_erase_rate = Whole(FindTensor(gradients, "erase_rate"));
  to.d_level_weights = Whole(FindTensor(gradients, "level_weights"));
  to.d_projection = ViewOf(FindTensor(gradients, "projection"), {-1, -1, 0, 1});
  to.d_norm_weight = VectorOf(FindTensor(gradients, "inner_norm_weight"));
  to.d_norm_bias = VectorOf(FindTensor(gradients, "inner_norm_bias"));
  to.d_position_rate = VectorOf(FindTensor(gradients, "position_rate"));
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

// The way back through the feature_mod of a request; nothing where it has none.
FeatureBackward UserFeatures(const Request& request) {
  const RequestReader reader(*FindMechanism(request.id), request);
  const auto text = reader.Word("feature_mod");
  if (!text) return {};
  return CompileFeatureBackward("feature_mod", *text, reader.Named("captured"));
}

BackwardPlan PlanRecurrentBackward(const Request& request) {
  const RecurrentRequest r = ReadDifferentiable(request);
  UserFeatures(request);  // which may refuse
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
  ScratchVector<float> drawn;
  RecurrentAttention(r.q, r.k, r.v, OptionsOf(r, drawn),
                     {Whole(FindTensor(results, "output")), Whole(FindTensor(results, "state"))},
                     pool);
}

void RunRecurrentBackward(const Request& request, std::span<const NamedTensor>,
                          std::span<const NamedTensor> d_results,
                          std::span<const NamedTensor> gradients, ThreadPool* pool) {
  CheckAreFloats(d_results, gradients);
  const RecurrentRequest r = ReadDifferentiable(request);
  RecurrentGradients to = ReadGradients(d_results, gradients);
  to.feature_mod_backward = UserFeatures(request);
  // hgrn2: the same logarithms are gates and keys.
  ScratchVector<float> as_keys;
  const bool both = r.options.feature_map == FeatureMap::kComplement && to.d_log_decay.has_value();
  if (both) {
    as_keys.resize(static_cast<size_t>(r.k.size()));
    const auto& [batch, heads, len, dim] = r.k.shape;
    to.d_k = Contiguous(as_keys.data(), batch, heads, len, dim);
  }
  ScratchVector<float> drawn;
  RecurrentBackward(r.q, r.k, r.v, Whole(FindTensor(d_results, "output")), OptionsOf(r, drawn), to,
                    pool);
  if (both && DryRun::Current() == nullptr) AddRows(to.d_k, to.d_log_decay);
}

}  // namespace

const GradientVerbs kRecurrentGradient = {PlanRecurrentBackward, RunRecurrentForward,
                                          RunRecurrentBackward};

}  // namespace heed
