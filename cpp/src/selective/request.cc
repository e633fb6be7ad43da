#include "src/selective/request.h"

#include <initializer_list>

#include "src/message.h"
#include "src/selective/selective_problem.h"

namespace heed {
namespace {

std::vector<OutputSpec> PlanResults(const RequestReader& reader, const Extents& output,
                                    int64_t kv_len) {
  const auto [batch, heads, len, width] = output;
  std::vector<OutputSpec> specs;
  specs.push_back({"output", 4, output});
  if (reader.Flag("return_lse")) specs.push_back({"lse", 3, {batch, heads, len, 0}});
  if (reader.Flag("return_weights")) {
    specs.push_back({"weights", 4, {batch, heads, len, kv_len}});
  }
  return specs;
}

AttentionOutputs ResultViews(const RequestReader& reader, std::span<const NamedTensor> outputs) {
  AttentionOutputs out;
  out.output = OutputView(outputs, "output");
  if (reader.Flag("return_lse")) out.lse = OutputView(outputs, "lse");
  if (reader.Flag("return_weights")) out.weights = OutputView(outputs, "weights");
  return out;
}

// Parameters that an input already says.
void RefuseParams(const RequestReader& reader, const char* input,
                  std::initializer_list<const char*> params) {
  for (const char* name : params) {
    if (reader.Param(name) == nullptr) continue;
    Fail(ErrorCode::kOption, "{} is what the input {} says; give one of them", {name, input});
  }
}

// [batch], or the refusal of anything else.
std::span<const int32_t> ReadLengths(const RequestReader& reader) {
  const AnyTensor* lengths = reader.Input("key_lengths");
  if (lengths != nullptr && lengths->rank != 1) {
    Fail(ErrorCode::kShape, "key_lengths has rank {}; here it is one length per batch entry",
         {lengths->rank});
  }
  return reader.Ints("key_lengths");
}

}  // namespace

// Mixture of block attention.

BlockMixtureOptions ReadBlockMixture(const RequestReader& reader, const ComposedRequest& r) {
  BlockMixtureOptions o;
  o.attention = OptionsOf(r.rest);
  o.key_block = reader.Count("key_block").value_or(o.key_block);
  o.top_blocks = reader.Count("top_blocks").value_or(o.top_blocks);
  return o;
}

std::vector<OutputSpec> PlanBlockMixture(const RequestReader& reader) {
  const ComposedRequest r = ReadComposed(reader);
  ValidateBlockMixture(ReadBlockMixture(reader, r), r.q.shape[0]);
  return PlanAttention(r.rest);
}

void RunBlockMixture(const RequestReader& reader, std::span<const NamedTensor> outputs,
                     ThreadPool* pool) {
  const ComposedRequest r = ReadComposed(reader);
  BlockMixtureAttention(r.q, r.k, r.v, ReadBlockMixture(reader, r), FloatOutputs(r, outputs), pool);
}

// Reformer.

ReformerRequest ReadReformer(const RequestReader& reader) {
  ReformerRequest r = {reader.RequiredTensor("q"), reader.RequiredTensor("v"), {}};
  ReformerOptions& o = r.options;
  o.scale = reader.Number("scale");
  o.causal = reader.Flag("causal");
  o.key_lengths = ReadLengths(reader);
  o.hash_chunk = reader.Count("hash_chunk").value_or(o.hash_chunk);
  o.hash_rounds = reader.Count("hash_rounds").value_or(o.hash_rounds);
  const auto buckets = reader.Count("hash_buckets");
  if (buckets) {
    CheckCount("hash_buckets", *buckets);
    o.hash_buckets = *buckets;
  }
  o.seed = reader.Seed("hash_seed").value_or(0);
  const AnyTensor* rotations = reader.Input("rotations");
  o.rotations = reader.FloatTensor("rotations");
  if (rotations == nullptr) return r;
  RefuseParams(reader, "rotations", {"hash_rounds", "hash_buckets", "hash_seed"});
  if (rotations->rank != 3) {
    Fail(ErrorCode::kShape,
         "rotations has rank {}; expected 3 ([hash_rounds, head_dim, half_buckets])",
         {rotations->rank});
  }
  o.hash_rounds = o.rotations.shape[1];
  o.hash_buckets = 2 * o.rotations.shape[3];
  CheckCount("hash_buckets (twice the columns of rotations)", o.hash_buckets);
  return r;
}

std::vector<OutputSpec> PlanReformer(const RequestReader& reader) {
  const ReformerRequest r = ReadReformer(reader);
  ValidateReformer(r.q, r.v, r.options);
  const auto [batch, heads, len, dim] = r.q.shape;
  return PlanResults(reader, {batch, heads, len, r.v.shape[3]}, len);
}

void RunReformer(const RequestReader& reader, std::span<const NamedTensor> outputs,
                 ThreadPool* pool) {
  const ReformerRequest r = ReadReformer(reader);
  ReformerAttention(r.q, r.v, r.options, ResultViews(reader, outputs), pool);
}

// Native sparse attention.

namespace {

// [compress_block], or one row per KV head.
TensorView<const float> ReadWeight(const RequestReader& reader, const char* name) {
  const AnyTensor* weight = reader.Input(name);
  if (weight != nullptr && weight->rank != 1 && weight->rank != 2) {
    Fail(ErrorCode::kShape, "{} has rank {}; expected 1 or 2 ([num_kv_heads, compress_block])",
         {name, weight->rank});
  }
  return reader.FloatTensor(name);
}

TensorView<const float> ReadRows(const RequestReader& reader, const char* name) {
  return reader.Input(name) == nullptr ? TensorView<const float>() : reader.RequiredTensor(name);
}

}  // namespace

NativeSparseRequest ReadNativeSparse(const RequestReader& reader) {
  NativeSparseRequest r = {reader.RequiredTensor("q"),
                           reader.RequiredTensor("k"),
                           reader.RequiredTensor("v"),
                           reader.RequiredTensor("branch_gates"),
                           {}};
  NativeSparseOptions& o = r.options;
  o.scale = reader.Number("scale");
  o.query_offset = ReadQueryOffset(reader);
  o.key_lengths = ReadLengths(reader);
  const auto read = [&](const char* name, int64_t& value) {
    value = reader.Count(name).value_or(value);
  };
  read("compress_block", o.compress_block);
  read("compress_stride", o.compress_stride);
  read("key_block", o.key_block);
  read("top_blocks", o.top_blocks);
  read("first_blocks", o.first_blocks);
  read("local_blocks", o.local_blocks);
  read("window_len", o.window_len);
  o.compress_k_weight = ReadWeight(reader, "compress_k_weight");
  o.compress_v_weight = ReadWeight(reader, "compress_v_weight");
  o.compress_k = ReadRows(reader, "compress_k");
  o.compress_v = ReadRows(reader, "compress_v");
  o.window_k = ReadRows(reader, "window_k");
  o.window_v = ReadRows(reader, "window_v");
  return r;
}

std::vector<OutputSpec> PlanNativeSparse(const RequestReader& reader) {
  const NativeSparseRequest r = ReadNativeSparse(reader);
  ValidateNativeSparse(r.q, r.k, r.v, r.gates, r.options);
  const auto [batch, heads, len, dim] = r.q.shape;
  return {{"output", 4, {batch, heads, len, r.v.shape[3]}}};
}

void RunNativeSparse(const RequestReader& reader, std::span<const NamedTensor> outputs,
                     ThreadPool* pool) {
  const NativeSparseRequest r = ReadNativeSparse(reader);
  NativeSparseAttention(r.q, r.k, r.v, r.gates, r.options, OutputView(outputs, "output"), pool);
}

// Indexed attention.

namespace {

// A tensor of rank 3 with another extent of 1 at `axis`.
TensorView<const float> ReadRankThree(const RequestReader& reader, const char* name, size_t axis) {
  const AnyTensor* tensor = reader.Input(name);
  if (tensor != nullptr && tensor->rank != 3) {
    Fail(ErrorCode::kShape, "{} has rank {}; expected 3", {name, tensor->rank});
  }
  TensorView<const float> view = reader.FloatTensor(name);
  for (size_t n = 0; n < axis; ++n) {
    view.shape[n] = view.shape[n + 1];
    view.strides[n] = view.strides[n + 1];
  }
  view.shape[axis] = 1;
  view.strides[axis] = 1;
  return view;
}

}  // namespace

IndexTensors ReadIndex(const RequestReader& reader) {
  return {reader.RequiredTensor("index_q"), ReadRankThree(reader, "index_k", 1),
          ReadRankThree(reader, "index_weights", 3)};
}

IndexedOptions ReadIndexed(const RequestReader& reader, const ComposedRequest& r) {
  IndexedOptions o;
  o.attention = OptionsOf(r.rest);
  o.top_k = reader.Count("top_k").value_or(o.top_k);
  return o;
}

std::vector<OutputSpec> PlanIndexed(const RequestReader& reader) {
  const ComposedRequest r = ReadComposed(reader);
  const std::vector<OutputSpec> specs = PlanAttention(r.rest);
  ValidateIndexed(r.q, r.k, ReadIndex(reader), ReadIndexed(reader, r));
  return specs;
}

void RunIndexed(const RequestReader& reader, std::span<const NamedTensor> outputs,
                ThreadPool* pool) {
  const ComposedRequest r = ReadComposed(reader);
  IndexedAttention(r.q, r.k, r.v, ReadIndex(reader), ReadIndexed(reader, r),
                   FloatOutputs(r, outputs), pool);
}

// Routing attention.

RoutingRequest ReadRouting(const RequestReader& reader) {
  RoutingRequest r = {
      reader.RequiredTensor("q"), reader.RequiredTensor("k"), reader.RequiredTensor("v"), {}};
  RoutingOptions& o = r.options;
  o.scale = reader.Number("scale");
  o.causal = reader.Flag("causal");
  o.query_offset = ReadQueryOffset(reader);
  o.key_lengths = ReadLengths(reader);
  o.num_clusters = reader.Count("num_clusters").value_or(o.num_clusters);
  if (const auto count = reader.Count("cluster_tokens")) {
    CheckCount("cluster_tokens", *count);
    o.cluster_tokens = *count;
  }
  o.seed = reader.Seed("centroid_seed").value_or(0);
  const AnyTensor* centroids = reader.Input("centroids");
  o.centroids = reader.FloatTensor("centroids");
  if (centroids == nullptr) return r;
  RefuseParams(reader, "centroids", {"num_clusters", "centroid_seed"});
  if (centroids->rank != 3) {
    Fail(ErrorCode::kShape,
         "centroids has rank {}; expected 3 ([num_heads, num_clusters, head_dim])",
         {centroids->rank});
  }
  o.num_clusters = o.centroids.shape[2];
  return r;
}

std::vector<OutputSpec> PlanRouting(const RequestReader& reader) {
  const RoutingRequest r = ReadRouting(reader);
  ValidateRouting(r.q, r.k, r.v, r.options);
  const auto [batch, heads, len, dim] = r.q.shape;
  return PlanResults(reader, {batch, heads, len, r.v.shape[3]}, r.k.shape[2]);
}

void RunRouting(const RequestReader& reader, std::span<const NamedTensor> outputs,
                ThreadPool* pool) {
  const RoutingRequest r = ReadRouting(reader);
  RoutingAttention(r.q, r.k, r.v, r.options, ResultViews(reader, outputs), pool);
}

// Sinkhorn attention.

SinkhornRequest ReadSinkhorn(const RequestReader& reader) {
  SinkhornRequest r = {
      reader.RequiredTensor("q"), reader.RequiredTensor("k"), reader.RequiredTensor("v"), {}};
  SinkhornOptions& o = r.options;
  o.scale = reader.Number("scale");
  o.causal = reader.Flag("causal");
  o.key_lengths = ReadLengths(reader);
  o.key_block = reader.Count("key_block").value_or(o.key_block);
  o.sort_iterations = reader.Count("sort_iterations").value_or(o.sort_iterations);
  o.sort_temperature = reader.Number("sort_temperature").value_or(o.sort_temperature);
  const AnyTensor* logits = reader.Input("sort_logits");
  if (logits != nullptr) o.sort_logits = reader.RequiredTensor("sort_logits");
  return r;
}

std::vector<OutputSpec> PlanSinkhorn(const RequestReader& reader) {
  const SinkhornRequest r = ReadSinkhorn(reader);
  ValidateSinkhorn(r.q, r.k, r.v, r.options);
  const auto [batch, heads, len, dim] = r.q.shape;
  return {{"output", 4, {batch, heads, len, r.v.shape[3]}}};
}

void RunSinkhorn(const RequestReader& reader, std::span<const NamedTensor> outputs,
                 ThreadPool* pool) {
  const SinkhornRequest r = ReadSinkhorn(reader);
  SinkhornAttention(r.q, r.k, r.v, r.options, OutputView(outputs, "output"), pool);
}

}  // namespace heed
