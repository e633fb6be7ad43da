#include "src/exact/request.h"

#include <string>
#include <utility>

#include "src/choice.h"
#include "src/exact/problem.h"
#include "src/exact/request_patterns.h"
#include "src/expression/program.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

constexpr Choice<ScoreStage> kStages[] = {
    {"raw", ScoreStage::kRaw}, {"capped", ScoreStage::kCapped}, {"biased", ScoreStage::kBiased}};
constexpr Choice<Score> kScores[] = {{"dot", Score::kDot},
                                     {"squared_distance", Score::kSquaredDistance},
                                     {"cosine", Score::kCosine},
                                     {"bilinear", Score::kBilinear},
                                     {"additive", Score::kAdditive}};
constexpr Choice<RelativeRows> kRelativeRows[] = {{"clip", RelativeRows::kClip},
                                                  {"span", RelativeRows::kSpan},
                                                  {"log_span", RelativeRows::kLogSpan}};
constexpr Choice<T5Direction> kDirections[] = {{"bidirectional", T5Direction::kBidirectional},
                                               {"causal", T5Direction::kCausal}};
constexpr Choice<Kernel> kKernels[] = {{"gaussian", Kernel::kGaussian},
                                       {"boxcar", Kernel::kBoxcar},
                                       {"triangular", Kernel::kTriangular},
                                       {"epanechnikov", Kernel::kEpanechnikov},
                                       {"constant", Kernel::kConstant}};

// [batch] or [batch, q_len]. The options know only how many values there are, which would also let
// [q_len, batch] pass.
std::span<const int32_t> ReadKeyLengths(const RequestReader& reader, const StoredTensor& q) {
  const std::span<const int32_t> lengths = reader.Ints("key_lengths");
  const AnyTensor* tensor = reader.Input("key_lengths");
  if (tensor == nullptr) return lengths;
  const bool per_entry = tensor->rank == 1 && tensor->shape[0] == q.shape[0];
  const bool per_query =
      tensor->rank == 2 && tensor->shape[0] == q.shape[0] && tensor->shape[1] == q.shape[2];
  if (per_entry || per_query) return lengths;
  Fail(ErrorCode::kShape,
       "key_lengths must have the shape [batch] or [batch, q_len], here [{}, {}]",
       {q.shape[0], q.shape[2]});
}

constexpr Choice<Normalize> kNormalizers[] = {
    {"softmax", Normalize::kSoftmax},   {"kernel_sum", Normalize::kKernelSum},
    {"softmax1", Normalize::kSoftmax1}, {"sigmoid", Normalize::kSigmoid},
    {"relu", Normalize::kRelu},         {"relu_squared", Normalize::kReluSquared},
    {"average", Normalize::kAverage},   {"hard", Normalize::kHard},
    {"top_k", Normalize::kTopK},        {"sparsemax", Normalize::kSparsemax},
    {"entmax15", Normalize::kEntmax15}, {"stick_breaking", Normalize::kStickBreaking},
    {"cope", Normalize::kCope},
};

void ReadNormalizeOptions(const RequestReader& reader, AttentionOptions& o) {
  o.normalize = ReadChoice(reader, "normalize", kNormalizers).value_or(o.normalize);
  o.kernel = ReadChoice(reader, "kernel", kKernels).value_or(o.kernel);
  if (const auto k = reader.Count("top_k")) o.top_k = *k;
  o.sigmoid_bias = reader.Number("sigmoid_bias");
  if (const auto power = reader.Number("length_power")) o.length_power = *power;
  o.cope_table = reader.FloatTensor("cope_table");
  o.sinks = reader.Floats("sinks");
  if (const auto p = reader.Number("dropout_p")) o.dropout.p = *p;
  if (const auto seed = reader.Seed("dropout_seed")) o.dropout.seed = *seed;
}

// Compiles an expression; one that uses positions needs to know them.
TileFunction ReadExpression(const RequestReader& reader, std::string_view name,
                            ExpressionValue value, const AttentionRequest& r) {
  const auto text = reader.Word(name);
  if (!text) return {};
  const Expression expression = MakeExpression(name, *text, value, reader.Named("captured"));
  if (expression.uses_position && r.options.query_offset.kind() == QueryOffset::Kind::kUnset &&
      r.q.shape[2] != r.k.shape[2]) {
    Fail(ErrorCode::kOption,
         "{} uses `position`, but query_offset is missing and q_len differs from kv_len. Give 0 if "
         "query 0 stands at key 0, or \"end\" if the queries are the last tokens",
         {name});
  }
  return expression.function;
}

void ReadKeep(const RequestReader& reader, AttentionRequest& r) {
  AttentionOptions& o = r.options;
  o.keep = reader.PairMask("keep");
  o.key_lengths = ReadKeyLengths(reader, r.q);
  o.causal = o.causal || reader.Flag("causal");
  const Window window = {reader.Count("window_left"), reader.Count("window_right")};
  if (window.left || window.right) o.window = window;
  o.query_offset = ReadQueryOffset(reader);
  o.keep_mod = ReadExpression(reader, "keep_mod", ExpressionValue::kKeep, r);
}

// One value or a list, given as an input or as a parameter, but not both. `extent` is called
// `meaning`.
std::vector<float> ReadValues(const RequestReader& reader, std::string_view name,
                              std::string_view meaning, int64_t extent) {
  const bool input = reader.Input(name) != nullptr;
  const bool param = reader.Param(name) != nullptr;
  if (input && param) {
    Fail(ErrorCode::kOption, "{} is given both as an input and as a parameter", {name});
  }
  const std::span<const float> floats = reader.Floats(name);
  std::vector<float> values(floats.begin(), floats.end());
  for (const double value : reader.Numbers(name)) values.push_back(static_cast<float>(value));
  // To the options, no values mean that there is no such tensor.
  if (values.empty() && (input || param)) {
    Fail(ErrorCode::kShape, "{} has 0 values; expected 1 or {} = {}", {name, meaning, extent});
  }
  return values;
}

// A float tensor with `least` to `most` extents; leading extents of 1 are added.
TensorView<const float> ReadTensor(const RequestReader& reader, std::string_view name, int least,
                                   int most) {
  const AnyTensor* tensor = reader.Input(name);
  if (tensor != nullptr && (tensor->rank < least || tensor->rank > most)) {
    Fail(ErrorCode::kShape, "{} has rank {}; expected {} or {}", {name, tensor->rank, least, most});
  }
  return reader.FloatTensor(name);
}

// W [hidden_dim, head_dim + head_dim_k] is W_q and W_k side by side.
void ReadConcatWeight(const RequestReader& reader, AttentionRequest& r) {
  if (reader.Input("concat_weight") == nullptr) return;
  const TensorView<const float> weight = ReadTensor(reader, "concat_weight", 2, 2);
  const int64_t split = r.q.shape[3];
  if (weight.shape[3] != split + r.k.shape[3]) {
    Fail(ErrorCode::kShape,
         "concat_weight has {} columns; expected the head_dim of q and of k, {} + {}",
         {weight.shape[3], split, r.k.shape[3]});
  }
  r.options.query_weight = r.options.key_weight = weight;
  r.options.query_weight.shape[3] = split;
  r.options.key_weight.shape[3] = weight.shape[3] - split;
  r.options.key_weight.data += split * weight.strides[3];
}

void ReadDistances(const RequestReader& reader, AttentionRequest& r) {
  AttentionOptions& o = r.options;
  o.relative_keys = ReadTensor(reader, "relative_keys", 2, 3);
  o.relative_queries = ReadTensor(reader, "relative_queries", 2, 3);
  o.relative_values = ReadTensor(reader, "relative_values", 2, 3);
  o.content_bias = ReadTensor(reader, "content_bias", 2, 2);
  o.position_bias = ReadTensor(reader, "position_bias", 2, 2);
  o.relative_rows = ReadChoice(reader, "relative_rows", kRelativeRows).value_or(o.relative_rows);
  if (const auto count = reader.Count("relative_max_distance")) o.relative_max_distance = *count;
  o.distance_bias = ReadTensor(reader, "distance_bias", 1, 2);
  o.bucket_bias = ReadTensor(reader, "bucket_bias", 2, 2);
  o.bucket_direction =
      ReadChoice(reader, "bucket_direction", kDirections).value_or(o.bucket_direction);
  if (const auto count = reader.Count("bucket_max_distance")) o.bucket_max_distance = *count;
  // [batch, num_heads, kv_len] becomes [batch, num_heads, 1, kv_len].
  const TensorView<const float> gates = ReadTensor(reader, "log_gates", 3, 3);
  o.log_gates = {gates.data,
                 {gates.shape[1], gates.shape[2], 1, gates.shape[3]},
                 {gates.strides[1], gates.strides[2], 0, gates.strides[3]}};
}

void ReadScoreTensors(const RequestReader& reader, AttentionRequest& r) {
  AttentionOptions& o = r.options;
  ReadDistances(reader, r);
  o.score_matrix = ReadTensor(reader, "score_matrix", 2, 3);
  o.query_weight = ReadTensor(reader, "query_weight", 2, 3);
  o.key_weight = ReadTensor(reader, "key_weight", 2, 3);
  o.score_bias = reader.Floats("score_bias");
  o.score_vector = ReadTensor(reader, "score_vector", 1, 2);
  ReadConcatWeight(reader, r);
  r.width = ReadValues(reader, "width", "head_dim", r.q.shape[3]);
  r.temperature = ReadValues(reader, "temperature", "num_heads", r.q.shape[1]);
  if (const auto least = reader.Number("min_temperature")) r.options.min_temperature = least;
}

// The rows of W take the place of keys: the same for every batch entry, and for every head when W
// has rank 2.
StoredTensor ReadLocationKeys(const RequestReader& reader, const StoredTensor& v) {
  TensorView<const float> weight = ReadTensor(reader, "location_weight", 2, 3);
  if (!weight.has_value()) {
    Fail(ErrorCode::kOption, "input location_weight is missing");
  }
  weight.shape[0] = v.shape[0];
  weight.strides[0] = 0;
  if (reader.Input("location_weight")->rank == 2) {
    weight.shape[1] = v.shape[1];
    weight.strides[1] = 0;
  }
  return StoredTensor(weight);
}

}  // namespace

QueryOffset ReadQueryOffset(const RequestReader& reader) {
  const ParamValue* value = reader.Param("query_offset");
  if (value == nullptr) return {};
  if (const double* number = std::get_if<double>(value)) {
    return QueryOffset::At(WholeNumber("query_offset", *number));
  }
  if (const auto* numbers = std::get_if<std::vector<double>>(value)) {
    std::vector<int64_t> positions;
    for (const double number : *numbers) {
      positions.push_back(WholeNumber("query_offset", number));
    }
    return QueryOffset::PerBatch(std::move(positions));
  }
  const std::string* word = std::get_if<std::string>(value);
  if (word != nullptr && *word == "end") return QueryOffset::End();
  Fail(ErrorCode::kOption, "query_offset must be a number, one number per batch entry, or \"end\"");
}

AttentionOptions OptionsOf(const AttentionRequest& r) {
  AttentionOptions options = r.options;
  options.width = r.width;
  options.temperature = r.temperature;
  return options;
}

void ReadExactOptions(const RequestReader& reader, AttentionRequest& r) {
  AttentionOptions& o = r.options;
  o.score = ReadChoice(reader, "score", kScores).value_or(o.score);
  ReadNormalizeOptions(reader, o);
  if (const auto scale = reader.Number("scale")) o.scale = scale;
  o.softcap = reader.Number("softcap");
  o.bias = reader.PairTensor("bias");
  o.alibi_slopes = reader.Floats("alibi_slopes");
  ReadScoreTensors(reader, r);
  ReadKeep(reader, r);
  o.score_mod = ReadExpression(reader, "score_mod", ExpressionValue::kScore, r);
  o.prob_mod = ReadExpression(reader, "prob_mod", ExpressionValue::kProb, r);
  ReadPatterns(reader, {r.q.shape[0], r.q.shape[2], r.k.shape[2]}, o);
  r.return_lse = reader.Flag("return_lse");
  r.return_weights = reader.Flag("return_weights");
  r.return_scores = ReadChoice(reader, "return_scores", kStages);
}

AttentionRequest ReadExact(const RequestReader& reader, AttentionOptions preset) {
  AttentionRequest r;
  r.q = reader.RequiredStored("q");
  r.v = reader.RequiredStored("v");
  r.k =
      reader.Takes("location_weight") ? ReadLocationKeys(reader, r.v) : reader.RequiredStored("k");
  r.options = std::move(preset);
  ReadExactOptions(reader, r);
  return r;
}

AttentionOptions UnscaledPreset() {
  AttentionOptions options;
  options.scale = 1.0;
  return options;
}

AttentionOptions BilinearPreset() {
  AttentionOptions options;
  options.score = Score::kBilinear;
  return options;
}

AttentionOptions AdditivePreset() {
  AttentionOptions options;
  options.score = Score::kAdditive;
  return options;
}

AttentionOptions ForgettingPreset() {
  AttentionOptions options;
  options.causal = true;
  return options;
}

AttentionOptions DisentangledPreset() {
  AttentionOptions options;
  options.relative_rows = RelativeRows::kSpan;
  return options;
}

AttentionOptions CosinePreset() {
  AttentionOptions options;
  options.score = Score::kCosine;
  return options;
}

AttentionOptions GaussianPreset() {
  AttentionOptions options;
  options.score = Score::kSquaredDistance;
  return options;
}

AttentionOptions KernelRegressionPreset() {
  AttentionOptions options;
  options.score = Score::kSquaredDistance;
  options.normalize = Normalize::kKernelSum;
  return options;
}

AttentionRequest ReadSink(const RequestReader& reader, AttentionOptions preset) {
  if (reader.Input("sinks") == nullptr) {
    Fail(ErrorCode::kOption, "input sinks is missing: one logit per query head");
  }
  return ReadExact(reader, std::move(preset));
}

AttentionRequest ReadFlash(const RequestReader& reader, AttentionOptions preset) {
  AttentionRequest r = ReadExact(reader, std::move(preset));
  r.return_lse = true;
  r.return_tiles = reader.Flag("return_tiles");
  r.tiles_of_query = reader.Count("tiles_of_query");
  if (r.return_tiles && r.options.prob_mod) {
    Fail(
        ErrorCode::kUnsupported,
        "return_tiles with prob_mod, which needs whole rows: nothing is carried from tile to tile");
  }
  if (!r.tiles_of_query) return r;
  if (!r.return_tiles) {
    Fail(ErrorCode::kOption, "tiles_of_query says which row of return_tiles; set that too");
  }
  if (*r.tiles_of_query < 0 || *r.tiles_of_query >= r.q.shape[2]) {
    Fail(ErrorCode::kRange, "tiles_of_query = {}; queries lie in [0, q_len = {})",
         {*r.tiles_of_query, r.q.shape[2]});
  }
  return r;
}

void ValidateRequest(const AttentionRequest& r, AttentionProblem& p) {
  p.q = r.q;
  p.k = r.k;
  p.v = r.v;
  p.options = OptionsOf(r);
  CompleteInputs(p, r.return_lse);
}

std::vector<OutputSpec> PlanAttention(const AttentionRequest& r) {
  AttentionProblem p;
  ValidateRequest(r, p);
  return ListOutputs(r, p);
}

std::vector<OutputSpec> ListOutputs(const AttentionRequest& r, const AttentionProblem& p) {
  std::vector<OutputSpec> specs;
  // Results are stored as the queries are.
  specs.push_back({"output", 4, {p.batch, p.num_heads, p.q_len, p.head_dim_v}, p.q.dtype});
  if (r.return_lse) specs.push_back({"lse", 3, {p.batch, p.num_heads, p.q_len, 0}});
  const Extents pairs = {p.batch, p.num_heads, p.q_len, p.kv_len};
  if (r.return_weights) specs.push_back({"weights", 4, pairs});
  if (r.return_scores) specs.push_back({"scores", 4, pairs});
  if (r.return_tiles) {
    const int64_t num_tiles = (p.kv_len + kAttentionTileKeys - 1) / kAttentionTileKeys;
    const Extents tiles = {p.batch, p.num_heads, r.tiles_of_query ? 1 : p.q_len, num_tiles};
    for (const char* name : {"running_max", "running_sum", "rescale"}) {
      specs.push_back({name, 4, tiles});
    }
  }
  return specs;
}

AttentionOutputs FindOutputs(const AttentionRequest& r, std::span<const NamedTensor> outputs) {
  AttentionOutputs out;
  out.stored_output = StoredOutputView(outputs, "output");
  if (r.return_lse) out.lse = OutputView(outputs, "lse");
  if (r.return_weights) out.weights = OutputView(outputs, "weights");
  if (r.return_scores) {
    out.scores = OutputView(outputs, "scores");
    out.score_stage = *r.return_scores;
  }
  if (r.return_tiles) {
    out.running_max = OutputView(outputs, "running_max");
    out.running_sum = OutputView(outputs, "running_sum");
    out.rescale = OutputView(outputs, "rescale");
    out.tiles_of_query = r.tiles_of_query;
  }
  return out;
}

void RunAttentionRequest(const AttentionRequest& r, std::span<const NamedTensor> outputs,
                         ThreadPool* pool) {
  Attention(r.q, r.k, r.v, OptionsOf(r), FindOutputs(r, outputs), pool);
}

void ExplainRequest(const AttentionRequest& r, const TensorView<uint8_t>& picture) {
  CheckShape("picture", picture.shape, {r.q.shape[0], r.q.shape[1], r.q.shape[2], r.k.shape[2]},
             "[batch, num_heads, q_len, kv_len]");
  Explain(r.options, picture);
}

}  // namespace heed
