#include "heed/training/attention_layer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/param_checks.h"
#include "src/split_mix.h"
#include "src/training/checks.h"
#include "src/training/mechanism_row.h"
#include "src/training/parallel.h"
#include "src/word_lists.h"

namespace heed::training {
namespace {

// Where decays start: sigmoid(4) = 0.982.
constexpr float kDecayStart = 4;

void CheckSizes(const AttentionLayerOptions& o) {
  CheckCount("embed_dim", o.embed_dim);
  CheckCount("num_heads", o.num_heads);
  CheckCount("num_kv_heads", o.num_kv_heads);
  if (o.embed_dim % o.num_heads != 0) {
    Fail(ErrorCode::kRange, "embed_dim = {}; it must be a multiple of num_heads = {}",
         {o.embed_dim, o.num_heads});
  }
  if (o.num_heads % o.num_kv_heads != 0) {
    Fail(ErrorCode::kRange, "num_heads = {}; it must be a multiple of num_kv_heads = {}",
         {o.num_heads, o.num_kv_heads});
  }
}

void CheckPosition(const AttentionLayerOptions& o, const Mechanism& row) {
  if (o.position == HeadPosition::kAlibi && !HasWord(row.inputs, "alibi_slopes")) {
    Fail(ErrorCode::kUnsupported, "position: mechanism \"{}\" takes no ALiBi slopes",
         {o.mechanism});
  }
  if (o.position != HeadPosition::kRope) return;
  if (!HasWord(row.inputs, "k")) {
    Fail(ErrorCode::kUnsupported,
         "position: mechanism \"{}\" has no keys to turn; give a position that is not rope",
         {o.mechanism});
  }
  if (o.embed_dim / o.num_heads % 2 != 0) {
    Fail(ErrorCode::kRange, "embed_dim / num_heads = {}; position rope needs an even number",
         {o.embed_dim / o.num_heads});
  }
}

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

AttentionLayerOptions Checked(AttentionLayerOptions o) {
  if (o.num_kv_heads == 0) o.num_kv_heads = o.num_heads;
  CheckSizes(o);
  const Mechanism& row = TrainableMechanism(o.mechanism);
  for (const NamedParam& param : o.params) {
    if (param.name == "causal") {
      Fail(ErrorCode::kOption, "params: causal is an option of the layer");
    }
    if (!HasWord(row.params, param.name)) {
      Fail(ErrorCode::kOption, "params: mechanism \"{}\" has no parameter {}; it has {}",
           {o.mechanism, param.name, row.params});
    }
    CheckParam(param);
  }
  CheckRead(row, {o.mechanism, {}, o.params});
  const bool can_be_causal = HasWord(row.capabilities, "causal");
  if (!o.causal && can_be_causal && !HasWord(row.params, "causal")) {
    Fail(ErrorCode::kUnsupported, "causal: mechanism \"{}\" is causal by nature", {o.mechanism});
  }
  if (o.causal && !can_be_causal) {
    Fail(ErrorCode::kUnsupported,
         "causal: rows of mechanism \"{}\" hold all tokens of the context; give causal = false",
         {o.mechanism});
  }
  CheckPosition(o, row);
  return o;
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
                               const AttentionLayerOptions& options)
    : options_(Checked(options)),
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
  std::vector<int64_t> shape = {options_.num_heads};
  if (input == "bonus") shape = {options_.num_heads, head_dim_};
  if (input == "score_matrix") shape = {head_dim_, head_dim_};
  const bool ones = input == "bonus" || input == "skip";
  Parameter& parameter = parameters.Add(name + "." + input, shape, {.mean = ones ? 1.0f : 0.0f});
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
  request_ = MakeRequest();
  heads_.Resize(x.rows(), options_.embed_dim);
  RunForward(request_, Results(), pool);
  return o_.Forward(norm_ ? norm_->Forward(heads_, pool) : heads_, pool);
}

const Matrix& AttentionLayer::Backward(const Matrix& d_y, ThreadPool* pool) {
  CheckHasForward(heads_.data());
  const Matrix& d_normed = o_.Backward(d_y, pool);
  const Matrix& d_heads = norm_ ? norm_->Backward(d_normed, pool) : d_normed;
  RunMechanismBackward(d_heads, pool);
  if (options_.position == HeadPosition::kRope) {
    Turn(d_q_, options_.num_heads, shape_.q_len, Back(), pool);
    Turn(d_k_, options_.num_kv_heads, shape_.kv_len, Back(), pool);
  }
  AddProjectionGradients(pool);
  return d_x_;
}

void AttentionLayer::Turn(Matrix& rows, int64_t heads, int64_t len, RopeOptions options,
                          ThreadPool* pool) const {
  options.base = options_.rope_base;
  const TensorView<float> view = ContiguousBlhd(rows.data(), shape_.batch, len, heads, head_dim_);
  Rope(view, RopePairing::kHalf, options, view, pool);
}

void AttentionLayer::AddProjectionGradients(ThreadPool* pool) {
  Copy(q_.Backward(d_q_, pool), d_x_);
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
