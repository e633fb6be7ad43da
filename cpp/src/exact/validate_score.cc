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

// A tensor of one matrix for all heads or one each, [1, heads, rows, cols].
void CheckPerHead(const std::string& name, const TensorView<const float>& view, int64_t heads,
                  int64_t rows, int64_t cols, const std::string& meaning) {
  CheckInput(name, view);
  CheckShape(name, view.shape, {1, view.shape[1] == 1 ? 1 : heads, rows, cols}, meaning);
}

void CheckBilinear(const AttentionProblem& p) {
  const TensorView<const float>& matrix = p.options.score_matrix;
  if (!matrix.has_value()) {
    Fail(ErrorCode::kOption, "score_matrix is missing: bilinear scores need it");
  }
  CheckPerHead("score_matrix", matrix, p.num_heads, p.head_dim, p.head_dim_k,
               "[1, 1 or num_heads, head_dim, head_dim of k]");
}

void CheckAdditive(AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  p.hidden_dim = o.query_weight.has_value() ? o.query_weight.shape[2] : p.head_dim;
  if (o.query_weight.has_value()) {
    CheckPerHead("query_weight", o.query_weight, p.num_heads, p.hidden_dim, p.head_dim,
                 "[1, 1 or num_heads, hidden_dim, head_dim]");
  }
  if (o.key_weight.has_value()) {
    CheckPerHead("key_weight", o.key_weight, p.num_kv_heads, p.hidden_dim, p.head_dim_k,
                 "[1, 1 or num_kv_heads, hidden_dim of the queries, head_dim of k]");
  } else if (p.head_dim_k != p.hidden_dim) {
    Fail(ErrorCode::kShape, "k has head_dim " + std::to_string(p.head_dim_k) +
                                ", but the queries have hidden_dim " +
                                std::to_string(p.hidden_dim) + "; give key_weight");
  }
  if (o.score_bias.data() != nullptr && o.score_bias.size() != static_cast<size_t>(p.hidden_dim)) {
    Fail(ErrorCode::kShape, "score_bias has " + std::to_string(o.score_bias.size()) +
                                " values; expected hidden_dim = " + std::to_string(p.hidden_dim));
  }
  const TensorView<const float>& vector = o.score_vector;
  if (!vector.has_value()) return;
  CheckInput("score_vector", vector);
  CheckShape("score_vector", vector.shape,
             {1, 1, vector.shape[2] == 1 ? 1 : p.num_heads, p.hidden_dim},
             "[1, 1, 1 or num_heads, hidden_dim]");
}

// Refuses tensors that the chosen score does not read.
void CheckUnread(const AttentionOptions& o) {
  const bool bilinear = o.score == Score::kBilinear;
  const bool additive = o.score == Score::kAdditive;
  const auto refuse = [](const char* name, bool given, bool read, const char* score) {
    if (!given || read) return;
    Fail(ErrorCode::kOption, std::string(name) + " is read only by " + score + " scores");
  };
  refuse("score_matrix", o.score_matrix.has_value(), bilinear, "bilinear");
  refuse("query_weight", o.query_weight.has_value(), additive, "additive");
  refuse("key_weight", o.key_weight.has_value(), additive, "additive");
  refuse("score_bias", o.score_bias.data() != nullptr, additive, "additive");
  refuse("score_vector", o.score_vector.has_value(), additive, "additive");
}

}  // namespace

std::vector<NamedView> ScoreTensors(const AttentionOptions& o) {
  return {{"score_matrix", &o.score_matrix},
          {"query_weight", &o.query_weight},
          {"key_weight", &o.key_weight},
          {"score_vector", &o.score_vector}};
}

void CheckScore(AttentionProblem& p) {
  CheckScale(p);
  CheckWidth(p);
  CheckTemperature(p);
  CheckUnread(p.options);
  if (p.options.score == Score::kBilinear) CheckBilinear(p);
  if (p.options.score == Score::kAdditive) CheckAdditive(p);
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
