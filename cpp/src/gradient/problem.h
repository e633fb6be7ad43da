// What the backward loop works on, after validation. Plain data, no SIMD.
#ifndef HEED_SRC_GRADIENT_PROBLEM_H_
#define HEED_SRC_GRADIENT_PROBLEM_H_

#include "heed/gradient.h"
#include "src/exact/problem.h"

namespace heed {

struct GradientProblem {
  AttentionProblem attention;  // without outputs
  StoredTensor out;            // absent where the normaliser has no lse
  TensorView<const float> lse;
  StoredTensor d_out;
  AttentionGradients gradients;  // d_bias has stride 0 where bias broadcasts
};

// Throws Error(kUnsupported), by name, for options that have no gradient.
void CheckIsDifferentiable(const AttentionOptions& options);

// Checks everything. Throws Error.
GradientProblem ValidateGradient(const StoredTensor& q, const StoredTensor& k,
                                 const StoredTensor& v, const StoredTensor& out,
                                 const TensorView<const float>& lse, const StoredTensor& d_out,
                                 const AttentionOptions& options,
                                 const AttentionGradients& gradients);

}  // namespace heed

#endif  // HEED_SRC_GRADIENT_PROBLEM_H_
