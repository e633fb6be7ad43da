// Normalize plug: pointwise. A weight depends on its own score and on how many keys the row sees;
// keys do not compete, and nothing needs rescaling.
#if defined(HEED_EXACT_NORMALIZE_POINTWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_NORMALIZE_POINTWISE_INL_H_
#undef HEED_EXACT_NORMALIZE_POINTWISE_INL_H_
#else
#define HEED_EXACT_NORMALIZE_POINTWISE_INL_H_
#endif

#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "src/exact/normalize/normalize-inl.h"
#include "src/exact/normalize/sigmoid_bias.h"
#include "src/exact/normalize_gradient-inl.h"
#include "src/power.h"
#include "src/simd/sigmoid-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Each function maps a score to a weight. A hidden key arrives as -inf and must get 0. Slope() is
// its derivative, from the weight; NaN where that is.

// Ramapuram et al. 2024, arXiv:2409.04431.
struct SigmoidWeight {
  float bias;
  const AttentionProblem* packed = nullptr;  // each of its sequences has a bias of its own
  HWY_INLINE VF operator()(DF d, VF s) const { return Sigmoid(d, hn::Add(s, hn::Set(d, bias))); }
  HWY_INLINE VF Slope(DF, VF weight) const { return hn::NegMulAdd(weight, weight, weight); }
};
// Wortsman et al. 2023, arXiv:2309.08586.
struct ReluWeight {
  HWY_INLINE VF operator()(DF d, VF s) const { return RaiseToBound(s, hn::Zero(d)); }
  HWY_INLINE VF Slope(DF d, VF weight) const {
    return hn::IfThenElse(hn::Gt(weight, hn::Zero(d)), hn::Set(d, 1.0f), weight);
  }
};
// So et al. 2021, arXiv:2109.08668.
struct ReluSquaredWeight {
  HWY_INLINE VF operator()(DF d, VF s) const {
    const VF positive = RaiseToBound(s, hn::Zero(d));
    return hn::Mul(positive, positive);
  }
  HWY_INLINE VF Slope(DF, VF weight) const {
    const VF root = hn::Sqrt(weight);
    return hn::Add(root, root);
  }
};
// All alike: only whether the key is visible matters.
struct AverageWeight {
  HWY_INLINE VF operator()(DF d, VF s) const {
    const VF minus_inf = hn::Set(d, -std::numeric_limits<float>::infinity());
    return hn::IfThenZeroElse(hn::Eq(s, minus_inf), hn::Set(d, 1.0f));
  }
  HWY_INLINE VF Slope(DF d, VF) const { return hn::Zero(d); }
};

template <class Weight>
Weight WeightOfRow(const Weight& weight, const Row&) {
  return weight;
}
inline SigmoidWeight WeightOfRow(const SigmoidWeight& weight, const Row& row) {
  if (weight.packed == nullptr) return weight;
  const KeyRange keys = weight.packed->packed_keys[static_cast<size_t>(row.query)];
  return {DefaultSigmoidBias(keys.end - keys.begin)};
}

template <class Weight>
class Pointwise final : public NormalizePlug {
 public:
  // Weights are divided by the number of visible keys to the `power`.
  Pointwise(Weight weight, double power) : weight_(weight), power_(power) {}

  float StartMax() const override { return 0.0f; }

  // row_sum counts the visible keys.
  void Accumulate(const ScoreTile& tile, RowStates states, float* rescale) const override {
    for (size_t r = 0; r < tile.num_rows; ++r) {
      float* row = tile.row_scores(r) + tile.first;
      const Weight weight = WeightOfRow(weight_, tile.rows[r]);
      states.row_sum[r] += static_cast<float>(WeighInPlace(weight, row, tile.last - tile.first));
      rescale[r] = kNoRescale;
    }
  }

  bool CanSplit() const override { return true; }
  void Merge(RowStates into, RowStates from, size_t rows, float* scale_into,
             float* scale_from) const override {
    for (size_t r = 0; r < rows; ++r) {
      into.row_sum[r] += from.row_sum[r];
      scale_into[r] = scale_from[r] = 1.0f;
    }
  }

  RowEnd Finish(const Row&, RowStates states, size_t r) const override {
    if (states.row_sum[r] == 0.0f) return {0.0f, true};
    const double sum = static_cast<double>(states.row_sum[r]);
    if (power_ == 0) return {1.0f, false};
    return {static_cast<float>(power_ == 1 ? 1 / sum : Power(sum, -power_)), false};
  }

  // Never asked for: there is no denominator, and validation says so.
  float Lse(const Row&, RowStates, size_t) const override {
    return std::numeric_limits<float>::quiet_NaN();
  }

  void Weights(const ScoreTile& tile, RowStates, size_t r, const RowEnd& end) const override {
    const DF d;
    float* HWY_RESTRICT row = tile.row_scores(r) + tile.first;
    const size_t count = tile.last - tile.first;
    WeighInPlace(WeightOfRow(weight_, tile.rows[r]), row, count);
    for (size_t c = 0; c < count; c += hn::Lanes(d)) {
      hn::Store(hn::Mul(hn::Load(d, row + c), hn::Set(d, end.factor)), d, row + c);
    }
  }

 private:
  // Returns how many keys were visible.
  static size_t WeighInPlace(const Weight& weight, float* HWY_RESTRICT row, size_t count) {
    const DF d;
    const VF minus_inf = hn::Set(d, -std::numeric_limits<float>::infinity());
    size_t hidden = 0;
    for (size_t c = 0; c < count; c += hn::Lanes(d)) {
      const VF s = hn::Load(d, row + c);
      hidden += hn::CountTrue(d, hn::Eq(s, minus_inf));
      hn::Store(weight(d, s), d, row + c);
    }
    return count - hidden;
  }

  Weight weight_;
  double power_;
};

// p = factor w(s), d_s = factor w'(s) d_p. Where factors depend on how many keys a row sees, those
// who know count them.
template <class Weight>
class PointwiseGradient final : public NormalizeGradient {
 public:
  PointwiseGradient(Weight weight, double power) : weight_(weight), power_(power) {}

  double LengthPower() const override { return power_; }

  void Apply(const ScoreTile& tile, float* d_weights, const GradientRows& rows) const override {
    const DF d;
    ReplaceScores<1>(tile, d_weights, [&](VF(&s)[1], VF(&g)[1], size_t r) HWY_ATTR {
      const VF factor = hn::Set(d, rows.factor[r]);
      const VF weight = weight_(d, s[0]);
      const VF slope = weight_.Slope(d, weight);
      s[0] = hn::Mul(factor, weight);
      // Where the score does not matter, neither does what arrives.
      const auto flat = hn::Eq(slope, hn::Zero(d));
      g[0] = hn::IfThenZeroElse(flat, hn::Mul(factor, hn::Mul(slope, g[0])));
    });
  }

 private:
  Weight weight_;
  double power_;
};

// Calls body(weight, power) with what the options name; returns whether they name one of these.
template <class Body>
bool WithPointwise(const AttentionProblem& p, const Body& body) {
  const AttentionOptions& o = p.options;
  switch (o.normalize) {
    case Normalize::kSigmoid:
      body(SigmoidWeight{p.sigmoid_bias, o.sigmoid_bias || p.packed_keys.empty() ? nullptr : &p},
           0.0);
      return true;
    case Normalize::kRelu:
      body(ReluWeight(), o.length_power);
      return true;
    case Normalize::kReluSquared:
      body(ReluSquaredWeight(), o.length_power);
      return true;
    case Normalize::kAverage:
      body(AverageWeight(), 1.0);
      return true;
    default:
      return false;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_POINTWISE_INL_H_
