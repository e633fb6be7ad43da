#include "score_size.h"

#include <algorithm>
#include <cmath>

namespace heed::testing {
namespace {

const Buffer<float>* Find(const AttentionCase& c, const char* name) {
  const auto at = c.tensors.find(name);
  return at == c.tensors.end() ? nullptr : &at->second.buffer;
}

// An element of a tensor with one matrix for all heads or one each.
double At(const Buffer<float>& weight, int64_t head, int64_t row, int64_t column) {
  return weight(0, weight.shape()[1] == 1 ? 0 : head, row, column);
}

// The largest sum |x| |row| over the rows of a table: an upper bound that needs no distance.
template <class Element>
double TableSize(const Buffer<float>& table, int64_t head, const Element& x) {
  double largest = 0;
  for (int64_t r = 0; r < table.shape()[2]; ++r) {
    double size = 0;
    for (int64_t d = 0; d < table.shape()[3]; ++d) {
      size += std::abs(x(d) * At(table, head, r, d));
    }
    largest = std::max(largest, size);
  }
  return largest;
}

double Scale(const AttentionCase& c, double fallback = 1) {
  return std::abs(c.scalars.scale.value_or(fallback));
}

// What a row of the weight, or of the identity where there is none, makes of |x|.
template <class Element>
double ProductSize(const Buffer<float>* weight, int64_t head, int64_t row, int64_t dim,
                   const Element& x) {
  if (weight == nullptr) return std::abs(x(row));
  double size = 0;
  for (int64_t d = 0; d < dim; ++d) size += std::abs(At(*weight, head, row, d) * x(d));
  return size;
}

double SumOfProducts(const std::vector<double>& a, size_t a_row, const std::vector<double>& b,
                     size_t b_row, size_t dim) {
  double sum = 0;
  for (size_t d = 0; d < dim; ++d) sum += a[a_row * dim + d] * b[b_row * dim + d];
  return sum;
}

}  // namespace

ScoreSizes::ScoreSizes(const AttentionCase& c) : c_(c), head_dim_k_(c.k.shape()[3]) {
  for (const char* name : {"distance_bias", "bucket_bias"}) {
    if (const Buffer<float>* table = Find(c, name)) constant_ += LargestOf(*table);
  }
  switch (c.scalars.score) {
    case Score::kDot:
      PrepareDot();
      break;
    case Score::kBilinear:
      PrepareBilinear();
      break;
    case Score::kAdditive:
      PrepareAdditive();
      break;
    case Score::kSquaredDistance:
    case Score::kCosine:
      break;
  }
}

size_t ScoreSizes::QueryRow(int64_t b, int64_t h, int64_t i) const {
  return static_cast<size_t>((b * c_.sizes.num_heads + h) * c_.sizes.q_len + i);
}

size_t ScoreSizes::KeyRow(int64_t b, int64_t h, int64_t j) const {
  return static_cast<size_t>((b * c_.sizes.num_heads + h) * c_.sizes.kv_len + j);
}

template <class Visit>
void ScoreSizes::ForEachQuery(const Visit& visit) const {
  for (int64_t b = 0; b < c_.sizes.batch; ++b) {
    for (int64_t h = 0; h < c_.sizes.num_heads; ++h) {
      for (int64_t i = 0; i < c_.sizes.q_len; ++i) visit(b, h, i);
    }
  }
}

template <class Visit>
void ScoreSizes::ForEachKey(const Visit& visit) const {
  const int64_t group = c_.sizes.num_heads / std::max<int64_t>(1, c_.sizes.num_kv_heads);
  for (int64_t b = 0; b < c_.sizes.batch; ++b) {
    for (int64_t h = 0; h < c_.sizes.num_heads; ++h) {
      for (int64_t j = 0; j < c_.sizes.kv_len; ++j) visit(b, h, h / group, j);
    }
  }
}

// |q| + |content_bias| and |k|, whose product is the size; what tables add to a row or to a key.
void ScoreSizes::PrepareDot() {
  const int64_t dim = c_.sizes.head_dim;
  const Buffer<float>* content = Find(c_, "content_bias");
  const Buffer<float>* position = Find(c_, "position_bias");
  const Buffer<float>* keys = Find(c_, "relative_keys");
  const Buffer<float>* queries = Find(c_, "relative_queries");
  const double scale = Scale(c_, 1 / std::sqrt(static_cast<double>(dim)));
  dim_ = static_cast<size_t>(dim);
  ForEachQuery([&](int64_t b, int64_t h, int64_t i) {
    const auto biased = [&](const Buffer<float>* bias, int64_t d) {
      return std::abs(c_.q(b, h, i, d)) + (bias == nullptr ? 0 : std::abs((*bias)(0, 0, h, d)));
    };
    for (int64_t d = 0; d < dim; ++d) query_.push_back(scale * biased(content, d));
    const auto with_position = [&](int64_t d) { return biased(position, d); };
    query_size_.push_back(keys == nullptr ? 0 : scale * TableSize(*keys, h, with_position));
  });
  ForEachKey([&](int64_t b, int64_t h, int64_t kv_head, int64_t j) {
    const auto k = [&](int64_t d) { return c_.k(b, kv_head, j, d); };
    for (int64_t d = 0; d < dim; ++d) key_.push_back(std::abs(k(d)));
    key_size_.push_back(queries == nullptr ? 0 : scale * TableSize(*queries, h, k));
  });
}

// |q| |M| and |k|.
void ScoreSizes::PrepareBilinear() {
  const Buffer<float>& matrix = *Find(c_, "score_matrix");
  dim_ = static_cast<size_t>(head_dim_k_);
  ForEachQuery([&](int64_t b, int64_t h, int64_t i) {
    for (int64_t n = 0; n < head_dim_k_; ++n) {
      double size = 0;
      for (int64_t m = 0; m < c_.sizes.head_dim; ++m) {
        size += std::abs(c_.q(b, h, i, m) * At(matrix, h, m, n));
      }
      query_.push_back(Scale(c_) * size);
    }
    query_size_.push_back(0);
  });
  ForEachKey([&](int64_t b, int64_t, int64_t kv_head, int64_t j) {
    for (int64_t d = 0; d < head_dim_k_; ++d) key_.push_back(std::abs(c_.k(b, kv_head, j, d)));
    key_size_.push_back(0);
  });
}

// The arguments of a tanh round at their own size, and its slope is at most 1: each side counts by
// itself, sum |v| (1 + |bias| + |W_q| |q|) and sum |v| |W_k| |k|.
void ScoreSizes::PrepareAdditive() {
  const Buffer<float>* query = Find(c_, "query_weight");
  const Buffer<float>* key = Find(c_, "key_weight");
  const Buffer<float>* bias = Find(c_, "score_bias");
  const Buffer<float>* vector = Find(c_, "score_vector");
  const int64_t hidden_dim = query != nullptr ? query->shape()[2] : c_.sizes.head_dim;
  const auto weight = [&](int64_t h, int64_t t) {
    if (vector == nullptr) return Scale(c_);
    return Scale(c_) * std::abs((*vector)(0, 0, vector->shape()[2] == 1 ? 0 : h, t));
  };
  ForEachQuery([&](int64_t b, int64_t h, int64_t i) {
    const auto q = [&](int64_t d) { return c_.q(b, h, i, d); };
    double size = 0;
    for (int64_t t = 0; t < hidden_dim; ++t) {
      const double constant = 1 + (bias == nullptr ? 0 : std::abs((*bias)(0, 0, 0, t)));
      size += weight(h, t) * (constant + ProductSize(query, h, t, c_.sizes.head_dim, q));
    }
    query_size_.push_back(size);
  });
  ForEachKey([&](int64_t b, int64_t h, int64_t kv_head, int64_t j) {
    const auto k = [&](int64_t d) { return c_.k(b, kv_head, j, d); };
    double size = 0;
    for (int64_t t = 0; t < hidden_dim; ++t) {
      size += weight(h, t) * ProductSize(key, kv_head, t, head_dim_k_, k);
    }
    key_size_.push_back(size);
  });
}

double ScoreSizes::DistanceSize(int64_t b, int64_t h, int64_t i, int64_t j) const {
  const int64_t kv_head = h / (c_.sizes.num_heads / c_.sizes.num_kv_heads);
  const std::vector<float>& width = c_.width;
  double size = 0;
  for (int64_t d = 0; d < c_.sizes.head_dim; ++d) {
    const double w = width.empty() ? 1 : width[width.size() == 1 ? 0 : static_cast<size_t>(d)];
    const double step = (static_cast<double>(c_.q(b, h, i, d)) - c_.k(b, kv_head, j, d)) / w;
    size += step * step;
  }
  return 0.5 * Scale(c_) * size;
}

// A cosine is at most 1.
double ScoreSizes::CosineSize(int64_t h) const {
  double temperature = 1;
  if (const Buffer<float>* given = Find(c_, "temperature")) {
    temperature = (*given)(0, 0, 0, given->size() == 1 ? 0 : h);
  }
  return Scale(c_) / std::max(temperature, c_.scalars.min_temperature.value_or(0));
}

// The log gates between the key and the query.
double ScoreSizes::GateSize(int64_t b, int64_t h, int64_t i, int64_t j) const {
  const Buffer<float>* gates = Find(c_, "log_gates");
  if (gates == nullptr) return 0;
  double size = 0;
  const int64_t last = std::min(c_.Position(b, i), c_.sizes.kv_len - 1);
  for (int64_t l = j + 1; l <= last; ++l) {
    const double gate =
        (*gates)(0, gates->shape()[1] == 1 ? 0 : b, gates->shape()[2] == 1 ? 0 : h, l);
    if (std::isfinite(gate)) size += std::abs(gate);
  }
  return size;
}

double ScoreSizes::operator()(int64_t b, int64_t h, int64_t i, int64_t j) const {
  double size = constant_ + GateSize(b, h, i, j);
  if (!query_size_.empty()) {
    const size_t query = QueryRow(b, h, i), key = KeyRow(b, h, j);
    size += query_size_[query] + key_size_[key] + SumOfProducts(query_, query, key_, key, dim_);
  } else {
    size += c_.scalars.score == Score::kCosine ? CosineSize(h) : DistanceSize(b, h, i, j);
  }
  if (c_.bias.has_value()) {
    const Extents& shape = c_.bias.shape();
    size += std::abs(c_.bias(shape[0] == 1 ? 0 : b, shape[1] == 1 ? 0 : h, shape[2] == 1 ? 0 : i,
                             shape[3] == 1 ? 0 : j));
  }
  if (!c_.alibi_slopes.empty()) {
    // An upper bound that needs no position: no distance within a test exceeds it by much.
    const double slope = std::abs(c_.alibi_slopes[static_cast<size_t>(h)]);
    size += slope * static_cast<double>(c_.sizes.q_len + c_.sizes.kv_len);
  }
  return size;
}

double LargestOf(const Buffer<float>& buffer) {
  double largest = 0;
  for (const float x : buffer.Elements()) {
    if (std::isfinite(x)) largest = std::max(largest, static_cast<double>(std::abs(x)));
  }
  return largest;
}

}  // namespace heed::testing
