// The boundary of AttentionBackward(): everything that can be wrong with a call is found here.
#include <iterator>
#include <string>

#include "src/exact/attention_spans.h"
#include "src/from_javascript.h"
#include "src/gradient/problem.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

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

void CheckSlope(const char* name, const TileFunction& function, const TileFunction& slope) {
  if (!function || slope) return;
  Fail(ErrorCode::kUnsupported, "{} has no gradient without {}_slope", {name, name});
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
  if (kFromJavaScript) return;
  const AttentionGradients& to = g.gradients;
  const AttentionProblem& p = g.attention;
  constexpr size_t kNumTensors = std::size(kTensorGradients);
  NamedSpan outputs[3 + kNumTensors + std::size(kVectorGradients)] = {
      {"d_q", to.d_q}, {"d_k", to.d_k}, {"d_v", to.d_v}};
  const NamedSpan inputs[] = {{"q", p.q},         {"k", p.k},         {"v", p.v},
                              {"out", g.out},     {"d_out", g.d_out}, {"lse", g.lse},
                              {"d_lse", to.d_lse}};
  for (size_t n = 0; n < kNumTensors; ++n) {
    const TensorGradient& tensor = kTensorGradients[n];
    outputs[3 + n] = {tensor.gradient_name, to.*tensor.gradient};
  }
  NamedSpan* next = outputs + 3 + kNumTensors;
  for (const VectorGradient& vector : kVectorGradients) {
    *next++ = {vector.gradient_name, to.*vector.gradient};
  }
  for (const NamedSpan* output = outputs; output != next; ++output) {
    const char* const name = output->name;
    const ViewSpan& span = output->span;
    if (span.empty) continue;
    for (const NamedSpan& input : inputs) CheckNoAlias(name, span, input.name, input.span);
    ForEachView(given, [&](const char* option, const auto& read) {
      CheckNoAlias(name, span, option, SpanOf(read));
    });
    for (const NamedSpan* other = outputs; other != output; ++other) {
      CheckNoAlias(name, span, other->name, other->span);
    }
  }
}

}  // namespace

void CompleteGradient(GradientProblem& g, const AttentionOptions& options) {
  const AttentionGradients& gradients = g.gradients;
  CheckIsDifferentiable(options);
  g.attention.finishes_rows = options.normalize == Normalize::kKernelSum && !HasLse(options);
  CheckSlope("score_mod", options.score_mod, gradients.score_mod_slope);
  CheckSlope("prob_mod", options.prob_mod, gradients.prob_mod_slope);
  CheckForward(g);
  const AttentionProblem& p = g.attention;
  if (gradients.d_q.has_value()) CheckOutput("d_q", gradients.d_q, p.q.shape, "as q");
  if (gradients.d_k.has_value()) CheckOutput("d_k", gradients.d_k, p.k.shape, "as k");
  if (gradients.d_v.has_value()) CheckOutput("d_v", gradients.d_v, p.v.shape, "as v");
  for (const VectorGradient& v : kVectorGradients) {
    CheckVector(v.gradient_name, gradients.*v.gradient, v.name, options.*v.option);
  }
  for (const TensorGradient& t : kTensorGradients) {
    CheckTensor(t.gradient_name, gradients.*t.gradient, t.name, options.*t.option);
  }
  CheckAliases(g, options);
  if (!gradients.d_bias.has_value()) return;
  g.gradients.d_bias =
      Broadcast("d_bias", gradients.d_bias, {p.batch, p.num_heads, p.q_len, p.kv_len});
}

GradientProblem ValidateGradient(const StoredTensor& q, const StoredTensor& k,
                                 const StoredTensor& v, const StoredTensor& out,
                                 const TensorView<const float>& lse, const StoredTensor& d_out,
                                 const AttentionOptions& options,
                                 const AttentionGradients& gradients) {
  GradientProblem g;
  g.attention = ValidateAttentionInputs(q, k, v, options, false);
  g.out = out;
  g.lse = lse;
  g.d_out = d_out;
  g.gradients = gradients;
  CompleteGradient(g, options);
  return g;
}

}  // namespace heed
