// Gradients of the low-rank family behind requests, and what its rows share.
#include "src/low_rank/backward.h"

#include <algorithm>

#include "heed/registry.h"
#include "src/gradient/backward_views.h"
#include "src/gradient/request.h"
#include "src/low_rank/problem.h"
#include "src/low_rank/request.h"
#include "src/message.h"

namespace heed {

OwnedTensor Transposed(const TensorView<const float>& rows, ThreadPool& pool) {
  OwnedTensor turned({rows.shape[0], rows.shape[1], rows.shape[3], rows.shape[2]});
  ForEachRow(turned.view().shape, pool, [&](int64_t b, int64_t h, int64_t c) {
    for (int64_t r = 0; r < rows.shape[2]; ++r) turned.view()(b, h, c, r) = rows(b, h, r, c);
  });
  return turned;
}

void ClearRows(const TensorView<float>& to, int64_t b, int64_t first) {
  if (!to.has_value() || DryRun::Current() != nullptr) return;
  for (int64_t h = 0; h < to.shape[1]; ++h) {
    for (int64_t j = first; j < to.shape[2]; ++j) {
      for (int64_t d = 0; d < to.shape[3]; ++d) to(b, h, j, d) = 0;
    }
  }
}

namespace {

RequestReader ReaderOf(const Request& request) {
  return RequestReader(*FindMechanism(request.id), request);
}

LowRankRequest ReadDifferentiable(const RequestReader& reader) {
  const LowRankRequest r = ReadLowRank(reader);
  if (r.return_weights || (reader.Takes("depthwise_conv") && reader.Flag("return_residual"))) {
    Fail(ErrorCode::kUnsupported,
         "return_weights and return_residual give results without a gradient");
  }
  return r;
}

// [batch, num_heads, q_len] as [batch, num_heads, q_len, 1].
TensorView<float> LseOf(std::span<const NamedTensor> tensors) {
  return ViewOf(FindTensor(tensors, "lse"), {0, 1, 2, -1});
}
TensorView<float> OutputOf(std::span<const NamedTensor> tensors) {
  return LeadingViewOf(FindTensor(tensors, "output"));
}

// Whether the rows of the exact loop are those of the output.
bool HasRows(const Request& request) {
  return request.id == "linformer" || request.id == "memory_compressed";
}

void Validate(const Request& request, const RequestReader& reader, const LowRankRequest& r) {
  if (request.id == "linformer") {
    ValidateLinformer(r.q, r.k, r.v, ReadLinformer(reader, r));
  } else if (request.id == "memory_compressed") {
    ValidateMemoryCompressed(r.q, r.k, r.v, ReadMemoryCompressed(reader, r));
  } else if (request.id == "nystrom") {
    ValidateNystrom(r.q, r.k, r.v, ReadNystrom(reader, r));
  } else {
    ValidateEfficient(r.q, r.k, r.v, {r.key_lengths});
  }
}

LowRankGradients ReadGradients(std::span<const NamedTensor> gradients) {
  const auto view = [&](const char* name) { return LeadingViewOf(FindTensor(gradients, name)); };
  const auto vector = [&](const char* name) { return VectorOf(FindTensor(gradients, name)); };
  LowRankGradients to;
  to.d_q = view("q");
  to.d_k = view("k");
  to.d_v = view("v");
  to.d_key_projection = view("key_projection");
  to.d_value_projection = view("value_projection");
  to.d_key_conv = view("key_conv");
  to.d_value_conv = view("value_conv");
  to.d_key_conv_bias = vector("key_conv_bias");
  to.d_value_conv_bias = vector("value_conv_bias");
  to.d_sinks = vector("sinks");
  to.d_depthwise_conv = view("depthwise_conv");
  return to;
}

BackwardPlan PlanLowRankBackward(const Request& request) {
  const RequestReader reader = ReaderOf(request);
  const LowRankRequest r = ReadDifferentiable(reader);
  Validate(request, reader, r);
  const Extents& q = r.q.shape;
  BackwardPlan plan;
  plan.results.push_back({"output", 4, {q[0], q[1], q[2], r.v.shape[3]}});
  if (HasRows(request)) plan.results.push_back({"lse", 3, {q[0], q[1], q[2], 0}});
  plan.gradients = GradientsOf(
      request, {"q", "k", "v", "key_projection", "value_projection", "key_conv", "value_conv",
                "key_conv_bias", "value_conv_bias", "sinks", "depthwise_conv"});
  return plan;
}

void RunLowRankForward(const Request& request, std::span<const NamedTensor> results,
                       ThreadPool* pool) {
  CheckAreFloats(results, {});
  const RequestReader reader = ReaderOf(request);
  const LowRankRequest r = ReadDifferentiable(reader);
  AttentionOutputs out;
  out.output = OutputOf(results);
  out.lse = LseOf(results);
  if (request.id == "linformer") {
    Linformer(r.q, r.k, r.v, ReadLinformer(reader, r), out, pool);
  } else if (request.id == "memory_compressed") {
    MemoryCompressedAttention(r.q, r.k, r.v, ReadMemoryCompressed(reader, r), out, pool);
  } else if (request.id == "nystrom") {
    NystromAttention(r.q, r.k, r.v, ReadNystrom(reader, r), {.output = out.output}, pool);
  } else {
    EfficientAttention(r.q, r.k, r.v, {r.key_lengths}, out, pool);
  }
}

void RunLowRankBackward(const Request& request, std::span<const NamedTensor> results,
                        std::span<const NamedTensor> d_results,
                        std::span<const NamedTensor> gradients, ThreadPool* pool) {
  CheckAreFloats(results, gradients);
  CheckAreFloats(d_results, {});
  CheckAreRows(gradients);
  const RequestReader reader = ReaderOf(request);
  const LowRankRequest r = ReadDifferentiable(reader);
  const LowRankArriving arriving = {OutputOf(results), LseOf(results), OutputOf(d_results),
                                    LseOf(d_results)};
  const LowRankGradients to = ReadGradients(gradients);
  ThreadPool& threads = PoolOrDefault(pool);
  if (request.id == "linformer") {
    LinformerBackward(r.q, r.k, r.v, ReadLinformer(reader, r), arriving, to, threads);
  } else if (request.id == "memory_compressed") {
    MemoryCompressedBackward(r.q, r.k, r.v, ReadMemoryCompressed(reader, r), arriving, to, threads);
  } else if (request.id == "nystrom") {
    NystromBackward(r.q, r.k, r.v, ReadNystrom(reader, r), arriving, to, threads);
  } else {
    EfficientBackward(r.q, r.k, r.v, {r.key_lengths}, arriving, to, threads);
  }
}

}  // namespace

const GradientVerbs kLowRankGradient = {PlanLowRankBackward, RunLowRankForward, RunLowRankBackward};

}  // namespace heed
