#include "heed/training/loss.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "heed/error.h"
#include "training/plain.h"

namespace heed::testing {
namespace {

using training::CrossEntropy;
using training::Loss;
using training::Matrix;
using training::MeanSquaredError;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(CrossEntropy, MatchesFiniteDifferences) {
  const Matrix logits = RandomMatrix(7, 5, 1);
  const std::vector<int32_t> targets = {0, 4, -1, 2, 2, -100, 1};
  Matrix d;
  const Loss loss = CrossEntropy(logits, targets, d);
  EXPECT_EQ(loss.counted, 5);
  const auto value = [&](const Tensors& t) {
    return PlainCrossEntropy({5, t.at("logits")}, targets);
  };
  const Tensors at = {{"logits", ToPlain(logits).values}};
  EXPECT_NEAR(loss.value, value(at), 1e-6);
  ExpectGradient(value, at, "logits", d.data(), 1e-5);
}

TEST(CrossEntropy, StaysExactForLargeLogits) {
  Matrix logits(1, 3), d;
  logits.Row(0)[0] = 500;
  logits.Row(0)[1] = -500;
  logits.Row(0)[2] = 499;
  const std::vector<int32_t> unlikely = {1}, likely = {0};
  EXPECT_NEAR(CrossEntropy(logits, unlikely, d).value, 1000 + std::log1p(std::exp(-1.0)), 1e-4);
  EXPECT_NEAR(CrossEntropy(logits, likely, d).value, std::log1p(std::exp(-1.0)), 1e-6);
}

TEST(CrossEntropy, DoesNotLookAtIgnoredRows) {
  Matrix logits = RandomMatrix(3, 4, 1), d;
  for (int64_t c = 0; c < 4; ++c) logits.Row(1)[c] = kNan;
  const std::vector<int32_t> targets = {1, -1, 2};
  EXPECT_TRUE(std::isfinite(CrossEntropy(logits, targets, d).value));
  for (int64_t c = 0; c < 4; ++c) EXPECT_EQ(d.Row(1)[c], 0);
  const std::vector<int32_t> all = {1, 0, 2};
  EXPECT_TRUE(std::isnan(CrossEntropy(logits, all, d).value));
}

TEST(CrossEntropy, WithoutTargetsIsZero) {
  const Matrix logits = RandomMatrix(2, 4, 1);
  Matrix d;
  const std::vector<int32_t> targets = {-1, -1};
  const Loss loss = CrossEntropy(logits, targets, d);
  EXPECT_EQ(loss.value, 0);
  EXPECT_EQ(loss.counted, 0);
  for (int64_t n = 0; n < d.size(); ++n) EXPECT_EQ(d.data()[n], 0);
}

TEST(CrossEntropy, RefusesTargetsThatDoNotFit) {
  const Matrix logits = RandomMatrix(2, 4, 1);
  Matrix d;
  const std::vector<int32_t> beyond = {0, 4}, few = {0};
  EXPECT_THROW(CrossEntropy(logits, beyond, d), Error);
  EXPECT_THROW(CrossEntropy(logits, few, d), Error);
}

TEST(CrossEntropy, RefusesToOverwriteItsLogits) {
  Matrix logits = RandomMatrix(2, 4, 1);
  const float before = logits.Row(1)[3];
  const std::vector<int32_t> targets = {0, 1};
  EXPECT_THROW(CrossEntropy(logits, targets, logits), Error);
  EXPECT_EQ(logits.Row(1)[3], before);
}

TEST(MeanSquaredError, MatchesItsFormula) {
  const Matrix y = RandomMatrix(300, 70, 1), target = RandomMatrix(300, 70, 2);
  Matrix d;
  double sum = 0;
  for (int64_t n = 0; n < y.size(); ++n) {
    sum += std::pow(double(y.data()[n]) - double(target.data()[n]), 2);
  }
  const Loss loss = MeanSquaredError(y, target, d);
  EXPECT_NEAR(loss.value, sum / 21000, 1e-9);
  EXPECT_EQ(loss.counted, 21000);
  const float expected = 2 * (y.Row(299)[69] - target.Row(299)[69]) / 21000;
  EXPECT_NEAR(d.Row(299)[69], expected, 1e-9);
  EXPECT_THROW(MeanSquaredError(y, RandomMatrix(300, 69, 2), d), Error);
  Matrix in_place = y;
  EXPECT_EQ(MeanSquaredError(in_place, target, in_place).value, loss.value);
  EXPECT_EQ(in_place.Row(299)[69], d.Row(299)[69]);
}

}  // namespace
}  // namespace heed::testing
