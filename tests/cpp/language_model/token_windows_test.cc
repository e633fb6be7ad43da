// Texts as windows: every token in its turn, none twice, and losses over all of them.
#include "language_model/token_windows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/error.h"
#include "random.h"

namespace heed::testing {
namespace {

using language_model::MeanLoss;
using language_model::ShuffledWindows;
using language_model::WindowBatch;

std::vector<int32_t> Counted(int32_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

training::TransformerOptions SmallConfig(int64_t vocabulary) {
  training::TransformerOptions config;
  config.vocabulary = vocabulary;
  config.embed_dim = 16;
  config.num_heads = 2;
  config.tied = true;
  config.seed = 3;
  return config;
}

TEST(ShuffledWindows, TargetsAreTheNextTokens) {
  const std::vector<int32_t> tokens = Counted(1000);
  ShuffledWindows windows(tokens, 17, 1);
  WindowBatch batch;
  for (int step = 0; step < 40; ++step) {
    windows.Next(5, batch);
    ASSERT_EQ(batch.batch, 5);
    ASSERT_EQ(batch.tokens.size(), 5 * 17u);
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
      EXPECT_EQ(batch.targets[i], batch.tokens[i] + 1);
      if (i % 17 > 0) {
        EXPECT_EQ(batch.tokens[i], batch.tokens[i - 1] + 1);
      }
    }
  }
}

TEST(ShuffledWindows, AnEpochShowsNoTokenTwice) {
  // 100 tokens have 9 windows of 10 and a next token, or 8 where the epoch starts late.
  const std::vector<int32_t> tokens = Counted(100);
  ShuffledWindows windows(tokens, 10, 5);
  WindowBatch batch;
  std::map<int32_t, int> seen;
  windows.Next(8, batch);
  for (const int32_t token : batch.tokens) EXPECT_EQ(++seen[token], 1) << token;
  EXPECT_FALSE(std::is_sorted(batch.tokens.begin(), batch.tokens.end())) << "not shuffled";
}

TEST(ShuffledWindows, TheSeedDecides) {
  const std::vector<int32_t> tokens = Counted(500);
  const auto drawn = [&](uint64_t seed) {
    ShuffledWindows windows(tokens, 8, seed);
    WindowBatch batch;
    windows.Next(50, batch);
    return batch.tokens;
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

TEST(ShuffledWindows, AWholeTextMayBeOneWindow) {
  const std::vector<int32_t> tokens = Counted(9);
  ShuffledWindows windows(tokens, 8, 1);
  WindowBatch batch;
  windows.Next(2, batch);
  EXPECT_EQ(batch.tokens[0], 0);
  EXPECT_EQ(batch.tokens[8], 0);
}

TEST(ShuffledWindows, RefusesContextsThatDoNotFit) {
  const std::vector<int32_t> tokens = Counted(8);
  for (const int64_t context : {0, -1, 8}) {
    EXPECT_THROW(ShuffledWindows(tokens, context, 1), Error) << context;
  }
}

// One window at a time, each token by its own softmax in float64.
double PlainMeanLoss(training::Transformer& model, const std::vector<int32_t>& tokens,
                     size_t context) {
  double sum = 0;
  for (size_t begin = 0; begin + 1 < tokens.size(); begin += context) {
    const size_t length = std::min(context, tokens.size() - 1 - begin);
    const training::Matrix& logits =
        model.Forward({.batch = 1, .tokens = std::span(tokens).subspan(begin, length)});
    for (size_t i = 0; i < length; ++i) {
      const float* row = logits.Row(static_cast<int64_t>(i));
      double total = 0;
      for (int64_t id = 0; id < logits.dim(); ++id) total += std::exp(double{row[id]});
      sum += std::log(total) - double{row[tokens[begin + i + 1]]};
    }
  }
  return sum / static_cast<double>(tokens.size() - 1);
}

TEST(MeanLoss, IsThatOfEveryTokenButTheFirst) {
  training::Transformer model(SmallConfig(11));
  Random random(1);
  for (const size_t count : {2u, 7u, 8u, 9u, 33u, 50u}) {
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random.Integer(0, 10));
    const double plain = PlainMeanLoss(model, tokens, 8);
    for (const int64_t batch : {1, 3}) {
      EXPECT_NEAR(MeanLoss(model, tokens, 8, batch), plain, 1e-5) << count << " tokens";
    }
  }
  EXPECT_THROW(MeanLoss(model, Counted(1), 8, 1), Error);
}

}  // namespace
}  // namespace heed::testing
