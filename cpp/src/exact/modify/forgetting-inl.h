// Modify plug: forget gates. s -> s + sum of log_gates after the key, up to the query. Source: Lin
// 2025 (Forgetting Transformer), arXiv:2503.02130.
#if defined(HEED_EXACT_MODIFY_FORGETTING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_MODIFY_FORGETTING_INL_H_
#undef HEED_EXACT_MODIFY_FORGETTING_INL_H_
#else
#define HEED_EXACT_MODIFY_FORGETTING_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hwy/highway.h"
#include "src/exact/modify/modify-inl.h"
#include "src/parallel/worker_scratch.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The last token whose gate counts for a row. Those behind the last key, of the row's own sequence
// where many are packed, have no gate: nothing is forgotten there.
HWY_INLINE int64_t LastGate(const AttentionProblem& p, int64_t b, const Row& row) {
  int64_t end = p.KeyLength(b, row.query);
  if (!p.packed_keys.empty()) end = p.packed_keys[static_cast<size_t>(row.query)].end;
  return std::min(row.position, end - 1);
}

// The sum between two places is the difference of two running sums. Those grow with the length and
// their difference must not lose what they share: sums are made in float64 and kept as two floats,
// high and low. A difference of the high parts rounds at its own size, not at theirs.
class Forgetting final : public Modify {
 public:
  explicit Forgetting(const AttentionProblem& p)
      : num_heads_(p.num_heads), stride_(RoundUp(static_cast<size_t>(p.kv_len), kTileKeys)) {
    const size_t count = static_cast<size_t>(p.batch * p.num_heads) * stride_;
    high_.resize(count);
    low_.resize(count);
    for (int64_t b = 0; b < p.batch; ++b) {
      int64_t length = 0;  // gates of tokens beyond it are never read
      for (int64_t i = 0; i < p.q_len; ++i) length = std::max(length, p.KeyLength(b, i));
      for (int64_t h = 0; h < p.num_heads; ++h) AddUp(p.options.log_gates, b, h, length);
    }
  }

  void Apply(ScoreTile& tile) const override {
    const DF d;
    for (size_t r = 0; r < tile.num_rows; ++r) {
      const Row& row = tile.rows[r];
      const int64_t last = LastGate(*tile.problem, tile.batch, row);
      if (last < tile.key_begin) continue;  // sees nothing of the tile
      const size_t start = Start(tile.batch, row.head);
      const VF high = hn::Set(d, high_[start + static_cast<size_t>(last)]);
      const VF low = hn::Set(d, low_[start + static_cast<size_t>(last)]);
      const size_t keys = start + static_cast<size_t>(tile.key_begin);
      float* HWY_RESTRICT scores = tile.row_scores(r);
      for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
        const VF sum = hn::Add(hn::Sub(high, hn::LoadU(d, &high_[keys + c])),
                               hn::Sub(low, hn::LoadU(d, &low_[keys + c])));
        hn::Store(hn::Add(hn::Load(d, scores + c), sum), d, scores + c);
      }
      if (!resets_.empty()) Cut(tile, r, start + static_cast<size_t>(last));
    }
  }

 private:
  size_t Start(int64_t b, int64_t h) const {
    return static_cast<size_t>(b * num_heads_ + h) * stride_;
  }

  void AddUp(const TensorView<const float>& gates, int64_t b, int64_t h, int64_t length) {
    const size_t start = Start(b, h);
    double sum = 0;
    int64_t reset = 0, lost = 0;
    for (int64_t j = 0; j < length; ++j) {
      const float gate = gates(b, h, 0, j);
      if (gate >= kClosedLogGate) {
        sum += gate;
      } else {
        (std::isnan(gate) ? lost : reset) = j;
        if (resets_.empty()) resets_.resize(high_.size());
        if (lost_.empty()) lost_.resize(high_.size());
      }
      const size_t n = start + static_cast<size_t>(j);
      high_[n] = static_cast<float>(sum);
      low_[n] = static_cast<float>(sum - static_cast<double>(high_[n]));
      if (resets_.empty()) continue;
      resets_[n] = reset;
      lost_[n] = lost;
    }
  }

  // A closed gate hides what came before it, a NaN spoils it.
  void Cut(const ScoreTile& tile, size_t r, size_t last) const {
    const auto before = [&](int64_t key) {
      return static_cast<size_t>(std::clamp(key - tile.key_begin, static_cast<int64_t>(tile.first),
                                            static_cast<int64_t>(tile.last)));
    };
    float* scores = tile.row_scores(r);
    std::fill(scores + tile.first, scores + before(resets_[last]),
              -std::numeric_limits<float>::infinity());
    std::fill(scores + tile.first, scores + before(lost_[last]),
              std::numeric_limits<float>::quiet_NaN());
  }

  int64_t num_heads_;
  size_t stride_;
  ScratchVector<float> high_, low_;  // running sums [batch][num_heads][kv_len], padded to tiles
  ScratchVector<int64_t> resets_, lost_;  // the last closed gate, NaN; empty when there is none
};

// The gradient of the gates of a head. Gate l counts in the scores of all keys before it, for
// queries from it on: it gets the sum of d_s over those keys, row by row, up to the row's last
// gate.
class GateSums {
 public:
  GateSums() = default;
  // The sums of the row's head, and its last gate.
  GateSums(double* gates, int64_t last) : gates_(gates), last_(last) {}

  // Adds the cells of row r of a tile, which comes after those before it; `gradients` lie as the
  // scores do, those of hidden cells are 0.
  void Add(const ScoreTile& tile, const float* gradients, size_t r) {
    AddUntil(tile.key_begin + static_cast<int64_t>(tile.first));
    const size_t end = std::min(tile.last, tile.num_keys);
    const float* row = gradients + r * kTileKeys;
    for (size_t c = tile.first; c < end; ++c) {
      AddUntil(tile.key_begin + static_cast<int64_t>(c) + 1);
      before_ += static_cast<double>(row[c]);
    }
  }
  void Finish() { AddUntil(last_ + 1); }

 private:
  // Gates up to `end` get what keys before them have.
  void AddUntil(int64_t end) {
    if (before_ == 0) {
      next_ = end;
      return;
    }
    for (; next_ < std::min(end, last_ + 1); ++next_) gates_[next_] += before_;
  }

  double* gates_ = nullptr;
  int64_t last_ = -1;
  int64_t next_ = 0;   // the first gate that has not got anything
  double before_ = 0;  // d_s of the keys so far
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_MODIFY_FORGETTING_INL_H_
