#include "src/exact/validate_score.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "heed/error.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// The reciprocal of every width and temperature from here on is a finite float.
constexpr float kMinWidth = 0x1p-126f;

float DefaultScale(const AttentionProblem& p) {
  if (p.options.score != Score::kDot) return 1;
  if (p.head_dim == 0) {
    Fail(ErrorCode::kShape,
         "q has head_dim 0, for which 1 / sqrt(head_dim) does not exist; give scale");
  }
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.head_dim)));
}

void CheckScale(AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  if (!o.scale.has_value()) {
    p.scale = DefaultScale(p);
    return;
  }
  CheckFinite("scale", *o.scale);
  if (o.normalize == Normalize::kKernelSum) {
    Fail(ErrorCode::kUnsupported, "scale is not used by kernel sums; set width instead");
  }
  p.scale = static_cast<float>(*o.scale);
  CheckFinite("scale (as float32)", p.scale);
}

void CheckPositive(const std::string& name, float value) {
  if (value >= kMinWidth && std::isfinite(value)) return;
  Fail(ErrorCode::kRange, name + " = " + NumberText(value) +
                              "; it must be positive, finite and not vanishingly small");
}

// One width is a power of two, which scales q and k exactly, times a rest in [1, 2), which scales
// the finished sum: dividing q and k by it apart would round at their size, not at their
// difference's. The square of the rest is rounded like that of a distance, so that u = 1 is met
// exactly.
void FoldWidth(AttentionProblem& p, float width) {
  int exponent = 0;
  const float rest = 2 * std::frexp(width, &exponent);
  p.scale /= rest * rest;
  const float inverse_power = std::ldexp(1.0f, 1 - exponent);
  if (inverse_power != 1) p.inverse_width.assign(static_cast<size_t>(p.head_dim), inverse_power);
}

void CheckWidth(AttentionProblem& p) {
  const std::span<const float> given = p.options.width;
  if (given.empty()) return;
  if (p.options.score != Score::kSquaredDistance) {
    Fail(ErrorCode::kOption, "width is read only by distance scores");
  }
  if (given.size() != 1 && given.size() != static_cast<size_t>(p.head_dim)) {
    Fail(ErrorCode::kShape, "width has " + std::to_string(given.size()) +
                                " values; expected 1 or head_dim = " + std::to_string(p.head_dim));
  }
  for (const float width : given) {
    CheckPositive("width", width);
  }
  if (std::all_of(given.begin(), given.end(), [&](float w) { return w == given[0]; })) {
    FoldWidth(p, given[0]);
  } else {
    for (const float width : given) p.inverse_width.push_back(1.0f / width);
  }
}

// One temperature for all heads or one each, not below the minimum.
void CheckTemperature(AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  if (o.score != Score::kCosine) {
    if (o.temperature.empty() && !o.min_temperature) return;
    Fail(ErrorCode::kOption,
         "temperature and min_temperature are read only by cosine scores; others take scale");
  }
  const size_t heads = static_cast<size_t>(p.num_heads);
  const size_t given = o.temperature.size();
  if (given > 1 && given != heads) {
    Fail(ErrorCode::kShape, "temperature has " + std::to_string(given) +
                                " values; expected 1 or one per query head (" +
                                std::to_string(heads) + ")");
  }
  const float least = static_cast<float>(o.min_temperature.value_or(kMinWidth));
  CheckPositive("min_temperature", least);
  for (size_t h = 0; h < heads; ++h) {
    const float temperature = given == 0 ? 1.0f : o.temperature[given == 1 ? 0 : h];
    CheckPositive("temperature", temperature);
    p.head_scale.push_back(p.scale / std::max(temperature, least));
  }
}

}  // namespace

void CheckScore(AttentionProblem& p) {
  CheckScale(p);
  CheckWidth(p);
  CheckTemperature(p);
}

void CheckHeadVector(const AttentionProblem& p, const std::string& name,
                     std::span<const float> values, bool minus_inf_allowed) {
  if (values.empty()) return;
  if (values.size() != static_cast<size_t>(p.num_heads)) {
    Fail(ErrorCode::kShape, name + " has " + std::to_string(values.size()) +
                                " values; expected one per query head (" +
                                std::to_string(p.num_heads) + ")");
  }
  for (const float value : values) {
    if (minus_inf_allowed && value == -std::numeric_limits<float>::infinity()) continue;
    CheckFinite(name, value);
  }
}

}  // namespace heed
