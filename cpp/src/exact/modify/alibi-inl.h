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

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_MODIFY_ALIBI_INL_H_
