#include "relative.h"

#include <algorithm>
#include <cmath>

namespace heed::reference {
namespace {

// DeBERTa v2's buckets of a distance, query minus key.
int64_t LogBucket(int64_t distance, int64_t buckets, int64_t max_distance) {
  const double middle = static_cast<double>(buckets / 2);
  const double size = std::abs(static_cast<double>(distance));
  if (size <= middle) return distance;
  const double share = std::log(size / middle) / std::log((max_distance - 1) / middle);
  const double bucket = std::ceil(share * (middle - 1)) + middle;
  return static_cast<int64_t>(distance < 0 ? -bucket : bucket);
}

std::optional<Array> ReadHeadVectors(const Request& request, const char* name, const Qkv& qkv) {
  const AnyTensor* tensor = FindInput(request, name);
  if (tensor == nullptr) return std::nullopt;
  if (tensor->rank != 2 || tensor->shape[0] != qkv.num_heads || tensor->shape[1] != qkv.head_dim) {
    throw Error(ErrorCode::kShape, Describe(name, *tensor) + ": expected [num_heads, head_dim]");
  }
  return ReadArray(request, name);
}

}  // namespace

Relative::Relative(const Request& request, const Qkv& qkv)
    : qkv_(qkv),
      visible_(request, qkv),
      rows_word_(ReadWord(request, "relative_rows", {"clip", "span", "log_span"})
                     .value_or(request.id == "disentangled" ? "span" : "clip")),
      max_distance_(ReadCount(request, "relative_max_distance").value_or(512)),
      keys_(ReadTable(request, "relative_keys", qkv.head_dim)),
      queries_(ReadTable(request, "relative_queries", qkv.head_dim)),
      values_(ReadTable(request, "relative_values", qkv.head_dim_v)),
      content_bias_(ReadHeadVectors(request, "content_bias", qkv)),
      position_bias_(ReadHeadVectors(request, "position_bias", qkv)) {
  if (position_bias_ && !keys_) {
    throw Error(ErrorCode::kOption, "position_bias needs relative_keys");
  }
}

std::optional<Array> Relative::ReadTable(const Request& request, const char* name, int64_t dim) {
  const AnyTensor* tensor = FindInput(request, name);
  if (tensor == nullptr) return std::nullopt;
  Array table = ReadArray(request, name);
  if (num_rows_ == 0) num_rows_ = table.shape[2];
  const int64_t heads = table.shape[1];
  const bool odd = rows_word_ == "clip";
  if (tensor->rank < 2 || tensor->rank > 3 || (heads != 1 && heads != qkv_.num_heads) ||
      table.shape[2] != num_rows_ || num_rows_ == 0 || table.shape[3] != dim ||
      (num_rows_ % 2 == 1) != odd) {
    throw Error(ErrorCode::kShape, Describe(name, *tensor) +
                                       ": expected [rows, dim] or [num_heads, rows, dim], with " +
                                       (odd ? "an odd" : "an even") +
                                       " number of rows, the same in all tables");
  }
  if (rows_word_ == "log_span" && (num_rows_ % 4 != 0 || num_rows_ < 8)) {
    throw Error(ErrorCode::kShape,
                std::string(name) + ": expected a multiple of 4 rows, 8 or more");
  }
  if (rows_word_ == "log_span" &&
      (max_distance_ <= num_rows_ / 4 * 3 || max_distance_ > (int64_t{1} << 24))) {
    throw Error(ErrorCode::kRange, "relative_max_distance is not above 3 / 4 of the rows");
  }
  return table;
}

int64_t Relative::Row(int64_t b, int64_t i, int64_t j) const {
  const int64_t from_key = visible_.Position(b, i) - j;
  const int64_t half = num_rows_ / 2;
  if (rows_word_ == "clip") return half + std::clamp(-from_key, -half, half);
  const int64_t distance =
      rows_word_ == "span" ? from_key : LogBucket(from_key, half, max_distance_);
  return std::clamp<int64_t>(distance + half, 0, num_rows_ - 1);
}

double Relative::Term(int64_t b, int64_t h, int64_t i, int64_t j) const {
  const auto q = qkv_.q.Row(b, h, i);
  const auto k = qkv_.k.Row(b, qkv_.KvHead(h), j);
  const int64_t row = keys_ || queries_ ? Row(b, i, j) : 0;
  double sum = 0.0;
  for (int64_t d = 0; d < qkv_.head_dim; ++d) {
    if (content_bias_) sum += (*content_bias_)(0, 0, h, d) * k[d];
    const double bias = position_bias_ ? (*position_bias_)(0, 0, h, d) : 0.0;
    if (keys_) sum += (q[d] + bias) * (*keys_)(0, h, row, d);
    if (queries_) sum += k[d] * (*queries_)(0, h, row, d);
  }
  return sum;
}

double Relative::Value(int64_t h, int64_t row, int64_t d) const {
  return values_ ? (*values_)(0, h, row, d) : 0.0;
}

}  // namespace heed::reference
