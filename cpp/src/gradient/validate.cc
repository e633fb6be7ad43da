// The boundary of AttentionBackward(): everything that can be wrong with a call is found here.
#include <iterator>
#include <string>
#include <utility>

#include "src/gradient/problem.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

[[noreturn]] void Refuse(const char* what) {
  Fail(ErrorCode::kUnsupported, "{} has no gradient in heed", {what});
}

void CheckScoreIsDifferentiable(const AttentionOptions& o) {
  if (o.normalize == Normalize::kAverage) return;  // reads no score
  if (o.score == Score::kAdditive) Refuse("score \"additive\"");
  const std::pair<const char*, const TensorView<const float>*> tensors[] = {
      {"relative_keys", &o.relative_keys},
      {"relative_queries", &o.relative_queries},
      {"content_bias", &o.content_bias},
      {"position_bias", &o.position_bias}};
  for (const auto& [name, tensor] : tensors) {
    if (tensor->has_value()) Refuse(name);
  }
}

void CheckNormalizeIsDifferentiable(const AttentionOptions& o) {
  switch (o.normalize) {
    case Normalize::kSoftmax:
    case Normalize::kSoftmax1:
    case Normalize::kSigmoid:
    case Normalize::kRelu:
    case Normalize::kReluSquared:
    case Normalize::kAverage:
    case Normalize::kHard:
    case Normalize::kStickBreaking:
    case Normalize::kTopK:
    case Normalize::kSparsemax:
    case Normalize::kEntmax15:
      return;
    case Normalize::kKernelSum:
      if (o.kernel == Kernel::kGaussian) return;
      Refuse("normalize \"kernel_sum\" with another kernel than gaussian");
    case Normalize::kCope:
      Refuse("normalize \"cope\"");
  }
}

void CheckForward(const GradientProblem& g) {
  const AttentionProblem& p = g.attention;
  const Extents outputs = {p.batch, p.num_heads, p.q_len, p.head_dim_v};
  const char* outputs_text = "[batch, num_heads, q_len, head_dim_v]";
  CheckStored("d_out", g.d_out);
  CheckShape("d_out", g.d_out.shape, outputs, outputs_text);
  const bool has_lse = HasLse(p.options);
  if (!has_lse && g.lse.has_value()) {
    Fail(ErrorCode::kUnsupported,
         "lse is the log of a softmax denominator; this normaliser has none");
  }
  if (!has_lse && g.gradients.d_lse.has_value()) {
    Fail(ErrorCode::kUnsupported, "d_lse is the gradient of an lse; this normaliser has none");
  }
  if (has_lse || g.out.has_value()) {
    CheckStored("out", g.out);
    CheckShape("out", g.out.shape, outputs, outputs_text);
  }
  if (!has_lse) return;
  const Extents rows = {p.batch, p.num_heads, p.q_len, 1};
  CheckPresent("lse", g.lse);
  CheckShape("lse", g.lse.shape, rows, "[batch, num_heads, q_len, 1]");
  if (!g.gradients.d_lse.has_value()) return;
  CheckPresent("d_lse", g.gradients.d_lse);
  CheckShape("d_lse", g.gradients.d_lse.shape, rows, "[batch, num_heads, q_len, 1]");
}

void CheckVector(const char* name, std::span<const float> gradient, const char* option,
                 std::span<const float> values) {
  if (gradient.empty()) return;
  if (values.empty()) Fail(ErrorCode::kOption, "{} is given without {}", {name, option});
  if (gradient.size() == values.size()) return;
  Fail(ErrorCode::kShape, "{} has {} values, but {} has {}",
       {name, gradient.size(), option, values.size()});
}

void CheckTensor(const char* name, const TensorView<float>& gradient, const char* option,
                 const TensorView<const float>& tensor) {
  if (!gradient.has_value()) return;
  if (!tensor.has_value()) Fail(ErrorCode::kOption, "{} is given without {}", {name, option});
  CheckOutput(name, gradient, tensor.shape, Join("as {}", {option}));
}

void CheckAliases(const GradientProblem& g, const AttentionOptions& given) {
  const AttentionGradients& to = g.gradients;
  const auto vector = [](std::span<float> values) {
    return SpanOf(values.data(), {1, 1, 1, static_cast<int64_t>(values.size())}, {0, 0, 0, 1},
                  sizeof(float));
  };
  const ViewSpan outputs[] = {SpanOf(to.d_q),
                              SpanOf(to.d_k),
                              SpanOf(to.d_v),
                              SpanOf(to.d_bias),
                              vector(to.d_alibi_slopes),
                              vector(to.d_sinks),
                              vector(to.d_width),
                              vector(to.d_temperature),
                              SpanOf(to.d_score_matrix),
                              SpanOf(to.d_distance_bias),
                              SpanOf(to.d_bucket_bias),
                              SpanOf(to.d_log_gates)};
  const char* names[] = {
      "d_q",           "d_k",        "d_v",           "d_bias",         "d_alibi_slopes",
      "d_sinks",       "d_width",    "d_temperature", "d_score_matrix", "d_distance_bias",
      "d_bucket_bias", "d_log_gates"};
  const AttentionProblem& p = g.attention;
  const ViewSpan inputs[] = {SpanOf(p.q),
                             SpanOf(p.k),
                             SpanOf(p.v),
                             SpanOf(g.out),
                             SpanOf(g.d_out),
                             SpanOf(g.lse),
                             SpanOf(to.d_lse),
                             SpanOf(given.bias),
                             SpanOf(given.score_matrix),
                             SpanOf(given.distance_bias),
                             SpanOf(given.bucket_bias),
                             SpanOf(given.log_gates)};
  const char* input_names[] = {"q",           "k",        "v",    "out",          "d_out",
                               "lse",         "d_lse",    "bias", "score_matrix", "distance_bias",
                               "bucket_bias", "log_gates"};
  for (size_t i = 0; i < std::size(outputs); ++i) {
    for (size_t j = 0; j < std::size(inputs); ++j) {
      CheckNoAlias(names[i], outputs[i], input_names[j], inputs[j]);
    }
    for (size_t j = 0; j < i; ++j) CheckNoAlias(names[i], outputs[i], names[j], outputs[j]);
  }
}

}  // namespace

void CheckIsDifferentiable(const AttentionOptions& o) {
  CheckNormalizeIsDifferentiable(o);
  CheckScoreIsDifferentiable(o);
  if (o.score_mod) Refuse("score_mod");
  if (o.prob_mod) Refuse("prob_mod");
  if (o.relative_values.has_value()) Refuse("relative_values");
}

GradientProblem ValidateGradient(const StoredTensor& q, const StoredTensor& k,
                                 const StoredTensor& v, const StoredTensor& out,
                                 const TensorView<const float>& lse, const StoredTensor& d_out,
                                 const AttentionOptions& options,
                                 const AttentionGradients& gradients) {
  GradientProblem g;
  g.attention = ValidateAttentionInputs(q, k, v, options, false);
  CheckIsDifferentiable(options);
  g.out = out;
  g.lse = lse;
  g.d_out = d_out;
  g.gradients = gradients;
  CheckForward(g);
  const AttentionProblem& p = g.attention;
  if (gradients.d_q.has_value()) CheckOutput("d_q", gradients.d_q, p.q.shape, "as q");
  if (gradients.d_k.has_value()) CheckOutput("d_k", gradients.d_k, p.k.shape, "as k");
  if (gradients.d_v.has_value()) CheckOutput("d_v", gradients.d_v, p.v.shape, "as v");
  CheckVector("d_alibi_slopes", gradients.d_alibi_slopes, "alibi_slopes", options.alibi_slopes);
  CheckVector("d_sinks", gradients.d_sinks, "sinks", options.sinks);
  CheckVector("d_width", gradients.d_width, "width", options.width);
  CheckVector("d_temperature", gradients.d_temperature, "temperature", options.temperature);
  CheckTensor("d_bias", gradients.d_bias, "bias", options.bias);
  CheckTensor("d_distance_bias", gradients.d_distance_bias, "distance_bias", options.distance_bias);
  CheckTensor("d_bucket_bias", gradients.d_bucket_bias, "bucket_bias", options.bucket_bias);
  CheckTensor("d_log_gates", gradients.d_log_gates, "log_gates", options.log_gates);
  CheckTensor("d_score_matrix", gradients.d_score_matrix, "score_matrix", options.score_matrix);
  CheckAliases(g, options);
  if (!gradients.d_bias.has_value()) return g;
  g.gradients.d_bias =
      Broadcast("d_bias", gradients.d_bias, {p.batch, p.num_heads, p.q_len, p.kv_len});
  return g;
}

}  // namespace heed
