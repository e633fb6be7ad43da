#include "language_model/sharded_trainer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <span>
#include <string>

#include "heed/error.h"

namespace heed::language_model {
namespace {

int CheckedShards(int num_shards) {
  if (num_shards >= 1) return num_shards;
  throw Error(ErrorCode::kRange,
              "num_shards = " + std::to_string(num_shards) + "; it must be at least 1");
}

}  // namespace

ShardedTrainer::ShardedTrainer(const training::TransformerOptions& config,
                               const training::AdamWOptions& options, int num_shards)
    : shards_([&] {
        std::vector<Shard> shards(static_cast<size_t>(CheckedShards(num_shards)));
        for (Shard& shard : shards) shard.model = std::make_unique<training::Transformer>(config);
        return shards;
      }()),
      adam_(model().parameters(), options) {}

void ShardedTrainer::Run(const WindowBatch& batch, size_t index) {
  Shard& shard = shards_[index];
  const size_t count = batch.tokens.size() / shards_.size();
  const auto part = [&](const std::vector<int32_t>& ids) {
    return std::span(ids).subspan(index * count, count);
  };
  const training::TokenBatch own = {
      .batch = batch.batch / static_cast<int64_t>(shards_.size()),
      .tokens = part(batch.tokens),
      .dropout_draw = static_cast<uint64_t>(adam_.steps()) * shards_.size() + index,
  };
  shard.model->parameters().ZeroGradients();
  const training::Matrix& logits = shard.model->Forward(own, alone_.get());
  const auto targets = part(batch.targets);
  shard.loss = training::CrossEntropy(logits, targets, shard.d_logits, alone_.get());
  shard.model->Backward(shard.d_logits, alone_.get());
}

void ShardedTrainer::AverageGradients(int64_t counted) {
  const auto share = [&](const Shard& shard) {
    return static_cast<float>(static_cast<double>(shard.loss.counted) /
                              static_cast<double>(counted));
  };
  for (training::Parameter& parameter : model().parameters()) {
    for (float& gradient : parameter.gradient) gradient *= share(shards_.front());
    for (size_t i = 1; i < shards_.size(); ++i) {
      const auto& other = shards_[i].model->parameters().Find(parameter.name)->gradient;
      const float weight = share(shards_[i]);
      for (size_t at = 0; at < other.size(); ++at) parameter.gradient[at] += weight * other[at];
    }
  }
}

void ShardedTrainer::ShareValues() {
  for (const training::Parameter& parameter : model().parameters()) {
    for (size_t i = 1; i < shards_.size(); ++i) {
      shards_[i].model->parameters().Find(parameter.name)->value = parameter.value;
    }
  }
}

training::StepResult ShardedTrainer::Step(const WindowBatch& batch, ThreadPool& pool) {
  const int64_t count = static_cast<int64_t>(shards_.size());
  if (diverged_) throw Error(ErrorCode::kUnsupported, "the training has diverged");
  if (batch.batch < 1 || batch.batch % count != 0) {
    throw Error(ErrorCode::kShape, "a batch of " + std::to_string(batch.batch) +
                                       " windows; expected a multiple of " + std::to_string(count));
  }
  // Tasks must not throw.
  std::vector<std::exception_ptr> failures(shards_.size());
  pool.Run(count, [&](int64_t index, int /*worker*/) {
    const size_t at = static_cast<size_t>(index);
    try {
      Run(batch, at);
    } catch (...) {
      failures[at] = std::current_exception();
    }
  });
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  training::StepResult result;
  for (const Shard& shard : shards_) {
    result.counted += shard.loss.counted;
    result.loss += shard.loss.value * static_cast<double>(shard.loss.counted);
  }
  const int64_t counted = std::max<int64_t>(1, result.counted);
  result.loss /= static_cast<double>(counted);
  AverageGradients(counted);

  result.gradient_norm = training::GradientNorm(model().parameters(), alone_.get());
  result.learning_rate = adam_.learning_rate();
  diverged_ = !std::isfinite(result.loss) || !std::isfinite(result.gradient_norm);
  result.diverged = diverged_;
  if (!diverged_ && result.counted > 0) {
    adam_.Step(result.gradient_norm, alone_.get());
    ShareValues();
  }
  result.step = adam_.steps();
  return result;
}

}  // namespace heed::language_model
