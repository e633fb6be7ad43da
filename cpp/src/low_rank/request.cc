#include "src/low_rank/request.h"

#include "src/exact/request.h"
#include "src/low_rank/problem.h"
#include "src/message.h"

namespace heed {

LowRankRequest ReadLowRank(const RequestReader& reader) {
  const AnyTensor* lengths = reader.Input("key_lengths");
  if (lengths != nullptr && lengths->rank != 1) {
    Fail(ErrorCode::kShape, "key_lengths must have the shape [batch]");
  }
  return {reader.RequiredTensor("q"), reader.RequiredTensor("k"),    reader.RequiredTensor("v"),
          reader.Ints("key_lengths"), reader.Flag("return_weights"), reader.Flag("return_lse")};
}

namespace {

// The results of attention over keys and values of these shapes.
std::vector<OutputSpec> PlanOver(const LowRankRequest& r, const Extents& k, const Extents& v,
                                 const AttentionOptions& options) {
  AttentionRequest inner;
  inner.q = StoredTensor(r.q);
  inner.k = StoredTensor(Planned(k));
  inner.v = StoredTensor(Planned(v));
  inner.options = options;
  inner.return_weights = r.return_weights;
  inner.return_lse = r.return_lse;
  return PlanAttention(inner);
}

}  // namespace

AttentionOutputs FindLowRankOutputs(std::span<const NamedTensor> outputs) {
  AttentionOutputs out;
  out.output = OutputView(outputs, "output");
  out.weights = OutputView(outputs, "weights");
  out.lse = OutputView(outputs, "lse");
  return out;
}

NystromOutputs FindNystromOutputs(std::span<const NamedTensor> outputs) {
  return {OutputView(outputs, "output"), OutputView(outputs, "weights"),
          OutputView(outputs, "residual")};
}

// Linformer.

LinformerOptions ReadLinformer(const RequestReader& reader, const LowRankRequest& r) {
  LinformerOptions o;
  o.key_projection = reader.FloatTensor("key_projection");
  o.value_projection = reader.FloatTensor("value_projection");
  o.scale = reader.Number("scale");
  o.key_lengths = r.key_lengths;
  return o;
}

std::vector<OutputSpec> PlanLinformer(const RequestReader& reader) {
  const LowRankRequest r = ReadLowRank(reader);
  const LinformerProblem p = ValidateLinformer(r.q, r.k, r.v, ReadLinformer(reader, r));
  return PlanOver(r, p.k, p.v, p.over_projected);
}

void RunLinformer(const RequestReader& reader, std::span<const NamedTensor> outputs,
                  ThreadPool* pool) {
  const LowRankRequest r = ReadLowRank(reader);
  Linformer(r.q, r.k, r.v, ReadLinformer(reader, r), FindLowRankOutputs(outputs), pool);
}

// Efficient attention.

std::vector<OutputSpec> PlanEfficient(const RequestReader& reader) {
  const LowRankRequest r = ReadLowRank(reader);
  return PlanOver(r, r.k.shape, r.v.shape, ValidateEfficient(r.q, r.k, r.v, {r.key_lengths}));
}

void RunEfficient(const RequestReader& reader, std::span<const NamedTensor> outputs,
                  ThreadPool* pool) {
  const LowRankRequest r = ReadLowRank(reader);
  EfficientAttention(r.q, r.k, r.v, {r.key_lengths}, FindLowRankOutputs(outputs), pool);
}

// Nystrom attention.

NystromOptions ReadNystrom(const RequestReader& reader, const LowRankRequest& r) {
  NystromOptions o;
  o.num_landmarks = reader.Count("num_landmarks");
  o.iterations = reader.Count("iterations").value_or(o.iterations);
  o.scale = reader.Number("scale");
  o.key_lengths = r.key_lengths;
  o.depthwise_conv = reader.FloatTensor("depthwise_conv");
  return o;
}

std::vector<OutputSpec> PlanNystrom(const RequestReader& reader) {
  const LowRankRequest r = ReadLowRank(reader);
  const NystromProblem p = ValidateNystrom(r.q, r.k, r.v, ReadNystrom(reader, r));
  std::vector<OutputSpec> specs = PlanOver(r, r.k.shape, r.v.shape, p.tokens.options);
  if (reader.Flag("return_residual")) {
    specs.push_back({"residual", 2, {p.tokens.batch, p.tokens.num_heads}});
  }
  return specs;
}

void RunNystrom(const RequestReader& reader, std::span<const NamedTensor> outputs,
                ThreadPool* pool) {
  const LowRankRequest r = ReadLowRank(reader);
  NystromAttention(r.q, r.k, r.v, ReadNystrom(reader, r), FindNystromOutputs(outputs), pool);
}

// Memory-compressed attention.

MemoryCompressedOptions ReadMemoryCompressed(const RequestReader& reader, const LowRankRequest& r) {
  MemoryCompressedOptions o;
  o.compression = reader.Count("compression");
  o.key_conv = reader.FloatTensor("key_conv");
  o.value_conv = reader.FloatTensor("value_conv");
  o.key_conv_bias = reader.Floats("key_conv_bias");
  o.value_conv_bias = reader.Floats("value_conv_bias");
  o.key_lengths = r.key_lengths;
  AttentionRequest rest;
  rest.q = StoredTensor(r.q);
  rest.k = StoredTensor(r.k);
  rest.v = StoredTensor(r.v);
  ReadExactOptions(reader, rest);
  o.scale = rest.options.scale;
  o.sinks = rest.options.sinks;
  o.causal = rest.options.causal;
  o.query_offset = rest.options.query_offset;
  return o;
}

std::vector<OutputSpec> PlanMemoryCompressed(const RequestReader& reader) {
  const LowRankRequest r = ReadLowRank(reader);
  const MemoryCompressedProblem p =
      ValidateMemoryCompressed(r.q, r.k, r.v, ReadMemoryCompressed(reader, r));
  return PlanOver(r, p.k, p.v, p.over_blocks);
}

void RunMemoryCompressed(const RequestReader& reader, std::span<const NamedTensor> outputs,
                         ThreadPool* pool) {
  const LowRankRequest r = ReadLowRank(reader);
  MemoryCompressedAttention(r.q, r.k, r.v, ReadMemoryCompressed(reader, r),
                            FindLowRankOutputs(outputs), pool);
}

}  // namespace heed
