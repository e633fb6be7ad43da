// Exact attention of whole rows: one block takes one query at a time, keeps its scores in memory,
// and can therefore do all that the tile kernel (attention_kernel.h) cannot: every score, every
// normaliser, weights and scores as results, relative terms. Plain and slow: no key is read for
// two rows at once.
#ifndef HEED_SRC_CUDA_ROW_KERNEL_H_
#define HEED_SRC_CUDA_ROW_KERNEL_H_

#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/pairs.h"
#include "src/cuda/row_block.h"
#include "src/cuda/row_normalize.h"
#include "src/cuda/row_params.h"
#include "src/cuda/row_score.h"

namespace heed::cuda {

template <class Block>
class RowKernel {
 public:
  HEED_DEVICE RowKernel(Block& block, const RowParams& params)
      : block_(block), row_block_(block), score_(block, row_block_, params), p_(params) {}

  // Rows slot, slot + num_slots, ... of [batch, num_heads, q_len].
  HEED_DEVICE void Run(int64_t slot) {
    row_ = p_.slots + slot * base().kv_len;
    HEED_NO_UNROLL for (int64_t row = slot; row < p_.num_rows; row += p_.num_slots) {
      FindRow(row);
      score_.SetQuery(batch_, head_, query_);
      FillScores();
      RowNormalizer<Block> normalizer(row_block_, p_, head_, keys_, row_);
      const RowResult result =
          normalizer.Normalize([&](int t, int position) { return PositionLogit(t, position); });
      StoreWeights(result);
      if (base().dropout.keep_factor != 0) Drop();
      StoreOutput(result);
    }
  }

 private:
  HEED_DEVICE const AttentionParams& base() const { return p_.base; }

  HEED_DEVICE void FindRow(int64_t row) {
    query_ = static_cast<int>(row % base().q_len);
    const int64_t heads = row / base().q_len;
    head_ = static_cast<int>(heads % base().num_heads);
    batch_ = static_cast<int>(heads / base().num_heads);
    kv_head_ = head_ / base().group;
    length_ = LengthOf(block_, base(), batch_, query_);
    position_ = PositionOf(base().rules, batch_, query_, base().q_len, length_);
    keys_ = HullOfRow(base(), batch_, head_, query_, position_, length_);
    document_ = DocumentOf(base(), batch_, query_);
    pattern_ = base().patterns.ids == nullptr ? 0 : PatternIdOf(base(), batch_, head_, query_);
  }

  HEED_DEVICE bool Sees(int key) const {
    const PatternRule& patterns = base().patterns;
    if (patterns.ids != nullptr &&
        (PatternWord(patterns, pattern_, key / 64) >> key % 64 & 1) == 0) {
      return false;
    }
    return SeesKey(base(), batch_, head_, query_, document_, key);
  }

  HEED_DEVICE float RawScore(int t, int key) {
    if (base().normalize == Normalize::kAverage) return 0;
    return score_.Of(t, StoredRowOf(block_, p_, base().k, batch_, kv_head_, key), key - position_);
  }

  HEED_DEVICE void FillScores() {
    row_block_.EachKey(keys_, [&](int t, int j) {
      row_[j] = Sees(j) ? Biased(j, Capped(base(), RawScore(t, j))) : kMinusInfinity;
    });
    if (p_.log_gates.data != nullptr) AddGates();
    if (p_.scores.data != nullptr) StoreScores();
  }

  HEED_DEVICE float Biased(int key, float score) const {
    score = BiasedScore(base(), batch_, head_, query_, position_, key, score);
    if (p_.distance_bias.data != nullptr) score = AddBias(score, DistanceBias(key));
    if (p_.bucket_bias.data != nullptr) {
      score = AddBias(score, p_.bucket_bias.Row(0, p_.buckets.At(key - position_))[head_]);
    }
    return score;
  }
  HEED_DEVICE static float AddBias(float score, float bias) {
    return bias == kMinusInfinity ? kMinusInfinity : score + bias;
  }
  HEED_DEVICE float DistanceBias(int key) const {
    const int64_t most = p_.distance_bias.rows / 2;
    const int64_t distance = key - position_;
    const int64_t near = distance < -most ? -most : distance > most ? most : distance;
    return p_.distance_bias.Row(head_, 0)[most + near];
  }

  // Adds the log gates of the tokens after each key, up to the query.
  HEED_DEVICE void AddGates() {
    const int64_t last = position_ < length_ - 1 ? position_ : length_ - 1;
    const RowKeys tokens = {keys_.begin, static_cast<int32_t>(last + 1)};
    if (tokens.begin >= tokens.end) return;
    row_block_.ScanBackwards(
        tokens, 0.0, [](double sum, double gate) { return sum + gate; },
        [&](int, int j) {
          const float gate = p_.log_gates.At(batch_, head_, 0, j);
          return static_cast<double>(gate < kClosedLogGate ? kMinusInfinity : gate);
        },
        [&](int, int j, double, double after) {
          const bool visible = j < keys_.end && row_[j] != kMinusInfinity;
          if (visible) row_[j] = static_cast<float>(row_[j] + after);
        });
  }

  HEED_DEVICE void StoreScores() {
    row_block_.EachKey({0, base().kv_len}, [&](int t, int j) {
      float score = j >= keys_.begin && j < keys_.end ? row_[j] : kMinusInfinity;
      if (p_.score_stage != ScoreStage::kBiased) score = RawScore(t, j);
      if (p_.score_stage == ScoreStage::kCapped) score = Capped(base(), score);
      p_.scores.Store(batch_, head_, query_, j, score);
    });
  }

  // What kCope adds at a whole position: q.e[position].
  HEED_DEVICE float PositionLogit(int t, int position) const {
    const float* row = p_.cope_table.Row(head_, position);
    float sum = 0;
    for (int d = 0; d < p_.head_dim; ++d) sum += score_.Raw(t, d) * row[d];
    return sum;
  }

  HEED_DEVICE void StoreWeights(const RowResult& result) {
    if (p_.weights.data == nullptr) return;
    row_block_.EachKey({0, base().kv_len}, [&](int, int j) {
      const bool seen =
          !result.empty && j >= keys_.begin && j < keys_.end && row_[j] != kMinusInfinity;
      p_.weights.Store(batch_, head_, query_, j, seen ? row_[j] : 0.0f);
    });
  }

  HEED_DEVICE void Drop() {
    row_block_.EachKey(keys_, [&](int, int j) {
      uint32_t words[4];
      DropoutWords(base().dropout, batch_, head_, query_, j, words);
      if (row_[j] == kMinusInfinity) return;
      const uint32_t low = j % 2 == 0 ? words[0] : words[1];
      const uint32_t word = j % 4 < 2 ? low : j % 2 == 0 ? words[2] : words[3];
      row_[j] *= word >= base().dropout.threshold ? base().dropout.keep_factor : 0.0f;
    });
  }

  // Hidden keys are passed over, whatever their values are.
  HEED_DEVICE void StoreOutput(const RowResult& result) {
    const auto row_of = [&](const DeviceOutput& output) {
      return output.data + batch_ * output.strides[0] + head_ * output.strides[1] +
             query_ * output.strides[2];
    };
    block_.Each([&](int t) {
      if (t == 0 && base().lse.data != nullptr) {
        StoreAs(DType::kFloat32, row_of(base().lse), 0, result.lse);
      }
      if (base().output.data == nullptr) return;
      for (int d = t; d < base().v.width; d += kBlockThreads) {
        const float sum = result.empty ? 0.0f : WeightedValue(d);
        StoreAs(base().output.dtype, row_of(base().output), d, sum);
      }
    });
    block_.Sync();
  }
  HEED_DEVICE float WeightedValue(int d) {
    float sum = 0;
    // Sums of a few keys are added up: their errors grow with the number of parts only.
    HEED_NO_UNROLL for (int j = keys_.begin; j < keys_.end; j += kPart) {
      sum += WeightedPart(d, j, j + kPart < keys_.end ? j + kPart : keys_.end);
    }
    return sum;
  }
  static constexpr int kPart = 64;
  HEED_DEVICE float WeightedPart(int d, int begin, int end) {
    float sum = 0;
    HEED_NO_UNROLL for (int j = begin; j < end; ++j) {
      const float weight = row_[j];
      if (weight == kMinusInfinity) continue;
      float value = StoredRowOf(block_, p_, base().v, batch_, kv_head_, j)[d];
      if (p_.relative_values.data != nullptr) {
        value += p_.relative_values.Row(head_, p_.relative_rows.At(j - position_))[d];
      }
      sum += weight * value;
    }
    return sum;
  }

  Block& block_;
  RowBlock<Block> row_block_;
  RowScore<Block> score_;
  const RowParams& p_;
  float* row_;  // a score, then a weight, for each key

  int batch_, head_, kv_head_, query_;
  int32_t length_, document_, pattern_;
  int64_t position_;
  RowKeys keys_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_ROW_KERNEL_H_
