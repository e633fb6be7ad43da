// What one pair of a query and a key adds to gradients (docs/gradients.md), and what the rows of a
// tile bring along for it. The kernels of attention backwards share it, however they lay pairs out.
#ifndef HEED_SRC_CUDA_GRADIENT_PAIRS_H_
#define HEED_SRC_CUDA_GRADIENT_PAIRS_H_

#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/gradient_params.h"
#include "src/cuda/pairs.h"
#include "src/cuda/plugs.h"

namespace heed::cuda {

// The packed rows first, first + 1, ... of a batch entry: row r is query r / group of head
// first_head + r % group.
struct PackedRows {
  int batch, first_head, group;
  int64_t first, count;  // `count` rows there are in all

  HEED_DEVICE bool Has(int r) const { return first + r < count; }
  HEED_DEVICE int Query(int r) const { return static_cast<int>((first + r) / group); }
  HEED_DEVICE int Head(int r) const { return first_head + static_cast<int>((first + r) % group); }
};

// Of a pair: the weight as it meets the value, and the gradients of the score with its biases and
// of the dot product times scale. Zeros where the key is hidden.
struct PairGradient {
  float weight, d_biased, d_score;
  bool visible;
};

// 0 for a dropped weight, else what it is multiplied by.
HEED_DEVICE float DropoutFactor(const DropoutRule& rule, int b, int head, int query, int key) {
  if (rule.keep_factor == 0) return 1.0f;
  uint32_t words[4];
  DropoutWords(rule, b, head, query, key, words);
  const uint32_t low = key % 2 == 0 ? words[0] : words[1];
  const uint32_t high = key % 2 == 0 ? words[2] : words[3];
  return (key % 4 < 2 ? low : high) >= rule.threshold ? rule.keep_factor : 0.0f;
}

// Rows of a tile in shared memory: what they see, and what arrives at them.
template <class Block, int kRows>
class GradientRows {
 public:
  HEED_DEVICE explicit GradientRows(Block& block)
      : block_(block),
        positions_(block.template Allocate<int64_t>(kRows)),
        words_(block.template Allocate<uint64_t>(kRows)),
        begins_(block.template Allocate<int32_t>(kRows)),
        ends_(block.template Allocate<int32_t>(kRows)),
        documents_(block.template Allocate<int32_t>(kRows)),
        lse_(block.template Allocate<float>(kRows)),
        delta_(block.template Allocate<float>(kRows)) {}

  static_assert(kRows % 4 == 0, "every array fills 16 bytes");
  static constexpr int kBytes = kRows * static_cast<int>(2 * sizeof(int64_t) + 5 * sizeof(float));

  // A phase: rows that there are not begin at key -1 and see none. No barrier.
  HEED_DEVICE void Fill(const GradientParams& params, const PackedRows& rows) {
    block_.Each([&](int t) {
      if (t >= kRows) return;
      begins_.Store(t, t, -1);
      ends_.Store(t, t, -1);
      documents_.Store(t, t, -1);
      if (rows.Has(t)) FillRow(t, params, rows);
    });
  }

  // Barriers: whether causal, window, lengths, patterns and documents may let some row see some of
  // the keys [begin, end), which share a word of patterns. Leaves that word of every row.
  HEED_DEVICE bool Meet(const AttentionParams& p, const PackedRows& rows, int32_t begin,
                        int32_t end) {
    const bool some = block_.Any([&](int t) {
      if (t >= kRows || begins_.Load(t, t) >= end || ends_.Load(t, t) <= begin) return false;
      if (p.patterns.ids == nullptr) return true;
      const int32_t id = PatternIdOf(p, rows.batch, rows.Head(t), rows.Query(t));
      const uint64_t word = PatternWord(p.patterns, id, begin / 64);
      words_.Store(t, t, word);
      const uint64_t kept = word >> begin % 64;
      return (end - begin < 64 ? kept & ((uint64_t{1} << (end - begin)) - 1) : kept) != 0;
    });
    return some && (p.documents.keys == nullptr || MeetDocuments(p, rows.batch, begin, end));
  }

  // A barrier: whether every row that there is sees all keys [begin, end), and nothing asks which.
  HEED_DEVICE bool SeeAll(const AttentionParams& p, int32_t begin, int32_t end) {
    const bool ruled =
        p.documents.keys != nullptr || p.keep.data != nullptr || p.patterns.ids != nullptr;
    return !block_.Any([&](int t) {
      const bool row = t < kRows && begins_.Load(t, t) >= 0;
      return ruled || (row && (begins_.Load(t, t) > begin || ends_.Load(t, t) < end));
    });
  }

  // The keys that some row sees, as one interval. By all threads, after a barrier.
  HEED_DEVICE RowKeys Hull(int32_t kv_len) const {
    RowKeys hull = {kv_len, 0};
    HEED_NO_UNROLL for (int r = 0; r < kRows; ++r) {
      const RowKeys row = {begins_.LoadUniform(r), ends_.LoadUniform(r)};
      if (row.begin == row.end) continue;
      if (row.begin < hull.begin) hull.begin = row.begin;
      if (row.end > hull.end) hull.end = row.end;
    }
    return hull;
  }

  // Whether row r, which there is, sees a key.
  HEED_DEVICE bool Sees(int t, const AttentionParams& p, const PackedRows& rows, int r,
                        int key) const {
    if (key < begins_.Load(t, r) || key >= ends_.Load(t, r)) return false;
    if (p.patterns.ids != nullptr && (words_.Load(t, r) >> key % 64 & 1) == 0) return false;
    return SeesKey(p, rows.batch, rows.Head(r), rows.Query(r), documents_.Load(t, r), key);
  }

  // The distance of a pair.
  HEED_DEVICE float Distance(int t, int r, int key) const {
    return fabsf(static_cast<float>(positions_.Load(t, r) - key));
  }

  // What a pair that the rules show adds; a bias of -inf hides it yet.
  HEED_DEVICE PairGradient Gradient(int t, const AttentionParams& p, const PackedRows& rows, int r,
                                    int key, float dot, float d_weight) const {
    const int head = rows.Head(r), query = rows.Query(r);
    const float capped = ScaledScore(p, dot);
    const float score = BiasedScore(p, rows.batch, head, query, positions_.Load(t, r), key, capped);
    if (score == kMinusInfinity) return {0, 0, 0, false};
    const float weight = Exp(score - lse_.Load(t, r));
    const float factor = DropoutFactor(p.dropout, rows.batch, head, query, key);
    const float d_biased = weight * (d_weight * factor - delta_.Load(t, r));
    const float bent = p.softcap == 0 ? 0.0f : capped / p.softcap;
    return {weight * factor, d_biased, d_biased * (1 - bent * bent), true};
  }

 private:
  // Whether some key is of a document between the least and the greatest of the rows; a barrier.
  HEED_DEVICE bool MeetDocuments(const AttentionParams& p, int batch, int32_t begin, int32_t end) {
    int32_t least = 0x7fffffff, greatest = -1;
    HEED_NO_UNROLL for (int r = 0; r < kRows; ++r) {
      const int32_t document = documents_.LoadUniform(r);
      if (document < 0) continue;
      least = document < least ? document : least;
      greatest = document > greatest ? document : greatest;
    }
    return block_.Any([&](int t) {
      if (t >= end - begin) return false;
      const int32_t id = p.documents.keys[batch * p.documents.key_stride + begin + t];
      return id >= least && id <= greatest;
    });
  }

  HEED_DEVICE void FillRow(int t, const GradientParams& params, const PackedRows& rows) {
    const AttentionParams& p = params.attention;
    const int query = rows.Query(t), head = rows.Head(t);
    const int32_t length = LengthOf(block_, p, rows.batch, query);
    const int64_t position = PositionOf(p.rules, rows.batch, query, p.q_len, length);
    const RowKeys keys = HullOfRow(p, rows.batch, head, query, position, length);
    begins_.Store(t, t, keys.begin);
    ends_.Store(t, t, keys.end);
    positions_.Store(t, t, position);
    documents_.Store(t, t, DocumentOf(p, rows.batch, query));
    lse_.Store(t, t, params.lse.At(rows.batch, head, query, 0));
    delta_.Store(t, t, params.delta[ScratchRow(p, rows.batch, head, query)]);
  }

  Block& block_;
  typename Block::template Shared<int64_t> positions_;
  typename Block::template Shared<uint64_t> words_;
  typename Block::template Shared<int32_t> begins_, ends_, documents_;
  typename Block::template Shared<float> lse_, delta_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GRADIENT_PAIRS_H_
