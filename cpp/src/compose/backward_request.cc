#include "src/compose/backward_request.h"

#include <algorithm>
#include <string>

#include "src/compose/request.h"
#include "src/compose/rows.h"
#include "src/exact/request.h"
#include "src/gradient/backward_views.h"
#include "src/gradient/problem.h"
#include "src/gradient/request.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

struct ComposedRow {
  std::string_view id;
  std::vector<OutputSpec> (*plan)(const RequestReader&);
  void (*run)(const RequestReader&, std::span<const NamedTensor>, ThreadPool*);
  void (*backward)(const ComposedBackward&);
};

constexpr ComposedRow kRows[] = {
    {"attention_free", PlanAttentionFree, RunAttentionFree, AttentionFreeBackward},
    {"attention_pooling", PlanAttentionPooling, RunAttentionPooling, AttentionPoolingBackward},
    {"differential", PlanDifferential, RunDifferential, DifferentialBackward},
    {"external", PlanExternal, RunExternal, ExternalBackward},
    {"gated", PlanGated, RunGated, GatedBackward},
    {"graph", PlanGraph, RunGraph, GraphBackward},
    {"hopfield", PlanHopfield, RunHopfield, HopfieldBackward},
    {"induced_set", PlanInducedSet, RunInducedSet, InducedSetBackward},
    {"perceiver", PlanPerceiver, RunPerceiver, PerceiverBackward},
    {"synthesizer", PlanSynthesizer, RunSynthesizer, SynthesizerBackward},
    {"talking_heads", PlanTalkingHeads, RunTalkingHeads, TalkingHeadsBackward},
};

const ComposedRow& RowOf(const Request& request) {
  const auto row = std::ranges::find(kRows, request.id, &ComposedRow::id);
  if (row == std::end(kRows)) RefuseMechanism(request);
  return *row;
}

bool IsFloat(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

void CheckInputTypes(const Request& request) {
  for (const NamedTensor& input : request.inputs) {
    const DType dtype = input.tensor.dtype;
    if (!IsFloat(dtype) || dtype == DType::kFloat32) continue;
    Fail(ErrorCode::kDType,
         "{} has element type {}; gradients of composed mechanisms are those of float32",
         {input.name, DTypeName(dtype)});
  }
}

void CheckParams(const Request& request) {
  for (const NamedParam& param : request.params) {
    const bool* flag = std::get_if<bool>(&param.value);
    const bool weights = param.name == "return_weights" && (flag == nullptr || *flag);
    if (!weights && param.name != "return_scores") continue;
    Fail(ErrorCode::kUnsupported, "{} gives a result without a gradient", {param.name});
  }
}

// Reads the options of attention once more, of rows that pass them through.
void CheckOptions(const RequestReader& reader, const OutputSpec& output) {
  if (!reader.Takes("keep") || !reader.Takes("v")) return;
  const AnyTensor& keys = *reader.Input(reader.Takes("k") ? "k" : "v");
  AttentionRequest rest;
  rest.q.shape = output.shape;
  rest.k.shape = rest.v.shape = keys.shape;
  ReadExactOptions(reader, rest);
  CheckIsDifferentiable(rest.options);
  AttentionGradients slopes;
  CompileSlopes(reader, slopes);  // which may refuse
}

// Tensors that user functions read have none.
bool HasGradient(const NamedTensor& input) {
  return IsFloat(input.tensor.dtype) && !input.name.starts_with("captured");
}

RequestReader ReaderOf(const Request& request) {
  return RequestReader(*FindMechanism(request.id), request);
}

}  // namespace

TensorView<const float> ComposedBackward::d_output() const {
  return LeadingViewOf(FindTensor(d_results, "output"));
}

TensorView<const float> ComposedBackward::d_rows() const {
  return ViewOf(FindTensor(d_results, "output"), {0, -1, 1, 2});
}

TensorView<const float> ComposedBackward::d_lse() const {
  return ViewOf(FindTensor(d_results, "lse"), {0, 1, 2, -1});
}

TensorView<float> ComposedBackward::Wanted(std::string_view name) const {
  return LeadingViewOf(FindTensor(gradients, name));
}

AttentionGradients ComposedBackward::WantedOptions() const {
  AttentionGradients to = ReadOptionGradients(gradients);
  CompileSlopes(reader, to);
  return to;
}

AttentionGradients ComposedBackward::WantedOfAttention() const {
  AttentionGradients to = WantedOptions();
  to.d_q = Wanted("q");
  to.d_k = Wanted("k");
  to.d_v = Wanted("v");
  return to;
}
namespace {

BackwardPlan PlanComposedBackward(const Request& request) {
  const ComposedRow& row = RowOf(request);
  CheckInputTypes(request);
  CheckParams(request);
  BackwardPlan plan;
  plan.results = row.plan(ReaderOf(request));
  CheckOptions(ReaderOf(request), plan.results.front());
  AddOptionGradients(request, plan);
  for (const NamedTensor& input : request.inputs) {
    const auto same = [&](const OutputSpec& spec) { return spec.name == input.name; };
    if (!HasGradient(input) || std::ranges::any_of(plan.gradients, same)) continue;
    plan.gradients.push_back({input.name, input.tensor.rank, input.tensor.shape});
  }
  return plan;
}

void RunComposedForward(const Request& request, std::span<const NamedTensor> results,
                        ThreadPool* pool) {
  CheckAreFloats(results, {});
  RowOf(request).run(ReaderOf(request), results, pool);
}

void RunComposedBackward(const Request& request, std::span<const NamedTensor>,
                         std::span<const NamedTensor> d_results,
                         std::span<const NamedTensor> gradients, ThreadPool* pool) {
  CheckAreFloats(d_results, gradients);
  CheckAreRows(gradients);
  const RequestReader reader = ReaderOf(request);
  const ComposedBackward call = {reader, d_results, gradients, PoolOrDefault(pool)};
  CheckInput("gradient of output", call.d_output());
  RowOf(request).backward(call);
}

}  // namespace

const GradientVerbs kComposedGradient = {PlanComposedBackward, RunComposedForward,
                                         RunComposedBackward};

}  // namespace heed
