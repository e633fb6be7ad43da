// Gradients of random features with factors of tokens, which no row takes: against those of linear
// attention over the same features, which are plain numbers where they are small.
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "heed/gradient.h"
#include "heed/linear.h"
#include "normal_input.h"
#include "recurrent_case.h"
#include "request_builder.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class RandomFactorGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(RandomFactorGradient);

constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 3, kDimV = 5, kFeatures = 6;

// [batch, heads, len, cols].
struct Rows {
  int64_t batch, heads, len, cols;
  std::vector<float> values;

  Rows(int64_t b, int64_t h, int64_t l, int64_t c, std::vector<float> from)
      : batch(b), heads(h), len(l), cols(c), values(std::move(from)) {}
  Rows(int64_t b, int64_t h, int64_t l, int64_t c)
      : Rows(b, h, l, c, std::vector<float>(static_cast<size_t>(b * h * l * c))) {}
  TensorView<float> view() { return Contiguous(values.data(), batch, heads, len, cols); }
  TensorView<const float> view() const {
    return Contiguous(values.data(), batch, heads, len, cols);
  }
  int64_t size() const { return batch * heads * len; }
};

// A call, and the gradients of what it is given.
struct Call {
  int64_t batch, len;
  bool causal, channels;
  Rows q = {batch, kHeads, len, kDim, NormalFloats(batch* kHeads* len* kDim, 1, 0.5f)};
  Rows k = {batch, kKvHeads, len, kDim, NormalFloats(batch* kKvHeads* len* kDim, 2, 0.5f)};
  Rows v = {batch, kKvHeads, len, kDimV, NormalFloats(batch* kKvHeads* len* kDimV, 3)};
  Rows d_out = {batch, kHeads, len, kDimV, NormalFloats(batch* kHeads* len* kDimV, 4)};
  std::vector<float> projection = NormalFloats(kFeatures * kDim, 5);
  // Decays that all batch entries share.
  Rows log_decay = {1, kKvHeads, len, channels ? kFeatures : 1,
                    LogDecays(kKvHeads* len*(channels ? kFeatures : 1), 6)};
  Rows beta = {batch, kKvHeads, len, 1, Betas(batch* kKvHeads* len, 7)};
  std::vector<float> skip = causal ? Betas(kHeads, 8) : std::vector<float>();
  std::vector<int32_t> lengths = std::vector<int32_t>(static_cast<size_t>(batch));

  RecurrentOptions Options() const {
    RecurrentOptions o;
    o.normalize = true;
    o.scale = 1.0;
    o.causal = causal;
    o.log_decay = log_decay.view();
    o.beta = beta.view();
    o.skip = skip;
    o.key_lengths = lengths;
    return o;
  }
};

double Logarithm(const Call& c, const float* row, int64_t feature) {
  double sum = 0;
  for (int64_t d = 0; d < kDim; ++d) {
    sum += double{c.projection[static_cast<size_t>(feature * kDim + d)]} * double{row[d]};
  }
  return sum;
}

Rows Features(const Call& c, const Rows& from, bool keys) {
  Rows features(from.batch, from.heads, from.len, kFeatures);
  for (int64_t n = 0; n < from.size(); ++n) {
    const float* row = from.values.data() + n * kDim;
    double half = 0;
    for (int64_t d = 0; d < kDim && keys; ++d) half += double{row[d]} * double{row[d]} / 2;
    for (int64_t f = 0; f < kFeatures; ++f) {
      features.values[static_cast<size_t>(n * kFeatures + f)] =
          static_cast<float>(std::exp(Logarithm(c, row, f) - half));
    }
  }
  return features;
}

// From gradients of features to those of rows and of the projection.
std::vector<double> RowGradients(const Call& c, const Rows& from, const Rows& features,
                                 const Rows& d_features, bool keys,
                                 std::vector<double>& d_projection) {
  std::vector<double> gradient(from.values.size());
  for (int64_t n = 0; n < from.size(); ++n) {
    for (int64_t f = 0; f < kFeatures; ++f) {
      const size_t at = static_cast<size_t>(n * kFeatures + f);
      const double slope = double{features.values[at]} * double{d_features.values[at]};
      for (int64_t d = 0; d < kDim; ++d) {
        const size_t weight = static_cast<size_t>(f * kDim + d);
        const double x = double{from.values[static_cast<size_t>(n * kDim + d)]};
        gradient[static_cast<size_t>(n * kDim + d)] +=
            slope * (double{c.projection[weight]} - (keys ? x : 0));
        d_projection[weight] += slope * x;
      }
    }
  }
  return gradient;
}

template <class Numbers>
std::vector<double> Doubles(const Numbers& values) {
  return {values.begin(), values.end()};
}

// Gradients by name, with q and k as they are or as `queries` and `keys`.
Values Gradients(const Call& c, const RecurrentOptions& options, const Rows& queries,
                 const Rows& keys, Rows& d_q, Rows& d_k, std::vector<float>* d_projection) {
  Rows d_v = c.v, d_log_decay = c.log_decay, d_beta = c.beta;
  std::vector<float> d_skip = c.skip;
  RecurrentGradients to;
  to.d_q = d_q.view();
  to.d_k = d_k.view();
  to.d_v = d_v.view();
  to.d_log_decay = d_log_decay.view();
  to.d_beta = d_beta.view();
  to.d_skip = d_skip;
  if (d_projection != nullptr) to.d_projection = MatrixView(d_projection->data(), kFeatures, kDim);
  RecurrentBackward(queries.view(), keys.view(), c.v.view(), c.d_out.view(), options, to);
  return {{"v", Doubles(d_v.values)},
          {"log_decay", Doubles(d_log_decay.values)},
          {"beta", Doubles(d_beta.values)},
          {"skip", Doubles(d_skip)}};
}

void ExpectMatch(const Call& c) {
  RecurrentOptions options = c.Options();
  options.feature_map = FeatureMap::kRandom;
  options.projection = MatrixView<const float>(c.projection.data(), kFeatures, kDim);
  Rows d_q = c.q, d_k = c.k;
  std::vector<float> d_weights(c.projection.size());
  Values actual = Gradients(c, options, c.q, c.k, d_q, d_k, &d_weights);
  actual["q"] = Doubles(d_q.values);
  actual["k"] = Doubles(d_k.values);
  actual["projection"] = Doubles(d_weights);

  const Rows queries = Features(c, c.q, false), keys = Features(c, c.k, true);
  Rows d_queries = queries, d_keys = keys;
  Values expected = Gradients(c, c.Options(), queries, keys, d_queries, d_keys, nullptr);
  std::vector<double> d_projection(c.projection.size());
  expected["q"] = RowGradients(c, c.q, queries, d_queries, false, d_projection);
  expected["k"] = RowGradients(c, c.k, keys, d_keys, true, d_projection);
  expected["projection"] = d_projection;
  for (const auto& [name, values] : expected) {
    ExpectResultsNear(actual.at(name), values, 2 * kRecurrentGradientMaxError,
                      name + ", length " + std::to_string(c.len));
  }
}

// One segment of 512 tokens, and two.
TEST_P(RandomFactorGradient, IsThatOfLinearAttentionOverTheFeatures) {
  for (const bool causal : {true, false}) {
    for (const bool channels : {true, false}) {
      ExpectMatch(
          {.batch = 2, .len = 7, .causal = causal, .channels = channels, .lengths = {7, 4}});
      ExpectMatch(
          {.batch = 1, .len = 530, .causal = causal, .channels = channels, .lengths = {530}});
    }
  }
}

}  // namespace
}  // namespace heed::testing
