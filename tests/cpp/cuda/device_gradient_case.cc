#include "device_gradient_case.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "device_backend.h"
#include "gtest/gtest.h"
#include "stored_buffer.h"

namespace heed::testing {
namespace {

const float kNan = std::nanf("");

// What rounding to a type adds: before the products, of the result, and below which number weights
// and gradients of scores are no more precise than it.
struct TypeBound {
  double products, rounding, least;
};
TypeBound BoundOf(DType dtype) {
  if (dtype == DType::kFloat16) return {cuda::kFloat16Products, kFloat16Rounding, 0x1p-14};
  if (dtype == DType::kBFloat16) return {cuda::kBFloat16Products, kBFloat16Rounding, 0};
  return {0, 0, 0};
}

double Bound(double size) { return kGradientMaxError * std::max(1.0, size / 16); }

double LargestOf(const std::vector<double>& values) {
  double largest = 0;
  for (const double x : values) largest = std::max(largest, std::abs(x));
  return largest;
}

// The case with a bias that has a cell for every pair, so that its gradient is that of the scores.
AttentionCase WithFullBias(const AttentionCase& c) {
  AttentionCase full = c;
  const Sizes& s = c.sizes;
  full.bias = Buffer<float>({s.batch, s.num_heads, s.q_len, s.kv_len}, Layout::kDense, 0.0f);
  if (!c.bias.has_value()) return full;
  const Extents& shape = c.bias.shape();
  full.bias.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t j, float& x) {
    x = c.bias(shape[0] == 1 ? 0 : b, shape[1] == 1 ? 0 : h, shape[2] == 1 ? 0 : i,
               shape[3] == 1 ? 0 : j);
  });
  return full;
}

// The sums of the absolute terms of each number of d_q, d_k and d_v.
Values TermsOf(const AttentionCase& c, const Cotangents& cotangents, double least) {
  const Sizes& s = c.sizes;
  const AttentionCase full = WithFullBias(c);
  const std::vector<double> d_scores = RunBackward(full, cotangents).at("bias");
  const Results forward = RunAttention(full, {.weights = true});
  const double scale = std::abs(c.scalars.scale.value_or(1 / std::sqrt(double(s.head_dim))));
  const double kept = 1 / (1 - c.scalars.dropout.p);
  Values terms;
  const auto size_of = [](const Buffer<float>& b) { return static_cast<size_t>(b.size()); };
  terms["q"].resize(size_of(c.q)), terms["k"].resize(size_of(c.k));
  terms["v"].resize(size_of(c.v));
  size_t pair = 0;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.num_heads; ++h) {
      const int64_t kv = h / (s.num_heads / s.num_kv_heads);
      for (int64_t i = 0; i < s.q_len; ++i) {
        for (int64_t j = 0; j < s.kv_len; ++j) {
          const double d_score = std::abs(d_scores[pair++]);
          const double weight = double{forward.weights(b, h, i, j)} * kept;
          const auto add = [&](const char* name, int64_t row, int64_t dim, int64_t d, double x) {
            terms[name][static_cast<size_t>(row * dim + d)] += std::abs(x);
          };
          const int64_t query = (b * s.num_heads + h) * s.q_len + i;
          const int64_t key = (b * s.num_kv_heads + kv) * s.kv_len + j;
          for (int64_t d = 0; d_score != 0 && d < s.head_dim; ++d) {
            const double by = scale * std::max(d_score, least);
            add("q", query, s.head_dim, d, by * double{c.k(b, kv, j, d)});
            add("k", key, s.head_dim, d, by * double{c.q(b, h, i, d)});
          }
          for (int64_t d = 0; weight != 0 && d < s.head_dim_v; ++d) {
            const double by = std::max(weight, least);
            add("v", key, s.head_dim_v, d, by * double{cotangents.output(b, h, i, d)});
          }
        }
      }
    }
  }
  return terms;
}

// Compares gradients in a storage type; `bound` is that of float32, relative to the largest number.
void ExpectGradientsWithin(const Values& actual, const Values& expected, const AttentionCase& c,
                           const Cotangents& cotangents, DType dtype, double bound) {
  const TypeBound type = BoundOf(dtype);
  const Values terms = dtype == DType::kFloat32 ? Values{} : TermsOf(c, cotangents, type.least);
  for (const auto& [name, gradient] : actual) {
    const std::vector<double>& right = expected.at(name);
    ASSERT_EQ(gradient.size(), right.size()) << name;
    const bool rounded = terms.count(name) > 0;
    const double common = bound * LargestOf(right) + 1e-8;  // central differences are no better
    for (size_t n = 0; n < gradient.size(); ++n) {
      double most = common;
      if (rounded) {
        most += type.products * terms.at(name)[n] + type.rounding * std::abs(right[n]) + 0x1p-25;
      }
      ASSERT_NEAR(gradient[n], right[n], most)
          << name << "[" << n << "] of " << DTypeName(dtype) << ": " << c.Describe();
    }
  }
}

// Which vectors of `dim` numbers hold something that is not finite.
std::vector<bool> LostVectors(const std::vector<double>& gradient, int64_t dim) {
  std::vector<bool> lost(gradient.size() / static_cast<size_t>(dim));
  for (size_t n = 0; n < gradient.size(); ++n) {
    if (!std::isfinite(gradient[n])) lost[n / static_cast<size_t>(dim)] = true;
  }
  return lost;
}

std::vector<double> Doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

Values RunDeviceBackward(AttentionCase& c, Cotangents& cotangents, DType dtype,
                         const GradientChoices& choices) {
  const StoredBuffer q(c.q, dtype, choices.layout), k(c.k, dtype, choices.layout),
      v(c.v, dtype, choices.layout), d_out(cotangents.output, dtype, choices.layout);
  Results forward = RunAttention(c, {.lse = true});
  const StoredBuffer out(forward.output, choices.out_type, Layout::kDense);
  const auto blank = [&](const Buffer<float>& like) {
    Buffer<float> buffer(like.shape(), c.output_layout, kNan);
    return StoredBuffer(buffer, dtype, c.output_layout);
  };
  std::map<std::string, StoredBuffer> results;
  for (const auto& [name, like] :
       {std::pair{"q", &c.q}, std::pair{"k", &c.k}, std::pair{"v", &c.v}}) {
    results.emplace(name, blank(*like));
  }
  DeviceGradientCall call;
  call.on_hopper = choices.on_hopper;
  call.hopper_blocks = choices.hopper_blocks;
  call.q = q.view(), call.k = k.view(), call.v = v.view(), call.out = out.view();
  call.lse = std::as_const(forward.lse).view();
  call.d_out = d_out.view();
  AttentionCase given = c;
  if (choices.arrays_on_device) {
    call.key_lengths = std::exchange(given.key_lengths, {});
    call.query_documents = std::exchange(given.query_documents, {});
    call.key_documents = std::exchange(given.key_documents, {});
  }
  call.options = given.options();
  AttentionGradients& to = call.gradients;
  if (cotangents.lse.has_value()) to.d_lse = std::as_const(cotangents.lse).view();
  to.d_q = results.at("q").output(), to.d_k = results.at("k").output();
  to.d_v = results.at("v").output();
  Buffer<float> d_bias;
  if (c.bias.has_value()) {
    d_bias = Buffer<float>(c.bias.shape(), c.output_layout, kNan);
    to.d_bias = d_bias.view();
  }
  // The Hopper kernels leave gradients of slopes to the base path.
  const size_t slopes = choices.on_hopper ? 0 : c.alibi_slopes.size();
  std::vector<float> d_slopes(slopes, kNan), d_sinks(c.sinks.size(), kNan);
  to.d_alibi_slopes = d_slopes;
  to.d_sinks = d_sinks;
  EXPECT_EQ(RunGradientOnDevice(call), "") << c.Describe();
  Values values;
  for (const auto& [name, buffer] : results) {
    EXPECT_TRUE(buffer.GapsAreUntouched()) << name << ": " << c.Describe();
    values[name] = Doubles(buffer.Widened().Elements());
  }
  if (d_bias.has_value()) {
    EXPECT_TRUE(d_bias.GapsAreUntouched()) << c.Describe();
    values["bias"] = Doubles(d_bias.Elements());
  }
  if (!d_slopes.empty()) values["alibi_slopes"] = Doubles(d_slopes);
  if (!d_sinks.empty()) values["sinks"] = Doubles(d_sinks);
  return values;
}

void ExpectDeviceGradientsMatch(AttentionCase c, DType dtype, const GradientChoices& choices,
                                double size) {
  Cotangents cotangents = MakeCotangents(c);
  const Values actual = RunDeviceBackward(c, cotangents, dtype, choices);
  GradientOracle oracle = MakeOracle(c, cotangents);
  Values expected;
  for (const auto& [name, gradient] : actual) expected[name] = oracle.Gradient(name);
  ExpectGradientsWithin(actual, expected, c, cotangents, dtype, Bound(size));
}

void ExpectDeviceGradientsMatchCpu(AttentionCase c, DType dtype, const GradientChoices& choices,
                                   double size) {
  Cotangents cotangents = MakeCotangents(c);
  const Values actual = RunDeviceBackward(c, cotangents, dtype, choices);
  const Values expected = RunBackward(c, cotangents);
  ExpectGradientsWithin(actual, expected, c, cotangents, dtype, 2 * Bound(size));
  if (dtype != DType::kFloat32) return;
  GradientOracle oracle = MakeOracle(c, cotangents);
  Random random(11);
  for (const auto& [name, gradient] : actual) {
    ExpectAlong(oracle, name, gradient, Bound(size), random, c.Describe());
  }
}

void ExpectPoisonReachesAsOnCpu(AttentionCase c, Cotangents cotangents, DType dtype,
                                const GradientChoices& choices) {
  const Values actual = RunDeviceBackward(c, cotangents, dtype, choices);
  const Values expected = RunBackward(c, cotangents);
  for (const auto& [name, dim] :
       {std::pair{"q", c.sizes.head_dim}, std::pair{"k", c.sizes.head_dim},
        std::pair{"v", c.sizes.head_dim_v}}) {
    EXPECT_EQ(LostVectors(actual.at(name), dim), LostVectors(expected.at(name), dim))
        << name << ": " << c.Describe();
  }
}

}  // namespace heed::testing
