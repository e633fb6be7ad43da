#include "gradient_case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "gtest/gtest.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Buffer<float> MakeNormal(const Extents& shape, Random& random, Layout layout) {
  Buffer<float> buffer(shape, layout, kNan);
  buffer.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x = random.Normal(); });
  return buffer;
}

std::vector<double> Doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

Layout OutputLayout(const AttentionCase& c) { return c.output_layout; }

double LargestOf(const std::vector<double>& values) {
  double largest = 0;
  for (const double x : values) largest = std::max(largest, std::abs(x));
  return largest;
}

double Bound(double size) { return kGradientMaxError * std::max(1.0, size / 16); }

}  // namespace

Cotangents MakeCotangents(const AttentionCase& c, uint64_t seed, Layout layout) {
  Random random(seed);
  const Sizes& s = c.sizes;
  Cotangents cotangents;
  cotangents.output = MakeNormal({s.batch, s.num_heads, s.q_len, s.head_dim_v}, random, layout);
  if (HasLse(c)) {
    cotangents.lse = MakeNormal({s.batch, s.num_heads, s.q_len, 1}, random, layout);
  }
  return cotangents;
}

Values RunBackward(const AttentionCase& c, const Cotangents& cotangents, ThreadPool* pool) {
  const Results forward = RunAttention(c, {.lse = HasLse(c)}, pool);
  const auto like = [&](const Buffer<float>& buffer) {
    return Buffer<float>(buffer.shape(), OutputLayout(c), kNan);
  };
  Buffer<float> d_q = like(c.q), d_k = like(c.k), d_v = like(c.v), d_bias;
  std::vector<float> d_slopes(c.alibi_slopes.size(), kNan), d_sinks(c.sinks.size(), kNan);
  AttentionGradients gradients;
  gradients.d_q = d_q.view();
  gradients.d_k = d_k.view();
  gradients.d_v = d_v.view();
  if (c.bias.has_value()) {
    d_bias = like(c.bias);
    gradients.d_bias = d_bias.view();
  }
  gradients.d_alibi_slopes = d_slopes;
  gradients.d_sinks = d_sinks;
  const auto count = [&](const char* name) {
    const auto found = c.tensors.find(name);
    return found == c.tensors.end() ? 0 : static_cast<size_t>(found->second.buffer.size());
  };
  std::vector<float> d_width(c.width.size(), kNan), d_temperature(count("temperature"), kNan);
  std::vector<float> d_score_bias(count("score_bias"), kNan);
  gradients.d_width = d_width;
  gradients.d_temperature = d_temperature;
  gradients.d_score_bias = d_score_bias;
  Buffer<float> d_matrix, d_distance_bias, d_bucket_bias, d_gates;
  Buffer<float> d_query_weight, d_key_weight, d_score_vector;
  const auto add = [&](const char* name, Buffer<float>& buffer, TensorView<float>& to) {
    if (count(name) == 0) return;
    buffer = like(c.tensors.at(name).buffer);
    to = buffer.view();
  };
  add("score_matrix", d_matrix, gradients.d_score_matrix);
  add("distance_bias", d_distance_bias, gradients.d_distance_bias);
  add("bucket_bias", d_bucket_bias, gradients.d_bucket_bias);
  add("query_weight", d_query_weight, gradients.d_query_weight);
  add("key_weight", d_key_weight, gradients.d_key_weight);
  add("score_vector", d_score_vector, gradients.d_score_vector);
  add("log_gates", d_gates, gradients.d_log_gates);
  if (d_gates.has_value()) {
    // [1, batch, heads, kv_len] as the options take it.
    const TensorView<float> view = d_gates.view();
    gradients.d_log_gates = {view.data,
                             {view.shape[1], view.shape[2], 1, view.shape[3]},
                             {view.strides[1], view.strides[2], 0, view.strides[3]}};
  }
  TensorView<const float> lse;
  if (HasLse(c)) lse = std::as_const(forward.lse).view();
  if (cotangents.lse.has_value()) gradients.d_lse = cotangents.lse.view();
  AttentionBackward(c.q.view(), c.k.view(), c.v.view(), forward.output.view(), lse,
                    cotangents.output.view(), c.options(), gradients, pool);
  Values values;
  for (const auto& [name, buffer] :
       {std::pair{"q", &d_q}, std::pair{"k", &d_k}, std::pair{"v", &d_v},
        std::pair{"bias", &d_bias}, std::pair{"score_matrix", &d_matrix},
        std::pair{"distance_bias", &d_distance_bias}, std::pair{"bucket_bias", &d_bucket_bias},
        std::pair{"log_gates", &d_gates}, std::pair{"query_weight", &d_query_weight},
        std::pair{"key_weight", &d_key_weight}, std::pair{"score_vector", &d_score_vector}}) {
    if (!buffer->has_value()) continue;
    values[name] = Doubles(buffer->Elements());
    EXPECT_TRUE(buffer->GapsAreUntouched()) << name << ": " << c.Describe();
  }
  for (const auto& [name, sums] :
       {std::pair{"alibi_slopes", &d_slopes}, std::pair{"sinks", &d_sinks},
        std::pair{"width", &d_width}, std::pair{"temperature", &d_temperature},
        std::pair{"score_bias", &d_score_bias}}) {
    if (!sums->empty()) values[name] = Doubles(*sums);
  }
  return values;
}

GradientOracle MakeOracle(const AttentionCase& c, const Cotangents& cotangents) {
  Request request = c.request();
  Values by_name = {{"output", Doubles(cotangents.output.Elements())}};
  if (cotangents.lse.has_value()) {
    request.params.push_back({"return_lse", true});
    by_name["lse"] = Doubles(cotangents.lse.Elements());
  }
  return GradientOracle(request, by_name);
}

void ExpectGradientsMatch(const AttentionCase& c, double size) {
  const Cotangents cotangents = MakeCotangents(c);
  GradientOracle oracle = MakeOracle(c, cotangents);
  for (const auto& [name, actual] : RunBackward(c, cotangents)) {
    const std::vector<double> expected = oracle.Gradient(name);
    ASSERT_EQ(actual.size(), expected.size()) << name;
    // Central differences of a sum of many terms are no better than 1e-8 themselves.
    const double bound = Bound(size) * LargestOf(expected) + 1e-8;
    for (size_t n = 0; n < actual.size(); ++n) {
      ASSERT_NEAR(actual[n], expected[n], bound) << name << "[" << n << "]: " << c.Describe();
    }
  }
}

void ExpectDirectionsMatch(const AttentionCase& c, int count, double size) {
  const Cotangents cotangents = MakeCotangents(c);
  GradientOracle oracle = MakeOracle(c, cotangents);
  const Values gradients = RunBackward(c, cotangents);
  Random random(11);
  for (int n = 0; n < count; ++n) {
    for (const auto& [name, gradient] : gradients) {
      ExpectAlong(oracle, name, gradient, Bound(size), random, c.Describe());
    }
  }
}

}  // namespace heed::testing
