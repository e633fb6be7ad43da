#include "src/compose/request.h"

#include <string>

#include "heed/compose.h"
#include "src/choice.h"
#include "src/compose/compose_problem.h"
#include "src/compose/composed_request.h"
#include "src/message.h"

namespace heed {
namespace {

constexpr Choice<SubNorm> kSubNorms[] = {{"rms", SubNorm::kRms}, {"none", SubNorm::kNone}};

// An input as it came whose rank is part of its meaning: [num_heads, num_heads].
std::span<const float> ReadMatrix(const RequestReader& reader, const char* name, int64_t heads) {
  const std::span<const float> values = reader.Floats(name);
  const AnyTensor* tensor = reader.Input(name);
  if (tensor == nullptr) return values;
  if (tensor->rank == 2 && tensor->shape[0] == heads && tensor->shape[1] == heads) return values;
  Fail(ErrorCode::kShape, "{} must have the shape [num_heads, num_heads], here {}", {name, heads});
}

}  // namespace

// Differential attention.

DifferentialOptions ReadDifferential(const RequestReader& reader, const ComposedRequest& r) {
  DifferentialOptions o;
  o.attention = OptionsOf(r.rest);
  o.lambda = reader.Floats("lambda");
  o.lambda_init = reader.Number("lambda_init").value_or(o.lambda_init);
  o.sub_norm = ReadChoice(reader, "sub_norm", kSubNorms).value_or(SubNorm::kRms);
  o.norm_weight = reader.Floats("norm_weight");
  o.epsilon = reader.Number("epsilon").value_or(o.epsilon);
  return o;
}

std::vector<OutputSpec> PlanDifferential(const RequestReader& reader) {
  const ComposedRequest r = ReadComposed(reader);
  ValidateDifferential(r.q, r.k, r.v, ReadDifferential(reader, r), {});
  AttentionRequest half = r.rest;
  half.q = StoredTensor(Halved("q", r.q).first);
  half.k = StoredTensor(Halved("k", r.k).first);
  return PlanAttention(half);
}

void RunDifferential(const RequestReader& reader, std::span<const NamedTensor> outputs,
                     ThreadPool* pool) {
  const ComposedRequest r = ReadComposed(reader);
  DifferentialAttention(r.q, r.k, r.v, ReadDifferential(reader, r), FloatOutputs(r, outputs), pool);
}

// Talking heads.

TalkingHeadsOptions ReadTalkingHeads(const RequestReader& reader, const ComposedRequest& r) {
  TalkingHeadsOptions o;
  o.attention = OptionsOf(r.rest);
  o.mix_scores = ReadMatrix(reader, "mix_scores", r.q.shape[1]);
  o.mix_weights = ReadMatrix(reader, "mix_weights", r.q.shape[1]);
  return o;
}

std::vector<OutputSpec> PlanTalkingHeads(const RequestReader& reader) {
  const ComposedRequest r = ReadComposed(reader);
  ValidateTalkingHeads(ReadTalkingHeads(reader, r), {}, r.q.shape[1]);
  return PlanAttention(r.rest);
}

void RunTalkingHeads(const RequestReader& reader, std::span<const NamedTensor> outputs,
                     ThreadPool* pool) {
  const ComposedRequest r = ReadComposed(reader);
  TalkingHeadsAttention(r.q, r.k, r.v, ReadTalkingHeads(reader, r), FloatOutputs(r, outputs), pool);
}

// Hopfield retrieval.

HopfieldOptions ReadHopfield(const RequestReader& reader, const ComposedRequest& r) {
  HopfieldOptions o;
  o.attention = OptionsOf(r.rest);
  o.steps = reader.Count("steps").value_or(o.steps);
  o.tolerance = reader.Number("tolerance").value_or(o.tolerance);
  return o;
}

std::vector<OutputSpec> PlanHopfield(const RequestReader& reader) {
  const ComposedRequest r = ReadComposed(reader);
  ValidateHopfield(ReadHopfield(reader, r), {}, r.q.shape[3], r.k.shape[3]);
  return PlanAttention(r.rest);
}

void RunHopfield(const RequestReader& reader, std::span<const NamedTensor> outputs,
                 ThreadPool* pool) {
  const ComposedRequest r = ReadComposed(reader);
  HopfieldRetrieval(r.q, r.k, r.v, ReadHopfield(reader, r), FloatOutputs(r, outputs), pool);
}

// Gated attention.

TensorView<const float> ReadGate(const RequestReader& reader) {
  return reader.RequiredTensor("output_gate");
}

std::vector<OutputSpec> PlanGated(const RequestReader& reader) {
  const ComposedRequest r = ReadComposed(reader);
  std::vector<OutputSpec> specs = PlanAttention(r.rest);
  BroadcastGate(ReadGate(reader), specs[0].shape);
  return specs;
}

void RunGated(const RequestReader& reader, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  const ComposedRequest r = ReadComposed(reader);
  GatedAttention(r.q, r.k, r.v, ReadGate(reader), OptionsOf(r.rest), FloatOutputs(r, outputs),
                 pool);
}

// Attention pooling.

AttentionRequest ReadPooling(const RequestReader& reader) {
  const TensorView<const float> queries = reader.FloatTensor("queries");
  const AnyTensor* given = reader.Input("queries");
  if (given == nullptr) Fail(ErrorCode::kOption, "input queries is missing");
  if (given->rank != 3) {
    Fail(ErrorCode::kShape, "queries has rank {}; expected 3 ([num_heads, num_queries, head_dim])",
         {given->rank});
  }
  const int64_t batch = reader.RequiredTensor("k").shape[0];
  return ReadComposed(reader, QueriesOfBatch(queries, batch)).rest;
}

std::vector<OutputSpec> PlanAttentionPooling(const RequestReader& reader) {
  return PlanAttention(ReadPooling(reader));
}

void RunAttentionPooling(const RequestReader& reader, std::span<const NamedTensor> outputs,
                         ThreadPool* pool) {
  RunAttentionRequest(ReadPooling(reader), outputs, pool);
}

}  // namespace heed
