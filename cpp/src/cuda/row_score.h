// Every score, one pair at a time: what a query is turned into once, and what it makes with a key.
// The definitions are those of heed/attention.h (Score).
#ifndef HEED_SRC_CUDA_ROW_SCORE_H_
#define HEED_SRC_CUDA_ROW_SCORE_H_

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/plugs.h"
#include "src/cuda/row_block.h"
#include "src/cuda/row_params.h"
#include "src/cuda/rows_in_memory.h"

namespace heed::cuda {

// Row j of keys or values as floats. A page that does not exist holds zeros.
struct StoredRow {
  const char* data;
  DType dtype;
  float scale;

  HEED_DEVICE float operator[](int d) const {
    return data == nullptr ? 0.0f : scale * LoadAs(dtype, data, d);
  }
};
template <class Block>
HEED_DEVICE StoredRow StoredRowOf(Block& block, const RowParams& p, const DeviceRows& rows, int b,
                                  int h, int j) {
  return {RowOf(block, rows, b, h, j, p.base.fault), rows.dtype, ScaleOf(rows, b, h, j)};
}

template <class Block>
class RowScore {
 public:
  HEED_DEVICE RowScore(Block& block, RowBlock<Block>& row_block, const RowParams& p)
      : block_(block),
        row_block_(row_block),
        p_(p),
        raw_(block.template Allocate<float>(p.head_dim)),
        query_(block.template Allocate<float>(p.depth)) {}

  // Shared memory of a block, with that of RowBlock.
  static int SharedBytes(const RowParams& p) {
    const auto aligned = [](int64_t floats) {
      return static_cast<int>((floats * 4 + 15) / 16 * 16);
    };
    return RowBlock<Block>::kSharedBytes + aligned(p.head_dim) + aligned(p.depth);
  }

  // Brings a query in. All threads; there is a barrier at the end.
  HEED_DEVICE void SetQuery(int batch, int head, int query) {
    head_ = head;
    const StoredRow row = {RowOf(block_, p_.base.q, batch, head, query, p_.base.fault),
                           p_.base.q.dtype, ScaleOf(p_.base.q, batch, head / p_.base.group, query)};
    row_block_.EachKey({0, p_.head_dim}, [&](int t, int d) { raw_.Store(t, d, row[d]); });
    if (p_.score == Score::kCosine) return Normalize();
    row_block_.EachKey({0, p_.depth}, [&](int t, int d) { query_.Store(t, d, Prepared(t, d)); });
  }

  // A number of the query as it is stored.
  HEED_DEVICE float Raw(int t, int d) const { return raw_.Load(t, d); }

  // The score after its scale; `distance` is key minus query position.
  HEED_DEVICE float Of(int t, const StoredRow& key, int64_t distance) const {
    switch (p_.score) {
      case Score::kSquaredDistance:
        return -0.5f * p_.base.scale * SquaredDistance(t, key);
      case Score::kCosine:
        return Cosine(t, key);
      case Score::kAdditive:
        return p_.base.scale * Additive(t, key);
      default:
        return p_.base.scale * (Dot(t, key) + Relative(t, key, distance));
    }
  }

 private:
  using Shared = typename Block::template Shared<float>;

  // What meets the keys, but for kCosine.
  HEED_DEVICE float Prepared(int t, int d) const {
    const float x = d < p_.head_dim ? raw_.Load(t, d) : 0.0f;
    if (p_.score == Score::kBilinear) {
      float sum = 0;
      for (int e = 0; e < p_.head_dim; ++e) {
        sum += raw_.Load(t, e) * p_.score_matrix.Row(head_, e)[d];
      }
      return sum;
    }
    if (p_.score == Score::kAdditive) {
      const float bias = p_.score_bias == nullptr ? 0.0f : p_.score_bias[d];
      if (p_.query_weight.data == nullptr) return x + bias;
      const float* weight = p_.query_weight.Row(head_, d);
      float sum = 0;
      for (int e = 0; e < p_.head_dim; ++e) sum += raw_.Load(t, e) * weight[e];
      return sum + bias;
    }
    if (p_.content_bias.data != nullptr) return x + p_.content_bias.Row(0, head_)[d];
    return x;
  }

  // The query divided by its length, times the factor of its head. Divided by its largest element
  // first, so that squares stay within float32.
  HEED_DEVICE void Normalize() {
    const RowKeys all = {0, p_.head_dim};
    const float largest = fmaxf(
        row_block_.MaxKeys(all, [&](int t, int d) { return fabsf(raw_.Load(t, d)); }), FLT_MIN);
    const double sum = row_block_.SumKeys(all, [&](int t, int d) {
      const float x = raw_.Load(t, d) / largest;
      return x * x;
    });
    const float factor = sum == 0 ? 0.0f : p_.head_scale[head_] / static_cast<float>(sqrt(sum));
    row_block_.EachKey(
        all, [&](int t, int d) { query_.Store(t, d, raw_.Load(t, d) / largest * factor); });
  }

  HEED_DEVICE float Dot(int t, const StoredRow& key) const {
    float sum = 0;
    for (int d = 0; d < p_.depth; ++d) sum += query_.Load(t, d) * key[d];
    return sum;
  }
  HEED_DEVICE float SquaredDistance(int t, const StoredRow& key) const {
    float sum = 0;
    for (int d = 0; d < p_.depth; ++d) {
      const float inverse = p_.inverse_width == nullptr ? 1.0f : p_.inverse_width[d];
      const float x = query_.Load(t, d) * inverse - key[d] * inverse;
      sum += x * x;
    }
    return sum;
  }
  HEED_DEVICE float Cosine(int t, const StoredRow& key) const {
    float largest = FLT_MIN;
    for (int d = 0; d < p_.depth; ++d) largest = fmaxf(largest, fabsf(key[d]));
    float dot = 0, squares = 0;
    for (int d = 0; d < p_.depth; ++d) {
      const float x = key[d] / largest;
      dot += query_.Load(t, d) * x;
      squares += x * x;
    }
    return squares == 0 ? 0.0f : dot / sqrtf(squares);
  }
  HEED_DEVICE float Additive(int t, const StoredRow& key) const {
    const float* vector = p_.score_vector.data == nullptr ? nullptr : p_.score_vector.Row(head_, 0);
    float sum = 0;
    for (int d = 0; d < p_.depth; ++d) {
      sum += (vector == nullptr ? 1.0f : vector[d]) * tanhf(query_.Load(t, d) + key[d]);
    }
    return sum;
  }

  // What distances add to q.k: (q + position_bias).r + k.t.
  HEED_DEVICE float Relative(int t, const StoredRow& key, int64_t distance) const {
    float sum = 0;
    if (p_.relative_keys.data != nullptr) {
      const float* row = p_.relative_keys.Row(head_, p_.relative_rows.At(distance));
      const float* bias =
          p_.position_bias.data == nullptr ? nullptr : p_.position_bias.Row(0, head_);
      for (int d = 0; d < p_.head_dim; ++d) {
        sum += (raw_.Load(t, d) + (bias == nullptr ? 0.0f : bias[d])) * row[d];
      }
    }
    if (p_.relative_queries.data != nullptr) {
      const float* row = p_.relative_queries.Row(head_, p_.relative_rows.At(distance));
      for (int d = 0; d < p_.head_dim; ++d) sum += key[d] * row[d];
    }
    return sum;
  }

  Block& block_;
  RowBlock<Block>& row_block_;
  const RowParams& p_;
  Shared raw_, query_;
  int head_;
};

// Keys times key_weight: place `index` of [batch, num_kv_heads, kv_len], one block each. Keys that
// no query of the entry may see are not read from pages, which may not have them.
template <class Block>
HEED_DEVICE void ProjectKey(Block& block, const RowParams& p, int64_t index) {
  const int key = static_cast<int>(index % p.base.kv_len);
  const int unit = static_cast<int>(index / p.base.kv_len);
  const int b = unit / p.base.num_kv_heads, h = unit % p.base.num_kv_heads;
  int32_t length = 0;
  const int queries = p.base.rules.lengths_per_query ? p.base.q_len : 1;
  for (int i = 0; i < queries; ++i) {
    const int32_t stored = StoredLength(p.base.rules, b, i, p.base.q_len, p.base.kv_len);
    length = stored > length ? stored : length;
  }
  if (key >= length && p.key_source.table != nullptr) return;
  const StoredRow row = StoredRowOf(block, p, p.key_source, b, h, key);
  block.Each([&](int t) {
    for (int n = t; n < p.depth; n += kBlockThreads) {
      const float* weight = p.key_weight.Row(h, n);
      float sum = 0;
      for (int d = 0; d < p.key_source.width; ++d) sum += row[d] * weight[d];
      p.projected_keys[index * p.depth + n] = sum;
    }
  });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_ROW_SCORE_H_
