// Multi-head attention: sum_h Attention(query W_q,h, key W_k,h, value W_v,h) W_o,h + b_o.
//
// Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2. bias_k, bias_v and add_zero_attn as
// in PyTorch's nn.MultiheadAttention: one more key and value each, which no mask touches.
#include "multi_head.h"

#include <cmath>
#include <limits>
#include <optional>

#include "softmax.h"

namespace heed::reference {
namespace {

Error ShapeError(const Request& request, const char* name, const std::string& expectation) {
  return {ErrorCode::kShape, Describe(name, *FindInput(request, name)) + ": " + expectation};
}

// One value per element of [heads, head_dim], zeros when the request does not have it.
std::vector<double> ReadBias(const Request& request, const char* name, int64_t count, int rank) {
  const std::optional<Array> bias = ReadFloats(request, name, rank);
  if (!bias) return std::vector<double>(count);
  if (static_cast<int64_t>(bias->values.size()) != count) {
    throw ShapeError(request, name, "expected " + std::to_string(count) + " values");
  }
  return bias->values;
}

Qkv ProjectAll(const Request& request, const Array& query, const Array& key, const Array& value) {
  Qkv qkv;
  if (key.shape[0] != query.shape[0] || value.shape[0] != query.shape[0]) {
    throw ShapeError(request, "key", "batch must be that of query and value");
  }
  if (key.shape[2] != value.shape[2]) {
    throw ShapeError(request, "value", "kv_len must be that of key");
  }
  qkv.q = Project(request, query, "w_q", "b_q", 3);
  qkv.k = Project(request, key, "w_k", "b_k", 3);
  qkv.v = Project(request, value, "w_v", "b_v", 3);
  const Extents q = qkv.q.shape, k = qkv.k.shape, v = qkv.v.shape;
  if (q[3] != k[3]) throw ShapeError(request, "w_k", "head_dim must be that of w_q");
  if (k[1] != v[1]) throw ShapeError(request, "w_v", "num_kv_heads must be that of w_k");
  if (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0) {
    throw ShapeError(request, "w_q", "num_heads must be a multiple of num_kv_heads");
  }
  qkv.batch = q[0], qkv.num_heads = q[1], qkv.q_len = q[2], qkv.head_dim = q[3];
  qkv.num_kv_heads = k[1], qkv.kv_len = k[2], qkv.head_dim_v = v[3];
  return qkv;
}

// Keys and values that every query sees.
struct ExtraKeys {
  std::vector<std::vector<double>> keys, values;  // [extra][num_kv_heads * head_dim(_v)]
  std::vector<double> weights;                    // [batch, num_heads, q_len, extra]
};

ExtraKeys ReadExtraKeys(const Request& request, const Qkv& qkv) {
  ExtraKeys extra;
  const int64_t k = qkv.num_kv_heads * qkv.head_dim, v = qkv.num_kv_heads * qkv.head_dim_v;
  const bool has_k = FindInput(request, "bias_k") != nullptr;
  if (has_k != (FindInput(request, "bias_v") != nullptr)) {
    throw Error(ErrorCode::kOption, "bias_k and bias_v go together");
  }
  if (has_k && k * v == 0) {
    throw Error(ErrorCode::kUnsupported, "bias_k and bias_v with heads of 0 dimensions");
  }
  if (has_k) {
    extra.keys.push_back(ReadBias(request, "bias_k", k, 2));
    extra.values.push_back(ReadBias(request, "bias_v", v, 2));
  }
  if (ReadFlag(request, "add_zero_attn")) {
    extra.keys.emplace_back(k);
    extra.values.emplace_back(v);
  }
  extra.weights.resize(qkv.batch * qkv.num_heads * qkv.q_len * extra.keys.size());
  return extra;
}

// Softmax over the kept keys and the extra ones, whose weights are set aside.
RowNormalize NormalizeWithExtra(const Request& request, const Qkv& qkv, ExtraKeys& extra) {
  const double scale = ReadScale(request, qkv);
  const std::optional<double> softcap = ReadNumber(request, "softcap");
  const std::vector<double> sinks = ReadPerHead(request, "sinks", qkv);
  return [=, &qkv, &extra](const RowPlace& at, std::span<double> row) {
    std::vector<double> all(row.begin(), row.end());
    const auto q = qkv.q.Row(at.b, at.h, at.i);
    for (const std::vector<double>& keys : extra.keys) {
      double dot = 0;
      for (int64_t d = 0; d < qkv.head_dim; ++d) {
        dot += q[d] * keys[qkv.KvHead(at.h) * qkv.head_dim + d];
      }
      all.push_back(softcap ? *softcap * std::tanh(scale * dot / *softcap) : scale * dot);
    }
    const double lse = Softmax(all, sinks.empty() ? kMinusInfinity : sinks[at.h]);
    const size_t index = (at.b * qkv.num_heads + at.h) * qkv.q_len + at.i;
    for (size_t j = 0; j < all.size(); ++j) {
      if (j < row.size()) row[j] = all[j];
      if (j >= row.size()) extra.weights[index * extra.keys.size() + j - row.size()] = all[j];
    }
    return lse;
  };
}

// Adds the extra values to the heads' outputs, and their weights as further columns.
void AddExtra(const Qkv& qkv, const ExtraKeys& extra, Result& heads, Result* weights) {
  const size_t count = extra.keys.size();
  std::vector<double> wide;
  const size_t rows = qkv.batch * qkv.num_heads * qkv.q_len;
  for (size_t row = 0; row < rows; ++row) {
    const int64_t kv_head = qkv.KvHead(static_cast<int64_t>(row) / qkv.q_len % qkv.num_heads);
    for (size_t e = 0; e < count; ++e) {
      for (int64_t d = 0; d < qkv.head_dim_v; ++d) {
        heads.values[row * qkv.head_dim_v + d] +=
            extra.weights[row * count + e] * extra.values[e][kv_head * qkv.head_dim_v + d];
      }
    }
    if (weights == nullptr) continue;
    const auto kept = std::span(weights->values).subspan(row * qkv.kv_len, qkv.kv_len);
    wide.insert(wide.end(), kept.begin(), kept.end());
    const auto more = std::span(extra.weights).subspan(row * count, count);
    wide.insert(wide.end(), more.begin(), more.end());
  }
  if (weights == nullptr) return;
  weights->shape[3] += static_cast<int64_t>(count);
  weights->values = wide;
}

void MaskHeads(const Request& request, const Qkv& qkv, Result& heads) {
  const std::vector<double> mask = ReadPerHead(request, "head_mask", qkv);
  if (mask.empty()) return;
  const size_t head_size = qkv.q_len * qkv.head_dim_v;
  for (size_t n = 0; n < heads.values.size(); ++n) {
    const double factor = mask[n / head_size % qkv.num_heads];
    heads.values[n] = factor == 0 ? 0 : factor * heads.values[n];
  }
}

// [batch, q_len, out_dim] from heads [batch, num_heads, q_len, head_dim_v].
Result ProjectOutput(const Request& request, const Qkv& qkv, const Result& heads) {
  const std::optional<Array> w_o = ReadFloats(request, "w_o", 3);
  const int64_t width = qkv.num_heads * qkv.head_dim_v;
  const int64_t out_dim = w_o ? w_o->shape[1] : width;
  if (w_o && (w_o->shape[2] != qkv.num_heads || w_o->shape[3] != qkv.head_dim_v)) {
    throw ShapeError(request, "w_o", "expected [out_dim, num_heads, head_dim_v]");
  }
  if (!w_o && FindInput(request, "b_o") != nullptr) {
    throw Error(ErrorCode::kOption, "b_o is given without w_o");
  }
  const std::vector<double> b_o = ReadBias(request, "b_o", out_dim, 1);
  Result output = {"output", 3, {qkv.batch, qkv.q_len, out_dim}, {}};
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t i = 0; i < qkv.q_len; ++i) {
      const auto element = [&](int64_t n) {
        const int64_t h = n / qkv.head_dim_v, d = n % qkv.head_dim_v;
        return heads.values[((b * qkv.num_heads + h) * qkv.q_len + i) * qkv.head_dim_v + d];
      };
      for (int64_t o = 0; o < out_dim; ++o) {
        double sum = w_o ? b_o[o] : element(o);
        for (int64_t n = 0; w_o && n < width; ++n) sum += element(n) * w_o->values[o * width + n];
        output.values.push_back(sum);
      }
    }
  }
  return output;
}

Result AverageHeads(const Qkv& qkv, const Result& weights) {
  const int64_t columns = weights.shape[3];
  const int64_t head_size = qkv.q_len * columns;
  Result mean = {"weights", 3, {qkv.batch, qkv.q_len, columns}, {}};
  mean.values.resize(qkv.batch * head_size);
  for (size_t n = 0; n < weights.values.size(); ++n) {
    const int64_t b = static_cast<int64_t>(n) / head_size / qkv.num_heads;
    mean.values[b * head_size + static_cast<int64_t>(n) % head_size] +=
        weights.values[n] / static_cast<double>(qkv.num_heads);
  }
  return mean;
}

}  // namespace

Array ReadNeeded(const Request& request, const char* name, int rank) {
  std::optional<Array> array = ReadFloats(request, name, rank);
  if (!array) throw Error(ErrorCode::kOption, std::string("input ") + name + " is missing");
  return *array;
}

std::vector<double> ReadVector(const Request& request, const char* name, int64_t count,
                               double otherwise) {
  if (FindInput(request, name) == nullptr) return std::vector<double>(count, otherwise);
  return ReadBias(request, name, count, 1);
}

Array ReadRows(const Request& request, const char* name) {
  Array rows = ReadNeeded(request, name, 3);
  rows.shape = {rows.shape[1], 1, rows.shape[2], rows.shape[3]};
  return rows;
}

Array Project(const Request& request, const Array& x, const char* w_name, const char* b_name,
              int w_rank) {
  const Array w = ReadNeeded(request, w_name, w_rank);
  const auto [batch, one, len, dim] = x.shape;
  const int64_t heads = w.shape[1], head_dim = w.shape[2];
  if (w.shape[3] != dim) {
    throw ShapeError(request, w_name, "its last extent must be " + std::to_string(dim));
  }
  const std::vector<double> b = ReadBias(request, b_name, heads * head_dim, w_rank - 1);
  Array projected;
  projected.shape = {batch, heads, len, head_dim};
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < len; ++i) {
        for (int64_t o = 0; o < head_dim; ++o) {
          double sum = b[h * head_dim + o];
          for (int64_t d = 0; d < dim; ++d) sum += x.Row(n, 0, i)[d] * w.Row(0, h, o)[d];
          projected.values.push_back(sum);
        }
      }
    }
  }
  return projected;
}

std::vector<Result> RunMultiHead(const Request& request) {
  return RunMultiHead(request, ReadRows(request, "query"), ReadRows(request, "key"),
                      ReadRows(request, "value"));
}

std::vector<Result> RunMultiHead(const Request& request, const Array& query, const Array& key,
                                 const Array& value) {
  const Qkv qkv = ProjectAll(request, query, key, value);
  ExtraKeys extra = ReadExtraKeys(request, qkv);
  std::vector<Result> results =
      RunExact(request, qkv, DotScore(request, qkv), NormalizeWithExtra(request, qkv, extra));
  Result* weights = nullptr;
  for (Result& result : results) {
    if (result.name == "weights") weights = &result;
  }
  AddExtra(qkv, extra, results[0], weights);
  MaskHeads(request, qkv, results[0]);
  results[0] = ProjectOutput(request, qkv, results[0]);
  if (weights != nullptr && ReadFlag(request, "average_weights")) {
    *weights = AverageHeads(qkv, *weights);
  }
  return results;
}

namespace multi_head {

std::vector<Result> Run(const Request& request) { return RunMultiHead(request); }

}  // namespace multi_head
}  // namespace heed::reference
