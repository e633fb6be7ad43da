// The boundary of the device path: what it lacks is refused by name before anything else looks at
// the options, since the checks of some of those would read device memory.
#include <algorithm>
#include <limits>

#include "src/cuda/plan.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed::cuda {
namespace {

constexpr int64_t kMaxDim = 256;
constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

void RefuseWhen(bool given, const char* option) {
  if (given) {
    Fail(ErrorCode::kUnsupported, "{} is not offered on the GPU yet; use heed::Attention()",
         {option});
  }
}

const char* NormalizeText(Normalize normalize) {
  switch (normalize) {
    case Normalize::kKernelSum:
      return "normalize = kernel_sum";
    case Normalize::kHard:
      return "normalize = hard";
    case Normalize::kTopK:
      return "normalize = top_k";
    case Normalize::kSparsemax:
      return "normalize = sparsemax";
    case Normalize::kEntmax15:
      return "normalize = entmax15";
    case Normalize::kStickBreaking:
      return "normalize = stick_breaking";
    case Normalize::kCope:
      return "normalize = cope";
    default:
      return nullptr;  // offered
  }
}

void RefuseOptions(const AttentionOptions& o) {
  RefuseWhen(o.score != Score::kDot, "a score other than dot");
  const char* normalize = NormalizeText(o.normalize);
  RefuseWhen(normalize != nullptr, normalize);
  RefuseWhen(o.relative_keys.has_value(), "relative_keys");
  RefuseWhen(o.relative_queries.has_value(), "relative_queries");
  RefuseWhen(o.relative_values.has_value(), "relative_values");
  RefuseWhen(o.content_bias.has_value(), "content_bias");
  RefuseWhen(o.position_bias.has_value(), "position_bias");
  RefuseWhen(o.distance_bias.has_value(), "distance_bias");
  RefuseWhen(o.bucket_bias.has_value(), "bucket_bias");
  RefuseWhen(o.log_gates.has_value(), "log_gates");
  RefuseWhen(o.cope_table.has_value(), "cope_table");
  RefuseWhen(!o.patterns.empty(), "a keep pattern");
  RefuseWhen(static_cast<bool>(o.score_mod), "score_mod");
  RefuseWhen(static_cast<bool>(o.keep_mod), "keep_mod");
  RefuseWhen(static_cast<bool>(o.prob_mod), "prob_mod");
}

void RefuseOutputs(const AttentionOutputs& outputs) {
  RefuseWhen(outputs.weights.has_value(), "weights");
  RefuseWhen(outputs.scores.has_value(), "scores");
  RefuseWhen(outputs.running_max.has_value(), "running_max");
  RefuseWhen(outputs.running_sum.has_value(), "running_sum");
  RefuseWhen(outputs.rescale.has_value(), "rescale");
}

void CheckTypes(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                const AttentionOptions& o) {
  if (k.dtype != q.dtype || v.dtype != q.dtype) {
    Fail(ErrorCode::kUnsupported,
         "q is {}, k is {}, v is {}; on the GPU the three have the same element type",
         {DTypeName(q.dtype), DTypeName(k.dtype), DTypeName(v.dtype)});
  }
  const bool unbounded = o.normalize == Normalize::kRelu || o.normalize == Normalize::kReluSquared;
  if (unbounded && q.dtype == DType::kFloat16) {
    Fail(ErrorCode::kUnsupported,
         "normalize = {} with float16: weights without a bound overflow it; use bfloat16 or "
         "float32",
         {o.normalize == Normalize::kRelu ? "relu" : "relu_squared"});
  }
}

void CheckSizes(const AttentionProblem& p) {
  for (const auto& [name, dim] :
       {std::pair{"head_dim", p.head_dim}, std::pair{"head_dim_v", p.head_dim_v}}) {
    if (dim > kMaxDim) {
      Fail(ErrorCode::kUnsupported, "{} = {}; on the GPU it is at most {}", {name, dim, kMaxDim});
    }
  }
  for (const auto& [name, count] : {std::pair{"q_len", p.q_len}, std::pair{"kv_len", p.kv_len},
                                    std::pair{"batch * num_heads", p.batch * p.num_heads}}) {
    if (count > kMaxCount / 256) {
      Fail(ErrorCode::kUnsupported, "{} = {}; on the GPU it is at most {}",
           {name, count, kMaxCount / 256});
    }
  }
}

void CheckArrays(const AttentionOptions& o, const DeviceArrays& arrays) {
  if (arrays.key_lengths != nullptr && !o.key_lengths.empty()) {
    Fail(ErrorCode::kOption, "key_lengths is given as a host array and as a device array");
  }
  if ((arrays.query_documents == nullptr) != (arrays.key_documents == nullptr)) {
    Fail(ErrorCode::kOption, "query_documents and key_documents go together");
  }
  if (arrays.key_documents != nullptr && !o.key_documents.empty()) {
    Fail(ErrorCode::kOption, "documents are given as host arrays and as device arrays");
  }
}

// The pages as Attention() would see them: [batch, num_kv_heads, kv_len, width]. Strides of 0, as
// nothing but the extents is read of this view.
StoredTensor ViewOfPages(const StoredTensor& pages, int64_t batch, int64_t kv_len) {
  return {pages.data, pages.dtype, {batch, pages.shape[1], kv_len, pages.shape[3]}, {0, 0, 0, 1}};
}

void CheckPages(const PagedKeys& keys) {
  CheckStored("k_pages", keys.k_pages);
  CheckStored("v_pages", keys.v_pages);
  const Extents& k = keys.k_pages.shape;
  const Extents& v = keys.v_pages.shape;
  CheckShape("v_pages", v, {k[0], k[1], k[2], v[3]},
             "[num_pages, num_kv_heads, page_size, head_dim_v], the first three as in k_pages");
  if (k[2] < 1) Fail(ErrorCode::kRange, "page_size = {}; it must be at least 1", {k[2]});
  if (keys.table == nullptr) Fail(ErrorCode::kOption, "table is missing");
  if (keys.table_width < 0 || keys.table_width > kMaxCount / k[2] || k[0] > kMaxCount) {
    Fail(ErrorCode::kRange, "table_width = {} pages of {} tokens; there are {} pages",
         {keys.table_width, k[2], k[0]});
  }
}

}  // namespace

DeviceProblem ValidateForDevice(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                                const AttentionOptions& options, const AttentionOutputs& outputs,
                                const DeviceArrays& arrays) {
  RefuseOptions(options);
  RefuseOutputs(outputs);
  CheckArrays(options, arrays);
  DeviceProblem call;
  call.arrays = arrays;
  call.problem = ValidateAttention(q, k, v, options, outputs);
  CheckTypes(q, k, v, options);
  CheckSizes(call.problem);
  return call;
}

DeviceProblem ValidateForDevice(const StoredTensor& q, const PagedKeys& keys,
                                const AttentionOptions& options, const AttentionOutputs& outputs,
                                const DeviceArrays& arrays) {
  CheckPages(keys);
  const int64_t kv_len = keys.table_width * keys.k_pages.shape[2];
  DeviceProblem call =
      ValidateForDevice(q, ViewOfPages(keys.k_pages, q.shape[0], kv_len),
                        ViewOfPages(keys.v_pages, q.shape[0], kv_len), options, outputs, arrays);
  CheckNoAlias("output", SpanOf(call.problem.output), "k_pages", SpanOf(keys.k_pages));
  CheckNoAlias("output", SpanOf(call.problem.output), "v_pages", SpanOf(keys.v_pages));
  call.table = keys.table;
  call.table_width = keys.table_width;
  call.k_pages = keys.k_pages;
  call.v_pages = keys.v_pages;
  return call;
}

}  // namespace heed::cuda
