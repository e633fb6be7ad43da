// The derivative side of the normalize socket.
#if defined(HEED_EXACT_NORMALIZE_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_NORMALIZE_GRADIENT_INL_H_
#undef HEED_EXACT_NORMALIZE_GRADIENT_INL_H_
#else
#define HEED_EXACT_NORMALIZE_GRADIENT_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/tile.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What is known of the rows of a tile before their scores.
struct GradientRows {
  // The first two only for normalisers that have an lse.
  const float* lse;     // log denominators, 0 for empty rows, NaN for rows that are lost
  float* mean;          // sum_j p_ij dP_ij - d_lse: what softmax takes from every dP
  const float* factor;  // what weights are multiplied by
  GradientRows From(size_t r) const { return {lse + r, mean + r, factor + r}; }
};

class NormalizeGradient {
 public:
  virtual ~NormalizeGradient() = default;

  // Replaces the tile's scores, columns [first, last), by final weights, and `d_weights`, which
  // lies as the scores do, by the gradients of the scores. A hidden score, -inf, gives two exact
  // zeros, whatever its d_weight is.
  virtual void Apply(const ScoreTile& tile, float* d_weights, const GradientRows& rows) const = 0;

  // Weights are divided by the number of visible keys to this power.
  virtual double LengthPower() const { return 0; }
};

// Does what Apply() says with `body(score, d_weight, r)`, which replaces a few vectors of row r.
template <size_t kCount, class Body>
HWY_INLINE void ReplaceScores(const ScoreTile& tile, float* d_weights, const Body& body) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const VF minus_inf = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (size_t r = 0; r < tile.num_rows; ++r) {
    float* HWY_RESTRICT scores = tile.row_scores(r);
    float* HWY_RESTRICT gradients = d_weights + r * kTileKeys;
    for (size_t c = tile.first; c < tile.last; c += kCount * lanes) {
      VF s[kCount], g[kCount];
      hn::Mask<DF> hidden[kCount];
      for (size_t i = 0; i < kCount; ++i) {
        s[i] = hn::Load(d, scores + c + i * lanes);
        g[i] = hn::Load(d, gradients + c + i * lanes);
        hidden[i] = hn::Eq(s[i], minus_inf);
      }
      body(s, g, r);
      for (size_t i = 0; i < kCount; ++i) {
        hn::Store(hn::IfThenZeroElse(hidden[i], s[i]), d, scores + c + i * lanes);
        hn::Store(hn::IfThenZeroElse(hidden[i], g[i]), d, gradients + c + i * lanes);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_GRADIENT_INL_H_
