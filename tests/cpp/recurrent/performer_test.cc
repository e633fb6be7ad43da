// Performer: against the oracle, its estimates against exact attention, and what they rest on.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "heed/error.h"
#include "heed/linear.h"
#include "heed/recurrent.h"
#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class Performer : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Performer);

std::vector<float> Drawn(uint64_t seed, int64_t features, int64_t dim) {
  std::vector<float> projection(static_cast<size_t>(features * dim));
  DrawRandomFeatures(seed, MatrixView(projection.data(), features, dim));
  return projection;
}

double Dot(const float* a, const float* b, int64_t dim) {
  double sum = 0;
  for (int64_t c = 0; c < dim; ++c) sum += double{a[c]} * b[c];
  return sum;
}

TEST_P(Performer, MatchesReference) {
  for (const bool causal : {false, true}) {
    const auto add = [causal](RequestBuilder& builder, const RecurrentSizes& s) {
      builder.Param("causal", causal)
          .Param("num_features", static_cast<double>(2 * s.head_dim + 5))
          .Param("feature_seed", 7.0);
    };
    ExpectRowMatchesOracle("performer", add);
    ExpectStatesAndLengthsMatchOracle("performer", add, 2, 29);
  }
}

TEST_P(Performer, ScalesOfAnySignMatchReference) {
  for (const double scale : {-0.5, 0.0, 0.5}) {
    RequestBuilder builder = RecurrentRequest("performer", {1, 2, 1, 70, 6, 5}, 3);
    builder.Param("scale", scale).Param("causal", true).Param("num_features", 20.0);
    ExpectMatchesOracle(builder.request(), "scale " + std::to_string(scale));
  }
}

TEST_P(Performer, GivesTheNumbersOfItsDefinition) {
  // One direction, 1: weights exp(k - k^2 / 2) of keys 0 and 1, whatever the query.
  RequestBuilder builder("performer");
  builder.Floats("q", {1, 1, 1, 1}, {5})
      .Floats("k", {1, 1, 2, 1}, {0, 1})
      .Floats("v", {1, 1, 2, 1}, {3, 9})
      .Floats("projection", {1, 1}, {1});
  const double weight = std::exp(0.5);
  ExpectResultsNear(RunByName(builder.request()).at("output"), {(3 + 9 * weight) / (1 + weight)},
                    1e-6, "1 : sqrt(e)");
}

TEST_P(Performer, TheProjectionThatItReturnsGivesTheSame) {
  RequestBuilder drawn = RecurrentRequest("performer", {1, 2, 2, 50, 8, 8}, 3);
  drawn.Param("num_features", 21.0).Param("feature_seed", 5.0).Param("return_projection", true);
  const Values first = RunByName(drawn.request());
  const std::vector<float> expected = Drawn(5, 21, 8);
  EXPECT_EQ(first.at("projection"), std::vector<double>(expected.begin(), expected.end()));
  RequestBuilder given = RecurrentRequest("performer", {1, 2, 2, 50, 8, 8}, 3);
  given.Floats("projection", {21, 8}, expected);
  EXPECT_EQ(RunByName(given.request()).at("output"), first.at("output"));
  RequestBuilder redrawn = RecurrentRequest("performer", {1, 2, 2, 50, 8, 8}, 3);
  redrawn.Param("num_features", 21.0).Param("feature_seed", 6.0);
  EXPECT_NE(RunByName(redrawn.request()).at("output"), first.at("output"));
}

// Errors of outputs, root of their mean square over several draws.
double ErrorOf(const RecurrentSizes& s, int64_t features, bool causal, int draws) {
  // Scores well within 1, where a few features suffice for the law of large numbers.
  const double scale = 0.04;
  RequestBuilder exact = RecurrentRequest("attention", s, 11);
  exact.Param("causal", causal).Param("scale", scale);
  const std::vector<double> expected = RunByName(exact.request()).at("output");
  double squares = 0;
  for (int draw = 0; draw < draws; ++draw) {
    RequestBuilder estimate = RecurrentRequest("performer", s, 11);
    estimate.Param("causal", causal)
        .Param("scale", scale)
        .Param("num_features", static_cast<double>(features))
        .Param("feature_seed", static_cast<double>(100 * features + draw));
    const std::vector<double> actual = RunByName(estimate.request()).at("output");
    for (size_t n = 0; n < actual.size(); ++n) {
      squares += (actual[n] - expected[n]) * (actual[n] - expected[n]);
    }
  }
  return std::sqrt(squares / (draws * static_cast<double>(expected.size())));
}

TEST_P(Performer, ErrorsFallWithTheRootOfTheNumberOfFeatures) {
  const RecurrentSizes s = {1, 2, 2, 96, 16, 8};
  for (const bool causal : {false, true}) {
    // The slope of a line through the logarithms; 16 times as many features a step.
    const double few = ErrorOf(s, 32, causal, 12), more = ErrorOf(s, 512, causal, 12),
                 many = ErrorOf(s, 8192, causal, 3);
    const double first = std::log(more / few) / std::log(16.0);
    const double second = std::log(many / more) / std::log(16.0);
    EXPECT_NEAR(first, -0.5, 0.08) << few << " to " << more;
    EXPECT_NEAR(second, -0.5, 0.08) << more << " to " << many;
    EXPECT_LT(many, 0.02);
  }
}

TEST(PerformerFeatures, EstimateTheExponentialWithTheirVariance) {
  const int64_t dim = 8, features = 16, draws = 4000;
  const std::vector<float> q = LogDecays(dim, 1), k = LogDecays(dim, 2);
  const double exact = std::exp(Dot(q.data(), k.data(), dim));
  const double half = (Dot(q.data(), q.data(), dim) + Dot(k.data(), k.data(), dim)) / 2;
  double sum = 0, squares = 0;
  for (int64_t draw = 0; draw < draws; ++draw) {
    const std::vector<float> w = Drawn(static_cast<uint64_t>(draw), features, dim);
    double estimate = 0;
    for (int64_t f = 0; f < features; ++f) {
      const float* row = w.data() + f * dim;
      estimate += std::exp(Dot(row, q.data(), dim) + Dot(row, k.data(), dim) - half) / features;
    }
    sum += estimate / exact;
    squares += (estimate / exact - 1) * (estimate / exact - 1);
  }
  const double bound = RandomFeatureVariance(q, k, 1, features);
  EXPECT_NEAR(sum / draws, 1, 4 * std::sqrt(bound / draws));
  EXPECT_LT(squares / draws, 1.05 * bound);
  EXPECT_GT(squares / draws, 0.3 * bound) << "the bound says little";
  // What independent rows have, from the formula itself.
  double length = 0;
  for (size_t c = 0; c < q.size(); ++c) length += (q[c] + k[c]) * (q[c] + k[c]);
  EXPECT_NEAR(bound, (std::exp(length) - 1) / features, 1e-6 * bound);
}

TEST(PerformerFeatures, AreOrthogonalInBlocksAndAsLongAsNormalRows) {
  const int64_t dim = 16, features = 40;
  double squares = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<float> w = Drawn(seed, features, dim);
    for (int64_t a = 0; a < features; ++a) {
      const float* row = w.data() + a * dim;
      squares += Dot(row, row, dim) / (50.0 * features);
      for (int64_t b = a / dim * dim; b < a; ++b) {
        ASSERT_NEAR(Dot(row, w.data() + b * dim, dim), 0, 1e-4) << a << " and " << b;
      }
    }
  }
  // The mean of 2000 squared lengths, whose variance is 2 dim each.
  EXPECT_NEAR(squares, dim, 4 * std::sqrt(2.0 * dim / 2000));
}

// Exponents of thousands: as logarithms they are harmless, as floats they would be 0 or infinite.
TEST_P(Performer, StrongQueriesAndKeysNeitherOverflowNorVanish) {
  const RecurrentSizes s = {1, 1, 1, 70, 16, 2};
  for (const float strength : {30.0f, 300.0f}) {
    std::vector<float> q = LogDecays(s.len * s.head_dim, 1), k = LogDecays(s.len * s.head_dim, 2);
    for (float& x : q) x *= strength;
    for (float& x : k) x *= strength;
    RequestBuilder builder("performer");
    builder.Floats("q", {1, 1, s.len, s.head_dim}, q)
        .Floats("k", {1, 1, s.len, s.head_dim}, k)
        .Floats("v", {1, 1, s.len, 2}, std::vector<float>(static_cast<size_t>(2 * s.len), 3.0f))
        .Param("causal", true);
    ExpectResultsNear(RunByName(builder.request()).at("output"),
                      std::vector<double>(static_cast<size_t>(2 * s.len), 3.0), 1e-5, "all 3");
  }
}

TEST_P(Performer, AStrongKeyDoesNotReachTokensBeforeIt) {
  const RecurrentSizes s = {1, 1, 1, 60, 8, 4};
  std::vector<float> q = LogDecays(s.len * s.head_dim, 1), k = LogDecays(s.len * s.head_dim, 2);
  const std::vector<float> v = Betas(s.len * s.head_dim_v, 3), w = Drawn(1, 24, s.head_dim);
  const auto run = [&] {
    RequestBuilder builder("performer");
    builder.Floats("q", {1, 1, s.len, s.head_dim}, q)
        .Floats("k", {1, 1, s.len, s.head_dim}, k)
        .Floats("v", {1, 1, s.len, s.head_dim_v}, v)
        .Floats("projection", {24, s.head_dim}, w)
        .Param("causal", true);
    std::vector<double> before = RunByName(builder.request()).at("output");
    before.resize(static_cast<size_t>(40 * s.head_dim_v));
    return before;
  };
  // Weak keys, then one whose features are e^150 times as large.
  for (int64_t c = 0; c < s.head_dim; ++c) {
    for (int64_t t = 0; t < 40; ++t) k[static_cast<size_t>(t * s.head_dim + c)] *= 120;
  }
  const std::vector<double> alone = run();
  for (int64_t c = 0; c < s.head_dim; ++c) k[static_cast<size_t>(40 * s.head_dim + c)] = 0;
  ExpectResultsNear(run(), alone, 1e-5, "tokens before it");
}

TEST_P(Performer, ReducesToAveragesAtScaleZero) {
  const RecurrentSizes s = {1, 2, 1, 70, 8, 8};
  RequestBuilder performer = RecurrentRequest("performer", s, 4);
  performer.Param("scale", 0.0).Param("causal", true).Param("num_features", 10.0);
  RequestBuilder average = RecurrentRequest("average", s, 4);
  average.Param("causal", true);
  ExpectResultsNear(RunByName(performer.request()).at("output"),
                    RunByName(average.request()).at("output"), 1e-5, "equal weights");
}

TEST(PerformerErrors, NoFeaturesAreRefused) {
  RequestBuilder builder = RecurrentRequest("performer", {1, 1, 1, 5, 4, 3}, 1);
  builder.Param("num_features", 0.0);
  EXPECT_THROW(RunByName(builder.request()), Error);
  RequestBuilder both = RecurrentRequest("performer", {1, 1, 1, 5, 4, 3}, 1);
  both.Floats("projection", {2, 4}, Drawn(1, 2, 4)).Param("num_features", 2.0);
  EXPECT_THROW(RunByName(both.request()), Error);
  EXPECT_THROW(DrawRandomFeatures(1, MatrixView<float>(nullptr, 0, 4)), Error);
  const std::vector<float> x(3), y(4);
  EXPECT_THROW(RandomFeatureVariance(x, y, 1, 8), Error);
  EXPECT_THROW(RandomFeatureVariance(x, x, 1, 0), Error);
}

}  // namespace
}  // namespace heed::testing
