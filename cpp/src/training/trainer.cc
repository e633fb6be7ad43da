#include "heed/training/trainer.h"

#include <cmath>

#include "src/memory_errors.h"
#include "src/message.h"
#include "src/training/checks.h"

namespace heed::training {

StepResult Trainer::Step(const TokenBatch& batch, std::span<const int32_t> targets,
                         ThreadPool* pool) {
  return WithMemoryErrors("a training step", [&] {
    if (diverged_) {
      Fail(ErrorCode::kUnsupported,
           "training has stopped: after step {} a loss or a gradient was not finite", {steps()});
    }
    if (targets.size() != batch.tokens.size()) {
      Fail(ErrorCode::kShape, "targets has {} ids; expected one for each of {} tokens",
           {targets.size(), batch.tokens.size()});
    }
    // Before the model goes forward: what is refused changes nothing.
    CheckTargets(targets, static_cast<int64_t>(targets.size()), model_.options().vocabulary);
    StepResult result = {.step = steps(), .learning_rate = adam_.learning_rate()};
    TokenBatch drawn = batch;
    drawn.dropout_draw = static_cast<uint64_t>(steps());
    const Loss loss = CrossEntropy(model_.Forward(drawn, pool), targets, d_logits_, pool);
    result.loss = loss.value;
    result.counted = loss.counted;
    // Momentum and decay would move the weights all the same.
    if (loss.counted == 0) return result;
    diverged_ = !std::isfinite(loss.value);
    if (!diverged_) {
      model_.parameters().ZeroGradients();
      model_.Backward(d_logits_, pool);
      result.gradient_norm = GradientNorm(model_.parameters(), pool);
      diverged_ = !std::isfinite(result.gradient_norm);
    }
    result.diverged = diverged_;
    if (diverged_) return result;
    adam_.Step(result.gradient_norm, pool);
    result.step = steps();
    return result;
  });
}

}  // namespace heed::training
