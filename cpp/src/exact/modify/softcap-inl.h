// Modify plug: softcap. s -> cap * tanh(s / cap). Source: Gemma 2, arXiv:2408.00118, section 2.
#if defined(HEED_EXACT_MODIFY_SOFTCAP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_MODIFY_SOFTCAP_INL_H_
#undef HEED_EXACT_MODIFY_SOFTCAP_INL_H_
#else
#define HEED_EXACT_MODIFY_SOFTCAP_INL_H_
#endif

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "src/exact/modify/modify-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class Softcap final : public Modify {
 public:
  explicit Softcap(float cap) : cap_(cap) {}

  void Apply(ScoreTile& tile) const override {
    const DF d;
    const VF cap = hn::Set(d, cap_);
    const VF inverse = hn::Set(d, 1.0f / cap_);
    for (size_t r = 0; r < tile.num_rows; ++r) {
      float* HWY_RESTRICT row = tile.row_scores(r);
      for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
        const VF s = hn::Load(d, row + c);
        hn::Store(hn::Mul(cap, hn::Tanh(d, hn::Mul(s, inverse))), d, row + c);
      }
    }
  }

 private:
  float cap_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_MODIFY_SOFTCAP_INL_H_
