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

  // Takes gradients of capped scores, which lie as those do, back to gradients of raw ones:
  // d tanh x = 1 - tanh^2 x. Those of hidden cells are 0 and stay it.
  void Backward(const ScoreTile& tile, const float* capped, float* gradients) const {
    const DF d;
    const VF inverse = hn::Set(d, 1.0f / cap_);
    for (size_t r = 0; r < tile.num_rows; ++r) {
      const float* HWY_RESTRICT from = capped + r * kTileKeys;
      float* HWY_RESTRICT to = gradients + r * kTileKeys;
      for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
        const VF tanh = hn::Mul(hn::Load(d, from + c), inverse);
        const VF slope = hn::NegMulAdd(tanh, tanh, hn::Set(d, 1.0f));
        const VF g = hn::Load(d, to + c);
        const auto none = hn::Eq(g, hn::Zero(d));
        hn::Store(hn::IfThenZeroElse(none, hn::Mul(g, slope)), d, to + c);
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
