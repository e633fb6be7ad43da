#include "gradient_case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/exact/problem.h"
#include "src/parallel/dry_run.h"

namespace heed::testing {
namespace {

using ::testing::ElementsAre;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Gradients of the named tensors of a case.
constexpr std::pair<const char*, TensorView<float> AttentionGradients::*> kTensors[] = {
    {"distance_bias", &AttentionGradients::d_distance_bias},
    {"bucket_bias", &AttentionGradients::d_bucket_bias},
    {"log_gates", &AttentionGradients::d_log_gates},
    {"score_matrix", &AttentionGradients::d_score_matrix},
    {"query_weight", &AttentionGradients::d_query_weight},
    {"key_weight", &AttentionGradients::d_key_weight},
    {"score_vector", &AttentionGradients::d_score_vector},
    {"relative_keys", &AttentionGradients::d_relative_keys},
    {"relative_queries", &AttentionGradients::d_relative_queries},
    {"relative_values", &AttentionGradients::d_relative_values},
    {"content_bias", &AttentionGradients::d_content_bias},
    {"position_bias", &AttentionGradients::d_position_bias},
    {"cope_table", &AttentionGradients::d_cope_table}};

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
  std::map<std::string, Buffer<float>> tensors;
  for (const auto& [name, to] : kTensors) {
    if (count(name) == 0) continue;
    Buffer<float>& buffer = tensors[name] = like(c.tensors.at(name).buffer);
    gradients.*to = buffer.view();
  }
  if (gradients.d_log_gates.has_value()) {
    // [1, batch, heads, kv_len] as the options take it.
    const TensorView<float> view = gradients.d_log_gates;
    gradients.d_log_gates = {view.data,
                             {view.shape[1], view.shape[2], 1, view.shape[3]},
                             {view.strides[1], view.strides[2], 0, view.strides[3]}};
  }
  TensorView<const float> lse;
  if (HasLse(c)) lse = std::as_const(forward.lse).view();
  if (cotangents.lse.has_value()) gradients.d_lse = cotangents.lse.view();
  if (!c.score_mod.empty()) {
    gradients.score_mod_slope = CompileSlope("score_mod", c.score_mod, ExpressionValue::kScore);
  }
  if (!c.prob_mod.empty()) {
    gradients.prob_mod_slope = CompileSlope("prob_mod", c.prob_mod, ExpressionValue::kProb);
  }
  AttentionBackward(c.q.view(), c.k.view(), c.v.view(), forward.output.view(), lse,
                    cotangents.output.view(), c.options(), gradients, pool);
  Values values;
  tensors["q"] = d_q;
  tensors["k"] = d_k;
  tensors["v"] = d_v;
  if (d_bias.has_value()) tensors["bias"] = d_bias;
  for (const auto& [name, buffer] : tensors) {
    values[name] = Doubles(buffer.Elements());
    EXPECT_TRUE(buffer.GapsAreUntouched()) << name << ": " << c.Describe();
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

void ExpectThreadsChangeNoBit(const AttentionCase& c) {
  const Cotangents cotangents = MakeCotangents(c);
  const auto one = MakeThreadPool(1);
  const Values expected = RunBackward(c, cotangents, one.get());
  for (const int threads : {2, 3}) {
    const auto pool = MakeThreadPool(threads);
    EXPECT_EQ(RunBackward(c, cotangents, pool.get()), expected) << threads << c.Describe();
  }
}

void ExpectEmptyRowsGiveZeros(AttentionCase c) {
  c.key_lengths = {0, 0};
  Cotangents cotangents = MakeCotangents(c);
  cotangents.output(0, 0, 0, 0) = kNan;
  if (cotangents.lse.has_value()) {
    cotangents.lse(0, 0, 0, 0) = std::numeric_limits<float>::infinity();
  }
  for (const auto& [name, gradient] : RunBackward(c, cotangents)) {
    EXPECT_THAT(gradient, ::testing::Each(0.0)) << name << ": " << c.Describe();
  }
}

void ExpectMaskedNanDoesNotMatter(AttentionCase c) {
  c.key_lengths = {4, 5};
  const Cotangents cotangents = MakeCotangents(c);
  const Values expected = RunBackward(c, cotangents);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t j = 4 + b; j < 7; ++j) {
      c.k(b, 0, j, 1) = c.k(b, 1, j, 2) = kNan;
      c.v(b, 0, j, 1) = -std::numeric_limits<float>::infinity();
    }
  }
  EXPECT_EQ(RunBackward(c, cotangents), expected) << c.Describe();
}

std::vector<bool> LostRows(const std::vector<double>& gradient, int64_t dim) {
  std::vector<bool> lost(gradient.size() / static_cast<size_t>(dim));
  for (size_t n = 0; n < gradient.size(); ++n) {
    if (std::isnan(gradient[n])) lost[n / static_cast<size_t>(dim)] = true;
  }
  return lost;
}

void ExpectNanReachesWhatSeesIt(AttentionCase c) {
  c.scalars.causal = true;
  c.q(0, 0, 2, 1) = kNan;  // query 2 sees all but key 3
  Values lost = RunBackward(c, MakeCotangents(c));
  EXPECT_THAT(LostRows(lost["q"], 3), ElementsAre(false, false, true, false)) << c.Describe();
  EXPECT_THAT(LostRows(lost["k"], 3), ElementsAre(true, true, true, false)) << c.Describe();
  EXPECT_THAT(LostRows(lost["v"], 2), ElementsAre(true, true, true, false)) << c.Describe();
  c.q(0, 0, 2, 1) = 0;
  Cotangents cotangents = MakeCotangents(c);
  cotangents.output(0, 0, 1, 0) = kNan;  // query 1 sees keys 0 and 1
  lost = RunBackward(c, cotangents);
  EXPECT_THAT(LostRows(lost["q"], 3), ElementsAre(false, true, false, false)) << c.Describe();
  EXPECT_THAT(LostRows(lost["k"], 3), ElementsAre(true, true, false, false)) << c.Describe();
  EXPECT_THAT(LostRows(lost["v"], 2), ElementsAre(true, true, false, false)) << c.Describe();
}

int64_t BackwardScratch(int64_t len, const AttentionOptions& options,
                        AttentionGradients gradients) {
  static float nothing = 0;
  const auto view = [&](int64_t dim) {
    return TensorView<float>{&nothing, {1, 1, len, dim}, {len * dim, len * dim, dim, 1}};
  };
  gradients.d_q = gradients.d_k = gradients.d_v = view(64);
  TensorView<const float> lse;
  if (HasLse(options)) lse = view(1);
  DryRun dry;
  IdlePool pool(1);
  AttentionBackward(view(64), view(64), view(64), view(64), lse, view(64), options, gradients,
                    &pool);
  return dry.most_bytes();
}

}  // namespace heed::testing
