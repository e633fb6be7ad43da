#include "recurrent.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

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
  int64_t b, kv, length;
  State state;
  Row peaks;  // of logarithmic features: what the rows of the state are divided by

  Row Features(Row row, Side side, int64_t h, int64_t t) const {
    return r.features ? r.features(std::move(row), {side, b, h, t}) : row;
  }

  // Logarithms become features relative to the largest so far.
  void Raise(Row& k) {
    for (size_t c = 0; c < k.size() && r.log_features; ++c) {
      const double raised = std::max(peaks[c], k[c]);
      for (double& s : state[c]) s *= std::exp(peaks[c] - raised);
      k[c] = std::exp(k[c] - raised);
      peaks[c] = raised;
    }
  }
  void Relate(Row& q) const {
    if (!r.log_features) return;
    double largest = -INFINITY;
    for (size_t c = 0; c < q.size(); ++c) largest = std::max(largest, q[c] += peaks[c]);
    for (double& x : q) x = largest == -INFINITY ? 0 : std::exp(x - largest);
  }

  // Takes off what the state was before its decay answers to the direction.
  void Erase(const State& before, int64_t t) {
    Row direction = RowOf(*r.erase_key, b, kv, t);
    double squares = 0;
    for (const double x : direction) squares += x * x;
    for (double& x : direction) x = squares == 0 ? 0 : x / std::sqrt(squares);
    for (size_t e = 0; e < static_cast<size_t>(qkv.head_dim_v); ++e) {
      double known = 0;
      for (size_t c = 0; c < direction.size(); ++c) known += direction[c] * before[c][e];
      for (size_t c = 0; c < direction.size(); ++c) {
        state[c][e] -= (*r.erase_rate)(b, kv, t, static_cast<int64_t>(c)) * direction[c] * known;
      }
    }
  }

  void Write(int64_t t) {
    Row k = Features(RowOf(qkv.k, b, kv, t), Side::kKey, kv, t);
    Raise(k);
    Row u = RowOf(qkv.v, b, kv, t);
    if (r.normalize) u.push_back(1);
    const State before = state;
    const double beta = r.beta ? (*r.beta)(b, kv, t, 0) : 1.0;
    for (size_t c = 0; c < k.size(); ++c) {
      const double decay =
          r.log_decay ? std::exp((*r.log_decay)(b, kv, t, static_cast<int64_t>(c))) : 1.0;
      for (double& s : state[c]) s *= decay;
    }
    if (r.erase_key) Erase(before, t);
    for (size_t e = 0; e < u.size(); ++e) {
      double known = 0;
      for (size_t c = 0; c < k.size() && r.delta; ++c) known += k[c] * state[c][e];
      const double write = beta * (u[e] - known);
      for (size_t c = 0; c < k.size(); ++c) state[c][e] += k[c] * write;
    }
  }

  // What a token gets of its own value.
  double OwnValue(int64_t h, int64_t t) const {
    double factor = r.skip.empty() ? 0 : r.skip[h];
    for (int64_t c = 0; c < qkv.head_dim && !r.bonus.empty(); ++c) {
      factor += r.scale * qkv.q(b, h, t, c) * r.bonus[h * qkv.head_dim + c] * qkv.k(b, kv, t, c);
    }
    return factor;
  }

  Row Read(int64_t h, int64_t t) const {
    Row q = Features(RowOf(qkv.q, b, h, t), Side::kQuery, h, t);
    Relate(q);
    Row o(qkv.head_dim_v + (r.normalize ? 1 : 0), 0.0);
    for (size_t c = 0; c < q.size(); ++c) {
      for (size_t e = 0; e < o.size(); ++e) o[e] += r.scale * q[c] * state[c][e];
    }
    if (r.normalize) {
      const double sum = o.back();
      o.pop_back();
      for (double& x : o) x = sum == 0 ? 0 : x / sum;
    }
    if (t >= length || (r.skip.empty() && r.bonus.empty())) return o;
    for (int64_t e = 0; e < qkv.head_dim_v; ++e) o[e] += OwnValue(h, t) * qkv.v(b, kv, t, e);
    return o;
  }
};

std::optional<Array> ReadInitialState(const Request& request, const Extents& shape) {
  const std::optional<Array> state = ReadFloats(request, "initial_state", 4);
  if (state && state->shape != shape) {
    throw Error(ErrorCode::kShape, "initial_state has another shape than the state");
  }
  return state;
}

}  // namespace

RowFeatures FeaturesByName(const std::string& name) {
  if (name == "elu_plus_one") {
    return [](Row row, const Place&) {
      for (double& x : row) x = x > 0 ? x + 1 : std::exp(x);
      return row;
    };
  }
  if (name == "relu") {
    return [](Row row, const Place&) {
      for (double& x : row) x = x < 0 ? 0 : x;
      return row;
    };
  }
  if (name == "softmax") {
    return [](Row row, const Place&) {
      double largest = -INFINITY;
      for (const double x : row) largest = std::max(largest, x);
      double sum = 0;
      for (double& x : row) sum += x = std::exp(x - largest);
      for (double& x : row) x /= sum;
      return row;
    };
  }
  if (name == "unit") {
    return [](Row row, const Place&) {
      double squares = 0;
      for (const double x : row) squares += x * x;
      for (double& x : row) x = squares == 0 ? 0 : x / std::sqrt(squares);
      return row;
    };
  }
  return {};
}

Array ReadRates(const Request& request, const Qkv& qkv,
                const std::function<double(int64_t)>& rate) {
  std::vector<double> rates = ReadList(request, "head_log_decay");
  if (FindInput(request, "head_log_decay") == nullptr) {
    for (int64_t h = 0; h < qkv.num_kv_heads; ++h) rates.push_back(rate(h));
  }
  if (static_cast<int64_t>(rates.size()) != qkv.num_kv_heads) {
    throw Error(ErrorCode::kShape, "head_log_decay must have one value per KV head");
  }
  Array decay;
  decay.shape = {1, qkv.num_kv_heads, 1, 1};
  decay.values = rates;
  return decay;
}

std::vector<int64_t> ReadOffsets(const Request& request, int64_t batch) {
  const ParamValue* value = FindParam(request, "position_offset");
  std::vector<int64_t> offsets;
  if (value == nullptr) {
    offsets = {0};
  } else if (const auto* list = std::get_if<std::vector<double>>(value)) {
    for (const double number : *list) offsets.push_back(WholeNumber(number, "position_offset"));
  } else {
    offsets = {WholeNumber(std::get<double>(*value), "position_offset")};
  }
  if (offsets.size() == 1) offsets.resize(std::max<int64_t>(batch, 1), offsets[0]);
  if (static_cast<int64_t>(offsets.size()) != std::max<int64_t>(batch, 1)) {
    throw Error(ErrorCode::kShape, "position_offset must have 1 or batch values");
  }
  return offsets;
}

Recurrence Estimate(const Request& request) {
  Recurrence r;
  r.normalize = true;
  r.causal = ReadFlag(request, "causal");
  return r;
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
  const auto norm = ReadWord(request, "qk_norm", {"unit", "none"});
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
  const int64_t rows = r.features && r.feature_dim > 0 ? r.feature_dim : qkv.head_dim;
  const Extents shape = {qkv.batch, qkv.num_kv_heads, rows, columns + (r.log_features ? 1 : 0)};
  const std::optional<Array> initial = ReadInitialState(request, shape);
  Result output = {"output", 4, {qkv.batch, qkv.num_heads, qkv.q_len, qkv.head_dim_v}, {}};
  output.values.resize(qkv.batch * qkv.num_heads * qkv.q_len * qkv.head_dim_v);
  Result final_state = {"state", 4, shape, {}};
  const int64_t group = qkv.num_kv_heads == 0 ? 1 : qkv.num_heads / qkv.num_kv_heads;
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t kv = 0; kv < qkv.num_kv_heads; ++kv) {
      Head head = {qkv, r, b, kv, lengths[b], State(rows, Row(columns, 0.0)), Row(rows, -INFINITY)};
      for (int64_t c = 0; c < rows && initial; ++c) {
        Row row = RowOf(*initial, b, kv, c);
        // Nothing was written where the sum of keys is 0.
        if (r.log_features && row[qkv.head_dim_v] != 0) head.peaks[c] = row.back();
        row.resize(columns);
        head.state[c] = row;
      }
      const auto read = [&](int64_t t) {
        for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
          const Row o = head.Read(h, t);
          const int64_t at = ((b * qkv.num_heads + h) * qkv.q_len + t) * qkv.head_dim_v;
          std::copy(o.begin(), o.end(), output.values.begin() + at);
        }
      };
      for (int64_t t = 0; t < lengths[b]; ++t) {
        if (r.causal && r.reads_first) read(t);
        head.Write(t);
        if (r.causal && !r.reads_first) read(t);
      }
      for (int64_t t = r.causal ? lengths[b] : 0; t < qkv.q_len; ++t) read(t);
      for (int64_t c = 0; c < rows; ++c) {
        Row row = head.state[c];
        if (r.log_features) row.push_back(head.peaks[c] == -INFINITY ? 0 : head.peaks[c]);
        final_state.values.insert(final_state.values.end(), row.begin(), row.end());
      }
    }
  }
  std::vector<Result> results = {output};
  if (ReadFlag(request, "return_state")) results.push_back(final_state);
  return results;
}

}  // namespace heed::reference
