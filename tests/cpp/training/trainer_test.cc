// Training that learns, and training that fails.
#include "heed/training/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "random.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;
using training::AdamWOptions;
using training::Matrix;
using training::ModelPosition;
using training::StepResult;
using training::TokenBatch;
using training::Trainer;
using training::Transformer;
using training::TransformerOptions;

constexpr int32_t kVocabulary = 12;
constexpr int64_t kHalf = 8, kLen = 2 * kHalf - 1;

// Random tokens, then the same once more: from the second half on the next token is what followed
// last time. What stands before cannot be known, and is ignored.
struct CopyTask {
  std::vector<int32_t> tokens, targets;

  CopyTask(int64_t batch, Random& random) {
    for (int64_t b = 0; b < batch; ++b) {
      int32_t half[kHalf];
      for (int32_t& token : half) {
        token = static_cast<int32_t>(random.Integer(0, kVocabulary - 1));
      }
      for (int64_t i = 0; i < kLen; ++i) {
        tokens.push_back(half[i % kHalf]);
        targets.push_back(i + 1 < kHalf ? -1 : half[(i + 1) % kHalf]);
      }
    }
  }
};

TransformerOptions CopyConfig(const char* mechanism) {
  TransformerOptions config;
  config.vocabulary = kVocabulary;
  config.embed_dim = 32;
  config.num_heads = 4;
  config.mechanism = mechanism;
  config.seed = 1;
  return config;
}

double Accuracy(Transformer& model) {
  Random random(99);
  const CopyTask task(64, random);
  const Matrix& logits = model.Forward({64, task.tokens});
  int64_t right = 0, counted = 0;
  for (int64_t i = 0; i < logits.rows(); ++i) {
    const int32_t target = task.targets[static_cast<size_t>(i)];
    if (target < 0) continue;
    const float* row = logits.Row(i);
    right += std::max_element(row, row + kVocabulary) - row == target ? 1 : 0;
    ++counted;
  }
  return static_cast<double>(right) / static_cast<double>(counted);
}

double TrainedAccuracy(const char* mechanism, int steps) {
  Transformer model(CopyConfig(mechanism));
  AdamWOptions options;
  options.schedule = {.learning_rate = 5e-3, .warmup_steps = 20, .total_steps = steps};
  Trainer trainer(model, options);
  Random random(7);
  for (int step = 0; step < steps; ++step) {
    const CopyTask task(32, random);
    trainer.Step({32, task.tokens}, task.targets);
  }
  return Accuracy(model);
}

TEST(Trainer, LearnsToCopy) { EXPECT_GE(TrainedAccuracy("scaled_dot_product", 400), 0.97); }

// An average sees no contents, so that nothing can be copied: the task is no gift.
TEST(Trainer, DoesNotLearnToCopyWithoutScores) { EXPECT_LE(TrainedAccuracy("average", 400), 0.5); }

// Tiny steps leave the weights nearly as they are: what differs is what is dropped.
TEST(Trainer, DrawsAnewInEachStep) {
  const auto losses = [](double dropout_p) {
    TransformerOptions config = CopyConfig("scaled_dot_product");
    if (dropout_p > 0) config.params = {{"dropout_p", dropout_p}};
    Transformer model(config);
    AdamWOptions options;
    options.schedule = {.learning_rate = 1e-12};
    Trainer trainer(model, options);
    Random random(7);
    const CopyTask task(4, random);
    std::vector<double> found;
    for (int step = 0; step < 3; ++step) {
      found.push_back(trainer.Step({4, task.tokens}, task.targets).loss);
    }
    return found;
  };
  const std::vector<double> whole = losses(0), dropped = losses(0.5);
  EXPECT_NEAR(whole[0], whole[2], 1e-6);
  EXPECT_GT(std::abs(dropped[0] - dropped[1]), 1e-4);
  EXPECT_GT(std::abs(dropped[1] - dropped[2]), 1e-4);
  EXPECT_EQ(dropped, losses(0.5));
}

TEST(Trainer, ReportsWhatAStepDid) {
  Transformer model(CopyConfig("scaled_dot_product"));
  AdamWOptions options;
  options.schedule = {.learning_rate = 1e-3, .warmup_steps = 2};
  Trainer trainer(model, options);
  Random random(7);
  const CopyTask task(2, random);
  const StepResult first = trainer.Step({2, task.tokens}, task.targets);
  EXPECT_EQ(first.step, 1);
  EXPECT_EQ(first.counted, 2 * kHalf);
  EXPECT_NEAR(first.loss, std::log(kVocabulary), 1.5);
  EXPECT_GT(first.gradient_norm, 0);
  EXPECT_DOUBLE_EQ(first.learning_rate, 5e-4);
  EXPECT_FALSE(first.diverged);
  EXPECT_DOUBLE_EQ(trainer.Step({2, task.tokens}, task.targets).learning_rate, 1e-3);
}

TEST(Trainer, RefusesTargetsBeforeTheModelGoesForward) {
  Transformer model(CopyConfig("scaled_dot_product"));
  Trainer trainer(model, {});
  const std::vector<int32_t> first = {1, 2, 3}, targets = {1, 2, kVocabulary};
  model.Forward({1, first});
  std::vector<float> before(4 * 3 * 3), after(before.size());
  const auto weights = [&](std::vector<float>& to) {
    model.Weights(Transformer::Heads::kSelf, 0, Contiguous(to.data(), 1, 4, 3, 3));
  };
  weights(before);
  try {
    trainer.Step({1, std::vector<int32_t>{3, 2, 1}}, targets);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("targets[2] = 12"));
  }
  weights(after);
  EXPECT_EQ(after, before);
}

// Momentum and decay alone would move the weights.
TEST(Trainer, ChangesNothingWhereNoTargetCounts) {
  Transformer model(CopyConfig("scaled_dot_product")), other(CopyConfig("scaled_dot_product"));
  AdamWOptions options;
  options.schedule = {.learning_rate = 1e-2, .warmup_steps = 5};
  Trainer trainer(model, options), expected(other, options);
  Random random(7);
  const CopyTask task(2, random);
  const std::vector<int32_t> tokens = {1, 2}, ignored = {-1, -1};
  EXPECT_EQ(trainer.Step({1, tokens}, ignored).step, 0);
  trainer.Step({2, task.tokens}, task.targets);
  expected.Step({2, task.tokens}, task.targets);
  const StepResult nothing = trainer.Step({1, tokens}, ignored);
  EXPECT_EQ(nothing.step, 1);
  EXPECT_EQ(nothing.counted, 0);
  EXPECT_EQ(nothing.loss, 0);
  EXPECT_FALSE(nothing.diverged);
  EXPECT_TRUE(model.Save() == other.Save());
  const StepResult next = trainer.Step({2, task.tokens}, task.targets);
  EXPECT_EQ(next.step, 2);
  EXPECT_EQ(next.learning_rate, expected.Step({2, task.tokens}, task.targets).learning_rate);
  EXPECT_TRUE(model.Save() == other.Save());
}

TEST(Trainer, StopsAndKeepsTheWeightsWhereALossIsNotFinite) {
  Transformer model(CopyConfig("scaled_dot_product"));
  Trainer trainer(model, {});
  Random random(7);
  const CopyTask task(2, random);
  trainer.Step({2, task.tokens}, task.targets);
  model.parameters().Find("lm_head.weight")->value[0] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<uint8_t> before = model.Save();
  const StepResult result = trainer.Step({2, task.tokens}, task.targets);
  EXPECT_TRUE(result.diverged);
  EXPECT_EQ(result.step, 1);
  EXPECT_TRUE(std::isnan(result.loss));
  EXPECT_TRUE(trainer.diverged());
  EXPECT_EQ(trainer.steps(), 1);
  EXPECT_TRUE(model.Save() == before);
  EXPECT_THROW(trainer.Step({2, task.tokens}, task.targets), Error);
}

// Tiny factors times huge ones: logits of an ordinary size, and gradients beyond float32.
TEST(Trainer, StopsWhereAGradientIsNotFinite) {
  Transformer model(CopyConfig("scaled_dot_product"));
  Trainer trainer(model, {});
  for (float& x : model.parameters().Find("model.norm.weight")->value) x = 1e-39f;
  std::vector<float>& output = model.parameters().Find("lm_head.weight")->value;
  for (size_t n = 0; n < output.size(); ++n) output[n] = n / 32 % 2 == 0 ? 3e38f : -3e38f;
  Random random(7);
  CopyTask task(1, random);
  std::fill(task.targets.begin(), task.targets.end() - 1, -1);
  const std::vector<uint8_t> before = model.Save();
  const StepResult result = trainer.Step({1, task.tokens}, task.targets);
  EXPECT_TRUE(std::isfinite(result.loss));
  EXPECT_FALSE(std::isfinite(result.gradient_norm));
  EXPECT_TRUE(result.diverged);
  EXPECT_TRUE(model.Save() == before);
}

TEST(Trainer, ChangesNothingWhereABatchDoesNotFit) {
  Transformer model(CopyConfig("scaled_dot_product"));
  Trainer trainer(model, {});
  const std::vector<int32_t> tokens = {0, 1, 2, 3}, beyond = {0, 1, 2, kVocabulary}, few = {0};
  const std::vector<uint8_t> before = model.Save();
  const auto refuse = [&](const std::vector<int32_t>& ids, const std::vector<int32_t>& targets,
                          const std::string& words) {
    try {
      trainer.Step({1, ids}, targets);
      ADD_FAILURE() << "expected: " << words;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  };
  const std::string last = "[3] = " + std::to_string(kVocabulary);
  refuse(tokens, beyond, "targets" + last);
  refuse(tokens, few, "targets has 1 ids; expected one for each of 4 tokens");
  refuse(beyond, tokens, "tokens" + last);
  EXPECT_TRUE(model.Save() == before);
  EXPECT_FALSE(trainer.diverged());
  EXPECT_EQ(trainer.Step({1, tokens}, tokens).step, 1);
}

}  // namespace
}  // namespace heed::testing
