// Training steps of which each thread computes a part of the batch from end to end.
#ifndef HEED_LANGUAGE_MODEL_SHARDED_TRAINER_H_
#define HEED_LANGUAGE_MODEL_SHARDED_TRAINER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "heed/thread_pool.h"
#include "heed/training.h"
#include "language_model/token_windows.h"

namespace heed::language_model {

// The same step as training::Trainer's, in another order: the batch is cut into shards, each with a
// model of its own, and threads meet once a step, when the gradients are added. Threads that share
// every product of so small a model would meet some hundred times a step. The number of shards, not
// that of threads, decides about the bits.
class ShardedTrainer {
 public:
  // Throws Error(kRange) for num_shards < 1, and what models and optimisers throw.
  ShardedTrainer(const training::TransformerOptions& config, const training::AdamWOptions& options,
                 int num_shards);

  // One step. Throws Error(kShape) for a batch that the shards do not divide, Error(kUnsupported)
  // after a step that diverged; such a step updates nothing, nor does one that counts no target.
  training::StepResult Step(const WindowBatch& batch, ThreadPool& pool);

  // The model after the last step.
  training::Transformer& model() { return *shards_.front().model; }

 private:
  struct Shard {
    std::unique_ptr<training::Transformer> model;
    training::Matrix d_logits{};
    training::Loss loss{};
  };

  // Forward and backward of its part of the batch; gradients stay in the shard's model.
  void Run(const WindowBatch& batch, size_t index);
  // Into the first model, the mean over all targets that count.
  void AverageGradients(int64_t counted);
  // From the first model to all others.
  void ShareValues();

  std::vector<Shard> shards_;
  training::AdamW adam_;
  // What a shard calls runs on the shard's own thread.
  std::unique_ptr<ThreadPool> alone_ = MakeThreadPool(1);
  bool diverged_ = false;
};

}  // namespace heed::language_model

#endif  // HEED_LANGUAGE_MODEL_SHARDED_TRAINER_H_
