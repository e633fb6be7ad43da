// Attention-free transformer after validation. Plain data, no SIMD.
#ifndef HEED_SRC_COMPOSE_ATTENTION_FREE_PROBLEM_H_
#define HEED_SRC_COMPOSE_ATTENTION_FREE_PROBLEM_H_

#include <optional>

#include "heed/attention_free.h"
#include "src/exact/problem.h"
#include "src/request_reader.h"

namespace heed {

struct AttentionFreeProblem {
  TensorView<const float> q, k, v;
  AttentionProblem pairs;  // its bias and keep rules
  std::optional<int64_t> local;
  TensorView<float> output;
};

struct AttentionFreeRequest {
  TensorView<const float> q, k, v;
  AttentionFreeOptions options;
};
AttentionFreeRequest ReadAttentionFree(const RequestReader& reader);

// Checks everything but the output. Throws Error.
AttentionFreeProblem ValidateAttentionFree(const TensorView<const float>& q,
                                           const TensorView<const float>& k,
                                           const TensorView<const float>& v,
                                           const AttentionFreeOptions& options);

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_ATTENTION_FREE_PROBLEM_H_
