// Cosines and sines of position * frequency for many positions, from few calls of cos and sin.
#if defined(HEED_POSITION_PHASES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_POSITION_PHASES_INL_H_
#undef HEED_POSITION_PHASES_INL_H_
#else
#define HEED_POSITION_PHASES_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "hwy/highway.h"
#include "src/parallel/dry_run.h"
#include "src/position/problem.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// A position p is 64 a + b, 0 <= b < 64. The complex numbers z_t(64 a) and z_t(b) are computed in
// float64 and multiplied: a consecutive position costs four multiplications a pair instead of a
// cosine and a sine (40 ns a pair). The split depends on p alone, hence so do the bits.
inline constexpr int64_t kPhaseStep = 64;

// The coarse part, remembered between positions.
struct CoarsePhases {
  explicit CoarsePhases(size_t pairs) : cos(pairs), sin(pairs) {}
  int64_t step = std::numeric_limits<int64_t>::min();  // a of what it holds
  ScratchVector<double> cos, sin;
};

class PhaseTable {
 public:
  // `needed[b]`: is there a position 64 a + b in this call? Decoding needs one of them.
  PhaseTable(const Spectrum& spectrum, const std::vector<bool>& needed)
      : spectrum_(spectrum), pairs_(spectrum.frequency.size()) {
    size_t count = 0;
    for (size_t b = 0; b < needed.size(); ++b) {
      if (needed[b]) start_[b] = pairs_ * count++;
    }
    cos_.resize(pairs_ * count);
    sin_.resize(pairs_ * count);
    for (size_t b = 0; b < needed.size(); ++b) {
      if (!needed[b] || pairs_ == 0) continue;
      Evaluate(static_cast<int64_t>(b), 0, 0, pairs_, &cos_[start_[b]], &sin_[start_[b]]);
    }
  }

  size_t pairs() const { return pairs_; }
  static int64_t StepOf(int64_t position) {
    return position >= 0 ? position / kPhaseStep : -((-position + kPhaseStep - 1) / kPhaseStep);
  }

  // cos[t], sin[t] of `position` for the pairs [first, last), times magnitude and growth.
  // `coarse` must have been filled with the same [first, last) only.
  void Fill(int64_t position, size_t first, size_t last, CoarsePhases& coarse,
            float* HWY_RESTRICT cos, float* HWY_RESTRICT sin) const {
    const int64_t step = StepOf(position);
    if (coarse.step != step) {
      Evaluate(step * kPhaseStep, spectrum_.center, first, last, coarse.cos.data(),
               coarse.sin.data());
      coarse.step = step;
    }
    const size_t row = start_[static_cast<size_t>(position - step * kPhaseStep)];
    const double* HWY_RESTRICT fine_cos = cos_.data() + row;
    const double* HWY_RESTRICT fine_sin = sin_.data() + row;
    const double* HWY_RESTRICT coarse_cos = coarse.cos.data();
    const double* HWY_RESTRICT coarse_sin = coarse.sin.data();
    const double magnitude = spectrum_.magnitude;
    for (size_t t = first; t < last; ++t) {
      const double c = coarse_cos[t] * fine_cos[t] - coarse_sin[t] * fine_sin[t];
      const double s = coarse_sin[t] * fine_cos[t] + coarse_cos[t] * fine_sin[t];
      cos[t] = static_cast<float>(magnitude * c);
      sin[t] = static_cast<float>(magnitude * s);
    }
  }

 private:
  void Evaluate(int64_t position, double center, size_t first, size_t last, double* cos,
                double* sin) const {
    const double p = static_cast<double>(position);
    for (size_t t = first; t < last; ++t) {
      const double angle = p * spectrum_.frequency[t];
      const double size =
          spectrum_.growth.empty() ? 1.0 : std::exp((p - center) * spectrum_.growth[t]);
      cos[t] = size * std::cos(angle);
      sin[t] = size * std::sin(angle);
    }
  }

  const Spectrum& spectrum_;
  size_t pairs_;
  size_t start_[kPhaseStep] = {};    // of each needed residue
  ScratchVector<double> cos_, sin_;  // [needed residues, pairs]
};

// Which residues modulo kPhaseStep occur among the positions of a call.
inline std::vector<bool> NeededResidues(const RowPositions& positions, int64_t batch) {
  std::vector<bool> needed(static_cast<size_t>(kPhaseStep));
  for (int64_t b = 0; b < (positions.per_batch ? batch : 1); ++b) {
    const int64_t len =
        positions.rows.empty() && positions.len > kPhaseStep ? kPhaseStep : positions.len;
    for (int64_t i = 0; i < len; ++i) {
      const int64_t position = positions(b, i);
      needed[static_cast<size_t>(position - PhaseTable::StepOf(position) * kPhaseStep)] = true;
    }
  }
  return needed;
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_POSITION_PHASES_INL_H_
