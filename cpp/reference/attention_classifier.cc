// A classifier of token sequences: embedding, self-attention, pooling, linear map.
//
// Source: pooling by attention: Yang et al. 2016, Hierarchical Attention Networks, section 2.2;
// heads: Vaswani et al. 2017, arXiv:1706.03762.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "multi_head.h"
#include "softmax.h"

namespace heed::reference::attention_classifier {
namespace {

struct Sequences {
  Array tokens;                  // [1, 1, batch, len]
  std::vector<int64_t> lengths;  // [batch]
};

Sequences ReadSequences(const Request& request) {
  const std::optional<Array> tokens = ReadIntegers(request, "tokens");
  if (!tokens) throw Error(ErrorCode::kOption, "input tokens is missing");
  if (FindInput(request, "tokens")->rank != 2) {
    throw Error(ErrorCode::kShape, "tokens must be [batch, len]");
  }
  Sequences s = {*tokens, std::vector<int64_t>(tokens->shape[2], tokens->shape[3])};
  const std::optional<Array> lengths = ReadIntegers(request, "key_lengths");
  if (!lengths) return s;
  if (FindInput(request, "key_lengths")->rank != 1 && tokens->shape[3] != 1 &&
      tokens->shape[2] != 0) {
    throw Error(ErrorCode::kUnsupported, "key_lengths must be one per batch entry");
  }
  for (size_t b = 0; b < s.lengths.size() && b < lengths->values.size(); ++b) {
    s.lengths[b] = static_cast<int64_t>(lengths->values[b]);
  }
  return s;
}

Array Embed(const Request& request, const Sequences& s) {
  const Array embedding = ReadNeeded(request, "embedding", 2);
  const std::optional<Array> table = ReadFloats(request, "position_table", 2);
  const int64_t batch = s.tokens.shape[2], len = s.tokens.shape[3], dim = embedding.shape[3];
  if (table && (table->shape[2] < len || table->shape[3] != dim)) {
    throw Error(ErrorCode::kShape, "position_table must be [max_len, embed_dim], max_len >= len");
  }
  Array x = {{batch, 1, len, dim}, std::vector<double>(batch * len * dim)};
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < std::min(len, s.lengths[b]); ++i) {
      const int64_t token = static_cast<int64_t>(s.tokens.values[b * len + i]);
      if (token < 0 || token >= embedding.shape[2]) {
        throw Error(ErrorCode::kRange, "tokens must lie in [0, vocabulary)");
      }
      for (int64_t d = 0; d < dim; ++d) {
        const double position = table ? table->values[i * dim + d] : 0;
        x.values[(b * len + i) * dim + d] = embedding.values[token * dim + d] + position;
      }
    }
  }
  return x;
}

// One vector from rows h[0 .. length).
std::vector<double> Pool(const Request& request, const Array& h, int64_t b, int64_t length) {
  const int64_t dim = h.shape[3];
  const std::string pooling =
      ReadWord(request, "pooling", {"mean", "first", "max", "attention"}).value_or("mean");
  std::vector<double> pooled(dim);
  if (length == 0) return pooled;
  std::vector<double> weights(length, 1 / static_cast<double>(length));
  if (pooling == "attention") {
    const std::vector<double> query = ReadList(request, "pool_query");
    for (int64_t i = 0; i < length; ++i) {
      weights[i] = 0;
      for (int64_t d = 0; d < dim; ++d) weights[i] += h.Row(b, 0, i)[d] * query[d];
    }
    Softmax(weights, kMinusInfinity);
  }
  for (int64_t d = 0; d < dim; ++d) {
    if (pooling == "first" || pooling == "max") pooled[d] = h.Row(b, 0, 0)[d];
    for (int64_t i = 0; i < length; ++i) {
      const double element = h.Row(b, 0, i)[d];
      if (pooling == "max") pooled[d] = element > pooled[d] ? element : pooled[d];
      if (pooling == "mean" || pooling == "attention") pooled[d] += weights[i] * element;
    }
  }
  return pooled;
}

void CheckPoolQuery(const Request& request, int64_t width) {
  const bool wanted =
      ReadWord(request, "pooling", {"mean", "first", "max", "attention"}).value_or("mean") ==
      "attention";
  const size_t count = ReadList(request, "pool_query").size();
  if (wanted != (count > 0)) {
    throw Error(ErrorCode::kOption, "pool_query goes with pooling by attention");
  }
  if (wanted && static_cast<int64_t>(count) != width) {
    throw Error(ErrorCode::kShape, "pool_query must have " + std::to_string(width) + " values");
  }
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Sequences s = ReadSequences(request);
  const Array x = Embed(request, s);
  const Result attended = RunMultiHead(request, x, x, x)[0];
  const int64_t batch = x.shape[0], width = attended.shape[2];
  const Array h = {{batch, 1, x.shape[2], width}, attended.values};
  CheckPoolQuery(request, width);
  const Array w = ReadNeeded(request, "w_class", 2);
  if (w.shape[3] != width) throw Error(ErrorCode::kShape, "w_class must be [num_classes, out_dim]");
  const std::vector<double> b_class = ReadVector(request, "b_class", w.shape[2], 0);
  Result output = {"output", 2, {batch, w.shape[2]}, {}};
  for (int64_t b = 0; b < batch; ++b) {
    const std::vector<double> pooled = Pool(request, h, b, s.lengths[b]);
    for (int64_t o = 0; o < w.shape[2]; ++o) {
      double sum = b_class[o];
      for (int64_t d = 0; d < width; ++d) sum += pooled[d] * w.Row(0, 0, o)[d];
      output.values.push_back(sum);
    }
  }
  return {output};
}

}  // namespace heed::reference::attention_classifier
