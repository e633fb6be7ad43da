// The boundary of the device path: what it lacks is refused by name before anything else looks at
// the options, since the checks of some of those would read device memory.
#include <algorithm>
#include <limits>

#include "src/cuda/plan.h"
#include "src/cuda/refuse.h"
#include "src/cuda/row_plan.h"
#include "src/message.h"
#include "src/output_spans.h"
#include "src/view_checks.h"

namespace heed::cuda {
namespace {

constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();
constexpr char kInstead[] = "Attention";

void RefuseOptions(const AttentionOptions& o) {
  RefuseWhen(static_cast<bool>(o.score_mod), "score_mod", kInstead);
  RefuseWhen(static_cast<bool>(o.keep_mod), "keep_mod", kInstead);
  RefuseWhen(static_cast<bool>(o.prob_mod), "prob_mod", kInstead);
}

void RefuseOutputs(const AttentionOutputs& outputs) {
  RefuseWhen(outputs.running_max.has_value(), "running_max", kInstead);
  RefuseWhen(outputs.running_sum.has_value(), "running_sum", kInstead);
  RefuseWhen(outputs.rescale.has_value(), "rescale", kInstead);
}

void CheckSizes(const AttentionProblem& p) {
  for (const auto& [name, dim] :
       {std::pair{"head_dim", p.head_dim}, std::pair{"head_dim of k", p.head_dim_k},
        std::pair{"head_dim_v", p.head_dim_v}, std::pair{"hidden_dim", p.hidden_dim}}) {
    RefuseAbove(kMaxRowDim, name, dim);
  }
  for (const auto& [name, count] : {std::pair{"q_len", p.q_len}, std::pair{"kv_len", p.kv_len},
                                    std::pair{"batch * num_heads", p.batch * p.num_heads}}) {
    RefuseAbove(kMaxDeviceCount, name, count);
  }
}

// The pages as Attention() would see them: [batch, num_kv_heads, kv_len, width]. Strides of 0, as
// nothing but the extents is read of this view.
StoredTensor ViewOfPages(const StoredTensor& pages, DType dtype, int64_t batch, int64_t kv_len) {
  return {pages.data, dtype, {batch, pages.shape[1], kv_len, pages.shape[3]}, {0, 0, 0, 1}};
}

bool HasScales(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kFloat8E4M3; }

// The pages of one kind and, where they are of 8 bits, their scales.
void CheckPool(const char* name, StoredTensor pages, const char* scales_name,
               const TensorView<const float>& scales) {
  const bool needed = HasScales(pages.dtype);
  if (needed != scales.has_value()) {
    Fail(ErrorCode::kOption, "{} is {}: {} has element type {}; int8 and float8_e4m3 have scales",
         {scales_name, needed ? "missing" : "given", name, DTypeName(pages.dtype)});
  }
  if (needed) {
    pages.dtype = DType::kFloat32;  // for the checks of a layout
    CheckInput(scales_name, scales);
    CheckShape(scales_name, scales.shape, {pages.shape[0], pages.shape[1], pages.shape[2], 1},
               "[num_pages, num_kv_heads, page_size, 1]");
  }
  CheckStored(name, pages);
}

// What a kernel multiplies pages as.
DType ElementOf(const StoredTensor& pages, DType query) {
  return HasScales(pages.dtype) ? query : pages.dtype;
}

// A tensor as the checks of the CPU, which knows no float8, take it.
StoredTensor Checkable(const StoredTensor& t) {
  const bool is_float8 = t.dtype == DType::kFloat8E4M3;
  return {t.data, is_float8 ? DType::kBFloat16 : t.dtype, t.shape, t.strides};
}

void CheckPages(const PagedKeys& keys) {
  CheckPool("k_pages", keys.k_pages, "k_scales", keys.k_scales);
  CheckPool("v_pages", keys.v_pages, "v_scales", keys.v_scales);
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

void CheckArrays(const AttentionOptions& o, const DeviceArrays& arrays) {
  if (o.dropout.p > 0 && o.dropout.origin != Extents{}) {
    Fail(ErrorCode::kUnsupported,
         "dropout origin = {} on a GPU, where dropout counts from the first pair of the call",
         {o.dropout.origin});
  }
  if (!o.patterns.empty() && arrays.key_lengths != nullptr &&
      o.query_offset.kind() == QueryOffset::Kind::kEnd) {
    Fail(ErrorCode::kUnsupported,
         "keep patterns with query_offset \"end\" and key_lengths on the device: patterns are "
         "spread out on the host, which does not know where the queries stand; give positions");
  }
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

void CheckScales(const AttentionProblem& p, const DeviceArrays& arrays) {
  struct Scaled {
    const char* name;
    DType dtype;
    const char* scales_name;
    const TensorView<const float>& scales;
  };
  for (const Scaled& s : {Scaled{"q", p.q.dtype, "q_scales", arrays.q_scales},
                          Scaled{"k", p.k.dtype, "k_scales", arrays.k_scales},
                          Scaled{"v", p.v.dtype, "v_scales", arrays.v_scales}}) {
    if (!s.scales.has_value()) continue;
    if (s.dtype != DType::kFloat8E4M3) {
      Fail(ErrorCode::kOption, "{} is given: {} has element type {}; float8_e4m3 has scales",
           {s.scales_name, s.name, DTypeName(s.dtype)});
    }
    CheckInput(s.scales_name, s.scales);
    CheckShape(s.scales_name, s.scales.shape, {p.batch, p.num_kv_heads, 1, 1},
               "[batch, num_kv_heads, 1, 1]");
  }
}

AttentionProblem ValidateInputsForDevice(const StoredTensor& q, const StoredTensor& k,
                                         const StoredTensor& v, const AttentionOptions& options,
                                         bool wants_lse) {
  RefuseOptions(options);
  AttentionProblem p;
  p.q = q;
  p.k = k;
  p.v = v;
  p.options = options;
  p.tensors_on_device = true;
  CompleteInputs(p, wants_lse);
  CheckSizes(p);
  return p;
}

DeviceProblem ValidateForDevice(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                                const AttentionOptions& options, const AttentionOutputs& outputs,
                                const DeviceArrays& arrays) {
  RefuseOutputs(outputs);
  CheckArrays(options, arrays);
  DeviceProblem call;
  call.arrays = arrays;
  call.problem = ValidateInputsForDevice(Checkable(q), Checkable(k), Checkable(v), options,
                                         outputs.lse.has_value());
  call.problem.q = q, call.problem.k = k, call.problem.v = v;
  CheckScales(call.problem, arrays);
  CompleteOutputs(call.problem, outputs);
  return call;
}

DeviceProblem ValidateForDevice(const StoredTensor& q, const PagedKeys& keys,
                                const AttentionOptions& options, const AttentionOutputs& outputs,
                                const DeviceArrays& arrays) {
  CheckPages(keys);
  if (q.dtype == DType::kFloat8E4M3) {
    Fail(ErrorCode::kUnsupported,
         "q has element type float8_e4m3; with pages it has 16 or 32 bits");
  }
  RefuseWhen(outputs.scores.has_value() && outputs.score_stage != ScoreStage::kBiased,
             "scores before the biases, which show keys beyond the lengths, of pages", kInstead);
  const int64_t kv_len = keys.table_width * keys.k_pages.shape[2];
  DeviceProblem call = ValidateForDevice(
      q, ViewOfPages(keys.k_pages, ElementOf(keys.k_pages, q.dtype), q.shape[0], kv_len),
      ViewOfPages(keys.v_pages, ElementOf(keys.v_pages, q.dtype), q.shape[0], kv_len), options,
      outputs, arrays);
  OutputSpans({{"output", call.problem.output},
               {"lse", outputs.lse},
               {"weights", outputs.weights},
               {"scores", outputs.scores}})
      .ApartFrom("k_pages", keys.k_pages)
      .ApartFrom("v_pages", keys.v_pages);
  call.table = keys.table;
  call.table_width = keys.table_width;
  call.k_pages = keys.k_pages;
  call.v_pages = keys.v_pages;
  call.k_scales = keys.k_scales;
  call.v_scales = keys.v_scales;
  return call;
}

}  // namespace heed::cuda
