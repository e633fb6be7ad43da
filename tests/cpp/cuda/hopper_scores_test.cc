// Softcap and ALiBi as the kernel for Hopper adds them, number by number.
#include "src/cuda/hopper_scores.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "gtest/gtest.h"
#include "host_warp_group.h"
#include "src/cuda/fragments.h"

namespace heed::testing {
namespace {

constexpr int kScores = 64;
constexpr int kThreads = cuda::kGroupThreads;
using Scores = HostWarpGroup::Registers<float, kScores>;
using HopperScores = cuda::HopperScores<HostWarpGroup, kScores>;

void WithGroup(const std::function<void(HostWarpGroup&)>& body) {
  HostHopperBlock block(1024);
  EXPECT_EQ(block.Run([&](HostWarpGroup& group) {
    if (group.index() == 1) body(group);
  }),
            "");
}

// Scores of -largest to largest, evenly apart.
void Spread(float largest, Scores& scores) {
  for (int t = 0; t < kThreads; ++t) {
    for (int n = 0; n < kScores; ++n) {
      const float place = static_cast<float>(t * kScores + n) / (kThreads * kScores - 1);
      scores(t, n) = largest * (2 * place - 1);
    }
  }
}

// The largest distance from tanh where all scores times factor lie within [-range, range].
double ErrorOfBend(float factor, float range) {
  Scores before, after;
  Spread(range / factor, before);
  after = before;
  WithGroup([&](HostWarpGroup& group) { HopperScores(group, after).Bend(factor); });
  double error = 0;
  for (int t = 0; t < kThreads; ++t) {
    for (int n = 0; n < kScores; ++n) {
      const double expected = std::tanh(double{before(t, n)} * double{factor});
      error = std::max(error, std::abs(double{after(t, n)} - expected));
    }
  }
  return error;
}

TEST(HopperScores, BendIsTanhNearZeroAndFarFromIt) {
  for (const float range : {1e-3f, 0.1f, 0.2499f, 0.2501f, 0.3f, 0.4999f}) {
    EXPECT_LT(ErrorOfBend(1.0f / 30, range), 7e-7 * static_cast<double>(range)) << range;
  }
  for (const float range : {0.5001f, 1.0f, 5.0f, 100.0f}) {
    EXPECT_LT(ErrorOfBend(1.0f / 30, range), 3e-7) << range;
  }
}

TEST(HopperScores, BendTakesFactorsOfEverySizeAndSign) {
  for (const float factor : {1e-9f, 1e-6f, 1e-4f, 1.0f, 1e4f, -0.25f}) {
    for (const float range : {0.4f, 4.0f}) {
      EXPECT_LT(ErrorOfBend(factor, range), 1e-6) << factor << ' ' << range;
    }
  }
}

TEST(HopperScores, BendOfWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Scores scores;
  Spread(1, scores);
  scores(0, 0) = kInfinity, scores(0, 1) = -kInfinity;
  scores(0, 2) = std::numeric_limits<float>::quiet_NaN();
  WithGroup([&](HostWarpGroup& group) { HopperScores(group, scores).Bend(0.1f); });
  EXPECT_EQ(scores(0, 0), 1);
  EXPECT_EQ(scores(0, 1), -1);
  EXPECT_TRUE(std::isnan(scores(0, 2)));
  EXPECT_NEAR(scores(0, 3), std::tanh(-0.1f), 1e-4f);
}

// `position` is that of the first row, whose threads see key 0 first; all rows follow each other.
void ExpectAlibi(int position) {
  Scores before, after;
  Spread(4, before);
  after = before;
  HostWarpGroup::Registers<int32_t, 2> from;
  HostWarpGroup::Registers<float, 2> slopes, shifts;
  const auto row_of = [](int t, int half) {
    return t / cuda::kWarp * 16 + cuda::AccumulatorRow(t % cuda::kWarp, 2 * half);
  };
  for (int t = 0; t < kThreads; ++t) {
    for (int half = 0; half < 2; ++half) {
      from(t, half) = position + row_of(t, half) - cuda::AccumulatorCol(t % cuda::kWarp, 0);
      slopes(t, half) = 0.5f + 0.01f * static_cast<float>(row_of(t, half));
    }
  }
  WithGroup(
      [&](HostWarpGroup& group) { HopperScores(group, after).AddAlibi(from, slopes, shifts); });
  for (int t = 0; t < kThreads; ++t) {
    for (int n = 0; n < kScores; ++n) {
      const int half = n % 4 / 2;
      const double distance = std::abs(from(t, half) - cuda::Apart(n));
      const double expected = double{before(t, n)} - double{slopes(t, half)} * distance;
      const double terms = std::abs(double{slopes(t, half)} * from(t, half)) + std::abs(expected);
      EXPECT_NEAR(double{after(t, n)} + double{shifts(t, half)}, expected, 2e-7 * (1 + terms))
          << position << ' ' << t << ' ' << n;
    }
  }
}

TEST(HopperScores, AlibiOfKeysBeforeAroundAndBehindTheRows) {
  for (const int position : {-100000, -200, -63, -1, 0, 1, 60, 128, 300, 100000}) {
    ExpectAlibi(position);
  }
}

}  // namespace
}  // namespace heed::testing
