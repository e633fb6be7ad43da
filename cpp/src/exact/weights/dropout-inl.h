// Weights plug: dropout. Which weights stay depends on the seed and the place of the pair alone
// (heed/attention.h says how); tiles begin at multiples of 4 keys, so each word of a counter
// belongs to one key of one tile.
#if defined(HEED_EXACT_WEIGHTS_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_WEIGHTS_DROPOUT_INL_H_
#undef HEED_EXACT_WEIGHTS_DROPOUT_INL_H_
#else
#define HEED_EXACT_WEIGHTS_DROPOUT_INL_H_
#endif

#include <stdint.h>

#include "hwy/highway.h"
#include "src/exact/weights/weights-inl.h"
#include "src/simd/philox-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class DropoutWeights final : public WeightPlug {
 public:
  explicit DropoutWeights(const Dropout& dropout)
      : key_{static_cast<uint32_t>(dropout.seed), static_cast<uint32_t>(dropout.seed >> 32)},
        origin_(dropout.origin),
        threshold_(static_cast<uint32_t>(dropout.p * 4294967296.0)),
        keep_factor_(static_cast<float>(1.0 / (1.0 - dropout.p))) {}

  bool NeedsFinal() const override { return false; }

  void Apply(const ScoreTile& tile) const override {
    static_assert(kTileKeys % 4 == 0);
    for (size_t r = 0; r < tile.num_rows; ++r) {
      const Row& row = tile.rows[r];
      float* weights = tile.row_scores(r);
      for (size_t c = tile.first; c < tile.last; c += 4 * hn::Lanes(du_)) {
        ApplyWords(tile, row, tile.key_begin + static_cast<int64_t>(c), weights + c, tile.last - c);
      }
    }
  }

  // Random words of keys [key, key + 4 vectors), one a key. `key` is a multiple of 4.
  void Words(int64_t batch, int64_t head, int64_t query, int64_t key,
             uint32_t* HWY_RESTRICT words) const {
    VU counter[4] = {hn::Set(du_, static_cast<uint32_t>(origin_[0] + batch)),
                     hn::Set(du_, static_cast<uint32_t>(origin_[1] + head)),
                     hn::Set(du_, static_cast<uint32_t>(origin_[2] + query)),
                     hn::Iota(du_, static_cast<uint32_t>((origin_[3] + key) / 4))};
    Philox(du_, counter, key_);
    hn::StoreInterleaved4(counter[0], counter[1], counter[2], counter[3], du_, words);
  }

  bool Keeps(uint32_t word) const { return word >= threshold_; }

 private:
  using DU = hn::RebindToUnsigned<DF>;
  using VU = hn::Vec<DU>;

  // Multiplies up to 4 vectors of weights by 0 or 1 / (1 - p): NaN stays NaN.
  void ApplyWords(const ScoreTile& tile, const Row& row, int64_t key, float* HWY_RESTRICT weights,
                  size_t count) const {
    const DF d;
    HWY_ALIGN uint32_t words[4 * hn::MaxLanes(DU())];
    Words(tile.batch, row.head, row.query, key, words);
    const size_t lanes = hn::Lanes(d);
    const VF factor = hn::Set(d, keep_factor_);
    for (size_t c = 0; c < 4 * lanes && c < count; c += lanes) {
      const auto kept = hn::Ge(hn::Load(du_, words + c), hn::Set(du_, threshold_));
      const VF by = hn::IfThenElseZero(hn::RebindMask(d, kept), factor);
      hn::Store(hn::Mul(hn::Load(d, weights + c), by), d, weights + c);
    }
  }

  static constexpr DU du_{};
  uint32_t key_[2];
  Extents origin_;
  uint32_t threshold_;
  float keep_factor_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_WEIGHTS_DROPOUT_INL_H_
