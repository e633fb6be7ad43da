// Frequencies of rotary embeddings and how they are scaled; T5 buckets. All in float64.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "heed/position.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/power.h"
#include "src/view_checks.h"

namespace heed {
namespace {

using Kind = RopeScaling::Kind;

void CheckPositive(std::string_view name, double value) {
  if (!(value > 0) || !std::isfinite(value)) {
    Fail(ErrorCode::kRange, "{} = {}; it must be positive and finite", {name, value});
  }
}

void CheckScaling(const RopeScaling& s) {
  CheckEnum("scaling.kind", s.kind, Kind::kLlama3);
  if (s.kind == Kind::kNone) return;
  CheckPositive("scaling factor", s.factor);
  if (s.kind != Kind::kLinear && s.kind != Kind::kNtk && s.original_len < 1) {
    Fail(ErrorCode::kOption, "original_len = {}; this scaling needs the trained length, at least 1",
         {s.original_len});
  }
  if (s.kind == Kind::kYarn) {
    CheckEnum("scaling.bounds", s.bounds, RopeScaling::Bounds::kExact);
    CheckPositive("beta_slow", s.beta_slow);
    CheckPositive("beta_fast", s.beta_fast);
    if (s.beta_fast < s.beta_slow) {
      Fail(ErrorCode::kRange, "beta_fast = {} is below beta_slow = {}", {s.beta_fast, s.beta_slow});
    }
    if (s.attention_factor) CheckPositive("attention_factor", *s.attention_factor);
  }
  if (s.kind == Kind::kLlama3) {
    CheckPositive("low_freq_factor", s.low_freq_factor);
    CheckPositive("high_freq_factor", s.high_freq_factor);
    if (!(s.low_freq_factor <= s.high_freq_factor)) {
      Fail(ErrorCode::kRange, "low_freq_factor = {}; it must not be above high_freq_factor = {}",
           {s.low_freq_factor, s.high_freq_factor});
    }
  }
}

// factor^(dim / (dim - 2)) multiplies base so that the last frequency is divided by factor. With a
// single pair there is only the frequency 1, which NTK scaling never changes.
double StretchedBase(double base, int64_t rotary_dim, double factor) {
  if (rotary_dim <= 2) return base;
  const double dim = static_cast<double>(rotary_dim);
  return base * Power(factor, dim / (dim - 2));
}

double DynamicFactor(const RopeScaling& s, int64_t call_len) {
  const double len = static_cast<double>(s.seq_len.value_or(call_len));
  const double trained = static_cast<double>(s.original_len);
  return len > trained ? s.factor * len / trained - (s.factor - 1) : 1.0;
}

// The index of the pair, as a real number, that turns `turns` times within original_len.
double PairThatTurns(const RopeScaling& s, double base, int64_t rotary_dim, double turns) {
  const double wavelength = static_cast<double>(s.original_len) / turns;
  return static_cast<double>(rotary_dim) * std::log(wavelength / (2 * std::numbers::pi)) /
         (2 * std::log(base));
}

void ScaleYarn(std::vector<double>& frequency, const RopeScaling& s, double base) {
  const int64_t rotary_dim = 2 * static_cast<int64_t>(frequency.size());
  const double last = static_cast<double>(rotary_dim - 1);
  double low = PairThatTurns(s, base, rotary_dim, s.beta_fast);
  double high = PairThatTurns(s, base, rotary_dim, s.beta_slow);
  if (s.bounds == RopeScaling::Bounds::kWhole) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, last);
  if (high == low) high += 0.001;  // as in the authors' code: a step, not 0 / 0
  for (size_t t = 0; t < frequency.size(); ++t) {
    const double ramp = std::clamp((static_cast<double>(t) - low) / (high - low), 0.0, 1.0);
    frequency[t] = frequency[t] / s.factor * ramp + frequency[t] * (1 - ramp);
  }
}

void ScaleLlama3(std::vector<double>& frequency, const RopeScaling& s) {
  for (double& f : frequency) {
    const double turns = static_cast<double>(s.original_len) * f / (2 * std::numbers::pi);
    const double band = s.high_freq_factor - s.low_freq_factor, above = turns - s.low_freq_factor;
    const double keep = band > 0 ? std::clamp(above / band, 0.0, 1.0) : above >= 0 ? 1.0 : 0.0;
    f = (1 - keep) * f / s.factor + keep * f;
  }
}

}  // namespace

std::vector<double> RopeFrequencies(int64_t rotary_dim, double base, const RopeScaling& scaling,
                                    int64_t seq_len) {
  return WithMemoryErrors("the frequencies of a rotation", [&] {
    if (rotary_dim < 2 || rotary_dim % 2 != 0) {
      Fail(ErrorCode::kRange, "rotary_dim = {}; it must be an even number of at least 2",
           {rotary_dim});
    }
    if (!(base > 1) || !std::isfinite(base)) {
      Fail(ErrorCode::kRange, "base = {}; it must be finite and above 1", {base});
    }
    CheckScaling(scaling);
    double stretched = base;
    if (scaling.kind == Kind::kNtk) stretched = StretchedBase(base, rotary_dim, scaling.factor);
    if (scaling.kind == Kind::kDynamicNtk) {
      stretched = StretchedBase(base, rotary_dim, DynamicFactor(scaling, seq_len));
    }
    std::vector<double> frequency = VectorOf("frequencies", rotary_dim / 2, 0.0);
    for (size_t t = 0; t < frequency.size(); ++t) {
      frequency[t] =
          Power(stretched, -2 * static_cast<double>(t) / static_cast<double>(rotary_dim));
      if (scaling.kind == Kind::kLinear) frequency[t] /= scaling.factor;
      CheckFinite("frequency of the scaled embedding", frequency[t]);
    }
    if (scaling.kind == Kind::kYarn) ScaleYarn(frequency, scaling, base);
    if (scaling.kind == Kind::kLlama3) ScaleLlama3(frequency, scaling);
    return frequency;
  });
}

double RopeMagnitude(const RopeScaling& scaling) {
  CheckScaling(scaling);
  if (scaling.kind != Kind::kYarn) return 1;
  if (scaling.attention_factor) return *scaling.attention_factor;
  return scaling.factor > 1 ? 0.1 * std::log(scaling.factor) + 1 : 1;
}

int64_t T5Bucket(int64_t relative_position, T5Direction direction, int64_t num_buckets,
                 int64_t max_distance) {
  CheckEnum("direction", direction, T5Direction::kCausal);
  const bool both = direction == T5Direction::kBidirectional;
  const int64_t buckets = both ? num_buckets / 2 : num_buckets;
  const int64_t exact = buckets / 2;
  if (num_buckets < (both ? 4 : 2) || (both && num_buckets % 2 != 0)) {
    Fail(ErrorCode::kRange, "num_buckets = {}{}",
         {num_buckets, (both ? "; it must be even and at least 4" : "; it must be at least 2")});
  }
  if (max_distance <= exact) {
    Fail(ErrorCode::kRange, "max_distance = {}; it must be above the number of exact buckets, {}",
         {max_distance, exact});
  }
  const int64_t first = both && relative_position > 0 ? buckets : 0;
  // Distances are compared as uint64: INT64_MIN has no positive counterpart.
  uint64_t distance = static_cast<uint64_t>(relative_position);
  if (relative_position < 0) distance = 0 - distance;
  if (!both && relative_position > 0) distance = 0;
  if (distance < static_cast<uint64_t>(exact)) return first + static_cast<int64_t>(distance);
  if (distance >= static_cast<uint64_t>(max_distance)) return first + buckets - 1;
  const double ratio = static_cast<double>(distance) / static_cast<double>(exact);
  const double whole = static_cast<double>(max_distance) / static_cast<double>(exact);
  // The nudge keeps distances that lie exactly on a bound (16, 32, 64 of 128) in the upper bucket.
  const double step = std::log(ratio) / std::log(whole) * static_cast<double>(buckets - exact);
  return first + std::min(buckets - 1, exact + static_cast<int64_t>(std::floor(step + 1e-9)));
}

}  // namespace heed
