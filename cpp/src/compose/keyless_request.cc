// External attention and synthesizers behind heed::Run: mechanisms whose inputs have no keys.
#include <string>

#include "src/compose/compose_problem.h"
#include "src/compose/composed_request.h"
#include "src/compose/request.h"
#include "src/exact/request.h"
#include "src/message.h"

namespace heed {
namespace {

// An input of rank 2 or 3 as a view with leading extents of 1; absent when it is not given.
TensorView<const float> ReadLearned(const RequestReader& reader, std::string_view name, int rank,
                                    const char* shape) {
  const AnyTensor* tensor = reader.Input(name);
  if (tensor != nullptr && tensor->rank != rank) {
    Fail(ErrorCode::kShape, "{} has rank {}; expected {} ({})", {name, tensor->rank, rank, shape});
  }
  return reader.FloatTensor(name);
}

TensorView<const float> ReadNeeded(const RequestReader& reader, std::string_view name, int rank,
                                   const char* shape) {
  if (reader.Input(name) == nullptr) {
    Fail(ErrorCode::kOption, "input {} is missing", {name});
  }
  return ReadLearned(reader, name, rank, shape);
}

}  // namespace

ExternalRequest ReadExternal(const RequestReader& reader) {
  ExternalRequest r;
  r.q = reader.RequiredTensor("q");
  r.memory_k = ReadNeeded(reader, "memory_k", 3, "[num_heads or 1, num_units, head_dim]");
  r.memory_v = ReadNeeded(reader, "memory_v", 3, "[num_heads or 1, num_units, head_dim_v]");
  r.options.scale = reader.Number("scale").value_or(r.options.scale);
  r.options.lengths = reader.Ints("key_lengths");
  const AnyTensor* lengths = reader.Input("key_lengths");
  if (lengths != nullptr && lengths->rank != 1) {
    Fail(ErrorCode::kShape, "key_lengths must have the shape [batch]");
  }
  return r;
}

SynthesizerRequest ReadSynthesizer(const RequestReader& reader) {
  SynthesizerRequest r;
  r.v = reader.RequiredTensor("v");
  r.scores = ReadLearned(reader, "synthetic_scores", 3, "[num_heads, max_len, max_len]");
  const bool dense = reader.Input("q") != nullptr || reader.Input("synthetic_keys") != nullptr ||
                     reader.Input("synthetic_bias") != nullptr;
  if (r.random() == dense) {
    Fail(ErrorCode::kOption,
         "synthetic_scores belongs to the random synthesizer, q with synthetic_keys to the dense "
         "one; give one of the two");
  }
  if (dense) {
    r.hidden = reader.RequiredTensor("q");
    r.weight = ReadNeeded(reader, "synthetic_keys", 3, "[num_heads or 1, max_len, head_dim]");
    r.row_bias = ReadLearned(reader, "synthetic_bias", 2, "[num_heads or 1, max_len]");
    // [heads, len] is [1, heads, 1, len].
    r.row_bias.shape = {1, r.row_bias.shape[2], 1, r.row_bias.shape[3]};
    r.row_bias.strides = {0, r.row_bias.strides[2], 0, r.row_bias.strides[3]};
  }
  const Extents shape =
      dense ? r.hidden.shape : Extents{r.v.shape[0], r.scores.shape[1], r.v.shape[2], 0};
  r.rest.q.shape = shape;
  r.rest.k.shape = r.v.shape;  // as many keys as values
  ReadExactOptions(reader, r.rest);
  return r;
}

std::vector<OutputSpec> PlanExternal(const RequestReader& reader) {
  const ExternalRequest r = ReadExternal(reader);
  const ExternalProblem p = ValidateExternal(r.q, r.memory_k, r.memory_v, r.options, {});
  AttentionRequest inner;
  inner.q = StoredTensor(r.q);
  inner.k = StoredTensor(p.memory_k);
  inner.v = StoredTensor(p.memory_v);
  inner.options = p.over_units;
  inner.return_weights = reader.Flag("return_weights");
  return PlanAttention(inner);
}

void RunExternal(const RequestReader& reader, std::span<const NamedTensor> outputs,
                 ThreadPool* pool) {
  const ExternalRequest r = ReadExternal(reader);
  AttentionOutputs out;
  out.output = OutputView(outputs, "output");
  if (reader.Flag("return_weights")) out.weights = OutputView(outputs, "weights");
  ExternalAttention(r.q, r.memory_k, r.memory_v, r.options, out, pool);
}

SynthesizerProblem ValidateSynthesizer(const SynthesizerRequest& r) {
  const AttentionOptions options = OptionsOf(r.rest);
  return r.random() ? ValidateRandomSynthesizer(r.scores, r.v, r.v.shape[2], options)
                    : ValidateDenseSynthesizer(r.hidden, r.weight, r.row_bias, r.v, options);
}

AttentionRequest AttentionOf(const SynthesizerRequest& r) {
  const SynthesizerProblem p = ValidateSynthesizer(r);
  AttentionRequest inner = r.rest;
  inner.q = StoredTensor(p.q);
  inner.k = StoredTensor(p.k);
  inner.v = StoredTensor(p.v);
  inner.options = p.options;
  return inner;
}

std::vector<OutputSpec> PlanSynthesizer(const RequestReader& reader) {
  return PlanAttention(AttentionOf(ReadSynthesizer(reader)));
}

void RunSynthesizer(const RequestReader& reader, std::span<const NamedTensor> outputs,
                    ThreadPool* pool) {
  const SynthesizerRequest r = ReadSynthesizer(reader);
  AttentionOutputs out;
  out.output = OutputView(outputs, "output");
  if (r.rest.return_lse) out.lse = OutputView(outputs, "lse");
  if (r.rest.return_weights) out.weights = OutputView(outputs, "weights");
  if (r.random()) {
    RandomSynthesizer(r.scores, r.v, OptionsOf(r.rest), out, pool);
  } else {
    DenseSynthesizer(r.hidden, r.weight, r.row_bias, r.v, OptionsOf(r.rest), out, pool);
  }
}

}  // namespace heed
