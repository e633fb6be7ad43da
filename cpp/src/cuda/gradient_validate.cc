// The boundary of AttentionBackward() on the device.
#include <algorithm>
#include <utility>

#include "src/cuda/gradient_plan.h"
#include "src/cuda/refuse.h"
#include "src/message.h"

namespace heed::cuda {
namespace {

constexpr char kInstead[] = "AttentionBackward";

// The options that the kernel of whole rows takes forward, and nothing takes back.
void RefuseOptions(const AttentionOptions& o) {
  RefuseWhen(static_cast<bool>(o.score_mod), "score_mod", kInstead);
  RefuseWhen(static_cast<bool>(o.keep_mod), "keep_mod", kInstead);
  RefuseWhen(static_cast<bool>(o.prob_mod), "prob_mod", kInstead);
  RefuseWhen(o.score != Score::kDot, "score other than dot", kInstead);
  RefuseWhen(o.normalize != Normalize::kSoftmax && o.normalize != Normalize::kSoftmax1,
             "normalize other than softmax and softmax1", kInstead);
  for (const auto& [tensor, name] :
       {std::pair{&o.relative_keys, "relative_keys"},
        std::pair{&o.relative_queries, "relative_queries"},
        std::pair{&o.relative_values, "relative_values"},
        std::pair{&o.content_bias, "content_bias"}, std::pair{&o.position_bias, "position_bias"},
        std::pair{&o.distance_bias, "distance_bias"}, std::pair{&o.bucket_bias, "bucket_bias"},
        std::pair{&o.log_gates, "log_gates"}}) {
    RefuseWhen(tensor->has_value(), name, kInstead);
  }
}

void CheckTypes(const GradientProblem& g) {
  const AttentionProblem& p = g.attention;
  const DType type = p.q.dtype;
  if (p.k.dtype == type && p.v.dtype == type && g.d_out.dtype == type) return;
  Fail(ErrorCode::kUnsupported,
       "q, k, v and d_out of element types {}, {}, {} and {}; gradients on the GPU take one type",
       {DTypeName(type), DTypeName(p.k.dtype), DTypeName(p.v.dtype), DTypeName(g.d_out.dtype)});
}

void CheckWidths(const AttentionProblem& p) {
  const int64_t width = std::max(p.head_dim, p.head_dim_v);
  if (width <= kMaxTileDim) return;
  Fail(ErrorCode::kUnsupported, "head_dim or head_dim_v = {}; gradients on the GPU take at most {}",
       {width, kMaxTileDim});
}

}  // namespace

DeviceGradient ValidateGradientForDevice(const StoredTensor& q, const StoredTensor& k,
                                         const StoredTensor& v, const StoredTensor& out,
                                         const TensorView<const float>& lse,
                                         const StoredTensor& d_out, const AttentionOptions& options,
                                         const AttentionGradients& gradients,
                                         const DeviceArrays& arrays) {
  RefuseOptions(options);
  CheckArrays(options, arrays);
  DeviceGradient call;
  call.arrays = arrays;
  call.problem.attention = ValidateInputsForDevice(q, k, v, options, false);
  CheckScales(call.problem.attention, arrays);
  call.problem.out = out;
  call.problem.lse = lse;
  call.problem.d_out = d_out;
  call.problem.gradients = gradients;
  CompleteGradient(call.problem, options);
  CheckWidths(call.problem.attention);
  CheckTypes(call.problem);
  return call;
}

}  // namespace heed::cuda
