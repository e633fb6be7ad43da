#include "training/plain.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "gtest/gtest.h"
#include "heed/reference.h"
#include "heed/registry.h"

namespace heed::testing {
namespace {

using training::AttentionLayerOptions;
using training::HeadPosition;
using training::Matrix;
using training::SequenceShape;

bool Has(const Tensors& t, const std::string& name) { return t.find(name) != t.end(); }

Plain Sum(Plain a, const Plain& b) {
  for (size_t n = 0; n < a.values.size(); ++n) a.values[n] += b.values[n];
  return a;
}

// Turns pairs t and t + dim / 2 of every head by position * base^(-2t / dim).
void Turn(Plain& x, int64_t len, int64_t head_dim, double base) {
  const int64_t half = head_dim / 2;
  for (int64_t i = 0; i < x.rows(); ++i) {
    for (int64_t c = 0; c < x.dim; ++c) {
      const int64_t t = c % head_dim;
      if (t >= half) continue;
      const double angle = static_cast<double>(i % len) *
                           std::pow(base, -2.0 * static_cast<double>(t) / double(head_dim));
      const double a = x(i, c), b = x(i, c + half);
      x(i, c) = a * std::cos(angle) - b * std::sin(angle);
      x(i, c + half) = b * std::cos(angle) + a * std::sin(angle);
    }
  }
}

// [batch, heads, len, dim] of rows.
AnyTensor Heads(Plain& x, int64_t batch, int64_t heads, int64_t len, int64_t dim) {
  return {DType::kFloat64,
          x.values.data(),
          4,
          {batch, heads, len, dim},
          {len * heads * dim, dim, heads * dim, 1}};
}

// What the mechanism reads besides q, k and v; the memory of its tensors.
struct Extras {
  std::map<std::string, Plain> gates;
  std::map<std::string, std::vector<double>> learned;
};

void AddExtras(const Tensors& t, const std::string& name, const AttentionLayerOptions& o,
               const Plain& context, const SequenceShape& shape, Extras& extras, Request& request) {
  const int64_t head_dim = o.embed_dim / o.num_heads;
  for (const char* gate : {"beta", "log_decay", "channel_log_decay", "log_gates"}) {
    if (!Has(t, name + "." + gate + ".weight")) continue;
    Plain& rows = extras.gates[gate] = PlainLinear(t, name + "." + gate, context);
    for (double& x : rows.values) {
      x = std::string(gate) == "beta" ? 1 / (1 + std::exp(-x)) : -std::log1p(std::exp(-x));
    }
    const bool channels = std::string(gate) == "channel_log_decay";
    AnyTensor tensor = Heads(rows, shape.batch, channels ? rows.dim / head_dim : rows.dim,
                             shape.kv_len, channels ? head_dim : 1);
    if (!channels) tensor.rank = 3;
    request.inputs.push_back({gate, tensor});
  }
  for (const char* learned : {"sinks", "skip", "bonus", "score_matrix"}) {
    if (!Has(t, name + "." + learned)) continue;
    std::vector<double>& values = extras.learned[learned] = t.at(name + "." + learned);
    std::vector<int64_t> extents = {o.num_heads};
    if (std::string(learned) == "bonus") extents = {o.num_heads, head_dim};
    if (std::string(learned) == "score_matrix") extents = {head_dim, head_dim};
    request.inputs.push_back({learned, ContiguousTensor(DType::kFloat64, values.data(), extents)});
  }
  if (o.position != HeadPosition::kAlibi) return;
  std::vector<double>& slopes = extras.learned["alibi"];
  for (int64_t h = 0; h < o.num_heads; ++h) {
    slopes.push_back(std::pow(2.0, -8.0 * double(h + 1) / double(o.num_heads)));
  }
  request.inputs.push_back(
      {"alibi_slopes", ContiguousTensor(DType::kFloat64, slopes.data(), {{o.num_heads}})});
}

}  // namespace

Plain PlainLinear(const Tensors& t, const std::string& name, const Plain& x) {
  const std::vector<double>& weight = t.at(name + ".weight");
  const int64_t out_dim = static_cast<int64_t>(weight.size()) / x.dim;
  Plain y = {out_dim, std::vector<double>(static_cast<size_t>(x.rows() * out_dim))};
  for (int64_t i = 0; i < x.rows(); ++i) {
    for (int64_t o = 0; o < out_dim; ++o) {
      double sum = Has(t, name + ".bias") ? t.at(name + ".bias")[static_cast<size_t>(o)] : 0;
      for (int64_t c = 0; c < x.dim; ++c) {
        sum += x(i, c) * weight[static_cast<size_t>(o * x.dim + c)];
      }
      y(i, o) = sum;
    }
  }
  return y;
}

Plain PlainNorm(const Tensors& t, const std::string& name, Norm norm, const Plain& x) {
  const std::vector<double>& weight = t.at(name + ".weight");
  const int64_t dim = static_cast<int64_t>(weight.size());
  Plain y = {dim, x.values};
  for (int64_t i = 0; i < y.rows(); ++i) {
    double mean = 0, squares = 0;
    for (int64_t c = 0; c < dim && norm == Norm::kLayer; ++c) mean += y(i, c) / double(dim);
    for (int64_t c = 0; c < dim; ++c) squares += (y(i, c) - mean) * (y(i, c) - mean);
    for (int64_t c = 0; c < dim; ++c) {
      y(i, c) = (y(i, c) - mean) / std::sqrt(squares / double(dim) + 1e-5) *
                weight[static_cast<size_t>(c)];
      if (norm == Norm::kLayer) y(i, c) += t.at(name + ".bias")[static_cast<size_t>(c)];
    }
  }
  return {x.dim, y.values};
}

double PlainActivation(Activation activation, double x) {
  switch (activation) {
    case Activation::kGelu:
      return x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kRelu:
      return std::max(x, 0.0);
  }
  return 0;
}

Plain PlainFeedForward(const Tensors& t, const std::string& name,
                       const training::FeedForwardOptions& options, const Plain& x) {
  Plain up = PlainLinear(t, name + ".up_proj", x);
  const Plain gate = options.gated ? PlainLinear(t, name + ".gate_proj", x) : up;
  for (size_t n = 0; n < up.values.size(); ++n) {
    const double activated = PlainActivation(options.activation, gate.values[n]);
    up.values[n] = options.gated ? activated * up.values[n] : activated;
  }
  return PlainLinear(t, name + ".down_proj", up);
}

Plain PlainAttention(const Tensors& t, const std::string& name, const AttentionLayerOptions& o,
                     const Plain& x, const Plain& context, const SequenceShape& shape) {
  const int64_t kv_heads = o.num_kv_heads == 0 ? o.num_heads : o.num_kv_heads;
  const int64_t head_dim = o.embed_dim / o.num_heads;
  Plain q = PlainLinear(t, name + ".q_proj", x), v = PlainLinear(t, name + ".v_proj", context), k;
  Request request = {o.mechanism, {}, o.params};
  if (Has(t, name + ".k_proj.weight")) k = PlainLinear(t, name + ".k_proj", context);
  if (o.position == HeadPosition::kRope) {
    Turn(q, shape.q_len, head_dim, o.rope_base);
    Turn(k, shape.kv_len, head_dim, o.rope_base);
  }
  request.inputs = {{"q", Heads(q, shape.batch, o.num_heads, shape.q_len, head_dim)},
                    {"v", Heads(v, shape.batch, kv_heads, shape.kv_len, head_dim)}};
  if (!k.values.empty()) {
    request.inputs.push_back({"k", Heads(k, shape.batch, kv_heads, shape.kv_len, head_dim)});
  }
  Extras extras;
  AddExtras(t, name, o, context, shape, extras, request);
  const std::string params = " " + std::string(FindMechanism(o.mechanism)->params) + " ";
  if (params.find(" causal ") != params.npos) request.params.push_back({"causal", o.causal});
  const std::vector<double> output = reference::Run(request).front().values;
  Plain heads = {o.embed_dim, std::vector<double>(output.size())};
  size_t n = 0;
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t h = 0; h < o.num_heads; ++h) {
      for (int64_t i = 0; i < shape.q_len; ++i) {
        for (int64_t c = 0; c < head_dim; ++c) {
          heads(b * shape.q_len + i, h * head_dim + c) = output[n++];
        }
      }
    }
  }
  if (Has(t, name + ".o_norm.weight")) heads = PlainNorm(t, name + ".o_norm", Norm::kRms, heads);
  return PlainLinear(t, name + ".o_proj", heads);
}

Plain PlainBlock(const Tensors& t, const std::string& name, const training::BlockOptions& o,
                 const Plain& x, const Plain& context, const SequenceShape& shape,
                 int64_t context_len) {
  const Plain normed = PlainNorm(t, name + ".input_layernorm", o.norm, x);
  Plain y = Sum(x, PlainAttention(t, name + ".self_attn", o.attention, normed, normed, shape));
  if (o.cross_attention) {
    const Plain queries = PlainNorm(t, name + ".cross_layernorm", o.norm, y);
    y = Sum(y, PlainAttention(t, name + ".cross_attn", *o.cross_attention, queries, context,
                              {shape.batch, shape.q_len, context_len}));
  }
  const Plain last = PlainNorm(t, name + ".post_attention_layernorm", o.norm, y);
  return Sum(y, PlainFeedForward(t, name + ".mlp", o.feed_forward, last));
}

double PlainCrossEntropy(const Plain& logits, const std::vector<int32_t>& targets) {
  double sum = 0, counted = 0;
  for (int64_t i = 0; i < logits.rows(); ++i) {
    const int32_t target = targets[static_cast<size_t>(i)];
    if (target < 0) continue;
    double total = 0;
    for (int64_t c = 0; c < logits.dim; ++c) total += std::exp(logits(i, c));
    sum += std::log(total) - logits(i, target);
    counted += 1;
  }
  return sum / counted;
}

double Dot(const Plain& a, const Matrix& b) {
  double sum = 0;
  for (size_t n = 0; n < a.values.size(); ++n) sum += a.values[n] * double(b.data()[n]);
  return sum;
}

Matrix RandomMatrix(int64_t rows, int64_t dim, uint64_t seed) {
  Matrix matrix(rows, dim);
  Random random(seed);
  for (int64_t n = 0; n < matrix.size(); ++n) matrix.data()[n] = random.Normal();
  return matrix;
}

Plain ToPlain(const Matrix& matrix) {
  return {matrix.dim(), std::vector<double>(matrix.data(), matrix.data() + matrix.size())};
}

Tensors ToTensors(const training::ParameterSet& parameters) {
  Tensors tensors;
  for (const training::Parameter& p : parameters) {
    tensors[p.name] = std::vector<double>(p.value.begin(), p.value.end());
  }
  return tensors;
}

void Scramble(training::ParameterSet& parameters, uint64_t seed, double deviation) {
  Random random(seed);
  for (training::Parameter& p : parameters) {
    for (float& x : p.value) x += static_cast<float>(deviation) * random.Normal();
  }
}

void ExpectGradient(const std::function<double(const Tensors&)>& value, Tensors at,
                    const std::string& name, const float* gradient, double bound) {
  constexpr double kStep = 2e-5;
  std::vector<double> expected;
  for (size_t n = 0; n < at.at(name).size(); ++n) {
    double& x = at.at(name)[n];
    const double before = x;
    x = before + kStep;
    const double up = value(at);
    x = before - kStep;
    expected.push_back((up - value(at)) / (2 * kStep));
    x = before;
  }
  double largest = 0;
  for (const double g : expected) largest = std::max(largest, std::abs(g));
  EXPECT_GT(largest, 1e-6) << name << " has no gradient: the test is empty";
  for (size_t n = 0; n < expected.size(); ++n) {
    ASSERT_NEAR(double(gradient[n]), expected[n], bound * largest + 1e-8) << name << " at " << n;
  }
}

void ExpectGradients(const std::function<double(const Tensors&)>& value, const Tensors& at,
                     const training::ParameterSet& parameters, double bound) {
  for (const training::Parameter& p : parameters) {
    ExpectGradient(value, at, p.name, p.gradient.data(), bound);
  }
}

}  // namespace heed::testing
