// Steps whose shards meet once are the steps of training::Trainer, and learn a text.
#include "language_model/sharded_trainer.h"

#include <cmath>
#include <limits>
#include <string_view>

#include "gtest/gtest.h"
#include "heed/error.h"

namespace heed::testing {
namespace {

using language_model::MeanLoss;
using language_model::ShardedTrainer;
using language_model::ShuffledWindows;
using language_model::WindowBatch;

// Letters as ids.
std::vector<int32_t> TextTokens() {
  constexpr std::string_view kVerse = "the cat sat on the mat and the dog sat on the log. ";
  std::vector<int32_t> tokens;
  for (int repeat = 0; repeat < 12; ++repeat) {
    for (const char letter : kVerse) tokens.push_back(letter & 31);
  }
  return tokens;
}

training::TransformerOptions LetterConfig() {
  training::TransformerOptions config;
  config.vocabulary = 32;
  config.embed_dim = 32;
  config.num_heads = 2;
  config.tied = true;
  config.seed = 7;
  return config;
}

training::AdamWOptions Steps(int64_t total) {
  training::AdamWOptions options;
  options.schedule = {.learning_rate = 5e-3, .warmup_steps = 2, .total_steps = total};
  return options;
}

// The weights after so many steps.
std::vector<uint8_t> Trained(int num_shards, int num_threads, int steps) {
  const std::vector<int32_t> tokens = TextTokens();
  ShardedTrainer trainer(LetterConfig(), Steps(steps + 1), num_shards);
  ShuffledWindows windows(tokens, 16, 1);
  WindowBatch batch;
  const auto pool = MakeThreadPool(num_threads);
  for (int step = 0; step < steps; ++step) {
    windows.Next(4, batch);
    trainer.Step(batch, *pool);
  }
  return trainer.model().Save();
}

TEST(ShardedTrainer, ThreadsChangeNoBit) { EXPECT_EQ(Trained(2, 1, 5), Trained(2, 3, 5)); }

TEST(ShardedTrainer, TakesTheStepsOfTrainer) {
  const std::vector<int32_t> tokens = TextTokens();
  training::Transformer model(LetterConfig());
  training::Trainer trainer(model, Steps(20));
  ShardedTrainer sharded(LetterConfig(), Steps(20), 4);
  ShuffledWindows windows(tokens, 16, 1);
  WindowBatch batch;
  const auto pool = MakeThreadPool(2);
  for (int step = 1; step <= 5; ++step) {
    windows.Next(8, batch);
    const training::StepResult one = trainer.Step(batch.view(), batch.targets, pool.get());
    const training::StepResult other = sharded.Step(batch, *pool);
    EXPECT_EQ(other.step, step);
    EXPECT_EQ(other.counted, one.counted);
    EXPECT_EQ(other.learning_rate, one.learning_rate);
    EXPECT_NEAR(other.loss, one.loss, 1e-4);
    EXPECT_NEAR(other.gradient_norm, one.gradient_norm, 1e-3 * one.gradient_norm);
  }
}

TEST(ShardedTrainer, LearnsATextInAFewSteps) {
  const std::vector<int32_t> tokens = TextTokens();
  constexpr int64_t kSteps = 60;
  ShardedTrainer trainer(LetterConfig(), Steps(kSteps), 2);
  ShuffledWindows windows(tokens, 32, 1);
  WindowBatch batch;
  const auto pool = MakeThreadPool(2);
  const double before = MeanLoss(trainer.model(), tokens, 32, 4);
  for (int64_t step = 0; step < kSteps; ++step) {
    windows.Next(4, batch);
    ASSERT_FALSE(trainer.Step(batch, *pool).diverged);
  }
  EXPECT_GT(before, 3);
  EXPECT_LT(MeanLoss(trainer.model(), tokens, 32, 4), before / 3);
}

TEST(ShardedTrainer, DivergenceUpdatesNothingAndIsTheEnd) {
  ShardedTrainer trainer(LetterConfig(), Steps(20), 2);
  const std::vector<int32_t> tokens = TextTokens();
  ShuffledWindows windows(tokens, 8, 1);
  WindowBatch batch;
  windows.Next(2, batch);
  const auto pool = MakeThreadPool(1);
  trainer.model().parameters().Find("model.norm.weight")->value[0] =
      std::numeric_limits<float>::infinity();
  const std::vector<uint8_t> before = trainer.model().Save();
  EXPECT_TRUE(trainer.Step(batch, *pool).diverged);
  EXPECT_EQ(trainer.model().Save(), before);
  EXPECT_THROW(trainer.Step(batch, *pool), Error);
}

TEST(ShardedTrainer, UpdatesNothingWhereNoTargetCounts) {
  ShardedTrainer trainer(LetterConfig(), Steps(20), 2);
  const auto pool = MakeThreadPool(1);
  trainer.Step({.batch = 2, .tokens = {1, 2}, .targets = {2, 3}}, *pool);
  const std::vector<uint8_t> before = trainer.model().Save();
  const training::StepResult result =
      trainer.Step({.batch = 2, .tokens = {1, 2}, .targets = {-1, -1}}, *pool);
  EXPECT_EQ(result.counted, 0);
  EXPECT_EQ(result.step, 1);
  EXPECT_EQ(trainer.model().Save(), before);
}

TEST(ShardedTrainer, RefusesWhatCannotBeShared) {
  EXPECT_THROW(ShardedTrainer(LetterConfig(), Steps(20), 0), Error);
  ShardedTrainer trainer(LetterConfig(), Steps(20), 2);
  const auto pool = MakeThreadPool(1);
  WindowBatch odd = {.batch = 3, .tokens = {1, 2, 3}, .targets = {2, 3, 4}};
  EXPECT_THROW(trainer.Step(odd, *pool), Error);
  WindowBatch unknown = {.batch = 2, .tokens = {1, 99}, .targets = {2, 3}};
  EXPECT_THROW(trainer.Step(unknown, *pool), Error);
}

}  // namespace
}  // namespace heed::testing
