// TTT-Linear: against the oracle over odd sizes, states and lengths, and what it is a gradient of.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "composed_case.h"
#include "heed/error.h"
#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class TttLinear : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(TttLinear);

std::vector<float> Times(std::vector<float> values, float factor) {
  for (float& x : values) x *= factor;
  return values;
}

// A model, as learned ones are: with weights of its own. Both halves alike.
std::vector<float> Models(const RecurrentSizes& s) {
  const int64_t floats = (s.head_dim + 1) * s.head_dim;
  std::vector<float> models;
  for (int64_t head = 0; head < s.batch * s.num_kv_heads; ++head) {
    std::vector<float> model = LogDecays(floats, 40 + static_cast<uint64_t>(head));
    for (size_t n = 0; n < model.size(); n += 2) model[n] *= -1;
    models.insert(models.end(), model.begin(), model.end());
    models.insert(models.end(), model.begin(), model.end());
  }
  return models;
}

RequestBuilder LearningRequest(const RecurrentSizes& s, float rate, int64_t mini_batch) {
  RequestBuilder builder = RecurrentRequest("ttt_linear", s, 7);
  const int64_t dim = s.head_dim;
  builder
      .Floats("beta", {s.batch, s.num_kv_heads, s.len},
              Times(Betas(s.batch * s.num_kv_heads * s.len, 9), rate))
      .Floats("inner_norm_weight", {s.num_kv_heads, dim}, Betas(s.num_kv_heads * dim, 3))
      .Floats("inner_norm_bias", {s.num_kv_heads, dim}, LogDecays(s.num_kv_heads * dim, 4))
      .Floats("initial_state", {s.batch, s.num_kv_heads, 2 * (dim + 1), dim}, Models(s))
      .Param("mini_batch", static_cast<double>(mini_batch))
      .Param("return_state", true);
  return builder;
}

TEST_P(TttLinear, MatchesReference) {
  for (const RecurrentSizes& s : {RecurrentSizes{1, 1, 1, 5, 4, 4},
                                  {2, 4, 2, 63, 16, 16},
                                  {1, 3, 1, 64, 17, 17},
                                  {1, 2, 2, 150, 40, 40}}) {
    for (const int64_t mini_batch : {16, 1, 7, 64, 100}) {
      ExpectMatchesOracle(
          LearningRequest(s, 0.1f, mini_batch).request(),
          "length " + std::to_string(s.len) + ", mini-batches of " + std::to_string(mini_batch));
    }
  }
}

TEST_P(TttLinear, OffsetsAndLengthsMatchReference) {
  const RecurrentSizes s = {2, 4, 2, 50, 12, 12};
  RequestBuilder builder = LearningRequest(s, 0.1f, 16);
  builder.Integers("key_lengths", {2}, {0, 37})
      .Param("position_offset", std::vector<double>{3, 21});
  ExpectMatchesOracle(builder.request(), "from within a mini-batch");
}

// W after one token is W - rate * the gradient of half the squared error, by finite differences.
TEST_P(TttLinear, DescendsTheGradientOfItsLoss) {
  const int64_t dim = 5;
  const std::vector<float> k = {0.3f, -0.7f, 0.2f, 0.9f, -0.4f}, v = {1, -1, 0.5f, 2, -0.3f};
  const std::vector<float> weight = {1, 0.5f, 2, 1.5f, 0.7f}, bias = {0.1f, 0, -0.2f, 0.3f, 0};
  std::vector<double> model;
  for (int64_t n = 0; n < (dim + 1) * dim; ++n) model.push_back(std::sin(1.7 * n));
  const auto loss = [&](const std::vector<double>& w) {
    std::vector<double> z(w.end() - dim, w.end());
    for (int64_t c = 0; c < dim; ++c) {
      for (int64_t e = 0; e < dim; ++e) z[e] += k[c] * w[c * dim + e];
    }
    double mean = 0, variance = 0, sum = 0;
    for (const double x : z) mean += x / dim;
    for (const double x : z) variance += (x - mean) * (x - mean) / dim;
    for (int64_t e = 0; e < dim; ++e) {
      const double normed = (z[e] - mean) / std::sqrt(variance + 1e-6);
      sum += std::pow(k[e] + weight[e] * normed + bias[e] - v[e], 2) / 2;
    }
    return sum;
  };
  std::vector<float> both(model.begin(), model.end());
  both.insert(both.end(), model.begin(), model.end());
  RequestBuilder builder("ttt_linear");
  builder.Floats("q", {1, 1, 1, dim}, k)
      .Floats("k", {1, 1, 1, dim}, k)
      .Floats("v", {1, 1, 1, dim}, v)
      .Floats("beta", {1, 1, 1}, {0.25f})
      .Floats("inner_norm_weight", {1, dim}, weight)
      .Floats("inner_norm_bias", {1, dim}, bias)
      .Floats("initial_state", {1, 1, 2 * (dim + 1), dim}, both)
      .Param("return_state", true);
  const std::vector<double> state = RunByName(builder.request()).at("state");
  for (size_t n = 0; n < model.size(); ++n) {
    std::vector<double> above = model, below = model;
    above[n] += 1e-5;
    below[n] -= 1e-5;
    const double gradient = (loss(above) - loss(below)) / 2e-5;
    EXPECT_NEAR(state[model.size() + n], model[n] - 0.25 * gradient, 1e-5) << n;
    EXPECT_NEAR(state[n], model[n], 1e-6) << "the mini-batch began with it";
  }
}

TEST_P(TttLinear, GivesTheNumbersOfItsDefinition) {
  // Rate 0 and a bias of (3, 1): a norm of (1, -1) on top of the query.
  RequestBuilder builder("ttt_linear");
  builder.Floats("q", {1, 1, 1, 2}, {5, 7})
      .Floats("k", {1, 1, 1, 2}, {1, 2})
      .Floats("v", {1, 1, 1, 2}, {9, 9})
      .Floats("beta", {1, 1, 1}, {0})
      .Floats("initial_state", {1, 1, 6, 2}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 1});
  ExpectResultsNear(RunByName(builder.request()).at("output"), {6, 6}, 1e-6, "6, 6");
}

TEST_P(TttLinear, ReducesToOnlineDescentWithMiniBatchesOfOne) {
  // The same tokens one by one, each call a mini-batch of its own.
  const RecurrentSizes s = {1, 1, 1, 20, 8, 8};
  const std::vector<float> q = LogDecays(160, 1), k = LogDecays(160, 2), v = Betas(160, 3);
  std::vector<float> state = Models(s);
  std::vector<double> outputs;
  const auto request = [&](int64_t from, int64_t to, const std::vector<float>& models,
                           double mini_batch) {
    const auto part = [&](const std::vector<float>& all) {
      return std::vector<float>(all.begin() + from * 8, all.begin() + to * 8);
    };
    RequestBuilder builder("ttt_linear");
    builder.Floats("q", {1, 1, to - from, 8}, part(q))
        .Floats("k", {1, 1, to - from, 8}, part(k))
        .Floats("v", {1, 1, to - from, 8}, part(v))
        .Floats("initial_state", {1, 1, 18, 8}, models)
        .Param("mini_batch", mini_batch)
        .Param("return_state", true);
    builder.Floats("beta", {1, 1, to - from},
                   std::vector<float>(static_cast<size_t>(to - from), 0.1f));
    return RunByName(builder.request());
  };
  for (int64_t t = 0; t < 20; ++t) {
    const Values one = request(t, t + 1, state, 16);
    outputs.insert(outputs.end(), one.at("output").begin(), one.at("output").end());
    state.assign(one.at("state").begin(), one.at("state").end());
  }
  ExpectResultsNear(request(0, 20, Models(s), 1).at("output"), outputs, 2e-5,
                    "mini-batches of one");
}

// position_rate: 1, 1/2, 1/3, ... as in the authors' code, with a place that takes nothing.
std::vector<float> PlaceRates(int64_t mini_batch) {
  std::vector<float> rates;
  for (int64_t n = 1; n <= mini_batch; ++n) {
    rates.push_back(n == 3 ? 0 : 2 / static_cast<float>(n + 1));
  }
  return rates;
}

TEST_P(TttLinear, RatesOfPositionsMatchReference) {
  for (const RecurrentSizes& s :
       {RecurrentSizes{1, 1, 1, 5, 4, 4}, {2, 4, 2, 63, 16, 16}, {1, 2, 2, 150, 40, 40}}) {
    for (const int64_t mini_batch : {16, 1, 7, 64, 100}) {
      RequestBuilder builder = LearningRequest(s, 0.1f, mini_batch);
      builder.Floats("position_rate", {mini_batch}, PlaceRates(mini_batch));
      ExpectMatchesOracle(builder.request(), "length " + std::to_string(s.len) +
                                                 ", mini-batches of " + std::to_string(mini_batch));
    }
  }
  const RecurrentSizes s = {2, 4, 2, 50, 12, 12};
  for (const double offset : {0.0, 13.0, 16.0, 0x1p53 - 100}) {
    RequestBuilder builder = LearningRequest(s, 0.1f, 16);
    builder.Floats("position_rate", {16}, PlaceRates(16))
        .Integers("key_lengths", {2}, {0, 37})
        .Param("position_offset", std::vector<double>{offset, offset + 18});
    ExpectMatchesOracle(builder.request(), "offset " + std::to_string(offset));
  }
}

TEST_P(TttLinear, RatesOfPositionsReduceToOneModelAndToNone) {
  const RecurrentSizes s = {1, 2, 1, 40, 8, 8};
  const auto run = [&](const std::vector<float>& rates) {
    RequestBuilder builder = LearningRequest(s, 0.1f, 16);
    if (!rates.empty()) builder.Floats("position_rate", {16}, rates);
    return RunByName(builder.request());
  };
  const Values plain = run({}), ones = run(std::vector<float>(16, 1.0f));
  ExpectResultsNear(ones.at("output"), plain.at("output"), 2e-5, "rates of 1");
  ExpectResultsNear(ones.at("state"), plain.at("state"), 2e-5, "states with rates of 1");
  // Rates of 0: every query asks the model that the sequence began with.
  RequestBuilder still = LearningRequest(s, 0, 16);
  ExpectResultsNear(run(std::vector<float>(16, 0.0f)).at("output"),
                    RunByName(still.request()).at("output"), 2e-5, "rates of 0");
}

// The last place alone decides what the next mini-batch begins with.
TEST_P(TttLinear, TheLastPlaceGivesTheNextModel) {
  const RecurrentSizes s = {1, 1, 1, 8, 6, 6};
  const auto run = [&](const std::vector<float>& rates, float rate) {
    RequestBuilder builder = LearningRequest(s, rate, 4);
    builder.Floats("position_rate", {4}, rates);
    const std::vector<double> all = RunByName(builder.request()).at("output");
    return std::vector<double>(all.end() - 4 * 6, all.end() - 3 * 6);  // of token 4
  };
  const std::vector<double> half = run({0.25f, 1, 1, 0.5f}, 0.1f);
  ExpectResultsNear(run({0.25f, -3, 0, 0.5f}, 0.1f), half, 1e-6, "other places");
  const std::vector<double> whole = run({0.25f, 1, 1, 1}, 0.1f);
  double apart = 0;
  for (size_t n = 0; n < half.size(); ++n) apart = std::max(apart, std::abs(half[n] - whole[n]));
  EXPECT_GT(apart, 1e-3);
}

TEST_P(TttLinear, WhatLiesBehindTheLengthIsNotReadWithRates) {
  const RecurrentSizes s = {1, 2, 1, 30, 8, 8};
  const auto run = [&](float fill) {
    RequestBuilder builder = LearningRequest(s, 0.1f, 16);
    builder.Floats("position_rate", {16}, PlaceRates(16)).Integers("key_lengths", {1}, {21});
    for (const NamedTensor& input : builder.request().inputs) {
      float* data = static_cast<float*>(input.tensor.data);
      if (input.name == "k" || input.name == "v") std::fill(data + 21 * 8, data + 30 * 8, fill);
    }
    return RunByName(builder.request());
  };
  EXPECT_EQ(run(1), run(std::numeric_limits<float>::quiet_NaN()));
}

TEST_P(TttLinear, ThreadsChangeNoBitWithRates) {
  RequestBuilder builder = LearningRequest({2, 4, 2, 70, 12, 12}, 0.1f, 16);
  builder.Floats("position_rate", {16}, PlaceRates(16));
  ExpectSameBitsForAnyThreads(builder.request());
}

TEST(TttLinearErrors, RatesOfPositionsAreAsManyAsAMiniBatch) {
  const auto expect = [](ErrorCode code, const std::vector<float>& rates) {
    RequestBuilder builder = RecurrentRequest("ttt_linear", {1, 1, 1, 5, 4, 4}, 1);
    builder.Param("mini_batch", 4.0)
        .Floats("position_rate", {static_cast<int64_t>(rates.size())}, rates);
    ExpectBothRefuse(builder.request(), code, "position_rate");
  };
  expect(ErrorCode::kShape, {1, 1, 1});
  expect(ErrorCode::kShape, {1, 1, 1, 1, 1});
  expect(ErrorCode::kRange, {1, 1, std::numeric_limits<float>::infinity(), 1});
}

TEST(TttLinearErrors, NameTheArgument) {
  RequestBuilder none = RecurrentRequest("ttt_linear", {1, 1, 1, 5, 4, 4}, 1);
  none.Param("mini_batch", 0.0);
  EXPECT_THROW(RunByName(none.request()), Error);
  RequestBuilder narrow = RecurrentRequest("ttt_linear", {1, 1, 1, 5, 4, 3}, 1);
  EXPECT_THROW(RunByName(narrow.request()), Error);
}

}  // namespace
}  // namespace heed::testing
