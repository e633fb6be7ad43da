#include "request_bounds.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "attention_accuracy.h"
#include "drawn_params.h"
#include "gtest/gtest.h"
#include "heed/attention_free.h"
#include "heed/graph.h"
#include "heed/latent.h"
#include "heed/layers.h"
#include "heed/low_rank.h"
#include "heed/position.h"
#include "heed/recurrent.h"
#include "heed/set_attention.h"
#include "score_size.h"

namespace heed::testing {
namespace {

using Bounds = std::map<std::string, std::vector<double>>;

double Largest(const std::vector<double>& values) {
  double largest = 0;
  for (const double x : values) {
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  }
  return largest;
}

double LargestInput(const DrawnRequest& r, const std::string& name) {
  return r.has_input(name) ? Largest(r.inputs.at(name).values) : 0;
}

// The tensor with leading extents of 1.
Buffer<float> ToBuffer(const DrawnTensor& tensor) {
  Extents shape = {1, 1, 1, 1};
  std::ranges::copy(tensor.shape, shape.end() - static_cast<ptrdiff_t>(tensor.shape.size()));
  Buffer<float> buffer(shape, Layout::kDense, 0.0f);
  size_t n = 0;
  buffer.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) {
    x = static_cast<float>(tensor.values[n++]);
  });
  return buffer;
}

// A part of the columns of a matrix.
DrawnTensor Columns(const DrawnTensor& matrix, int64_t first, int64_t last) {
  DrawnTensor part = {DType::kFloat32, {matrix.shape[0], last - first}, {}};
  for (int64_t row = 0; row < matrix.shape[0]; ++row) {
    for (int64_t col = first; col < last; ++col) {
      part.values.push_back(matrix.values[static_cast<size_t>(row * matrix.shape[1] + col)]);
    }
  }
  return part;
}

// The same tensor for every batch entry, and for every head where it has none.
DrawnTensor Repeated(const DrawnTensor& tensor, int64_t batch, int64_t heads) {
  DrawnTensor all = tensor;
  const bool one = tensor.shape.size() == 2;
  all.shape.insert(all.shape.begin(), one ? heads : batch);
  if (one) all.shape.insert(all.shape.begin(), batch);
  all.values.clear();
  for (int64_t n = 0; n < batch * (one ? heads : 1); ++n) {
    all.values.insert(all.values.end(), tensor.values.begin(), tensor.values.end());
  }
  return all;
}

template <size_t kCount>
int IndexOf(const char* const (&words)[kCount], const std::string& word) {
  for (size_t n = 0; n < kCount; ++n) {
    if (word == words[n]) return static_cast<int>(n);
  }
  ADD_FAILURE() << "unknown word " << word;
  return 0;
}

constexpr const char* kScores[] = {"dot", "squared_distance", "cosine", "bilinear", "additive"};
constexpr const char* kKernels[] = {"gaussian", "boxcar", "triangular", "epanechnikov", "constant"};
constexpr const char* kRows[] = {"clip", "span", "log_span"};

Normalize NormalizeOf(const std::string& word) {
  for (int n = 0; n <= static_cast<int>(Normalize::kCope); ++n) {
    if (word == NormalizeName(static_cast<Normalize>(n))) return static_cast<Normalize>(n);
  }
  ADD_FAILURE() << "unknown normaliser " << word;
  return Normalize::kSoftmax;
}

QueryOffset OffsetOf(const DrawnRequest& r) {
  const ParamValue* value = r.param("query_offset");
  if (value == nullptr) return {};
  if (const auto* number = std::get_if<double>(value)) {
    return QueryOffset::At(static_cast<int64_t>(*number));
  }
  if (const auto* list = std::get_if<std::vector<double>>(value)) {
    return QueryOffset::PerBatch({list->begin(), list->end()});
  }
  return QueryOffset::End();
}

void SetScalars(const DrawnRequest& r, AttentionCase& c) {
  Random unused(0);
  const DrawnParams params(*FindMechanism(r.id), unused, r);
  AttentionOptions& o = c.scalars;
  o.score = static_cast<Score>(IndexOf(kScores, params.score()));
  o.normalize = NormalizeOf(params.normalize());
  o.kernel = static_cast<Kernel>(IndexOf(kKernels, r.Word("kernel", "gaussian")));
  const bool unscaled = Lists("luong_dot luong_location t5_relative", r.id);
  if (unscaled) o.scale = 1;
  const std::string rows = r.Word("relative_rows", r.id == "disentangled" ? "span" : "clip");
  o.relative_rows = static_cast<RelativeRows>(IndexOf(kRows, rows));
  if (r.param("scale") != nullptr) o.scale = r.Number("scale", 1);
  if (r.param("min_temperature") != nullptr) o.min_temperature = r.Number("min_temperature", 0);
  o.length_power = r.Number("length_power", o.length_power);
  o.dropout.p = r.Number("dropout_p", 0);
  o.query_offset = OffsetOf(r);
}

// One value or a list.
std::vector<float> Floats(const DrawnRequest& r, const std::string& name) {
  if (r.has_input(name)) {
    const std::vector<double>& values = r.inputs.at(name).values;
    return {values.begin(), values.end()};
  }
  const ParamValue* value = r.param(name);
  if (value == nullptr) return {};
  if (const auto* number = std::get_if<double>(value)) return {static_cast<float>(*number)};
  const auto& list = std::get<std::vector<double>>(*value);
  return {list.begin(), list.end()};
}

void SetTensors(const DrawnRequest& r, AttentionCase& c) {
  for (const auto& [name, tensor] : r.inputs) {
    if (!Lists("score_matrix query_weight key_weight score_bias score_vector relative_keys "
               "relative_queries relative_values content_bias position_bias distance_bias "
               "bucket_bias log_gates cope_table",
               name)) {
      continue;
    }
    c.tensors[name] = {ToBuffer(tensor), static_cast<int>(tensor.shape.size())};
  }
  if (r.id == "luong_concat") {
    const DrawnTensor& both = r.inputs.at("concat_weight");
    const int64_t split = c.sizes.head_dim;
    c.tensors["query_weight"] = {ToBuffer(Columns(both, 0, split)), 2};
    c.tensors["key_weight"] = {ToBuffer(Columns(both, split, both.shape[1])), 2};
  }
  if (const std::vector<float> temperature = Floats(r, "temperature"); !temperature.empty()) {
    DrawnTensor list = {DType::kFloat32, {static_cast<int64_t>(temperature.size())}, {}};
    list.values.assign(temperature.begin(), temperature.end());
    c.tensors["temperature"] = {ToBuffer(list), 1};
  }
  c.width = Floats(r, "width");
  c.alibi_slopes = Floats(r, "alibi_slopes");
  if (r.has_input("bias")) c.bias = ToBuffer(r.inputs.at("bias"));
  if (r.has_input("key_lengths")) {
    const std::vector<double>& lengths = r.inputs.at("key_lengths").values;
    c.key_lengths.assign(lengths.begin(), lengths.end());
  }
}

// The attention that a request of a row with scores comes down to, as far as bounds need it.
AttentionCase ToCase(const DrawnRequest& r) {
  AttentionCase c;
  const DrawnTensor& v = r.inputs.at("v");
  const int64_t batch = v.shape[0];
  const DrawnTensor q =
      r.has_input("queries") ? Repeated(r.inputs.at("queries"), batch, 0) : r.inputs.at("q");
  const DrawnTensor k = r.has_input("location_weight")
                            ? Repeated(r.inputs.at("location_weight"), batch, v.shape[1])
                            : r.inputs.at("k");
  c.sizes = {batch, q.shape[1], v.shape[1], q.shape[2], v.shape[2], q.shape[3], v.shape[3]};
  c.q = ToBuffer(q);
  c.k = ToBuffer(k);
  c.v = ToBuffer(v);
  SetScalars(r, c);
  SetTensors(r, c);
  return c;
}

// What is added to a row's bound for storing it in two bytes.
double StorageError(const DrawnRequest& r, double value) {
  auto at = r.inputs.find("q");
  if (at == r.inputs.end()) at = r.inputs.find("v");
  if (at == r.inputs.end() || !std::isfinite(value)) return 0;
  if (at->second.dtype == DType::kFloat16) {
    constexpr double kLargest = 65504;  // what is larger is stored as an infinity
    if (std::abs(value) > 0.999 * kLargest) return std::numeric_limits<double>::infinity();
    return kFloat16Rounding * std::abs(value) + 0x1p-25;
  }
  if (at->second.dtype == DType::kBFloat16) return kBFloat16Rounding * std::abs(value);
  return 0;
}

// What is added to a row's bound, relative to max |v|, for multiplying in two bytes.
double ProductError(const DrawnRequest& r) {
  const auto is_bfloat16 = [&](const char* name) {
    const auto at = r.inputs.find(name);
    return at != r.inputs.end() && at->second.dtype == DType::kBFloat16;
  };
  return is_bfloat16("q") && is_bfloat16("k") && is_bfloat16("v") ? kBFloat16Products : 0;
}

// Rows that return scores: the bounds of exact attention (attention_accuracy.h).
Bounds AttentionBounds(const DrawnRequest& r, const Values& expected) {
  DrawnRequest full = r;
  full.params["return_weights"] = true;
  full.params["return_scores"] = std::string("biased");
  full.params.erase("return_tiles");
  full.params.erase("tiles_of_query");
  const AttentionCase c = ToCase(r);
  std::vector<RowBound> rows = RowBounds(c, RunOracle(full.request()));
  double score = kAttentionMaxError;
  for (RowBound& row : rows) {
    row.max_logit += r.added_score;
    score = std::max(score, row.Score());
  }
  // A gate is below 1, and has an error of its own.
  const double gate = r.id == "gated" ? 1.5 : 1;
  Bounds bounds;
  for (const auto& [name, values] : expected) {
    bounds[name];  // results may have no elements
    const size_t width = rows.empty() ? 1 : values.size() / rows.size();
    for (size_t n = 0; n < values.size(); ++n) {
      const RowBound& row = rows[std::min(n / std::max<size_t>(width, 1), rows.size() - 1)];
      double bound = 8 * score * std::max(1.0, std::abs(values[n]));  // statistics of tiles
      if (name == "output") {
        bound = gate * row.Output() + StorageError(r, values[n]) + ProductError(r) * row.max_v;
      }
      if (name == "weights") bound = row.Weight();
      if (name == "lse") bound = row.Lse(values[n]);
      // Scores of hidden keys may be larger than those that the rows' bounds look at.
      if (name == "scores") {
        const double hidden = kAttentionMaxError * std::abs(values[n]) / 4;
        bound = r.Word("return_scores") == "biased" ? row.Score() : std::max(4 * score, hidden);
      }
      bounds[name].push_back(bound);
    }
  }
  return bounds;
}

// What the largest element of each result moves by when every input moves by its rounding error,
// for mechanisms whose own steps may be badly conditioned (norms of small rows, several steps).
std::map<std::string, double> Sensitivity(const DrawnRequest& r, const Values& expected) {
  constexpr double kStep = 0x1p-18, kRounding = 0x1p-24;
  std::map<std::string, double> moved;
  for (const uint64_t seed : {1, 2}) {
    DrawnRequest near = r;
    Random random(seed);
    for (auto& [name, tensor] : near.inputs) {
      if (tensor.dtype == DType::kFloat16 || tensor.dtype == DType::kBFloat16) {
        // The numbers that are stored, as floats.
        for (double& x : tensor.values) {
          const float value = static_cast<float>(x);
          x = tensor.dtype == DType::kFloat16 ? ToFloat(ToFloat16(value))
                                              : ToFloat(ToBFloat16(value));
        }
        tensor.dtype = DType::kFloat32;
      }
      if (tensor.dtype != DType::kFloat32) continue;
      for (double& x : tensor.values) x *= 1 + (random.Chance(0.5) ? kStep : -kStep);
      tensor.Pack();
    }
    for (const auto& [name, values] : RunOracle(near.request())) {
      for (size_t n = 0; n < values.size(); ++n) {
        const double distance = std::abs(values[n] - expected.at(name)[n]);
        if (std::isfinite(distance)) {
          moved[name] = std::max(moved[name], distance / kStep * kRounding);
        }
      }
    }
  }
  return moved;
}

// Of a matrix [width, width], in absolute values.
double LargestColumnSum(const DrawnRequest& r, const std::string& name, size_t width) {
  const std::vector<double>& values = r.inputs.at(name).values;
  std::vector<double> sums(width);
  for (size_t n = 0; n < values.size(); ++n) sums[n % width] += std::abs(values[n]);
  return *std::max_element(sums.begin(), sums.end());
}

// The declared constant of a row that has no scores, times the size that its doc comment names.
double Declared(const DrawnRequest& r, const std::string& result,
                const std::vector<double>& values) {
  const double one = std::max(1.0, Largest(values));
  double v = 0;
  for (const char* name : {"v", "memory_v", "compress_v", "window_v"}) {
    v = std::max(v, LargestInput(r, name));
  }
  const double shown = result == "output" ? v : result == "lse" ? 8 : 1;
  if (FindMechanism(r.id)->family == "recurrent") return kRecurrentMaxError * Largest(values);
  if (FindMechanism(r.id)->family == "low_rank") {
    const double terms = r.has_input("value_projection") || r.has_input("key_projection") ? 8 : 1;
    return kLowRankMaxError * std::max(1.0, terms * shown);
  }
  if (r.id == "attention_free") return kAttentionFreeMaxError * v;
  if (r.id == "graph") return kGraphMaxError * shown;
  if (r.id == "native_sparse") return 3 * kAttentionMaxError * shown;  // gates below 1
  if (r.id == "sinkhorn") return 4 * kAttentionMaxError * shown;
  if (Lists("reformer routing", r.id)) return 2 * kAttentionMaxError * shown;
  if (r.id == "external") return 3 * kAttentionMaxError * shown;
  if (Lists("induced_set perceiver", r.id)) return kSetBlockMaxError * one;
  if (r.id == "transformer_block") return kTransformerBlockMaxError * one;
  if (r.id == "multi_head_latent") return kLatentMaxError * (result == "weights" ? 1 : one);
  if (Lists("multi_head multi_query grouped_query attention_classifier", r.id)) {
    return kMultiHeadMaxError * (result == "weights" ? 1 : one);
  }
  if (r.id == "talking_heads") {
    const size_t heads = static_cast<size_t>(r.extents.at("num_heads"));
    const auto mixed = [&](const char* name) {
      return r.has_input(name) ? std::max(1.0, LargestColumnSum(r, name, heads)) : 1;
    };
    return 2 * kAttentionMaxError * mixed("mix_scores") * mixed("mix_weights") * shown;
  }
  return kAttentionMaxError * std::max(1.0, shown);  // synthesizer, differential, hopfield
}

Bounds ComposedBounds(const DrawnRequest& r, const Values& expected) {
  std::map<std::string, double> moved;
  Random unused(0);
  if (!DrawnParams(*FindMechanism(r.id), unused, r).chooses()) moved = Sensitivity(r, expected);
  const double dropped = 1 - r.Number("dropout_p", 0);
  // A state that learns passes the rounding errors of every step on to all later ones.
  const double passed_on = r.id == "ttt_linear" ? 8 : 1;
  Bounds bounds;
  for (const auto& [name, values] : expected) {
    const double bound =
        Declared(r, name, values) / dropped + 32 * passed_on * moved[name] + FLT_MIN;
    for (const double value : values) {
      bounds[name].push_back(bound + (name == "output" ? StorageError(r, value) : 0));
    }
    bounds[name];  // results may have no elements
  }
  return bounds;
}

// Rotations: relative to the length of the pair. Codes: to the result.
Bounds PositionBounds(const DrawnRequest& r, const Values& expected) {
  const std::vector<double>& output = expected.at("output");
  const DrawnTensor& x = r.inputs.at("x");
  if (!Lists("rope xpos", r.id)) {
    std::vector<double> bounds;
    // Between two rows their difference counts as well.
    const double table = LargestInput(r, "table") * (r.param("interpolate") != nullptr ? 3 : 1);
    for (size_t n = 0; n < output.size(); ++n) {
      const double size = std::max({1.0, std::abs(output[n]), table + std::abs(x.values[n])});
      bounds.push_back(kPositionCodeMaxError * size);
    }
    return {{"output", bounds}};
  }
  const int64_t dim = x.shape.back();
  const int64_t rotary_dim = static_cast<int64_t>(r.Number("rotary_dim", static_cast<double>(dim)));
  const bool half = r.Word("pairing") == "half";
  const double tables = std::max({1.0, LargestInput(r, "cos"), LargestInput(r, "sin")});
  std::vector<double> bounds;
  for (int64_t n = 0; n < static_cast<int64_t>(output.size()); ++n) {
    const int64_t d = n % dim, row = n - d, pairs = rotary_dim / 2;
    const int64_t other = d >= rotary_dim ? d
                          : half          ? (d < pairs ? d + pairs : d - pairs)
                                          : (d ^ 1);
    const auto length = [&](const std::vector<double>& values) {
      return std::hypot(values[static_cast<size_t>(n)], values[static_cast<size_t>(row + other)]);
    };
    // Given tables need not turn: their product may be longer or shorter than the pair.
    const double size = r.has_input("cos") ? tables * length(x.values) : length(output);
    bounds.push_back((kRopeMaxError + 1000 * kPositionAngleError) * size + FLT_MIN);
  }
  return {{"output", bounds}};
}

}  // namespace

std::map<std::string, std::vector<double>> BoundsOf(const DrawnRequest& request,
                                                    const Values& expected) {
  const Mechanism& row = *FindMechanism(request.id);
  if (row.family == "position") return PositionBounds(request, expected);
  if (Lists(row.params, "return_scores")) return AttentionBounds(request, expected);
  return ComposedBounds(request, expected);
}

}  // namespace heed::testing
