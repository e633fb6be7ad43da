// Modify plug: ALiBi. s -> s - slope[head] * |position - key|. Source: Press 2021,
// arXiv:2108.12409.
#if defined(HEED_EXACT_MODIFY_ALIBI_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_MODIFY_ALIBI_INL_H_
#undef HEED_EXACT_MODIFY_ALIBI_INL_H_
#else
#define HEED_EXACT_MODIFY_ALIBI_INL_H_
#endif

#include <span>

#include "hwy/highway.h"
#include "src/exact/modify/modify-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class Alibi final : public Modify {
 public:
  explicit Alibi(std::span<const float> slopes) : slopes_(slopes) {}

  void Apply(ScoreTile& tile) const override {
    const DF d;
    for (size_t r = 0; r < tile.num_rows; ++r) {
      const Row& row = tile.rows[r];
      const VF slope = hn::Set(d, -slopes_[static_cast<size_t>(row.head)]);
      // Both ends are integers: the distance is exact below 2^24.
      const int64_t ahead = row.position - tile.key_begin;
      float* HWY_RESTRICT scores = tile.row_scores(r);
      for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
        const VF to_first = hn::Set(d, static_cast<float>(ahead - static_cast<int64_t>(c)));
        const VF distance = hn::Abs(hn::Sub(to_first, hn::Iota(d, 0)));
        hn::Store(Fma(slope, distance, hn::Load(d, scores + c)), d, scores + c);
      }
    }
  }

 private:
  std::span<const float> slopes_;
};

// The gradient of the slopes: adds -|position - key| d_s over the cells of row r to that of its
// head. `gradients` lie as the scores do; those of hidden cells are 0.
inline double AlibiSlopeGradient(const ScoreTile& tile, const float* gradients, size_t r) {
  const DF d;
  const int64_t ahead = tile.rows[r].position - tile.key_begin;
  const float* HWY_RESTRICT row = gradients + r * kTileKeys;
  VF sum = hn::Zero(d);
  for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
    const VF to_first = hn::Set(d, static_cast<float>(ahead - static_cast<int64_t>(c)));
    const VF distance = hn::Abs(hn::Sub(to_first, hn::Iota(d, 0)));
    sum = Fma(distance, hn::Load(d, row + c), sum);
  }
  return -static_cast<double>(hn::ReduceSum(d, sum));
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_MODIFY_ALIBI_INL_H_
