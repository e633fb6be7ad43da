// Training steps that notice when they fail.
#ifndef HEED_TRAINING_TRAINER_H_
#define HEED_TRAINING_TRAINER_H_

#include <cstdint>
#include <span>

#include "heed/thread_pool.h"
#include "heed/training/adamw.h"
#include "heed/training/loss.h"
#include "heed/training/transformer.h"

namespace heed::training {

struct StepResult {
  int64_t step = 0;          // of this step, from 1; of the last one that updated, if this did not
  double loss = 0;           // before the update
  int64_t counted = 0;       // targets that were not ignored; 0: nothing was updated
  double gradient_norm = 0;  // before clipping; 0 where no target counts
  double learning_rate = 0;  // that the update took, or would have taken
  bool diverged = false;     // the loss or the norm was not finite: nothing was updated
};

// Forward, cross-entropy, backward and AdamW. Where the model has dropout, each step draws anew.
class Trainer {
 public:
  // The model must outlive it. Throws Error(kRange | kMemory).
  Trainer(Transformer& model, const AdamWOptions& options)
      : model_(model), adam_(model.parameters(), options) {}

  // One step. Targets: one a token, negative = ignored. A loss or a gradient norm that is not
  // finite ends the training: the result says so, weights and moments stay those of the step
  // before, and further calls throw Error(kUnsupported). A batch whose targets are all ignored is
  // no step: its result has counted = 0, and weights, moments, rate and the number of steps stay as
  // they are. Errors as Transformer::Forward() and CrossEntropy(), and Error(kMemory) at any time;
  // nothing is updated then, and the same step may be tried again. Same bits for any number of
  // threads.
  StepResult Step(const TokenBatch& batch, std::span<const int32_t> targets,
                  ThreadPool* pool = nullptr);

  bool diverged() const { return diverged_; }
  int64_t steps() const { return adam_.steps(); }
  const AdamW& optimizer() const { return adam_; }

 private:
  Transformer& model_;
  AdamW adam_;
  Matrix d_logits_;
  bool diverged_ = false;
};

}  // namespace heed::training

#endif  // HEED_TRAINING_TRAINER_H_
