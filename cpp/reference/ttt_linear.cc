// TTT-Linear: the state is a linear model under a layer norm, trained on every token.
//
// Source: Sun et al. 2024, arXiv:2407.04620: f(x) = x + LN(W x + b), gradients of half the squared
// error at the model that the mini-batch began with, one token after the other. position_rate:
// token_idx of ttt.py in test-time-training/ttt-lm-pytorch.
#include <algorithm>
#include <cmath>
#include <vector>

#include "recurrent.h"

namespace heed::reference::ttt_linear {
namespace {

using Row = std::vector<double>;
using Model = std::vector<Row>;  // [head_dim + 1][head_dim], the bias last

struct Norm {
  Row weight, bias;

  struct Moments {
    Row normed;
    double inverse;
  };
  static Moments Of(const Row& z) {
    double mean = 0, variance = 0;
    for (const double x : z) mean += x / static_cast<double>(z.size());
    for (const double x : z) variance += (x - mean) * (x - mean) / static_cast<double>(z.size());
    Moments m = {z, 1 / std::sqrt(variance + 1e-6)};
    for (double& x : m.normed) x = (x - mean) * m.inverse;
    return m;
  }
};

Row Times(const Row& x, const Model& model) {
  Row z = model.back();
  for (size_t c = 0; c < x.size(); ++c) {
    for (size_t e = 0; e < z.size(); ++e) z[e] += x[c] * model[c][e];
  }
  return z;
}

Row Forward(const Row& x, const Model& model, const Norm& norm) {
  const Norm::Moments m = Norm::Of(Times(x, model));
  Row y = x;
  for (size_t e = 0; e < y.size(); ++e) y[e] += norm.weight[e] * m.normed[e] + norm.bias[e];
  return y;
}

// By z = W k + b: through the norm, whose mean and deviation depend on z too.
Row Gradient(const Row& key, const Row& value, const Model& model, const Norm& norm) {
  const Norm::Moments m = Norm::Of(Times(key, model));
  const Row y = Forward(key, model, norm);
  const double count = static_cast<double>(y.size());
  Row slope(y.size());
  double mean = 0, along = 0;
  for (size_t e = 0; e < y.size(); ++e) {
    slope[e] = (y[e] - value[e]) * norm.weight[e];
    mean += slope[e] / count;
    along += slope[e] * m.normed[e] / count;
  }
  for (size_t e = 0; e < y.size(); ++e) {
    slope[e] = (slope[e] - mean - m.normed[e] * along) * m.inverse;
  }
  return slope;
}

Row RowOf(const Array& array, int64_t b, int64_t h, int64_t t) {
  const auto row = array.Row(b, h, t);
  return {row.begin(), row.end()};
}

Array ReadNorm(const Request& request, std::string_view name, const Qkv& qkv, double fallback) {
  const std::optional<Array> given = ReadFloats(request, name, 2);
  const Extents shape = {1, 1, qkv.num_kv_heads, qkv.head_dim};
  if (given && given->shape != shape) {
    throw Error(ErrorCode::kShape, std::string(name) + " must be [num_kv_heads, head_dim]");
  }
  if (given) return *given;
  return {shape, Row(qkv.num_kv_heads * qkv.head_dim, fallback)};
}

// W + share (V - W).
Model Between(const Model& w, const Model& v, double share) {
  Model between = w;
  for (size_t c = 0; c < w.size(); ++c) {
    for (size_t e = 0; e < w[c].size(); ++e) between[c][e] += share * (v[c][e] - w[c][e]);
  }
  return between;
}

// One KV head: the model that the mini-batch began with, and the one that all steps since lead to.
struct Learner {
  Model begun, now;

  Learner(const std::optional<Array>& state, int64_t b, int64_t kv, int64_t dim)
      : begun(dim + 1, Row(dim)), now(begun) {
    for (int64_t c = 0; c <= dim && state; ++c) {
      begun[c] = RowOf(*state, b, kv, c);
      now[c] = RowOf(*state, b, kv, dim + 1 + c);
    }
  }
  void BeginMiniBatch(double share) { begun = now = Between(begun, now, share); }
  void Learn(const Row& key, const Row& value, double rate, const Norm& norm) {
    const Row gradient = Gradient(key, value, begun, norm);
    for (size_t e = 0; e < gradient.size(); ++e) {
      for (size_t c = 0; c < key.size(); ++c) now[c][e] -= rate * key[c] * gradient[e];
      now.back()[e] -= rate * gradient[e];
    }
  }
};

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  if (qkv.q_len != qkv.kv_len) throw Error(ErrorCode::kShape, "q_len and kv_len must be the same");
  if (qkv.head_dim_v != qkv.head_dim) throw Error(ErrorCode::kShape, "v must be as wide as k");
  const int64_t mini_batch = ReadCount(request, "mini_batch").value_or(16);
  if (mini_batch < 1 || mini_batch > int64_t{1} << 31) {
    throw Error(ErrorCode::kRange, "mini_batch must be at least 1");
  }
  const std::optional<Array> beta = ReadPerToken(request, "beta", qkv);
  const Array weight = ReadNorm(request, "inner_norm_weight", qkv, 1);
  const Array bias = ReadNorm(request, "inner_norm_bias", qkv, 0);
  const std::optional<Array> rates = ReadFloats(request, "position_rate", 1);
  if (rates && rates->shape[3] != mini_batch) {
    throw Error(ErrorCode::kShape, "position_rate must be [mini_batch]");
  }
  for (const double rate : rates ? rates->values : Row()) {
    if (!std::isfinite(rate)) throw Error(ErrorCode::kRange, "position_rate must be finite");
  }
  // How much of its steps the model at a position in the sequence has taken.
  const auto share = [&](int64_t position) {
    return rates ? (*rates)(0, 0, 0, (position % mini_batch + mini_batch) % mini_batch) : 1.0;
  };
  const std::vector<int64_t> offsets = ReadOffsets(request, qkv.batch);
  for (const int64_t offset : offsets) {
    if (offset < 0 && qkv.batch > 0) throw Error(ErrorCode::kRange, "position_offset must be >= 0");
  }
  const Extents shape = {qkv.batch, qkv.num_kv_heads, 2 * (qkv.head_dim + 1), qkv.head_dim};
  const std::optional<Array> initial = ReadFloats(request, "initial_state", 4);
  if (initial && initial->shape != shape) {
    throw Error(ErrorCode::kShape, "initial_state has another shape than the state");
  }
  const std::vector<int64_t> lengths = ReadKeyLengths(request, qkv.batch, qkv.kv_len);
  Result output = {"output", 4, qkv.q.shape, Row(qkv.q.values.size())};
  Result state = {"state", 4, shape, {}};
  const int64_t group = qkv.num_kv_heads == 0 ? 1 : qkv.num_heads / qkv.num_kv_heads;
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t kv = 0; kv < qkv.num_kv_heads; ++kv) {
      const Norm norm = {RowOf(weight, 0, 0, kv), RowOf(bias, 0, 0, kv)};
      Learner learner(initial, b, kv, qkv.head_dim);
      for (int64_t t = 0; t < qkv.q_len; ++t) {
        if (t < lengths[b]) {
          if ((offsets[b] + t) % mini_batch == 0) learner.BeginMiniBatch(share(offsets[b] + t - 1));
          learner.Learn(RowOf(qkv.k, b, kv, t), RowOf(qkv.v, b, kv, t),
                        beta ? (*beta)(b, kv, t, 0) : 1, norm);
        }
        const Model model = Between(learner.begun, learner.now,
                                    share(offsets[b] + std::min<int64_t>(t, lengths[b] - 1)));
        for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
          const Row row = Forward(RowOf(qkv.q, b, h, t), model, norm);
          const int64_t at = ((b * qkv.num_heads + h) * qkv.q_len + t) * qkv.head_dim;
          std::copy(row.begin(), row.end(), output.values.begin() + at);
        }
      }
      for (const Model* model : {&learner.begun, &learner.now}) {
        for (const Row& row : *model) {
          state.values.insert(state.values.end(), row.begin(), row.end());
        }
      }
    }
  }
  std::vector<Result> results = {output};
  if (ReadFlag(request, "return_state")) results.push_back(state);
  return results;
}

}  // namespace heed::reference::ttt_linear
