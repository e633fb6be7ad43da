// Additive attention: softmax(scale * v^T tanh(W_q q + W_k k + b)) V.
//
// Source: Bahdanau et al. 2014, arXiv:1409.0473, appendix A.1.2. Weights that are left out are the
// identity, a vector that is left out is all ones: the form of Keras without trained weights.
#include <cmath>
#include <string>
#include <vector>

#include "exact.h"

namespace heed::reference {
namespace {

// A weight [hidden_dim, dim] or [heads, hidden_dim, dim], or nothing.
struct Weight {
  std::optional<Array> array;

  // Row t of the product with x; head selects the matrix when there is one each.
  double Product(int64_t head, int64_t t, std::span<const double> x) const {
    if (!array) return x[t];
    double sum = 0.0;
    for (size_t d = 0; d < x.size(); ++d) sum += (*array)(0, head, t, d) * x[d];
    return sum;
  }
};

Weight ReadWeight(const Request& request, const char* name, int64_t heads, int64_t dim) {
  const AnyTensor* tensor = FindInput(request, name);
  if (tensor == nullptr) return {};
  Array array = ReadArray(request, name);
  const bool fits = (tensor->rank == 2 || tensor->rank == 3) && array.shape[3] == dim &&
                    (array.shape[1] == 1 || array.shape[1] == heads);
  if (!fits) {
    throw Error(ErrorCode::kShape, Describe(name, *tensor) +
                                       ": expected [hidden_dim, dim] or [heads, hidden_dim, dim], "
                                       "with dim " +
                                       std::to_string(dim) + " and " + std::to_string(heads) +
                                       " heads");
  }
  return {std::move(array)};
}

struct Weights {
  Weight query, key;
  std::vector<double> bias;     // [hidden_dim] or empty
  std::optional<Array> vector;  // [1, 1, num_heads or 1, hidden_dim]
  int64_t hidden_dim = 0;
};

void ExpectHidden(const std::string& name, int64_t extent, int64_t hidden_dim) {
  if (extent == hidden_dim) return;
  throw Error(ErrorCode::kShape, name + " has hidden_dim " + std::to_string(extent) +
                                     ", but the query side has " + std::to_string(hidden_dim));
}

Weights ReadWeights(const Request& request, const Qkv& qkv) {
  Weights w;
  const int64_t head_dim_k = qkv.k.shape[3];
  w.query = ReadWeight(request, "query_weight", qkv.num_heads, qkv.head_dim);
  w.key = ReadWeight(request, "key_weight", qkv.num_kv_heads, head_dim_k);
  w.hidden_dim = w.query.array ? w.query.array->shape[2] : qkv.head_dim;
  ExpectHidden("key_weight", w.key.array ? w.key.array->shape[2] : head_dim_k, w.hidden_dim);
  if (FindInput(request, "score_bias") != nullptr) {
    w.bias = ReadList(request, "score_bias");
    ExpectHidden("score_bias", static_cast<int64_t>(w.bias.size()), w.hidden_dim);
  }
  if (const AnyTensor* tensor = FindInput(request, "score_vector")) {
    w.vector = ReadArray(request, "score_vector");
    ExpectHidden("score_vector", w.vector->shape[3], w.hidden_dim);
    const int64_t heads = w.vector->shape[2];
    if (tensor->rank < 1 || tensor->rank > 2 || (heads != 1 && heads != qkv.num_heads)) {
      throw Error(ErrorCode::kShape, Describe("score_vector", *tensor) +
                                         ": expected [hidden_dim] or [num_heads, hidden_dim]");
    }
  }
  return w;
}

}  // namespace

PairScore AdditiveScore(const Request& request, const Qkv& qkv) {
  const Weights weights = ReadWeights(request, qkv);
  const double scale = ReadNumber(request, "scale").value_or(1.0);
  return [weights, scale, &qkv](int64_t b, int64_t h, int64_t i, int64_t j) {
    const auto q = qkv.q.Row(b, h, i);
    const auto k = qkv.k.Row(b, qkv.KvHead(h), j);
    double sum = 0.0;
    for (int64_t t = 0; t < weights.hidden_dim; ++t) {
      const double bias = weights.bias.empty() ? 0.0 : weights.bias[t];
      const double x =
          weights.query.Product(h, t, q) + weights.key.Product(qkv.KvHead(h), t, k) + bias;
      sum += (weights.vector ? (*weights.vector)(0, 0, h, t) : 1.0) * std::tanh(x);
    }
    return scale * sum;
  };
}

namespace additive {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request, KeyWidth::kFree);
  return RunExact(request, qkv, AdditiveScore(request, qkv), SoftmaxNormalize(request, qkv));
}

}  // namespace additive
}  // namespace heed::reference
