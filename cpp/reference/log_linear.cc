// Log-linear attention: linear attention with a decay, whose pairs of tokens also have a weight by
// their level in a Fenwick tree.
//
// Source: Guo et al. 2025, arXiv:2506.04761, the parallel form (Q K^T * M^S * M^H) V of section 3:
// all pairs, one by one.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "recurrent.h"

namespace heed::reference::log_linear {
namespace {

struct Tree {
  const Request& request;
  Qkv qkv;
  Array weights;
  std::optional<Array> log_decay = {}, beta = {}, initial = {};
  int64_t states = 0;
  double scale = 1;

  static int64_t Bits(int64_t x) { return std::bit_width(static_cast<uint64_t>(x)); }

  // Decay from token `from` to token `to`.
  double Decay(int64_t b, int64_t kv, int64_t from, int64_t to) const {
    double sum = 0;
    for (int64_t t = from + 1; t <= to && log_decay; ++t) sum += (*log_decay)(b, kv, t, 0);
    return std::exp(sum);
  }
  double Strength(int64_t b, int64_t kv, int64_t t) const {
    return beta ? (*beta)(b, kv, t, 0) : 1;
  }

  // Output of query t: of new tokens, then of the states of those before.
  std::vector<double> Read(int64_t b, int64_t h, int64_t t, int64_t before) const {
    const int64_t kv = qkv.KvHead(h);
    std::vector<double> row(qkv.head_dim_v);
    for (int64_t j = 0; j <= t; ++j) {
      double product = 0;
      for (int64_t c = 0; c < qkv.head_dim; ++c) product += qkv.q(b, h, t, c) * qkv.k(b, kv, j, c);
      product *= scale * weights(b, h, t, Bits((before + t) ^ (before + j))) * Decay(b, kv, j, t) *
                 Strength(b, kv, j);
      for (int64_t e = 0; e < qkv.head_dim_v; ++e) row[e] += product * qkv.v(b, kv, j, e);
    }
    for (int64_t l = 0; l < states && initial; ++l) {
      if ((before >> l & 1) == 0) continue;
      const int64_t first = before >> (l + 1) << (l + 1);  // the first of its 2^l tokens
      const double factor =
          scale * weights(b, h, t, Bits((before + t) ^ first)) * Decay(b, kv, -1, t);
      for (int64_t c = 0; c < qkv.head_dim; ++c) {
        for (int64_t e = 0; e < qkv.head_dim_v; ++e) {
          row[e] += factor * qkv.q(b, h, t, c) * (*initial)(b, kv, l * qkv.head_dim + c, e);
        }
      }
    }
    return row;
  }

  // Element [c, e] of state l after `length` more tokens.
  double State(int64_t b, int64_t kv, int64_t l, int64_t c, int64_t e, int64_t before,
               int64_t length) const {
    const int64_t after = before + length;
    if ((after >> l & 1) == 0) return 0;
    const int64_t first = after >> (l + 1) << (l + 1), last = first + (int64_t{1} << l);
    double sum = 0;
    for (int64_t n = std::max(first, before); n < last; ++n) {
      const int64_t j = n - before;
      sum += Decay(b, kv, j, length - 1) * Strength(b, kv, j) * qkv.k(b, kv, j, c) *
             qkv.v(b, kv, j, e);
    }
    for (int64_t m = 0; m < states && initial; ++m) {
      const int64_t old = before >> (m + 1) << (m + 1);
      if ((before >> m & 1) == 0 || old < first || old >= last) continue;
      sum += Decay(b, kv, -1, length - 1) * (*initial)(b, kv, m * qkv.head_dim + c, e);
    }
    return sum;
  }
};

void CheckTree(const Tree& tree, const std::vector<int64_t>& offsets) {
  const Qkv& qkv = tree.qkv;
  const int64_t levels = tree.weights.shape[3];
  if (tree.weights.shape != Extents{qkv.batch, qkv.num_heads, qkv.q_len, levels}) {
    throw Error(ErrorCode::kShape, "level_weights must be [batch, num_heads, len, levels]");
  }
  if (levels < 1 || levels > 48) throw Error(ErrorCode::kRange, "1 to 48 levels");
  if (tree.initial && FindParam(tree.request, "position_offset") == nullptr) {
    throw Error(ErrorCode::kOption, "initial_state needs position_offset");
  }
  for (const int64_t offset : offsets) {
    if (qkv.batch > 0 && (offset < 0 || offset > (int64_t{1} << (levels - 1)) - qkv.kv_len)) {
      throw Error(ErrorCode::kRange, "tokens must be at most 2^(levels - 1)");
    }
  }
  if (!tree.log_decay) return;
  for (const double gate : tree.log_decay->values) {
    if (gate > 0) throw Error(ErrorCode::kRange, "logarithms of decays must be <= 0");
  }
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  Tree tree = {request, ReadQkv(request), *ReadFloats(request, "level_weights", 4)};
  const Qkv& qkv = tree.qkv;
  if (qkv.q_len != qkv.kv_len) throw Error(ErrorCode::kShape, "q_len and kv_len must be the same");
  if (const auto chunk = ReadCount(request, "chunk_len"); chunk && (*chunk < 1 || *chunk > 64)) {
    throw Error(ErrorCode::kRange, "chunk_len must lie in [1, 64]");
  }
  tree.log_decay = ReadPerToken(request, "log_decay", qkv);
  tree.beta = ReadPerToken(request, "beta", qkv);
  tree.initial = ReadFloats(request, "initial_state", 4);
  tree.scale = ReadScale(request, qkv, 1.0);
  const std::vector<int64_t> offsets = ReadOffsets(request, qkv.batch);
  CheckTree(tree, offsets);
  tree.states = tree.weights.shape[3] - 1;
  const Extents shape = {qkv.batch, qkv.num_kv_heads, tree.states * qkv.head_dim, qkv.head_dim_v};
  if (tree.initial && tree.initial->shape != shape) {
    throw Error(ErrorCode::kShape, "initial_state has another shape than the state");
  }
  const std::vector<int64_t> lengths = ReadKeyLengths(request, qkv.batch, qkv.kv_len);
  Result output = {"output", 4, {qkv.batch, qkv.num_heads, qkv.q_len, qkv.head_dim_v}, {}};
  Result state = {"state", 4, shape, {}};
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t h = 0; h < qkv.num_heads; ++h) {
      for (int64_t t = 0; t < qkv.q_len; ++t) {
        std::vector<double> row(qkv.head_dim_v);
        if (t < lengths[b]) row = tree.Read(b, h, t, offsets[b]);
        output.values.insert(output.values.end(), row.begin(), row.end());
      }
    }
    for (int64_t kv = 0; kv < qkv.num_kv_heads; ++kv) {
      for (int64_t row = 0; row < shape[2]; ++row) {
        for (int64_t e = 0; e < qkv.head_dim_v; ++e) {
          state.values.push_back(
              tree.State(b, kv, row / qkv.head_dim, row % qkv.head_dim, e, offsets[b], lengths[b]));
        }
      }
    }
  }
  std::vector<Result> results = {output};
  if (ReadFlag(request, "return_state")) results.push_back(state);
  return results;
}

}  // namespace heed::reference::log_linear
