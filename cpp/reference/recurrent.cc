#include "recurrent.h"

#include <cmath>
#include <string>

namespace heed::reference {
namespace {

using Row = std::vector<double>;
using State = std::vector<Row>;  // [head_dim][columns]

Row RowOf(const Array& array, int64_t b, int64_t h, int64_t t) {
  const auto row = array.Row(b, h, t);
  return {row.begin(), row.end()};
}

// Everything of one head.
struct Head {
  const Qkv& qkv;
  const Recurrence& r;
  int64_t b, kv;
  State state;

  Row Features(Row row) const {
    if (r.features) r.features(row);
    return row;
  }

  void Write(int64_t t) {
    const Row k = Features(RowOf(qkv.k, b, kv, t));
    Row u = RowOf(qkv.v, b, kv, t);
    if (r.normalize) u.push_back(1);
    const double beta = r.beta ? (*r.beta)(b, kv, t, 0) : 1.0;
    for (int64_t c = 0; c < qkv.head_dim; ++c) {
      const double decay = r.log_decay ? std::exp((*r.log_decay)(b, kv, t, c)) : 1.0;
      for (double& s : state[c]) s *= decay;
    }
    for (size_t e = 0; e < u.size(); ++e) {
      double known = 0;
      for (int64_t c = 0; c < qkv.head_dim && r.delta; ++c) known += k[c] * state[c][e];
      const double write = beta * (u[e] - known);
      for (int64_t c = 0; c < qkv.head_dim; ++c) state[c][e] += k[c] * write;
    }
  }

  Row Read(int64_t h, int64_t t) const {
    const Row q = Features(RowOf(qkv.q, b, h, t));
    Row o(qkv.head_dim_v + (r.normalize ? 1 : 0), 0.0);
    for (int64_t c = 0; c < qkv.head_dim; ++c) {
      for (size_t e = 0; e < o.size(); ++e) o[e] += r.scale * q[c] * state[c][e];
    }
    if (r.normalize) {
      const double sum = o.back();
      o.pop_back();
      for (double& x : o) x = sum == 0 ? 0 : x / sum;
    }
    for (int64_t e = 0; e < qkv.head_dim_v && !r.skip.empty(); ++e) {
      o[e] += r.skip[h] * qkv.v(b, kv, t, e);
    }
    return o;
  }
};

std::optional<Array> ReadInitialState(const Request& request, const Qkv& qkv, int64_t columns) {
  const std::optional<Array> state = ReadFloats(request, "initial_state", 4);
  if (state && state->shape != Extents{qkv.batch, qkv.num_kv_heads, qkv.head_dim, columns}) {
    throw Error(ErrorCode::kShape, "initial_state has another shape than the state");
  }
  return state;
}

}  // namespace

std::function<void(std::vector<double>&)> FeaturesByName(const std::string& name) {
  if (name == "elu_plus_one") {
    return [](Row& row) {
      for (double& x : row) x = x > 0 ? x + 1 : std::exp(x);
    };
  }
  if (name == "relu") {
    return [](Row& row) {
      for (double& x : row) x = x < 0 ? 0 : x;
    };
  }
  if (name == "softmax") {
    return [](Row& row) {
      double largest = -INFINITY;
      for (const double x : row) largest = std::max(largest, x);
      double sum = 0;
      for (double& x : row) sum += x = std::exp(x - largest);
      for (double& x : row) x /= sum;
    };
  }
  if (name == "unit") {
    return [](Row& row) {
      double squares = 0;
      for (const double x : row) squares += x * x;
      for (double& x : row) x = squares == 0 ? 0 : x / std::sqrt(squares);
    };
  }
  return {};
}

std::vector<int64_t> ReadKeyLengths(const Request& request, int64_t batch, int64_t len) {
  std::vector<int64_t> lengths(batch, len);
  const std::optional<Array> given = ReadIntegers(request, "key_lengths");
  if (!given) return lengths;
  if (FindInput(request, "key_lengths")->rank != 1 ||
      static_cast<int64_t>(given->values.size()) != batch) {
    throw Error(ErrorCode::kShape, "key_lengths must have one value per batch entry");
  }
  for (int64_t b = 0; b < batch; ++b) {
    lengths[b] = WholeNumber(given->values[b], "key_lengths");
    if (lengths[b] < 0 || lengths[b] > len) {
      throw Error(ErrorCode::kRange, "key_lengths must lie in [0, kv_len]");
    }
  }
  return lengths;
}

std::optional<Array> ReadPerToken(const Request& request, std::string_view name, const Qkv& qkv) {
  std::optional<Array> given = ReadFloats(request, name, 3);
  if (!given) return given;
  if (given->shape != Extents{1, qkv.batch, qkv.num_kv_heads, qkv.kv_len}) {
    throw Error(ErrorCode::kShape, std::string(name) + " must be [batch, num_kv_heads, kv_len]");
  }
  given->shape = {qkv.batch, qkv.num_kv_heads, qkv.kv_len, 1};
  return given;
}

Array ReadPerChannel(const Request& request, std::string_view name, const Qkv& qkv) {
  const std::optional<Array> given = ReadFloats(request, name, 4);
  if (given->shape != Extents{qkv.batch, qkv.num_kv_heads, qkv.kv_len, qkv.head_dim}) {
    throw Error(ErrorCode::kShape,
                std::string(name) + " must be [batch, num_kv_heads, kv_len, head_dim]");
  }
  return *given;
}

double ReadScale(const Request& request, const Qkv& qkv, std::optional<double> fallback) {
  if (const auto scale = ReadNumber(request, "scale")) return *scale;
  if (fallback) return *fallback;
  if (qkv.head_dim == 0) throw Error(ErrorCode::kShape, "head_dim 0 has no default scale");
  return 1 / std::sqrt(static_cast<double>(qkv.head_dim));
}

Recurrence DeltaRule(const Request& request, const Qkv& qkv) {
  Recurrence r;
  const auto norm = ReadWord(request, "key_norm", {"unit", "none"});
  r.features = FeaturesByName(norm.value_or("unit") == "unit" ? "unit" : "identity");
  r.delta = true;
  r.beta = ReadPerToken(request, "beta", qkv);
  r.scale = ReadScale(request, qkv);
  return r;
}

std::vector<Result> RunRecurrence(const Request& request, const Qkv& qkv, const Recurrence& r) {
  if (r.causal && qkv.q_len != qkv.kv_len) {
    throw Error(ErrorCode::kShape, "q_len and kv_len must be the same when causal");
  }
  if (const auto chunk = ReadCount(request, "chunk_len"); chunk && (*chunk < 1 || *chunk > 64)) {
    throw Error(ErrorCode::kRange, "chunk_len must lie in [1, 64]");
  }
  if (r.log_decay) {
    for (const double gate : r.log_decay->values) {
      if (gate > 0) throw Error(ErrorCode::kRange, "logarithms of decays must be <= 0");
    }
  }
  const std::vector<int64_t> lengths = ReadKeyLengths(request, qkv.batch, qkv.kv_len);
  const int64_t columns = qkv.head_dim_v + (r.normalize ? 1 : 0);
  const std::optional<Array> initial = ReadInitialState(request, qkv, columns);
  Result output = {"output", 4, {qkv.batch, qkv.num_heads, qkv.q_len, qkv.head_dim_v}, {}};
  output.values.resize(qkv.batch * qkv.num_heads * qkv.q_len * qkv.head_dim_v);
  Result final_state = {"state", 4, {qkv.batch, qkv.num_kv_heads, qkv.head_dim, columns}, {}};
  const int64_t group = qkv.num_kv_heads == 0 ? 1 : qkv.num_heads / qkv.num_kv_heads;
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t kv = 0; kv < qkv.num_kv_heads; ++kv) {
      Head head = {qkv, r, b, kv, State(qkv.head_dim, Row(columns, 0.0))};
      for (int64_t c = 0; c < qkv.head_dim && initial; ++c)
        head.state[c] = RowOf(*initial, b, kv, c);
      const auto read = [&](int64_t t) {
        for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
          const Row o = head.Read(h, t);
          const int64_t at = ((b * qkv.num_heads + h) * qkv.q_len + t) * qkv.head_dim_v;
          std::copy(o.begin(), o.end(), output.values.begin() + at);
        }
      };
      for (int64_t t = 0; t < lengths[b]; ++t) {
        head.Write(t);
        if (r.causal) read(t);
      }
      for (int64_t t = r.causal ? lengths[b] : 0; t < qkv.q_len; ++t) read(t);
      for (const Row& row : head.state) {
        final_state.values.insert(final_state.values.end(), row.begin(), row.end());
      }
    }
  }
  std::vector<Result> results = {output};
  if (ReadFlag(request, "return_state")) results.push_back(final_state);
  return results;
}

}  // namespace heed::reference
