// Normalize plug: softmax over the k largest scores, lower keys first of equals; the other keys
// count as if they were hidden. Source: Gupta et al. 2021, arXiv:2106.06899.
#if defined(HEED_EXACT_NORMALIZE_TOP_K_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_NORMALIZE_TOP_K_INL_H_
#undef HEED_EXACT_NORMALIZE_TOP_K_INL_H_
#else
#define HEED_EXACT_NORMALIZE_TOP_K_INL_H_
#endif

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "src/exact/normalize/rows-inl.h"
#include "src/exact/row_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class TopK final : public SingleRowNormalize {
 public:
  TopK(int64_t k, std::span<const float> sinks) : k_(static_cast<size_t>(k)), sinks_(sinks) {}

 protected:
  float NormalizeRow(const ScoreRows& rows, size_t r) const override {
    const float row_max = RowMax(rows, r);
    if (row_max == kMinusInfinity) return kMinusInfinity;
    if (std::isnan(row_max)) return LoseRow(rows, r);
    if (CountFrom(rows, r, std::numeric_limits<float>::lowest()) > k_) Choose(rows, r, row_max);
    const size_t head = static_cast<size_t>(rows.tiles[0].rows[r].head);
    return SoftmaxRow(rows, r, sinks_.empty() ? kMinusInfinity : sinks_[head]);
  }

 private:
  // Floats as integers in the same order.
  static int32_t Ordered(float x) {
    const int32_t bits = std::bit_cast<int32_t>(x);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
  }
  static float FromOrdered(int32_t bits) {
    return std::bit_cast<float>(bits < 0 ? bits ^ 0x7fffffff : bits);
  }

  // How many scores are at least `bound`.
  static size_t CountFrom(const ScoreRows& rows, size_t r, float bound) {
    const DF d;
    const VF least = hn::Set(d, bound);
    size_t count = 0;
    ForEachVector(rows, r,
                  [&](float*, VF s) HWY_ATTR { count += hn::CountTrue(d, hn::Ge(s, least)); });
    return count;
  }

  // Hides all but the k largest scores. The k-th largest is found by bisection over the floats: at
  // most 32 counting passes, fewer when some bound separates exactly k.
  void Choose(const ScoreRows& rows, size_t r, float row_max) const {
    int64_t low = Ordered(std::numeric_limits<float>::lowest());  // more than k are above
    int64_t high = Ordered(row_max);                              // the largest candidate
    size_t count = 0;
    while (low < high) {
      const int64_t middle = low + (high - low + 1) / 2;
      count = CountFrom(rows, r, FromOrdered(static_cast<int32_t>(middle)));
      if (count < k_) {
        high = middle - 1;
        continue;
      }
      low = middle;
      if (count == k_) break;
    }
    const float bound = FromOrdered(static_cast<int32_t>(low));
    const DF d;
    ReplaceVisible(rows, r, [&](VF s) HWY_ATTR {
      return hn::IfThenElse(hn::Ge(s, hn::Set(d, bound)), s, hn::Set(d, kMinusInfinity));
    });
    DropLast(rows, r, bound, CountFrom(rows, r, bound) - k_);
  }

  // Hides the last `surplus` scores that equal the bound.
  static void DropLast(const ScoreRows& rows, size_t r, float bound, size_t surplus) {
    for (size_t t = rows.tiles.size(); t-- > 0 && surplus > 0;) {
      const ScoreTile& tile = rows.tiles[t];
      float* row = tile.row_scores(r);
      for (size_t c = tile.last; c-- > tile.first && surplus > 0;) {
        if (row[c] != bound) continue;
        row[c] = kMinusInfinity;
        --surplus;
      }
    }
  }

  size_t k_;
  std::span<const float> sinks_;
};

// That of softmax over the keys that were chosen.
class TopKGradient final : public WeightRowGradient {
 protected:
  void ApplyToRow(const RowPair& rows, size_t r, const GradientRows& terms) const override {
    const DF d;
    const VF mean = hn::Set(d, terms.mean[0]);
    ReplaceGradients(rows, r, [&](VF w, VF g) HWY_ATTR {
      const auto left_out = hn::Eq(w, hn::Set(d, kMinusInfinity));
      return hn::IfThenZeroElse(left_out, hn::Mul(w, hn::Sub(g, mean)));
    });
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_TOP_K_INL_H_
