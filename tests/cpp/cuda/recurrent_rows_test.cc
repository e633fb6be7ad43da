// Rows of the registry whose recurrent kernels are their own (performer, log_linear, ttt_linear),
// on the device path, against the float64 reference.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "device_backend.h"
#include "gtest/gtest.h"
#include "heed/linear.h"
#include "recurrent_case.h"
#include "src/recurrent/problem.h"
#include "src/recurrent/request.h"

namespace heed::testing {
namespace {

class DeviceRows : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

int64_t Count(const Extents& shape) { return shape[0] * shape[1] * shape[2] * shape[3]; }

// What the device makes of a request; results are filled with NaN first.
Values RunOnDevice(const Request& request) {
  const heed::RecurrentRequest r = *ReadRecurrentRequest(request);
  const RecurrentProblem p = ValidateRecurrent(r.q, r.k, r.v, r.Options());
  const Extents shape = {p.batch, p.num_heads, p.q_len, p.head_dim_v};
  std::vector<float> output(static_cast<size_t>(Count(shape)), kNan);
  std::vector<float> state(static_cast<size_t>(Count(StateShape(p))), kNan);
  const auto view = [](std::vector<float>& floats, const Extents& e) {
    return Contiguous(floats.data(), e[0], e[1], e[2], e[3]);
  };
  RecurrentOutputs outputs = {view(output, shape)};
  if (r.return_state) outputs.final_state = view(state, StateShape(p));
  RunRecurrentOnDevice(r.q, r.k, r.v, r.Options(), outputs);
  Values values;
  values["output"].assign(output.begin(), output.end());
  if (r.return_state) values["state"].assign(state.begin(), state.end());
  return values;
}

void ExpectMatches(RequestBuilder& builder, const std::string& what) {
  builder.Param("return_state", true);
  const Values expected = RunOracle(builder.request()), actual = RunOnDevice(builder.request());
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [name, values] : expected) {
    ExpectResultsNear(actual.at(name), values, kRecurrentMaxError, what + ": " + name);
  }
}

std::string Text(const RecurrentSizes& s) {
  return "length " + std::to_string(s.len) + ", head_dim " + std::to_string(s.head_dim);
}

void AddProjection(RequestBuilder& builder, int64_t features, int64_t dim) {
  std::vector<float> projection(static_cast<size_t>(features * dim));
  DrawRandomFeatures(7, MatrixView(projection.data(), features, dim));
  builder.Floats("projection", {features, dim}, projection);
}

TEST_F(DeviceRows, PerformerMatchesTheReference) {
  for (const RecurrentSizes& s : ManySizes()) {
    for (const bool causal : {false, true}) {
      RequestBuilder builder = RecurrentRequest("performer", s, 5);
      AddProjection(builder, 2 * s.head_dim + 5, s.head_dim);
      builder.Param("causal", causal);
      ExpectMatches(builder, Text(s) + (causal ? ", causal" : ""));
    }
  }
}

TEST_F(DeviceRows, PerformerContinuesFromAStateAndSkipsLengths) {
  const RecurrentSizes s = {2, 4, 2, 90, 12, 10};
  for (const bool causal : {false, true}) {
    RequestBuilder builder = RecurrentRequest("performer", s, 77);
    AddProjection(builder, 29, s.head_dim);
    builder.Floats("initial_state", {2, 2, 29, s.head_dim_v + 2}, Betas(4 * 29 * (10 + 2), 5))
        .Integers("key_lengths", {2}, {0, 70})
        .Param("causal", causal);
    ExpectMatches(builder, causal ? "causal" : "not causal");
  }
}

TEST_F(DeviceRows, PerformerTakesScalesOfAnySignAndAsManyFeaturesAsFit) {
  for (const double scale : {-0.5, 0.0, 0.5}) {
    RequestBuilder builder = RecurrentRequest("performer", {1, 2, 1, 70, 6, 5}, 3);
    AddProjection(builder, 256, 6);
    builder.Param("scale", scale).Param("causal", true);
    ExpectMatches(builder, "scale " + std::to_string(scale));
  }
}

// A first key that is long has small exponents: its part of the state would vanish, or those of
// later keys overflow, were rows not relative to the largest exponent so far.
TEST_F(DeviceRows, PerformerFollowsKeysThatDifferByFarMoreThanFloatsReach) {
  std::vector<float> k = LogDecays(24, 3);
  for (size_t c = 0; c < 4; ++c) k[c] *= 100;
  RequestBuilder builder("performer");
  builder.Floats("q", {1, 1, 6, 4}, LogDecays(24, 1)).Floats("k", {1, 1, 6, 4}, k);
  builder.Floats("v", {1, 1, 6, 3}, Betas(18, 2)).Param("causal", true);
  AddProjection(builder, 13, 4);
  const Values actual = RunOnDevice(builder.request());
  ExpectResultsNear(actual.at("output"), RunOracle(builder.request()).at("output"), 1e-4, "output");
}

int64_t LevelsOf(int64_t tokens) { return std::bit_width(static_cast<uint64_t>(tokens)) + 1; }

void AddLevels(RequestBuilder& builder, const RecurrentSizes& s, int64_t levels) {
  builder.Floats("level_weights", {s.batch, s.num_heads, s.len, levels},
                 Betas(s.batch * s.num_heads * s.len * levels, 21));
}

TEST_F(DeviceRows, LogLinearMatchesTheReference) {
  for (const RecurrentSizes& s : ManySizes()) {
    RequestBuilder builder = RecurrentRequest("log_linear", s, 5);
    AddLogDecay(builder, s);
    AddBeta(builder, s);
    AddLevels(builder, s, LevelsOf(s.len));
    ExpectMatches(builder, Text(s));
  }
}

TEST_F(DeviceRows, LogLinearContinuesFromItsLevels) {
  const RecurrentSizes s = {2, 4, 2, 90, 12, 10};
  for (const int64_t before : {0, 1, 38, 64, 127}) {
    RequestBuilder builder = RecurrentRequest("log_linear", s, 77);
    AddLogDecay(builder, s);
    AddLevels(builder, s, 10);
    builder
        .Floats("initial_state", {2, 2, 9 * s.head_dim, s.head_dim_v},
                Betas(4 * 9 * s.head_dim * s.head_dim_v, 5))
        .Integers("key_lengths", {2}, {70, 0})
        .Param("position_offset", std::vector<double>{static_cast<double>(before), 5});
    ExpectMatches(builder, std::to_string(before) + " tokens before");
  }
}

TEST_F(DeviceRows, LogLinearTakesAsManyTokensAsItsLevelsHold) {
  for (const int64_t levels : {1, 4, 7}) {
    const RecurrentSizes s = {2, 4, 2, int64_t{1} << (levels - 1), 12, 10};
    RequestBuilder builder = RecurrentRequest("log_linear", s, 77);
    AddLogDecay(builder, s);
    AddLevels(builder, s, levels);
    ExpectMatches(builder, std::to_string(levels) + " levels");
  }
}

// Models with weights of their own, as learned ones have, the same twice.
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

RequestBuilder LearningRequest(const RecurrentSizes& s, int64_t mini_batch) {
  const int64_t dim = s.head_dim;
  std::vector<float> rates = Betas(s.batch * s.num_kv_heads * s.len, 9);
  for (float& rate : rates) rate *= 0.1f;
  RequestBuilder builder = RecurrentRequest("ttt_linear", s, 7);
  builder.Floats("beta", {s.batch, s.num_kv_heads, s.len}, rates)
      .Floats("inner_norm_weight", {s.num_kv_heads, dim}, Betas(s.num_kv_heads * dim, 3))
      .Floats("inner_norm_bias", {s.num_kv_heads, dim}, LogDecays(s.num_kv_heads * dim, 4))
      .Floats("initial_state", {s.batch, s.num_kv_heads, 2 * (dim + 1), dim}, Models(s))
      .Param("mini_batch", static_cast<double>(mini_batch));
  return builder;
}

TEST_F(DeviceRows, TttLinearMatchesTheReference) {
  for (const RecurrentSizes& s : {RecurrentSizes{1, 1, 1, 5, 4, 4},
                                  {2, 4, 2, 63, 16, 16},
                                  {1, 3, 1, 64, 17, 17},
                                  {1, 2, 2, 20, 150, 150}}) {
    for (const int64_t mini_batch : {16, 1, 7, 100}) {
      RequestBuilder builder = LearningRequest(s, mini_batch);
      ExpectMatches(builder, Text(s) + ", mini-batches of " + std::to_string(mini_batch));
    }
  }
}

TEST_F(DeviceRows, TttLinearCountsMiniBatchesFromItsPositionAndSkipsLengths) {
  RequestBuilder builder = LearningRequest({2, 4, 2, 30, 12, 12}, 8);
  builder.Integers("key_lengths", {2}, {0, 21})
      .Param("position_offset", std::vector<double>{3, 13});
  ExpectMatches(builder, "from within a mini-batch");
}

TEST_F(DeviceRows, TttLinearTakesRatesOfPositions) {
  RequestBuilder builder = LearningRequest({2, 4, 2, 30, 12, 12}, 4);
  builder.Floats("position_rate", {4}, {1, 0.5f, -0.25f, 0.75f})
      .Integers("key_lengths", {2}, {0, 21})
      .Param("position_offset", std::vector<double>{3, 13});
  ExpectMatches(builder, "from within a mini-batch");
}

// A model of zeros, without a norm of its own.
TEST_F(DeviceRows, TttLinearStartsFromNothing) {
  RequestBuilder builder = RecurrentRequest("ttt_linear", {1, 1, 1, 9, 5, 5}, 7);
  std::vector<float> rates(9, 1e-4f);
  builder.Floats("beta", {1, 1, 9}, rates).Param("mini_batch", 4.0);
  ExpectMatches(builder, "zeros");
}

RequestBuilder RequestOf(const std::string& id, const RecurrentSizes& s) {
  if (id == "ttt_linear") return LearningRequest(s, 4);
  RequestBuilder builder = RecurrentRequest(id, s, 5);
  if (id == "performer") AddProjection(builder, 19, s.head_dim);
  if (id == "performer") builder.Param("causal", true);
  if (id == "log_linear") AddLevels(builder, s, LevelsOf(s.len));
  return builder;
}

float* DataOf(const RequestBuilder& builder, const std::string& name) {
  for (const NamedTensor& input : builder.request().inputs) {
    if (input.name == name) return static_cast<float*>(input.tensor.data);
  }
  return nullptr;
}

// What lies behind the lengths is not read, and a key that holds NaN reaches no earlier token.
TEST_F(DeviceRows, PoisonStaysWithTheTokensThatSeeIt) {
  const RecurrentSizes s = {1, 2, 1, 20, 6, 6};
  for (const std::string id : {"performer", "log_linear", "ttt_linear"}) {
    RequestBuilder clean = RequestOf(id, s), poisoned = RequestOf(id, s),
                   bad_key = RequestOf(id, s);
    clean.Integers("key_lengths", {1}, {13});
    poisoned.Integers("key_lengths", {1}, {13});
    for (const char* name : {"k", "v"}) std::fill_n(DataOf(poisoned, name) + 13 * 6, 7 * 6, kNan);
    EXPECT_EQ(RunOnDevice(poisoned.request()), RunOnDevice(clean.request())) << id;
    const std::vector<double> before = RunOnDevice(bad_key.request()).at("output");
    DataOf(bad_key, "k")[9 * 6 + 2] = kNan;
    const std::vector<double> after = RunOnDevice(bad_key.request()).at("output");
    for (size_t n = 0; n < after.size(); ++n) {
      const bool sees = n / 6 % 20 >= 9;
      EXPECT_TRUE(sees ? std::isnan(after[n]) : after[n] == before[n]) << id << " [" << n << "]";
    }
  }
}

}  // namespace
}  // namespace heed::testing
