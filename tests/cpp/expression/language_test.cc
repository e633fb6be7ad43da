// What expressions mean: the remainder, numbers and nesting, in the kernels and in the oracle.
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/expression.h"
#include "reference/formula.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class ExpressionLanguage : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(ExpressionLanguage);

// What the kernels make of scores.
std::vector<float> RunKernel(const std::string& text, std::vector<float> scores) {
  const PairTile::Row row = {0, 0, 0};
  CompileExpression("score_mod", text, ExpressionValue::kScore)(
      {0, &row, 1, 0, scores.size(), scores.data(), scores.size()});
  return scores;
}

double RunReference(const std::string& text, double score) {
  Request request;
  request.params.push_back({"score_mod", text});
  const auto formula = reference::ReadFormula(request, "score_mod", "score");
  return (*formula)({score, 0, 0, 0, 0, 0});
}

// The text as a number, or nothing where it is refused.
std::optional<float> KernelValue(const std::string& text) {
  try {
    return RunKernel(text, {0}).front();
  } catch (const Error&) {
    return std::nullopt;
  }
}
std::optional<float> ReferenceValue(const std::string& text) {
  try {
    return static_cast<float>(RunReference(text, 0));
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Bits, but any NaN for NaN.
void ExpectSame(float actual, float expected) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << actual;
  } else {
    EXPECT_EQ(actual, expected);
    EXPECT_EQ(std::signbit(actual), std::signbit(expected));
  }
}

struct Remainder {
  float x, y, expected;
};

TEST_P(ExpressionLanguage, RemaindersAreExactAndHaveTheSignOfTheDivisor) {
  const Remainder cases[] = {
      {1.0f, 0.1f, std::fmod(1.0f, 0.1f)},
      {1e8f, 3.0f, 1.0f},
      {16777215.0f, 11.0f, 4.0f},
      {-1.0f, 5.0f, 4.0f},
      {1.0f, -5.0f, -4.0f},
      {-6.0f, 3.0f, 0.0f},
      {-0.5f, 0.25f, 0.0f},
      {-0.0f, 3.0f, 0.0f},
      {-1e-9f, 5.0f, 5.0f},  // 5 - 1e-9, rounded
      {1e30f, 7.0f, static_cast<float>(std::fmod(static_cast<double>(1e30f), 7.0))},
      {-2.5f, 1.0f, 0.5f},
      {1.0f, kInf, 1.0f},
      {-1.0f, kInf, kInf},
      {1.0f, -kInf, -kInf},
      {0.0f, kInf, 0.0f},
      {1.0f, 0.0f, kNan},
      {0.0f, 0.0f, kNan},
      {0.5f, 0.0f, kNan},
      {kInf, 3.0f, kNan},
      {kNan, 3.0f, kNan},
      {3.0f, kNan, kNan},
      {8388607.0f, 8388606.0f, 1.0f},
      {-8388607.0f, 8388606.0f, 8388605.0f},
  };
  for (const auto& [x, y, expected] : cases) {
    SCOPED_TRACE(std::to_string(x) + " % " + std::to_string(y));
    for (const size_t count : {1, 5, 70}) {
      std::vector<float> values(count, x);
      const PairTile::Row row = {0, 0, 0};
      CompileExpression("score_mod", "score % slope", ExpressionValue::kScore,
                        {{"slope", 0, {}, {}, &y}})({0, &row, 1, 0, count, values.data(), count});
      for (const float value : values) ExpectSame(value, expected);
    }
  }
}

// Every divisor and sign of small whole numbers, in vectors that hold nothing else and in mixed
// ones.
TEST_P(ExpressionLanguage, RemaindersOfWholeNumbersAreExactBesideFractions) {
  for (int y = -9; y <= 9; ++y) {
    if (y == 0) continue;
    std::vector<float> scores;
    for (int x = -40; x <= 40; ++x) scores.push_back(static_cast<float>(x));
    for (const bool mixed : {false, true}) {
      if (mixed) scores[37] = 0.5f;
      const std::vector<float> values = RunKernel("score % " + std::to_string(y), scores);
      for (size_t n = 0; n < scores.size(); ++n) {
        const float rest = std::fmod(scores[n], static_cast<float>(y));
        const bool other_sign = rest != 0 && (rest < 0) != (y < 0);
        ExpectSame(values[n], rest + (other_sign ? static_cast<float>(y) : 0.0f));
      }
    }
  }
}

TEST(ExpressionText, RemaindersOfReferenceAreExact) {
  EXPECT_EQ(RunReference("score % 3", 1e8), 1);
  EXPECT_EQ(RunReference("score % 0.1", 1), std::fmod(1, 0.1));
  EXPECT_EQ(RunReference("score % 5", -1), 4);
  EXPECT_EQ(RunReference("score % inf", -1), kInf);
  EXPECT_TRUE(std::isnan(RunReference("score % 0", 1)));
}

TEST(ExpressionText, NumbersAreTheSameInKernelsAndReference) {
  for (const char* text :
       {"0", "7", "007", ".5", "5.", "1.25e2", "1e-3", "2E+3", "5e-324", "1e-45", "1e309", "1e400",
        "1e-400", "3.e1", "16777217", "0.1", "0e99999999", "1e38", "0.30000001192092896"}) {
    SCOPED_TRACE(text);
    ASSERT_TRUE(KernelValue(text).has_value());
    ASSERT_TRUE(ReferenceValue(text).has_value());
    ExpectSame(*KernelValue(text), *ReferenceValue(text));
  }
  const std::string ones(400, '1');
  EXPECT_EQ(KernelValue("0." + ones), 1.0f / 9);
  EXPECT_EQ(ReferenceValue("0." + ones), 1.0f / 9);
  EXPECT_EQ(KernelValue(ones + "e-400"), 1.0f / 9);
  EXPECT_EQ(ReferenceValue(ones + "e-400"), 1.0f / 9);
  for (const char* text : {"0x10", "0X1p3", "1e", "1e+", ".", "1.2.3", ".e1", "nan", "infinity",
                           "1_0", "1f", "1 e3", "+1", "0b1"}) {
    EXPECT_EQ(KernelValue(text), std::nullopt) << text;
    EXPECT_EQ(ReferenceValue(text), std::nullopt) << text;
  }
}

std::string Repeated(const std::string& text, int count) {
  std::string all;
  for (int n = 0; n < count; ++n) all += text;
  return all;
}

TEST(ExpressionText, SixtyFourLevelsOfEveryConstructAreRead) {
  const auto nested = [](const std::string& open, const std::string& close) {
    return [=](int count) { return Repeated(open, count) + "1" + Repeated(close, count); };
  };
  for (const auto& text : {nested("(", ")"), nested("-", ""), nested("!", ""), nested("abs(", ")"),
                           nested("max(1, ", ")"), nested("min(", ", 1)"), nested("1 ? ", " : 1"),
                           nested("1 ? 1 : ", "")}) {
    SCOPED_TRACE(text(1));
    EXPECT_TRUE(KernelValue(text(64)).has_value());
    EXPECT_EQ(KernelValue(text(64)), ReferenceValue(text(64)));
    try {
      RunKernel(text(65), {0});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("nested more than 64 deep"));
    }
  }
  // Beside each other they do not add up.
  EXPECT_TRUE(KernelValue(Repeated("abs(-(1)) + ", 100) + "1").has_value());
}

}  // namespace
}  // namespace heed::testing
