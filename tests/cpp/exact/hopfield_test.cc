// Hopfield retrieval: against the oracle, its limits, and what its theory promises.
#include <cmath>
#include <limits>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/compose.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class HopfieldRetrieves : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(HopfieldRetrieves);

ComposedCase MakeHopfield(AttentionCase inner, double steps) {
  ComposedCase c{.id = "hopfield", .inner = std::move(inner), .extras = {}, .params = {}};
  c.params.push_back({"steps", steps});
  return c;
}

// How much farther an error of the state is thrown by one step, at most.
double Growth(const AttentionCase& c) {
  double longest = 0;
  for (int64_t b = 0; b < c.sizes.batch; ++b) {
    for (int64_t h = 0; h < c.sizes.num_kv_heads; ++h) {
      for (int64_t j = 0; j < c.sizes.kv_len; ++j) {
        double square = 0;
        for (int64_t d = 0; d < c.sizes.head_dim; ++d) {
          square += double{c.k(b, h, j, d)} * c.k(b, h, j, d);
        }
        longest = std::max(longest, square);
      }
    }
  }
  return longest / std::sqrt(static_cast<double>(c.sizes.head_dim));
}

TEST_P(HopfieldRetrieves, MatchesReference) {
  for (AttentionCase inner : PassThroughCases()) {
    for (const int steps : {1, 2, 3}) {
      // Two states behind each other throw errors by their growth; scores see them scaled too.
      const double factor = steps == 1 ? 1 : std::pow(1 + Growth(inner), steps - 1);
      ExpectComposedMatches(MakeHopfield(inner, steps), factor, factor);
    }
  }
}

TEST_P(HopfieldRetrieves, ReducesToScaledDotProductWithOneStep) {
  for (const AttentionCase& inner : PassThroughCases()) {
    HopfieldOptions options;
    options.attention = inner.options();
    Buffer<float> output({2, inner.sizes.num_heads, inner.sizes.q_len, 17}, Layout::kPadded, kNan);
    HopfieldRetrieval(inner.q.view(), inner.k.view(), inner.v.view(), options,
                      {.output = output.view()});
    EXPECT_TRUE(output.GapsAreUntouched());
    EXPECT_EQ(Bits(output), Bits(RunAttention(inner).output));
  }
}

// Two patterns, +1 and -1: the update is tanh(beta x), the mean-field equation of a magnet.
RequestBuilder Magnet(double beta, float start, double steps) {
  RequestBuilder builder("hopfield");
  builder.Floats("q", {1, 1, 1, 1}, {start})
      .Floats("k", {1, 1, 2, 1}, {1, -1})
      .Floats("v", {1, 1, 2, 1}, {1, -1})
      .Param("scale", beta)
      .Param("steps", steps);
  return builder;
}

TEST_P(HopfieldRetrieves, TwoOppositePatternsAreAMagnet) {
  ExpectAllNear(RunByName(Magnet(2, 0.3f, 1).request()).at("output"), {std::tanh(0.6)}, 2e-7);
  ExpectAllNear(RunByName(Magnet(2, 0.3f, 2).request()).at("output"),
                {std::tanh(2 * std::tanh(0.6))}, 5e-7);
  // The magnetisation m = tanh(2 m) of the Curie-Weiss model at half its critical temperature, and
  // none at twice that temperature.
  ExpectAllNear(RunByName(Magnet(2, 0.3f, 100).request()).at("output"), {0.957504024}, 5e-7);
  ExpectAllNear(RunByName(Magnet(2, -0.01f, 100).request()).at("output"), {-0.957504024}, 5e-7);
  ExpectAllNear(RunByName(Magnet(0.5, 0.9f, 100).request()).at("output"), {0}, 1e-7);
}

TEST_P(HopfieldRetrieves, StoredPatternComesBackFromNoise) {
  // Theorem 4 of the paper: one update of a state near a well separated pattern is exact up to an
  // error that is exponentially small in beta times the separation.
  AttentionCase c = MakeCase({.num_heads = 1,
                              .num_kv_heads = 1,
                              .q_len = 40,
                              .kv_len = 40,
                              .head_dim = 64,
                              .head_dim_v = 64});
  Random random(3);
  c.q.ForEach([&](int64_t, int64_t, int64_t i, int64_t d, float& x) {
    x = c.k(0, 0, i, d) + 0.5f * random.Normal();
  });
  c.v = c.k;
  c.scalars.scale = 1.0;
  const std::vector<double> found = RunByName(MakeHopfield(c, 2).request()).at("output");
  for (size_t n = 0; n < found.size(); ++n) {
    const int64_t i = static_cast<int64_t>(n) / 64, d = static_cast<int64_t>(n) % 64;
    EXPECT_NEAR(found[n], c.k(0, 0, i, d), 1e-5) << n;
  }
}

TEST_P(HopfieldRetrieves, EnergyFallsWithEveryStep) {
  // Theorem 1: the energy |x|^2 / 2 - lse(beta, K x) / beta never rises. The lse of a call with T
  // steps belongs to the state after T - 1.
  AttentionCase c = MakeCase({.q_len = 20, .kv_len = 30, .head_dim = 16, .head_dim_v = 16});
  c.v = c.k;
  const double beta = 0.6;
  c.scalars.scale = beta;
  std::vector<double> before(2 * 20, HUGE_VAL);
  std::vector<double> states;
  for (const float x : c.q.Elements()) states.push_back(x);
  for (int steps = 1; steps < 8; ++steps) {
    ComposedCase hopfield = MakeHopfield(c, steps);
    hopfield.params.push_back({"return_lse", true});
    const Values values = RunByName(hopfield.request());
    for (size_t row = 0; row < before.size(); ++row) {
      double energy = -values.at("lse")[row] / beta;
      for (size_t d = 0; d < 16; ++d) energy += states[16 * row + d] * states[16 * row + d] / 2;
      EXPECT_LE(energy, before[row] + 1e-5) << row << " after " << steps - 1;
      before[row] = energy;
    }
    states = values.at("output");
  }
}

TEST_P(HopfieldRetrieves, StatesRestWithinTheTolerance) {
  AttentionCase c = MakeCase({.q_len = 9, .kv_len = 30, .head_dim = 16, .head_dim_v = 16});
  ComposedCase patient = MakeHopfield(c, 1000);
  patient.params.push_back({"tolerance", 1e6});  // every first move is shorter
  EXPECT_EQ(RunByName(patient.request()), RunByName(MakeHopfield(c, 2).request()));
  ComposedCase picky = MakeHopfield(c, 400);
  picky.params.push_back({"tolerance", 0.02});
  ExpectAllNear(RunByName(picky.request()).at("output"), RunOracle(picky.request()).at("output"),
                2e-5);
  // A state that rests does not move on with the others: the magnets stop at different steps.
  RequestBuilder two("hopfield");
  two.Floats("q", {1, 1, 2, 1}, {0.957504f, 0.01f})
      .Floats("k", {1, 1, 2, 1}, {1, -1})
      .Floats("v", {1, 1, 2, 1}, {1, -1})
      .Param("scale", 2.0)
      .Param("steps", 100.0)
      .Param("tolerance", 0.05);
  const std::vector<double> found = RunByName(two.request()).at("output");
  ExpectAllNear(found, RunOracle(two.request()).at("output"), 1e-6);
  EXPECT_LT(found[1], 0.9572);  // it rests before it is there
}

TEST_P(HopfieldRetrieves, EmptyRowIsZeroAndWhatIsMaskedCannotMatter) {
  AttentionCase inner =
      MakeCase({.batch = 2, .q_len = 9, .kv_len = 150, .head_dim = 8, .head_dim_v = 8});
  inner.key_lengths = {0, 100};
  ComposedCase c = MakeHopfield(inner, 4);
  c.params.push_back({"return_lse", true});
  const Values clean = RunByName(c.request());
  for (size_t n = 0; n < 2 * 9 * 8; ++n) EXPECT_EQ(clean.at("output")[n], 0.0);
  for (size_t n = 0; n < 2 * 9; ++n) EXPECT_EQ(clean.at("lse")[n], -HUGE_VAL);
  for (int64_t j = 100; j < 150; ++j) c.inner.k(1, 0, j, 1) = c.inner.v(1, 1, j, 2) = kNan;
  EXPECT_EQ(RunByName(c.request()), clean);
}

TEST_P(HopfieldRetrieves, NanStateIsLostAlone) {
  ComposedCase c =
      MakeHopfield(MakeCase({.q_len = 9, .kv_len = 30, .head_dim = 8, .head_dim_v = 8}), 3);
  const std::vector<double> clean = RunByName(c.request()).at("output");
  c.inner.q(0, 1, 4, 2) = kNan;
  const std::vector<double> output = RunByName(c.request()).at("output");
  for (size_t n = 0; n < output.size(); ++n) {
    if (n / 8 == 13) {
      EXPECT_TRUE(std::isnan(output[n]));
    } else {
      EXPECT_EQ(output[n], clean[n]);
    }
  }
}

TEST_P(HopfieldRetrieves, ThreadsChangeNoBit) {
  ComposedCase c = MakeHopfield(PassThroughCases()[1], 4);
  c.params.push_back({"tolerance", 0.5});
  c.params.push_back({"return_weights", true});
  ExpectSameBitsForAnyThreads(c.request());
}

TEST_P(HopfieldRetrieves, BadArgumentsAreRefused) {
  const AttentionCase small = MakeCase({.q_len = 3, .kv_len = 3, .head_dim = 4, .head_dim_v = 4});
  ExpectBothRefuse(MakeHopfield(small, 0).request(), ErrorCode::kRange, "steps");
  ExpectBothRefuse(MakeHopfield(small, 1e7).request(), ErrorCode::kRange, "steps");
  ExpectBothRefuse(MakeHopfield(small, 1.5).request(), ErrorCode::kRange, "steps");
  ComposedCase c = MakeHopfield(small, 2);
  c.params.push_back({"tolerance", -1.0});
  ExpectBothRefuse(c.request(), ErrorCode::kRange, "tolerance");
}

TEST_P(HopfieldRetrieves, KeysAsWideAsStatesAreNeededForSeveralSteps) {
  for (const double steps : {1, 2}) {
    RequestBuilder builder("hopfield");
    builder.Floats("q", {1, 1, 1, 2}, {1, 2})
        .Floats("k", {1, 1, 2, 1}, {1, -1})
        .Floats("v", {1, 1, 2, 1}, {3, 4})
        .Floats("score_matrix", {2, 1}, {1, 1})
        .Param("score", "bilinear")
        .Param("steps", steps);
    if (steps == 2) {
      ExpectBothRefuse(builder.request(), ErrorCode::kShape, "k");
    } else {
      ExpectAllNear(RunByName(builder.request()).at("output"),
                    RunOracle(builder.request()).at("output"), 1e-5);
    }
  }
}

TEST_P(HopfieldRetrieves, RelativeValuesBelongToTheLastStep) {
  // As wide as the keys or not: states are means of keys alone.
  for (const int64_t width : {1, 2}) {
    RequestBuilder builder("hopfield");
    const std::vector<float> values(static_cast<size_t>(3 * width), 0.5f);
    const std::vector<float> v =
        width == 1 ? std::vector<float>{3, 4} : std::vector<float>{3, 1, 4, 2};
    builder.Floats("q", {1, 1, 2, 1}, {1, 2})
        .Floats("k", {1, 1, 2, 1}, {1, -1})
        .Floats("v", {1, 1, 2, width}, v)
        .Floats("relative_values", {3, width}, values)
        .Param("steps", 3.0);
    RequestBuilder plain("hopfield");
    plain.Floats("q", {1, 1, 2, 1}, {1, 2})
        .Floats("k", {1, 1, 2, 1}, {1, -1})
        .Floats("v", {1, 1, 2, width}, v)
        .Param("steps", 3.0);
    std::vector<double> expected = RunByName(plain.request()).at("output");
    for (double& x : expected) x += 0.5;
    ExpectAllNear(RunByName(builder.request()).at("output"), expected, 2e-6);
    ExpectAllNear(RunOracle(builder.request()).at("output"), expected, 2e-6);
  }
}

}  // namespace
}  // namespace heed::testing
