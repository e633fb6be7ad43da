// What pairs of queries and keys add to gradients (docs/gradients.md), under every option: four
// pairs of a thread at a time, step by step, each option one branch.
#ifndef HEED_SRC_CUDA_GRADIENT_PAIRS_H_
#define HEED_SRC_CUDA_GRADIENT_PAIRS_H_

#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/gradient_rows.h"
#include "src/cuda/pairs.h"
#include "src/cuda/plugs.h"

namespace heed::cuda {

// Which gradient the kernel wants of a pair: of the dot product times scale, or of the score with
// its biases.
enum class PairWant { kScore, kBiased };

// Two rows by two keys of a thread, cell e of an accumulator. Where kKeysDown its rows are keys.
template <bool kKeysDown>
struct FourPairs {
  int rows[2], keys[2];
  float dots[4], d_weights[4];  // then weights and gradients

  HEED_DEVICE static constexpr int Row(int e) { return kKeysDown ? e % 2 : e / 2; }
  HEED_DEVICE static constexpr int Key(int e) { return kKeysDown ? e / 2 : e % 2; }
};

// What a row and a key say of it, and what rows have in common with their pairs.
template <bool kKeysDown, PairWant kWant, class Table>
class PairSteps {
 public:
  using Pairs = FourPairs<kKeysDown>;

  // Where `whole` rows see all keys that there are, and the table need not have their bounds.
  HEED_DEVICE PairSteps(int t, const AttentionParams& p, const PackedRows& rows, const Table& table,
                        bool whole, Pairs& pairs)
      : t_(t), p_(p), rows_(rows), table_(table), whole_(whole), pairs_(pairs) {
    HEED_UNROLL for (int j = 0; j < 2; ++j) {
      heads_[j] = rows.Head(pairs.rows[j]);
      queries_[j] = rows.Query(pairs.rows[j]);
    }
  }

  // Pairs become weights and gradients, zeros where the key is hidden. A bit of the result for each
  // that is visible; so is one of which there is no row or no key. extra(j, row, key, d_biased)
  // sees visible pairs, those of row j of two.
  template <class Extra>
  HEED_DEVICE uint32_t Find(const Extra& extra) {
    uint32_t missing = 0;
    HEED_UNROLL for (int e = 0; e < 4; ++e) {
      seen_[e] = rows_.Has(pairs_.rows[Row(e)]) && Key(e) < p_.kv_len;
      if (!seen_[e]) missing |= 1u << e;
    }
    if (!whole_) KeepBounds();
    if (p_.patterns.ids != nullptr) KeepPatterns();
    if (p_.documents.keys != nullptr) KeepDocuments();
    if (p_.keep.data != nullptr) Keep();
    float bends[4];
    HEED_UNROLL for (int e = 0; e < 4; ++e) {
      pairs_.dots[e] *= p_.scale;
      bends[e] = 1;
    }
    if (p_.softcap != 0) Cap(bends);
    if (p_.bias.data != nullptr) AddBias();
    if (p_.alibi_slopes != nullptr) AddAlibi();
    float factors[4] = {1, 1, 1, 1};
    if (p_.dropout.keep_factor != 0) Drop(factors);
    return missing | Finish(bends, factors, extra);
  }

 private:
  HEED_DEVICE static constexpr int Row(int e) { return Pairs::Row(e); }
  HEED_DEVICE int Key(int e) const { return pairs_.keys[Pairs::Key(e)]; }

  HEED_DEVICE void KeepBounds() {
    HEED_UNROLL for (int e = 0; e < 4; ++e) {
      const RowKeys bounds = table_.Bounds(t_, pairs_.rows[Row(e)]);
      seen_[e] = seen_[e] && Key(e) >= bounds.begin && Key(e) < bounds.end;
    }
  }
  HEED_DEVICE void KeepPatterns() {
    HEED_UNROLL for (int e = 0; e < 4; ++e) {
      seen_[e] = seen_[e] && table_.HasWord(t_, pairs_.rows[Row(e)], Key(e));
    }
  }
  HEED_DEVICE void KeepDocuments() {
    const int32_t* documents = p_.documents.keys + rows_.batch * p_.documents.key_stride;
    int32_t ids[2];
    HEED_UNROLL for (int i = 0; i < 2; ++i) {
      ids[i] = pairs_.keys[i] < p_.kv_len ? documents[pairs_.keys[i]] : -1;
    }
    HEED_UNROLL for (int e = 0; e < 4; ++e) {
      const int32_t id = ids[Pairs::Key(e)];
      seen_[e] = seen_[e] && id >= 0 && id == table_.Document(t_, pairs_.rows[Row(e)]);
    }
  }

  // Calls body(e, number) for the seen pairs of a broadcast array.
  template <class T, class Body>
  HEED_DEVICE void ForNumbers(const DevicePairs<T>& from, const Body& body) {
    const T* numbers = from.data + rows_.batch * from.strides[0];
    int64_t at_rows[2], at_keys[2];
    HEED_UNROLL for (int j = 0; j < 2; ++j) {
      at_rows[j] = heads_[j] * from.strides[1] + queries_[j] * from.strides[2];
      at_keys[j] = pairs_.keys[j] * from.strides[3];
    }
    HEED_UNROLL for (int e = 0; e < 4; ++e) {
      if (seen_[e]) body(e, numbers[at_rows[Row(e)] + at_keys[Pairs::Key(e)]]);
    }
  }
  HEED_DEVICE void Keep() {
    ForNumbers(p_.keep, [&](int e, uint8_t keep) { seen_[e] = keep != 0; });
  }

  HEED_DEVICE void Cap(float (&bends)[4]) {
    HEED_UNROLL for (int e = 0; e < 4; ++e) {
      const float bent = tanhf(pairs_.dots[e] / p_.softcap);
      pairs_.dots[e] = p_.softcap * bent;
      bends[e] = 1 - bent * bent;
    }
  }
  // A bias of -inf hides the key.
  HEED_DEVICE void AddBias() {
    ForNumbers(p_.bias, [&](int e, float bias) {
      seen_[e] = bias != kMinusInfinity;
      pairs_.dots[e] += bias;
    });
  }
  HEED_DEVICE void AddAlibi() {
    HEED_UNROLL for (int e = 0; e < 4; ++e) {
      if (!seen_[e]) continue;
      const float distance = table_.Distance(t_, pairs_.rows[Row(e)], Key(e));
      pairs_.dots[e] = AlibiScore(pairs_.dots[e], p_.alibi_slopes[heads_[Row(e)]], distance);
    }
  }

  // What weights are multiplied by, 0 for dropped ones. Neighbours in a row share their words.
  HEED_DEVICE void Drop(float (&factors)[4]) {
    uint32_t words[4];
    HEED_UNROLL for (int e = 0; e < 4; ++e) {
      const int key = Key(e), j = Row(e);
      if (kKeysDown || e % 2 == 0) {
        DropoutWords(p_.dropout, rows_.batch, heads_[j], queries_[j], key, words);
      }
      const uint32_t low = key % 2 == 0 ? words[0] : words[1];
      const uint32_t high = key % 2 == 0 ? words[2] : words[3];
      const bool kept = (key % 4 < 2 ? low : high) >= p_.dropout.threshold;
      factors[e] = kept ? p_.dropout.keep_factor : 0.0f;
    }
  }

  template <class Extra>
  HEED_DEVICE uint32_t Finish(const float (&bends)[4], const float (&factors)[4],
                              const Extra& extra) {
    uint32_t visible = 0;
    HEED_UNROLL for (int e = 0; e < 4; ++e) {
      const int r = pairs_.rows[Row(e)];
      const float score = pairs_.dots[e];
      if (seen_[e] && score != kMinusInfinity) {
        const float weight = PowerOfTwo(score * kLog2E - table_.Lse2(t_, r));
        const float d_biased = weight * (pairs_.d_weights[e] * factors[e] - table_.Delta(t_, r));
        extra(Row(e), r, Key(e), d_biased);
        pairs_.dots[e] = weight * factors[e];
        pairs_.d_weights[e] = kWant == PairWant::kBiased ? d_biased : d_biased * bends[e];
        visible |= 1u << e;
      } else {
        pairs_.dots[e] = pairs_.d_weights[e] = 0;
      }
    }
    return visible;
  }

  int t_;
  const AttentionParams& p_;
  const PackedRows& rows_;
  const Table& table_;
  bool whole_;
  Pairs& pairs_;
  int heads_[2], queries_[2];
  bool seen_[4];
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GRADIENT_PAIRS_H_
