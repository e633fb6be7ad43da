#include "recurrent_case.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "heed/recurrent.h"
#include "heed/registry.h"
#include "random.h"
#include "random_request.h"

namespace heed::testing {
namespace {

std::vector<float> Normals(int64_t count, uint64_t seed, float scale = 1) {
  Random random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = scale * random.Normal();
  return values;
}

}  // namespace

std::vector<RecurrentSizes> ManySizes() {
  return {{1, 1, 1, 1, 1, 1},    {1, 1, 1, 5, 4, 3},    {2, 4, 2, 63, 16, 16},
          {1, 3, 1, 64, 17, 9},  {1, 2, 2, 65, 32, 33}, {2, 2, 1, 150, 24, 40},
          {1, 1, 1, 200, 64, 64}};
}

RequestBuilder RecurrentRequest(const std::string& id, const RecurrentSizes& s, uint64_t seed) {
  const float unit = 1 / std::sqrt(static_cast<float>(s.head_dim));
  RequestBuilder builder(id);
  builder
      .Floats("q", {s.batch, s.num_heads, s.len, s.head_dim},
              Normals(s.batch * s.num_heads * s.len * s.head_dim, seed))
      .Floats("v", {s.batch, s.num_kv_heads, s.len, s.head_dim_v},
              Normals(s.batch * s.num_kv_heads * s.len * s.head_dim_v, seed + 2));
  if (!Lists(FindMechanism(id)->inputs, "k")) return builder;
  builder.Floats("k", {s.batch, s.num_kv_heads, s.len, s.head_dim},
                 Normals(s.batch * s.num_kv_heads * s.len * s.head_dim, seed + 1, unit));
  return builder;
}

std::vector<float> LogDecays(int64_t count, uint64_t seed) {
  std::vector<float> values = Normals(count, seed);
  for (float& value : values) value = -1e-3f - 0.2f * std::abs(value);
  return values;
}

std::vector<float> Betas(int64_t count, uint64_t seed) {
  std::vector<float> values = Normals(count, seed);
  for (float& value : values) value = 1 / (1 + std::exp(-value));
  return values;
}

void AddLogDecay(RequestBuilder& builder, const RecurrentSizes& s) {
  builder.Floats("log_decay", {s.batch, s.num_kv_heads, s.len},
                 LogDecays(s.batch * s.num_kv_heads * s.len, 8));
}

void AddBeta(RequestBuilder& builder, const RecurrentSizes& s) {
  builder.Floats("beta", {s.batch, s.num_kv_heads, s.len},
                 Betas(s.batch * s.num_kv_heads * s.len, 9));
}

void AddChannelLogDecay(RequestBuilder& builder, const RecurrentSizes& s) {
  builder.Floats("channel_log_decay", {s.batch, s.num_kv_heads, s.len, s.head_dim},
                 LogDecays(s.batch * s.num_kv_heads * s.len * s.head_dim, 8));
}

void ExpectResultsNear(const std::vector<double>& actual, const std::vector<double>& expected,
                       double error, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 0;
  for (const double x : expected) largest = std::max(largest, std::abs(x));
  for (size_t n = 0; n < expected.size(); ++n) {
    ASSERT_LE(std::abs(actual[n] - expected[n]), error * largest)
        << what << ", element " << n << ": " << actual[n] << " instead of " << expected[n];
  }
}

void ExpectMatchesOracle(const Request& request, const std::string& what) {
  const Values actual = RunByName(request);
  const Values expected = RunOracle(request);
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [name, values] : expected) {
    ExpectResultsNear(actual.at(name), values, kRecurrentMaxError, what + ": " + name);
  }
}

void ExpectRowMatchesOracle(const std::string& id, const AddInputs& add) {
  uint64_t seed = 1;
  for (const RecurrentSizes& s : ManySizes()) {
    for (const int chunk_len : {64, 1, 7, 33}) {
      RequestBuilder builder = RecurrentRequest(id, s, seed++);
      add(builder, s);
      builder.Param("chunk_len", static_cast<double>(chunk_len)).Param("return_state", true);
      ExpectMatchesOracle(builder.request(), "length " + std::to_string(s.len) + ", chunks of " +
                                                 std::to_string(chunk_len));
    }
  }
}

void ExpectStatesAndLengthsMatchOracle(const std::string& id, const AddInputs& add,
                                       int64_t more_cols, int64_t features) {
  const RecurrentSizes s = {2, 4, 2, 90, 12, 10};
  const int64_t cols = s.head_dim_v + more_cols, rows = features == 0 ? s.head_dim : features;
  RequestBuilder builder = RecurrentRequest(id, s, 77);
  add(builder, s);
  builder
      .Floats("initial_state", {s.batch, s.num_kv_heads, rows, cols},
              Betas(s.batch * s.num_kv_heads * rows * cols, 5))
      .Integers("key_lengths", {2}, {0, 70})
      .Param("return_state", true);
  ExpectMatchesOracle(builder.request(), "lengths 0 and 70");
}

}  // namespace heed::testing
