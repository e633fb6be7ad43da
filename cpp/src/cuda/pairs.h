// Which keys a row of queries sees and what biases do to its scores, one pair at a time. Every
// kernel of exact attention uses these.
#ifndef HEED_SRC_CUDA_PAIRS_H_
#define HEED_SRC_CUDA_PAIRS_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"
#include "src/cuda/plugs.h"
#include "src/cuda/row_rules.h"

namespace heed::cuda {

// How many keys the row's length allows. One that lies outside of them is reported.
template <class Block>
HEED_DEVICE int32_t LengthOf(Block& block, const AttentionParams& p, int batch, int query) {
  const int32_t stored = StoredLength(p.rules, batch, query, p.q_len, p.kv_len);
  const int32_t length = ClampToKeys(stored, p.kv_len);
  if (stored != length) {
    const int64_t at =
        p.rules.lengths_per_query ? static_cast<int64_t>(batch) * p.q_len + query : batch;
    block.Report(p.fault, FaultKind::kKeyLength, at, stored);
  }
  return length;
}

HEED_DEVICE int32_t PatternIdOf(const AttentionParams& p, int batch, int head, int query) {
  return p.patterns.ids[batch * p.patterns.batch_stride + head * p.patterns.head_stride + query];
}

// The first word of a row that begins at key 64 tile or behind it.
HEED_DEVICE int64_t FirstWord(const PatternRule& patterns, int32_t id, int32_t tile) {
  int64_t low = patterns.starts[id];
  int64_t high = patterns.ends[id];
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (patterns.tiles[middle] < tile) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// The keys [64 tile, 64 tile + 64) that the patterns leave a row.
HEED_DEVICE uint64_t PatternWord(const PatternRule& patterns, int32_t id, int32_t tile) {
  const int64_t n = FirstWord(patterns, id, tile);
  return n < patterns.ends[id] && patterns.tiles[n] == tile ? patterns.words[n] : 0;
}

// The keys of one tile of kKeys that a row sees, as bits.
struct PatternTile {
  int32_t tile;
  uint64_t keys;
};

// The first tile from `tile` on of which the patterns leave a row some key; `end` for none.
template <int kKeys>
HEED_DEVICE PatternTile NextPatternTile(const PatternRule& patterns, int32_t id, int32_t tile,
                                        int32_t end) {
  constexpr int kTiles = 64 / kKeys;  // of a word
  const uint64_t mask = ~uint64_t{0} >> (64 - kKeys);
  const int64_t last = patterns.ends[id];
  HEED_NO_UNROLL for (int64_t n = FirstWord(patterns, id, tile / kTiles); n < last; ++n) {
    HEED_UNROLL for (int part = 0; part < kTiles; ++part) {
      const int32_t at = patterns.tiles[n] * kTiles + part;
      const uint64_t keys = patterns.words[n] >> part * kKeys & mask;
      if (at >= tile && keys != 0) return at < end ? PatternTile{at, keys} : PatternTile{end, 0};
    }
  }
  return {end, 0};
}

// From the first to the last key that causal, window, lengths, prefix and patterns leave a row.
HEED_DEVICE RowKeys HullOfRow(const AttentionParams& p, int batch, int head, int query,
                              int64_t position, int32_t length) {
  RowKeys keys = KeysOfRow(p.rules, batch, position, length, p.kv_len);
  if (p.patterns.ids == nullptr) return keys;
  const int32_t id = PatternIdOf(p, batch, head, query);
  const int64_t first = p.patterns.starts[id];
  const int64_t last = p.patterns.ends[id] - 1;
  if (last < first) return {0, 0};
  const int32_t begin = p.patterns.tiles[first] * 64;
  const int32_t end = p.patterns.tiles[last] * 64 + 64;
  keys = {begin > keys.begin ? begin : keys.begin, end < keys.end ? end : keys.end};
  return keys.begin < keys.end ? keys : RowKeys{0, 0};
}

// The document of a query; -1: none.
HEED_DEVICE int32_t DocumentOf(const AttentionParams& p, int batch, int query) {
  if (p.documents.queries == nullptr) return -1;
  return p.documents.queries[batch * p.documents.query_stride + query];
}

// What documents and keep say of a key that nothing else hides.
HEED_DEVICE bool SeesKey(const AttentionParams& p, int batch, int head, int query, int32_t document,
                         int key) {
  if (p.documents.keys != nullptr) {
    const int32_t id = p.documents.keys[batch * p.documents.key_stride + key];
    if (id < 0 || id != document) return false;
  }
  return p.keep.data == nullptr || p.keep.At(batch, head, query, key) != 0;
}

HEED_DEVICE float AlibiScore(float score, float slope, float distance) {
  return score - slope * fabsf(distance);
}

// A capped score with bias and ALiBi; a bias of -inf hides the key.
HEED_DEVICE float BiasedScore(const AttentionParams& p, int batch, int head, int query,
                              int64_t position, int key, float score) {
  if (p.bias.data != nullptr) {
    const float bias = p.bias.At(batch, head, query, key);
    if (bias == kMinusInfinity) return kMinusInfinity;
    score += bias;
  }
  if (p.alibi_slopes != nullptr) {
    score = AlibiScore(score, p.alibi_slopes[head], static_cast<float>(position - key));
  }
  return score;
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_PAIRS_H_
