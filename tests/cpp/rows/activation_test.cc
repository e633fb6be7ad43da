// Activations and their derivatives on every target, against double.
#include "src/rows/activation.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "heed/layers.h"
#include "heed/thread_pool.h"
#include "simd_targets.h"
#include "src/rows/backward_activation.h"

namespace heed::testing {
namespace {

constexpr Activation kAll[] = {Activation::kGelu, Activation::kGeluTanh, Activation::kSilu,
                               Activation::kRelu};
constexpr double kC = 0.79788456080286535588, kA = 0.044715;

class Activations : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Activations);

double Share(double x) { return 0.5 * std::erfc(-x * std::sqrt(0.5)); }
double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double Expected(Activation activation, double x) {
  switch (activation) {
    case Activation::kGelu:
      return x * Share(x);
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(kC * (x + kA * x * x * x)));
    case Activation::kSilu:
      return x * Sigmoid(x);
    case Activation::kRelu:
      return x < 0 ? 0 : x;
  }
  return 0;
}

double ExpectedSlope(Activation activation, double x) {
  switch (activation) {
    case Activation::kGelu:
      return Share(x) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::acos(-1.0));
    case Activation::kGeluTanh: {
      const double t = std::tanh(kC * (x + kA * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kC * (1 + 3 * kA * x * x);
    }
    case Activation::kSilu:
      return Sigmoid(x) * (1 + x * (1 - Sigmoid(x)));
    case Activation::kRelu:
      return x > 0 ? 1 : 0;
  }
  return 0;
}

// Floats of all magnitudes up to `most` and of both signs.
std::vector<float> Floats(float most, uint32_t stride) {
  std::vector<float> x = {0.0f, -0.0f};
  for (uint32_t bits = 1; bits < std::bit_cast<uint32_t>(most); bits += stride) {
    x.push_back(std::bit_cast<float>(bits));
    x.push_back(-x.back());
  }
  return x;
}

std::vector<float> ValuesOf(Activation activation, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  Activate(activation, x.data(), static_cast<int64_t>(x.size()), y.data(), nullptr);
  return y;
}

std::vector<float> SlopesAt(Activation activation, const std::vector<float>& x) {
  std::vector<float> slopes(x.size(), 1.0f);
  ActivateBackward(activation, x.data(), slopes.data(), static_cast<int64_t>(x.size()),
                   slopes.data(), nullptr);
  return slopes;
}

TEST_P(Activations, AreThoseOfDouble) {
  const std::vector<float> x = Floats(30.0f, 4001);
  for (const Activation activation : kAll) {
    const std::vector<float> y = ValuesOf(activation, x), slopes = SlopesAt(activation, x);
    for (size_t n = 0; n < x.size(); ++n) {
      const double near = 1e-7 + 3e-7 * std::abs(x[n]);
      ASSERT_NEAR(y[n], Expected(activation, x[n]), near)
          << static_cast<int>(activation) << " of " << x[n];
      ASSERT_NEAR(slopes[n], ExpectedSlope(activation, x[n]), 1e-6)
          << static_cast<int>(activation) << " at " << x[n];
    }
  }
}

TEST_P(Activations, SlopesOfSiluLoseNothingToLargeNumbers) {
  const std::vector<float> x = Floats(60.0f, 4001);
  const std::vector<float> slopes = SlopesAt(Activation::kSilu, x);
  for (size_t n = 0; n < x.size(); ++n) {
    if (x[n] < 0) continue;
    ASSERT_NEAR(slopes[n], ExpectedSlope(Activation::kSilu, x[n]), 3e-7) << " at " << x[n];
  }
}

// Far below zero little is left, and it is right all the same.
TEST_P(Activations, HaveTheirRelativeErrorBounds) {
  const std::vector<float> x = Floats(4.0f, 4001);
  for (const Activation activation : kAll) {
    const std::vector<float> y = ValuesOf(activation, x);
    for (size_t n = 0; n < x.size(); ++n) {
      if (std::abs(x[n]) < 0x1p-125f) continue;
      const double expected = Expected(activation, x[n]);
      // Of gelu, what normal_tail-inl.h says; the rounding of an exponent weighs more the larger it
      // is.
      const double most = std::abs(x[n]) <= 1                   ? 6e-7
                          : activation == Activation::kGeluTanh ? 2e-6
                                                                : 1e-6;
      ASSERT_NEAR(y[n], expected, most * std::abs(expected))
          << static_cast<int>(activation) << " of " << x[n];
    }
  }
}

TEST_P(Activations, OfWhatIsNotFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const Activation activation : kAll) {
    const std::vector<float> y =
        ValuesOf(activation, {inf, std::numeric_limits<float>::quiet_NaN(), 3e38f, -3e38f});
    EXPECT_EQ(y[0], inf);
    EXPECT_TRUE(std::isnan(y[1]));
    EXPECT_EQ(y[2], 3e38f);
    EXPECT_EQ(y[3], 0.0f);
  }
}

TEST_P(Activations, HaveTheSameBitsInPlaceAndForAnyThreads) {
  const std::vector<float> x = Floats(30.0f, 50021);
  const auto pool = MakeThreadPool(3);
  for (const Activation activation : kAll) {
    std::vector<float> y = x;
    Activate(activation, y.data(), static_cast<int64_t>(y.size()), y.data(), pool.get());
    EXPECT_EQ(y, ValuesOf(activation, x));
  }
}

}  // namespace
}  // namespace heed::testing
