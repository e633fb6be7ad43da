// AdamW with warm-up, cosine decay and clipping by the norm of all gradients.
#ifndef HEED_TRAINING_ADAMW_H_
#define HEED_TRAINING_ADAMW_H_

#include <cstdint>
#include <vector>

#include "heed/thread_pool.h"
#include "heed/training/parameter.h"

namespace heed::training {

// The rate of step t, which counts from 0:
//
//   t < warmup_steps    learning_rate (t + 1) / warmup_steps
//   up to total_steps   least + (learning_rate - least) (1 + cos(pi u)) / 2, u from 0 to 1
//   beyond              least = min_learning_rate
//   total_steps = 0     learning_rate after the warm-up: no decay
//
// Loshchilov & Hutter 2016, arXiv:1608.03983, one period.
struct Schedule {
  double learning_rate = 1e-3;   // > 0 and finite
  double min_learning_rate = 0;  // in [0, learning_rate]
  int64_t warmup_steps = 0;      // >= 0
  int64_t total_steps = 0;       // 0 = no decay, else > warmup_steps

  double At(int64_t step) const;
};

struct AdamWOptions {
  Schedule schedule{};
  double beta1 = 0.9;     // in [0, 1)
  double beta2 = 0.999;   // in [0, 1)
  double epsilon = 1e-8;  // > 0
  // Of parameters with more than one extent; norms and biases do not decay. >= 0.
  double weight_decay = 0.01;
  // Gradients whose norm, over all parameters, is larger are scaled to it. > 0; infinity = off.
  double max_gradient_norm = 1;
};

// The Euclidean norm of all gradients together, in float64. NaN or infinite if any of them is.
// Same bits for any number of threads. Throws Error(kMemory).
double GradientNorm(const ParameterSet& parameters, ThreadPool* pool = nullptr);

// One step, with g the clipped gradient, t from 1 and r = schedule.At(t - 1):
//
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//   x = x - r (weight_decay x + (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon))
//
// Source   Loshchilov & Hutter 2017, arXiv:1711.05101, algorithm 2, with PyTorch's convention that
//          the rate multiplies the decay.
class AdamW {
 public:
  // Of the parameters that the set holds now. Allocates m and v. Throws Error(kRange | kMemory).
  AdamW(ParameterSet& parameters, const AdamWOptions& options);

  // Updates all values from their gradients, whose norm the caller has computed, and clears
  // nothing. Throws Error(kRange) for a norm that is not finite, Error(kMemory): nothing is changed
  // then.
  void Step(double gradient_norm, ThreadPool* pool = nullptr);

  int64_t steps() const { return steps_; }
  // The rate of the next step.
  double learning_rate() const { return options_.schedule.At(steps_); }
  const AdamWOptions& options() const { return options_; }

 private:
  struct Moments {
    Parameter* parameter;
    std::vector<float> first, second;
  };

  AdamWOptions options_;
  int64_t steps_ = 0;
  std::vector<Moments> moments_;
};

}  // namespace heed::training

#endif  // HEED_TRAINING_ADAMW_H_
