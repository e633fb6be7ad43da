// Modify plug: a bias by distance. s -> s + curve[head][key - position], where a curve is a learned
// table or T5's buckets (Raffel 2020, arXiv:1910.10683, section 2.1), spread out once a call.
#if defined(HEED_EXACT_MODIFY_DISTANCE_BIAS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_MODIFY_DISTANCE_BIAS_INL_H_
#undef HEED_EXACT_MODIFY_DISTANCE_BIAS_INL_H_
#else
#define HEED_EXACT_MODIFY_DISTANCE_BIAS_INL_H_
#endif

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "heed/position.h"
#include "hwy/highway.h"
#include "src/exact/modify/modify-inl.h"
#include "src/parallel/worker_scratch.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class DistanceBias final : public Modify {
 public:
  // A table [1, 1, 1 or num_heads, 2 m + 1] of distances -m to m.
  static DistanceBias OfTable(const AttentionProblem& p, const TensorView<const float>& table) {
    const int64_t most = (table.shape[3] - 1) / 2;
    DistanceBias bias(p, table.shape[2], most);
    bias.Spread([&](int64_t h, int64_t distance) { return table(0, 0, h, most + distance); });
    return bias;
  }

  // T5's buckets [1, 1, num_buckets, num_heads].
  static DistanceBias OfBuckets(const AttentionProblem& p) {
    const AttentionOptions& o = p.options;
    DistanceBias bias(p, p.num_heads, o.bucket_max_distance);
    bias.Spread([&](int64_t h, int64_t distance) {
      const int64_t bucket =
          T5Bucket(distance, o.bucket_direction, o.bucket_bias.shape[2], o.bucket_max_distance);
      return o.bucket_bias(0, 0, bucket, h);
    });
    return bias;
  }

  void Apply(ScoreTile& tile) const override {
    for (size_t r = 0; r < tile.num_rows; ++r) {
      const Row& row = tile.rows[r];
      const float* curve = curves_.data() + (num_heads_ == 1 ? 0 : row.head) * Stride();
      float* scores = tile.row_scores(r);
      // Columns before `begin` are farther than the curve reaches, columns from `end` on too.
      const int64_t zero = row.position - tile.key_begin;
      const size_t begin = Column(tile, zero - reach_);
      const size_t end = std::max(begin, Column(tile, zero + reach_ + 1));
      AddOne(curve[0], scores + tile.first, begin - tile.first);
      AddRow(curve + (static_cast<int64_t>(begin) - zero + reach_), scores + begin, end - begin);
      AddOne(curve[2 * reach_], scores + end, tile.last - end);
    }
  }

 private:
  DistanceBias(const AttentionProblem& p, int64_t num_heads, int64_t most)
      : num_heads_(num_heads), reach_(std::min(most, FarthestDistance(p))) {
    curves_.resize(static_cast<size_t>(num_heads_ * Stride()));
  }

  int64_t Stride() const { return 2 * reach_ + 1; }

  template <class Value>
  void Spread(const Value& value) {
    for (int64_t h = 0; h < num_heads_; ++h) {
      float* curve = curves_.data() + h * Stride();
      for (int64_t n = 0; n < Stride(); ++n) curve[n] = value(h, n - reach_);
    }
  }

  // A column as far as it lies in the tile.
  static size_t Column(const ScoreTile& tile, int64_t column) {
    return static_cast<size_t>(
        std::clamp(column, static_cast<int64_t>(tile.first), static_cast<int64_t>(tile.last)));
  }

  // s + bias, or -inf where the bias is -inf.
  static VF Sum(DF d, VF s, VF bias) {
    const VF minus_inf = hn::Set(d, -std::numeric_limits<float>::infinity());
    return hn::IfThenElse(hn::Eq(bias, minus_inf), minus_inf, hn::Add(s, bias));
  }

  static void AddRow(const float* HWY_RESTRICT bias, float* HWY_RESTRICT scores, size_t count) {
    const DF d;
    size_t c = 0;
    for (; c + hn::Lanes(d) <= count; c += hn::Lanes(d)) {
      hn::StoreU(Sum(d, hn::LoadU(d, scores + c), hn::LoadU(d, bias + c)), d, scores + c);
    }
    if (c == count) return;
    const size_t rest = count - c;
    const VF sum = Sum(d, hn::LoadN(d, scores + c, rest), hn::LoadN(d, bias + c, rest));
    hn::StoreN(sum, d, scores + c, rest);
  }

  static void AddOne(float bias, float* HWY_RESTRICT scores, size_t count) {
    const bool hidden = bias == -std::numeric_limits<float>::infinity();
    for (size_t c = 0; c < count; ++c) scores[c] = hidden ? bias : scores[c] + bias;
  }

  int64_t num_heads_;  // 1 when all heads share a curve
  int64_t reach_;      // distances beyond it have the value at it
  ScratchVector<float> curves_;
};

// The gradient of a curve of distances -reach to reach: adds d_s over the cells of row r to that of
// their distance, as far as it is at most `reach`. `gradients` lie as the scores do; those of
// hidden cells are 0.
inline void AddDistanceGradient(const ScoreTile& tile, const float* gradients, size_t r,
                                int64_t reach, double* curve) {
  const int64_t ahead = tile.rows[r].position - tile.key_begin;
  const float* row = gradients + r * kTileKeys;
  const size_t end = std::min(tile.last, tile.num_keys);
  for (size_t c = tile.first; c < end; ++c) {
    const int64_t distance = std::clamp(static_cast<int64_t>(c) - ahead, -reach, reach);
    curve[distance + reach] += static_cast<double>(row[c]);
  }
}

// From such a curve of a head to the cells of its table.
inline void AddToDistanceTable(std::span<const double> curve, int64_t head,
                               const TensorView<float>& d_table) {
  const int64_t reach = static_cast<int64_t>(curve.size() / 2);
  const int64_t most = (d_table.shape[3] - 1) / 2;
  const int64_t h = d_table.shape[2] == 1 ? 0 : head;
  for (int64_t n = -reach; n <= reach; ++n) {
    const float sum = static_cast<float>(curve[static_cast<size_t>(n + reach)]);
    d_table(0, 0, h, most + std::clamp(n, -most, most)) += sum;
  }
}

// And to T5's buckets.
inline void AddToBuckets(const AttentionOptions& o, std::span<const double> curve, int64_t head,
                         const TensorView<float>& d_buckets) {
  const int64_t reach = static_cast<int64_t>(curve.size() / 2);
  for (int64_t n = -reach; n <= reach; ++n) {
    const int64_t bucket =
        T5Bucket(n, o.bucket_direction, d_buckets.shape[2], o.bucket_max_distance);
    d_buckets(0, 0, bucket, head) += static_cast<float>(curve[static_cast<size_t>(n + reach)]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_MODIFY_DISTANCE_BIAS_INL_H_
