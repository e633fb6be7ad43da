// What backward of the recurrent family works on: the caller's arguments after validation.
#ifndef HEED_SRC_RECURRENT_BACKWARD_PROBLEM_H_
#define HEED_SRC_RECURRENT_BACKWARD_PROBLEM_H_

#include <span>

#include "heed/gradient.h"
#include "src/recurrent/problem.h"

namespace heed {

// The gradient of a factor of tokens, [batch, num_kv_heads, kv_len, channels]; extents of 1 that
// broadcast have stride 0, and cells that several tokens or channels share are summed.
struct FactorGradient {
  TensorView<float> to;
  bool is_shared = false;         // some cell belongs to several
  int64_t len = 0, channels = 0;  // cells of one KV head

  bool has_value() const { return to.has_value(); }
  // Of a token of a KV head; in its sums where cells are shared.
  void Add(std::span<double> sums, const TokenPlace& at, int64_t c, double value) const {
    if (!has_value()) return;
    if (is_shared) {
      sums[static_cast<size_t>(Cell(at.t, c))] += value;
    } else {
      to(at.b, at.head, at.t, c) = static_cast<float>(value);
    }
  }
  // Of the cells of one KV head.
  int64_t Cell(int64_t t, int64_t c) const {
    return (to.strides[2] == 0 ? 0 : t * channels) + (to.strides[3] == 0 ? 0 : c);
  }
};

struct RecurrentBackwardProblem {
  RecurrentProblem forward;
  TensorView<const float> d_out;
  RecurrentGradients gradients;
  FactorGradient d_log_decay, d_beta;
};

// Throws Error(kUnsupported), naming what has no gradient.
void CheckIsDifferentiable(const RecurrentOptions& options);

// Throws Error.
RecurrentBackwardProblem ValidateRecurrentBackward(const TensorView<const float>& q,
                                                   const TensorView<const float>& k,
                                                   const TensorView<const float>& v,
                                                   const TensorView<const float>& d_out,
                                                   const RecurrentOptions& options,
                                                   const RecurrentGradients& gradients);

// The rules that go back token by token instead of chunk by chunk.
void RunErasingBackward(const RecurrentBackwardProblem& g, ThreadPool& pool);
void RunLevelsBackward(const RecurrentBackwardProblem& g, ThreadPool& pool);
void RunLearningBackward(const RecurrentBackwardProblem& g, ThreadPool& pool);
// Random features, as features of other calls.
void RunRandomBackward(const RecurrentBackwardProblem& g, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_RECURRENT_BACKWARD_PROBLEM_H_
