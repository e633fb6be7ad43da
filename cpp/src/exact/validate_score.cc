#include "src/exact/validate_score.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "heed/error.h"
#include "src/from_javascript.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// The reciprocal of every width and temperature from here on is a finite float.
constexpr float kMinWidth = 0x1p-126f;

float DefaultScale(const AttentionProblem& p) {
  if (p.options.score != Score::kDot || p.options.normalize == Normalize::kAverage) return 1;
  if (p.head_dim == 0) {
    Fail(ErrorCode::kShape,
         "q has head_dim 0, for which 1 / sqrt(head_dim) does not exist; give scale");
  }
  // DeBERTa divides by the number of terms as well.
  const AttentionOptions& o = p.options;
  const bool spans = o.relative_rows != RelativeRows::kClip;
  const int terms = 1 + (spans && o.relative_keys.has_value() ? 1 : 0) +
                    (spans && o.relative_queries.has_value() ? 1 : 0);
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(terms * p.head_dim)));
}

void SetScale(AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  if (!o.scale.has_value()) {
    p.scale = DefaultScale(p);
    return;
  }
  p.scale = CheckScale(*o.scale);
  if (o.normalize == Normalize::kKernelSum) {
    Fail(ErrorCode::kUnsupported, "scale is not used by kernel sums; set width instead");
  }
}

void CheckPositive(std::string_view name, float value) {
  if (value >= kMinWidth && std::isfinite(value)) return;
  Fail(ErrorCode::kRange, "{} = {}; it must be positive, finite and not vanishingly small",
       {name, value});
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
    Fail(ErrorCode::kShape, "width has {} values; expected 1 or head_dim = {}",
         {given.size(), p.head_dim});
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
    Fail(ErrorCode::kShape, "temperature has {} values; expected 1 or one per query head ({})",
         {given, heads});
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
void CheckPerHead(std::string_view name, const TensorView<const float>& view, int64_t heads,
                  int64_t rows, int64_t cols, std::string_view meaning) {
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
    Fail(ErrorCode::kShape,
         "k has head_dim {}, but the queries have hidden_dim {}; give key_weight",
         {p.head_dim_k, p.hidden_dim});
  }
  if (o.score_bias.data() != nullptr && o.score_bias.size() != static_cast<size_t>(p.hidden_dim)) {
    Fail(ErrorCode::kShape, "score_bias has {} values; expected hidden_dim = {}",
         {o.score_bias.size(), p.hidden_dim});
  }
  const TensorView<const float>& vector = o.score_vector;
  if (!vector.has_value()) return;
  CheckInput("score_vector", vector);
  CheckShape("score_vector", vector.shape,
             {1, 1, vector.shape[2] == 1 ? 1 : p.num_heads, p.hidden_dim},
             "[1, 1, 1 or num_heads, hidden_dim]");
}

// Tables by distance: all have the same number of rows, of a kind that relative_rows allows.
void CheckRelativeTable(AttentionProblem& p, const char* name, const TensorView<const float>& table,
                        int64_t dim) {
  if (!table.has_value()) return;
  if (p.relative_table_rows == 0) p.relative_table_rows = table.shape[2];
  CheckPerHead(name, table, p.num_heads, p.relative_table_rows, dim,
               "[1, 1 or num_heads, rows of all relative tables, dim]");
  const RelativeRows kind = p.options.relative_rows;
  const int64_t rows = p.relative_table_rows;
  const bool fits = rows > 0 && rows < (int64_t{1} << 31) &&
                    (kind == RelativeRows::kClip   ? rows % 2 == 1
                     : kind == RelativeRows::kSpan ? rows % 2 == 0
                                                   : rows % 4 == 0 && rows >= 8);
  if (!fits) {
    Fail(ErrorCode::kShape, "{} has {} rows; expected {}",
         {name, rows,
          (kind == RelativeRows::kClip   ? "2 m + 1, one for each distance -m to m"
           : kind == RelativeRows::kSpan ? "an even number, 2 k"
                                         : "a multiple of 4, at least 8")});
  }
}

void CheckRelative(AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  CheckEnum("relative_rows", o.relative_rows, RelativeRows::kLogSpan);
  CheckRelativeTable(p, "relative_keys", o.relative_keys, p.head_dim);
  CheckRelativeTable(p, "relative_queries", o.relative_queries, p.head_dim);
  CheckRelativeTable(p, "relative_values", o.relative_values, p.head_dim_v);
  if (o.score != Score::kDot && (HasRelativeScore(o) || o.position_bias.has_value())) {
    Fail(ErrorCode::kUnsupported,
         "relative_keys, relative_queries, content_bias and position_bias are terms of the dot "
         "product; other scores take distance_bias, bucket_bias and relative_values");
  }
  for (const auto& [name, bias] :
       {NamedView{"content_bias", &o.content_bias}, NamedView{"position_bias", &o.position_bias}}) {
    if (!bias->has_value()) continue;
    CheckInput(name, *bias);
    CheckShape(name, bias->shape, {1, 1, p.num_heads, p.head_dim}, "[1, 1, num_heads, head_dim]");
  }
  if (o.position_bias.has_value() && !o.relative_keys.has_value()) {
    Fail(ErrorCode::kOption,
         "position_bias is added to queries that meet relative_keys; give them");
  }
  const TensorView<const float>& values = o.relative_values;
  const bool readable = values.has_value() && !p.tensors_on_device;
  for (int64_t h = 0; readable && h < values.shape[1]; ++h) {
    for (int64_t r = 0; r < values.shape[2]; ++r) {
      for (int64_t d = 0; d < values.shape[3]; ++d) {
        CheckFinite("relative_values", values(0, h, r, d));
      }
    }
  }
  // Then buckets never skip a row from one distance to the next, which the loop counts on.
  if (o.relative_rows == RelativeRows::kLogSpan &&
      (o.relative_max_distance <= p.relative_table_rows / 4 * 3 ||
       o.relative_max_distance > (int64_t{1} << 24))) {
    Fail(ErrorCode::kRange,
         "relative_max_distance = {}; it must be above 3 / 4 of the rows, {}, and at most 2^24",
         {o.relative_max_distance, p.relative_table_rows / 4 * 3});
  }
}

// Refuses tensors that the chosen score does not read.
void CheckUnread(const AttentionOptions& o) {
  const bool bilinear = o.score == Score::kBilinear;
  const bool additive = o.score == Score::kAdditive;
  const auto refuse = [](const char* name, bool given, bool read, const char* score) {
    if (!given || read) return;
    Fail(ErrorCode::kOption, "{} is read only by {} scores", {name, score});
  };
  refuse("score_matrix", o.score_matrix.has_value(), bilinear, "bilinear");
  refuse("query_weight", o.query_weight.has_value(), additive, "additive");
  refuse("key_weight", o.key_weight.has_value(), additive, "additive");
  refuse("score_bias", o.score_bias.data() != nullptr, additive, "additive");
  refuse("score_vector", o.score_vector.has_value(), additive, "additive");
}

}  // namespace

std::array<NamedView, kScoreTensors> ScoreTensors(const AttentionOptions& o) {
  return {{{"score_matrix", &o.score_matrix},
           {"query_weight", &o.query_weight},
           {"key_weight", &o.key_weight},
           {"score_vector", &o.score_vector},
           {"relative_keys", &o.relative_keys},
           {"relative_queries", &o.relative_queries},
           {"relative_values", &o.relative_values},
           {"content_bias", &o.content_bias},
           {"position_bias", &o.position_bias},
           {"distance_bias", &o.distance_bias},
           {"bucket_bias", &o.bucket_bias},
           {"log_gates", &o.log_gates}}};
}

void CheckScore(AttentionProblem& p) {
  CheckEnum("score", p.options.score, Score::kAdditive);
  SetScale(p);
  CheckWidth(p);
  CheckTemperature(p);
  CheckUnread(p.options);
  if (p.options.score == Score::kBilinear) CheckBilinear(p);
  if (p.options.score == Score::kAdditive) CheckAdditive(p);
  CheckRelative(p);
}

void CheckDistanceBiases(AttentionProblem& p) {
  AttentionOptions& o = p.options;
  if (const TensorView<const float>& table = o.distance_bias; table.has_value()) {
    CheckInput("distance_bias", table);
    CheckShape("distance_bias", table.shape,
               {1, 1, table.shape[2] == 1 ? 1 : p.num_heads, table.shape[3] | 1},
               "[1, 1, 1 or num_heads, 2 m + 1]");
  }
  if (o.bucket_bias.has_value()) {
    CheckInput("bucket_bias", o.bucket_bias);
    CheckShape("bucket_bias", o.bucket_bias.shape, {1, 1, o.bucket_bias.shape[2], p.num_heads},
               "[1, 1, num_buckets, num_heads]");
    if (o.bucket_max_distance > (int64_t{1} << 24)) {
      Fail(ErrorCode::kRange, "bucket_max_distance = {}; it is at most 2^24",
           {o.bucket_max_distance});
    }
    CheckEnum("bucket_direction", o.bucket_direction, T5Direction::kCausal);
    T5Bucket(0, o.bucket_direction, o.bucket_bias.shape[2], o.bucket_max_distance);
  }
  if (!o.log_gates.has_value()) return;
  if (!o.causal) {
    Fail(ErrorCode::kOption, "log_gates needs causal: no gates lie between a query and later keys");
  }
  CheckShape("log_gates", o.log_gates.shape,
             {o.log_gates.shape[0], o.log_gates.shape[1], 1, p.kv_len},
             "[batch, num_heads, 1, kv_len]");
  o.log_gates = Broadcast("log_gates", o.log_gates, {p.batch, p.num_heads, 1, p.kv_len},
                          "[batch, num_heads, 1, kv_len]");
}

void CheckGates(const AttentionProblem& p) {
  const TensorView<const float>& gates = p.options.log_gates;
  const bool readable = gates.has_value() && !p.tensors_on_device;
  for (int64_t b = 0; readable && b < p.batch; ++b) {
    int64_t length = 0;
    for (int64_t i = 0; i < p.q_len; ++i) length = std::max(length, p.KeyLength(b, i));
    for (int64_t h = 0; h < p.num_heads; ++h) {
      for (int64_t j = 0; j < length; ++j) {
        if (!(gates(b, h, 0, j) > 0)) continue;
        Fail(ErrorCode::kRange, "log_gates holds {}; logarithms of gates lie in [-inf, 0]",
             {gates(b, h, 0, j)});
      }
    }
  }
}

const char* PositionalOption(const AttentionOptions& o) {
  if (o.causal) return "causal";
  if (o.window && (o.window->left || o.window->right)) return "window";
  if (!o.alibi_slopes.empty()) return "alibi_slopes";
  if (o.distance_bias.has_value()) return "distance_bias";
  if (o.bucket_bias.has_value()) return "bucket_bias";
  if (o.relative_keys.has_value()) return "relative_keys";
  if (o.relative_queries.has_value()) return "relative_queries";
  if (o.relative_values.has_value()) return "relative_values";
  return nullptr;
}

void CheckHeadVector(const AttentionProblem& p, std::string_view name,
                     std::span<const float> values, bool minus_inf_allowed) {
  if (values.empty()) return;
  if (values.size() != static_cast<size_t>(p.num_heads)) {
    Fail(ErrorCode::kShape, "{} has {} values; expected one per query head ({})",
         {name, values.size(), p.num_heads});
  }
  for (const float value : values) {
    if (!minus_inf_allowed) {
      CheckFinite(name, value);
    } else if (!(value < std::numeric_limits<float>::infinity())) {
      Fail(ErrorCode::kRange, "{} holds {}; expected finite numbers or -inf",
           {name, double{value}});
    }
  }
}

}  // namespace heed
