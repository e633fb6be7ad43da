// The boundary of the attention-free transformer, and how it is read from a request.
#include <string>

#include "src/compose/attention_free_problem.h"
#include "src/compose/request.h"
#include "src/exact/request.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
AttentionFreeRequest ReadAttentionFree(const RequestReader& reader) {
  AttentionFreeRequest r;
  r.q = reader.RequiredTensor("q");
  r.k = reader.RequiredTensor("k");
  r.v = reader.RequiredTensor("v");
  AttentionRequest rest;
  rest.q = StoredTensor(r.q);
  rest.k = StoredTensor(r.k);
  rest.v = StoredTensor(r.v);
  ReadExactOptions(reader, rest);
  r.options.attention = rest.options;
  r.options.local_window = reader.Count("local_window");
  return r;
}

AttentionFreeProblem ValidateAttentionFree(const TensorView<const float>& q,
                                           const TensorView<const float>& k,
                                           const TensorView<const float>& v,
                                           const AttentionFreeOptions& options) {
  const AttentionOptions& o = options.attention;
  if (o.score != Score::kDot || o.normalize != Normalize::kSoftmax || o.scale || o.softcap ||
      !o.alibi_slopes.empty() || !o.sinks.empty() || o.score_mod || o.prob_mod || o.dropout.p > 0 ||
      HasRelativeScore(o) || o.relative_values.has_value() || o.distance_bias.has_value() ||
      o.bucket_bias.has_value() || o.log_gates.has_value()) {
    Fail(ErrorCode::kUnsupported,
         "scores: attention-free transformers have none; of the options bias and the keep rules "
         "apply");
  }
  if (v.shape[3] != k.shape[3]) {
    Fail(ErrorCode::kShape, "v has head_dim {}; expected {}: each channel of k weighs its v",
         {v.shape[3], k.shape[3]});
  }
  if (options.local_window && *options.local_window < 1) {
    Fail(ErrorCode::kRange, "local_window = {}; it must be >= 1", {*options.local_window});
  }
  AttentionFreeProblem p = {q, k, v, {}, options.local_window, {}};
  AttentionOptions pairs = o;
  pairs.scale = 1;  // a head_dim of 0 has no default
  p.pairs =
      ValidateAttentionInputs(StoredTensor(q), StoredTensor(k), StoredTensor(v), pairs, false);
  if (options.local_window && o.query_offset.kind() == QueryOffset::Kind::kUnset &&
      q.shape[2] != k.shape[2]) {
    Fail(ErrorCode::kOption,
         "query_offset is needed: q_len and kv_len differ and local_window depends on positions. "
         "Give 0 "
         "if query 0 stands at key 0, or \"end\" if the queries are the last tokens");
  }
  return p;
}

std::vector<OutputSpec> PlanAttentionFree(const RequestReader& reader) {
  const AttentionFreeRequest r = ReadAttentionFree(reader);
  ValidateAttentionFree(r.q, r.k, r.v, r.options);
  return {{"output", 4, r.q.shape}};
}

void RunAttentionFree(const RequestReader& reader, std::span<const NamedTensor> outputs,
                      ThreadPool* pool) {
  const AttentionFreeRequest r = ReadAttentionFree(reader);
  AttentionFree(r.q, r.k, r.v, r.options, OutputView(outputs, "output"), pool);
}

}  // namespace heed
