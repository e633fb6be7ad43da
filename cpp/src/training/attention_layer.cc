#include "heed/training/attention_layer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/parallel/pieces.h"
#include "src/param_checks.h"
#include "src/split_mix.h"
#include "src/training/attention_options.h"
#include "src/training/checks.h"
#include "src/training/mechanism_row.h"
#include "src/word_lists.h"

namespace heed::training {
namespace {

// Where decays start: sigmoid(4) = 0.982.
constexpr float kDecayStart = 4;

// What the layer of this name drops follows from it, if it drops anything.
std::optional<uint64_t> DropoutSeed(const AttentionLayerOptions& o, const std::string& name) {
  uint64_t seed = 0;
  bool drops = false;
  for (const NamedParam& param : o.params) {
    drops = drops || param.name == "dropout_p";
    if (param.name == "dropout_seed") seed = SeedOf(param.name, param.value);
  }
  for (const char letter : name) seed = SplitMix64(seed ^ static_cast<uint8_t>(letter)).Next();
  return drops ? std::optional(seed) : std::nullopt;
}

LinearLayerOptions Projection(const AttentionLayerOptions& o, int64_t heads) {
  const int64_t head_dim = o.embed_dim / o.num_heads;
  return {.in_dim = o.embed_dim, .out_dim = heads * head_dim, .bias = o.bias};
}

RopeOptions Back() {
  RopeOptions options;
  options.inverse = true;
  return options;
}

std::vector<float> AlibiSlopes(int64_t num_heads) {
  std::vector<float> slopes;
  for (int64_t h = 0; h < num_heads; ++h) {
    slopes.push_back(static_cast<float>(
        std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(num_heads))));
  }
  return slopes;
}

}  // namespace

AttentionLayer::AttentionLayer(ParameterSet& parameters, const std::string& name,
                               const AttentionLayerOptions& options) try
    : options_(CheckedAttention(options)),
      head_dim_(options_.embed_dim / options_.num_heads),
      q_(parameters, name + ".q_proj", Projection(options_, options_.num_heads)),
      v_(parameters, name + ".v_proj", Projection(options_, options_.num_kv_heads)),
      o_(parameters, name + ".o_proj",
         {.in_dim = options_.embed_dim,
          .out_dim = options_.embed_dim,
          .bias = options_.bias,
          .deviation = options_.out_deviation}) {
  const Mechanism& row = TrainableMechanism(options_.mechanism);
  if (HasWord(row.inputs, "k")) {
    k_.emplace(parameters, name + ".k_proj", Projection(options_, options_.num_kv_heads));
  }
  for (const std::string_view input : GateInputs(row)) {
    AddGate(parameters, name, std::string(input));
  }
  for (const std::string_view input : LearnedInputs(row)) {
    AddLearned(parameters, name, std::string(input));
  }
  if (HasUnboundedOutputs(row)) {
    norm_.emplace(parameters, name + ".o_norm", NormLayerOptions{.dim = head_dim_});
  }
  if (options_.position == HeadPosition::kAlibi) slopes_ = AlibiSlopes(options_.num_heads);
  dropout_seed_ = DropoutSeed(options_, name);
  if (HasWord(row.params, "causal")) options_.params.push_back({"causal", options_.causal});
} catch (...) {
  RethrowMemoryError("an attention layer");
}

void AttentionLayer::AddGate(ParameterSet& parameters, const std::string& name,
                             const std::string& input) {
  int64_t count = options_.num_kv_heads;
  if (input == "log_gates") count = options_.num_heads;
  if (input == "channel_log_decay") count *= head_dim_;
  const LinearLayerOptions linear = {.in_dim = options_.embed_dim,
                                     .out_dim = count,
                                     .bias = true,
                                     .bias_start = input == "beta" ? 0 : kDecayStart};
  gates_.push_back({input, LinearLayer(parameters, name + "." + input, linear)});
}

void AttentionLayer::AddLearned(ParameterSet& parameters, const std::string& name,
                                const std::string& input) {
  const bool ones = input == "bonus" || input == "skip";
  Parameter& parameter = parameters.Add(name + "." + input, LearnedShape(input, options_),
                                        {.mean = ones ? 1.0f : 0.0f});
  if (input == "score_matrix") {
    // Dot products with their usual scale.
    const float diagonal = 1 / std::sqrt(static_cast<float>(head_dim_));
    for (int64_t c = 0; c < head_dim_; ++c) {
      parameter.value[static_cast<size_t>(c * (head_dim_ + 1))] = diagonal;
    }
  }
  learned_.push_back({input, &parameter});
}

const Matrix& AttentionLayer::Forward(const Matrix& x, const Matrix& context,
                                      const SequenceShape& shape, ThreadPool* pool) {
  return *WithMemoryErrors("an attention layer", [&] {
    CheckSize("x", x, shape.batch * shape.q_len, options_.embed_dim);
    CheckSize("context", context, shape.batch * shape.kv_len, options_.embed_dim);
    shape_ = shape;
    self_ = &x == &context;
    request_ = {};  // of rows that are about to change
    q_.Forward(x, pool);
    v_.Forward(context, pool);
    if (k_) k_->Forward(context, pool);
    if (options_.position == HeadPosition::kRope) {
      Turn(q_.y(), options_.num_heads, shape.q_len, RopeOptions(), pool);
      Turn(k_->y(), options_.num_kv_heads, shape.kv_len, RopeOptions(), pool);
    }
    for (Gate& gate : gates_) ActivateGate(gate, context, pool);
    Request request = MakeRequest();
    heads_.Resize(x.rows(), options_.embed_dim);
    RunForward(request, Results(request), pool);
    const Matrix& y = o_.Forward(norm_ ? norm_->Forward(heads_, pool) : heads_, pool);
    request_ = std::move(request);
    return &y;
  });
}

const Matrix& AttentionLayer::Backward(const Matrix& d_y, ThreadPool* pool) {
  WithMemoryErrors("an attention layer", [&] {
    CheckHasForward(!request_.inputs.empty());
    const Matrix& d_normed = o_.Backward(d_y, pool);
    const Matrix& d_heads = norm_ ? norm_->Backward(d_normed, pool) : d_normed;
    RunMechanismBackward(d_heads, pool);
    if (options_.position == HeadPosition::kRope) {
      Turn(d_q_, options_.num_heads, shape_.q_len, Back(), pool);
      Turn(d_k_, options_.num_kv_heads, shape_.kv_len, Back(), pool);
    }
    AddProjectionGradients(pool);
  });
  return d_x_;
}

void AttentionLayer::Turn(Matrix& rows, int64_t heads, int64_t len, RopeOptions options,
                          ThreadPool* pool) const {
  options.base = options_.rope_base;
  const TensorView<float> view = ContiguousBlhd(rows.data(), shape_.batch, len, heads, head_dim_);
  Rope(view, RopePairing::kHalf, options, view, pool);
}

void AttentionLayer::AddProjectionGradients(ThreadPool* pool) {
  d_x_ = q_.Backward(d_q_, pool);
  if (!self_) {
    d_context_.Resize(shape_.batch * shape_.kv_len, options_.embed_dim);
    d_context_.Fill(0);
  }
  Matrix& to = self_ ? d_x_ : d_context_;
  const auto add = [&](const Matrix& d) { AddTo(d.data(), d.size(), pool, to.data()); };
  add(v_.Backward(d_v_, pool));
  if (k_) add(k_->Backward(d_k_, pool));
  for (Gate& gate : gates_) add(gate.linear.Backward(GateInputGradient(gate, pool), pool));
}

}  // namespace heed::training
