#include "heed/training/adamw.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "heed/error.h"

namespace heed::testing {
namespace {

using training::AdamW;
using training::AdamWOptions;
using training::GradientNorm;
using training::Parameter;
using training::ParameterSet;
using training::Schedule;

AdamWOptions PlainOptions() {
  AdamWOptions options;
  options.schedule.learning_rate = 0.1;
  options.weight_decay = 0.5;
  options.max_gradient_norm = std::numeric_limits<double>::infinity();
  return options;
}

// By hand: the first step is rate * sign(g), because m and v are corrected to g and g^2.
TEST(AdamW, TakesTheStepsComputedByHand) {
  ParameterSet parameters(0);
  Parameter& matrix = parameters.Add("matrix", {1, 1}, {.mean = 2});
  Parameter& vector = parameters.Add("vector", {1}, {.mean = 2});
  AdamW adam(parameters, PlainOptions());
  matrix.gradient = {4};
  vector.gradient = {4};
  adam.Step(GradientNorm(parameters));
  EXPECT_NEAR(matrix.value[0], 2 * (1 - 0.1 * 0.5) - 0.1, 1e-6);
  EXPECT_NEAR(vector.value[0], 2 - 0.1, 1e-6);  // vectors do not decay
  // m = 0.9 * 0.4 - 0.1 * 2 = 0.16, v = 0.999 * 0.016 + 0.001 * 4 = 0.019984
  vector.gradient = {-2};
  adam.Step(GradientNorm(parameters));
  const double step = 0.1 * (0.16 / 0.19) / std::sqrt(0.019984 / (1 - 0.999 * 0.999));
  EXPECT_NEAR(vector.value[0], 1.9 - step, 1e-6);
  EXPECT_EQ(adam.steps(), 2);
}

TEST(AdamW, ClipsByTheNormOfAllGradients) {
  ParameterSet parameters(0);
  Parameter& a = parameters.Add("a", {1}, {});
  Parameter& b = parameters.Add("b", {1}, {});
  a.gradient = {30};
  b.gradient = {40};
  EXPECT_DOUBLE_EQ(GradientNorm(parameters), 50);
  AdamWOptions options = PlainOptions();
  options.max_gradient_norm = 5;
  options.epsilon = 3;  // makes the size of the gradient visible: rate * g / (g + 3)
  AdamW adam(parameters, options);
  adam.Step(50);
  EXPECT_NEAR(a.value[0], -0.1 * 3 / (3 + 3), 1e-6);
  EXPECT_NEAR(b.value[0], -0.1 * 4 / (4 + 3), 1e-6);
}

TEST(AdamW, KeepsEverythingWhereTheNormIsNotFinite) {
  ParameterSet parameters(0);
  Parameter& a = parameters.Add("a", {2}, {.mean = 1});
  a.gradient = {1, std::numeric_limits<float>::infinity()};
  EXPECT_TRUE(std::isinf(GradientNorm(parameters)));
  AdamW adam(parameters, PlainOptions());
  EXPECT_THROW(adam.Step(GradientNorm(parameters)), Error);
  EXPECT_EQ(a.value, (std::vector<float>{1, 1}));
  EXPECT_EQ(adam.steps(), 0);
}

TEST(AdamW, RefusesOptionsOutsideTheirRange) {
  ParameterSet parameters(0);
  const auto refuses = [&](auto change) {
    AdamWOptions options;
    change(options);
    EXPECT_THROW(AdamW(parameters, options), Error);
  };
  refuses([](AdamWOptions& o) { o.schedule.learning_rate = 0; });
  refuses([](AdamWOptions& o) { o.schedule.learning_rate = NAN; });
  refuses([](AdamWOptions& o) { o.schedule.min_learning_rate = 1; });
  refuses([](AdamWOptions& o) { o.schedule.warmup_steps = -1; });
  refuses([](AdamWOptions& o) { o.schedule.warmup_steps = o.schedule.total_steps = 5; });
  refuses([](AdamWOptions& o) { o.beta1 = 1; });
  refuses([](AdamWOptions& o) { o.beta2 = -0.1; });
  refuses([](AdamWOptions& o) { o.epsilon = 0; });
  refuses([](AdamWOptions& o) { o.weight_decay = -1; });
  refuses([](AdamWOptions& o) { o.max_gradient_norm = 0; });
}

TEST(AdamW, RefusesANormThatNoGradientHas) {
  ParameterSet parameters(1);
  parameters.Add("weight", {2}, {.deviation = 1});
  AdamW adam(parameters, PlainOptions());
  for (const double norm : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(adam.Step(norm), Error) << norm;
  }
  adam.Step(0);
}

TEST(ParameterSet, RefusesValuesToBeginWithThatAreNone) {
  ParameterSet parameters(1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double deviation : {nan, -1.0, std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(parameters.Add("weight", {2}, {.deviation = deviation}), Error) << deviation;
  }
  EXPECT_THROW(parameters.Add("weight", {2}, {.mean = static_cast<float>(nan)}), Error);
  parameters.Add("weight", {2}, {.deviation = 1});
}

TEST(Schedule, WarmsUpAndDecays) {
  const Schedule schedule = {
      .learning_rate = 1, .min_learning_rate = 0.2, .warmup_steps = 4, .total_steps = 12};
  EXPECT_DOUBLE_EQ(schedule.At(0), 0.25);
  EXPECT_DOUBLE_EQ(schedule.At(3), 1);
  EXPECT_DOUBLE_EQ(schedule.At(4), 1);
  EXPECT_DOUBLE_EQ(schedule.At(8), 0.6);
  EXPECT_DOUBLE_EQ(schedule.At(12), 0.2);
  EXPECT_DOUBLE_EQ(schedule.At(1000), 0.2);
  const Schedule constant = {.learning_rate = 3};
  EXPECT_DOUBLE_EQ(constant.At(0), 3);
  EXPECT_DOUBLE_EQ(constant.At(1000000), 3);
}

}  // namespace
}  // namespace heed::testing
