#include "score_size.h"

#include <algorithm>
#include <cmath>

namespace heed::testing {
namespace {

// One pair of a case: element d of its query and of its key.
struct Pair {
  const AttentionCase& c;
  int64_t b, h, i, j;
  int64_t kv_head() const { return h / (c.sizes.num_heads / c.sizes.num_kv_heads); }
  double q(int64_t d) const { return c.q(b, h, i, d); }
  double k(int64_t d) const { return c.k(b, kv_head(), j, d); }
  int64_t head_dim_k() const { return c.k.shape()[3]; }
  double scale() const { return std::abs(c.scalars.scale.value_or(1)); }
  const Buffer<float>* Find(const char* name) const {
    const auto at = c.tensors.find(name);
    return at == c.tensors.end() ? nullptr : &at->second.buffer;
  }
};

// An element of a tensor with one matrix for all heads or one each.
double At(const Buffer<float>& weight, int64_t head, int64_t row, int64_t column) {
  return weight(0, weight.shape()[1] == 1 ? 0 : head, row, column);
}

// The largest sum |x| |row| over the rows of a table: an upper bound that needs no distance.
template <class Element>
double TableSize(const Pair& pair, const char* name, const Element& x) {
  const Buffer<float>* table = pair.Find(name);
  if (table == nullptr) return 0;
  double largest = 0;
  for (int64_t r = 0; r < table->shape()[2]; ++r) {
    double size = 0;
    for (int64_t d = 0; d < table->shape()[3]; ++d) {
      size += std::abs(x(d) * At(*table, pair.h, r, d));
    }
    largest = std::max(largest, size);
  }
  return largest;
}

double DotSize(const Pair& pair) {
  const Buffer<float>* content = pair.Find("content_bias");
  const Buffer<float>* position = pair.Find("position_bias");
  const auto biased = [&](const Buffer<float>* bias, int64_t d) {
    return std::abs(pair.q(d)) + (bias == nullptr ? 0 : std::abs((*bias)(0, 0, pair.h, d)));
  };
  double size = 0;
  for (int64_t d = 0; d < pair.c.sizes.head_dim; ++d) {
    size += biased(content, d) * std::abs(pair.k(d));
  }
  size += TableSize(pair, "relative_keys", [&](int64_t d) { return biased(position, d); });
  size += TableSize(pair, "relative_queries", [&](int64_t d) { return pair.k(d); });
  const double dim = static_cast<double>(pair.c.sizes.head_dim);
  return std::abs(pair.c.scalars.scale.value_or(1 / std::sqrt(dim))) * size;
}

// The log gates between the key and the query.
double GateSize(const Pair& pair) {
  const Buffer<float>* gates = pair.Find("log_gates");
  if (gates == nullptr) return 0;
  double size = 0;
  const int64_t last = std::min(pair.c.Position(pair.b, pair.i), pair.c.sizes.kv_len - 1);
  for (int64_t l = pair.j + 1; l <= last; ++l) {
    const double gate =
        (*gates)(0, gates->shape()[1] == 1 ? 0 : pair.b, gates->shape()[2] == 1 ? 0 : pair.h, l);
    if (std::isfinite(gate)) size += std::abs(gate);
  }
  return size;
}

double DistanceSize(const Pair& pair) {
  const std::vector<float>& width = pair.c.width;
  double size = 0;
  for (int64_t d = 0; d < pair.c.sizes.head_dim; ++d) {
    const size_t n = static_cast<size_t>(d);
    const double w = width.empty() ? 1 : width[width.size() == 1 ? 0 : n];
    size += std::pow((pair.q(d) - pair.k(d)) / w, 2);
  }
  return 0.5 * pair.scale() * size;
}

// A cosine is at most 1.
double CosineSize(const Pair& pair) {
  double temperature = 1;
  if (const auto at = pair.c.tensors.find("temperature"); at != pair.c.tensors.end()) {
    const Buffer<float>& given = at->second.buffer;
    temperature = given(0, 0, 0, given.size() == 1 ? 0 : pair.h);
  }
  temperature = std::max(temperature, pair.c.scalars.min_temperature.value_or(0));
  return pair.scale() / temperature;
}

double BilinearSize(const Pair& pair) {
  const Buffer<float>& matrix = *pair.Find("score_matrix");
  double size = 0;
  for (int64_t m = 0; m < pair.c.sizes.head_dim; ++m) {
    for (int64_t n = 0; n < pair.head_dim_k(); ++n) {
      size += std::abs(pair.q(m) * At(matrix, pair.h, m, n) * pair.k(n));
    }
  }
  return pair.scale() * size;
}

// The arguments of a tanh round at their own size, and its slope is at most 1.
double AdditiveSize(const Pair& pair) {
  const Buffer<float>* query = pair.Find("query_weight");
  const Buffer<float>* key = pair.Find("key_weight");
  const Buffer<float>* bias = pair.Find("score_bias");
  const Buffer<float>* vector = pair.Find("score_vector");
  const int64_t hidden_dim = query != nullptr ? query->shape()[2] : pair.c.sizes.head_dim;
  double size = 0;
  for (int64_t t = 0; t < hidden_dim; ++t) {
    double argument = query == nullptr ? std::abs(pair.q(t)) : 0;
    for (int64_t d = 0; query != nullptr && d < pair.c.sizes.head_dim; ++d) {
      argument += std::abs(At(*query, pair.h, t, d) * pair.q(d));
    }
    argument += key == nullptr ? std::abs(pair.k(t)) : 0;
    for (int64_t d = 0; key != nullptr && d < pair.head_dim_k(); ++d) {
      argument += std::abs(At(*key, pair.kv_head(), t, d) * pair.k(d));
    }
    if (bias != nullptr) argument += std::abs((*bias)(0, 0, 0, t));
    const double weight =
        vector == nullptr ? 1 : (*vector)(0, 0, vector->shape()[2] == 1 ? 0 : pair.h, t);
    size += std::abs(weight) * (1 + argument);
  }
  return pair.scale() * size;
}

double RawSize(const Pair& pair) {
  switch (pair.c.scalars.score) {
    case Score::kDot:
      return DotSize(pair);
    case Score::kSquaredDistance:
      return DistanceSize(pair);
    case Score::kCosine:
      return CosineSize(pair);
    case Score::kBilinear:
      return BilinearSize(pair);
    case Score::kAdditive:
      return AdditiveSize(pair);
  }
  return 0;
}

}  // namespace

double LargestOf(const Buffer<float>& buffer) {
  double largest = 0;
  for (const float x : buffer.Elements()) {
    if (std::isfinite(x)) largest = std::max(largest, static_cast<double>(std::abs(x)));
  }
  return largest;
}

double ScoreSize(const AttentionCase& c, int64_t b, int64_t h, int64_t i, int64_t j) {
  const Pair pair = {c, b, h, i, j};
  double size = RawSize(pair) + GateSize(pair);
  for (const char* name : {"distance_bias", "bucket_bias"}) {
    if (pair.Find(name) != nullptr) size += LargestOf(*pair.Find(name));
  }
  if (c.bias.has_value()) {
    const Extents& shape = c.bias.shape();
    size += std::abs(c.bias(shape[0] == 1 ? 0 : b, shape[1] == 1 ? 0 : h, shape[2] == 1 ? 0 : i,
                            shape[3] == 1 ? 0 : j));
  }
  if (!c.alibi_slopes.empty()) {
    // An upper bound that needs no position: no distance within a test exceeds it by much.
    const double slope = std::abs(c.alibi_slopes[static_cast<size_t>(h)]);
    size += slope * static_cast<double>(c.sizes.q_len + c.sizes.kv_len);
  }
  return size;
}

}  // namespace heed::testing
