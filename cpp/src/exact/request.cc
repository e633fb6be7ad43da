#include "src/exact/request.h"

#include <string>

#include "src/exact/problem.h"

namespace heed {
namespace {

ScoreStage ReadStage(const std::string& word) {
  if (word == "raw") return ScoreStage::kRaw;
  if (word == "capped") return ScoreStage::kCapped;
  if (word == "biased") return ScoreStage::kBiased;
  throw Error(ErrorCode::kOption,
              "return_scores = \"" + word + "\"; expected \"raw\", \"capped\" or \"biased\"");
}

Kernel ReadKernel(const std::string& word) {
  if (word == "gaussian") return Kernel::kGaussian;
  if (word == "boxcar") return Kernel::kBoxcar;
  if (word == "triangular") return Kernel::kTriangular;
  if (word == "epanechnikov") return Kernel::kEpanechnikov;
  if (word == "constant") return Kernel::kConstant;
  throw Error(ErrorCode::kOption, "kernel = \"" + word +
                                      "\"; expected \"gaussian\", \"boxcar\", \"triangular\", "
                                      "\"epanechnikov\" or \"constant\"");
}

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
  throw Error(ErrorCode::kOption,
              "query_offset must be a number, one number per batch entry, or \"end\"");
}

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
  throw Error(ErrorCode::kShape,
              "key_lengths must have the shape [batch] or [batch, q_len], here [" +
                  std::to_string(q.shape[0]) + ", " + std::to_string(q.shape[2]) + "]");
}

Score ReadScore(const std::string& word) {
  if (word == "dot") return Score::kDot;
  if (word == "squared_distance") return Score::kSquaredDistance;
  throw Error(ErrorCode::kOption,
              "score = \"" + word + "\"; expected \"dot\" or \"squared_distance\"");
}

Normalize ReadNormalize(const std::string& word) {
  if (word == "softmax") return Normalize::kSoftmax;
  if (word == "kernel_sum") return Normalize::kKernelSum;
  throw Error(ErrorCode::kOption,
              "normalize = \"" + word + "\"; expected \"softmax\" or \"kernel_sum\"");
}

void ReadKeep(const RequestReader& reader, AttentionRequest& r) {
  AttentionOptions& o = r.options;
  o.keep = reader.PairMask("keep");
  o.key_lengths = ReadKeyLengths(reader, r.q);
  o.causal = reader.Flag("causal");
  const Window window = {reader.Count("window_left"), reader.Count("window_right")};
  if (window.left || window.right) o.window = window;
  o.query_offset = ReadQueryOffset(reader);
}

void ReadWidth(const RequestReader& reader, AttentionRequest& r) {
  if (reader.Input("width") != nullptr && reader.Param("width") != nullptr) {
    throw Error(ErrorCode::kOption, "width is given both as an input and as a parameter");
  }
  const std::span<const float> input = reader.Floats("width");
  r.width.assign(input.begin(), input.end());
  for (const double width : reader.Numbers("width")) r.width.push_back(static_cast<float>(width));
  // To the options, no values mean no width.
  if (r.width.empty() && (reader.Input("width") != nullptr || reader.Param("width") != nullptr)) {
    throw Error(ErrorCode::kShape,
                "width has 0 values; expected 1 or head_dim = " + std::to_string(r.q.shape[3]));
  }
}

}  // namespace

void ReadExactOptions(const RequestReader& reader, AttentionRequest& r) {
  AttentionOptions& o = r.options;
  if (const auto word = reader.Word("score")) o.score = ReadScore(*word);
  if (const auto word = reader.Word("normalize")) o.normalize = ReadNormalize(*word);
  if (const auto word = reader.Word("kernel")) o.kernel = ReadKernel(*word);
  if (const auto scale = reader.Number("scale")) o.scale = scale;
  o.softcap = reader.Number("softcap");
  o.bias = reader.PairTensor("bias");
  o.alibi_slopes = reader.Floats("alibi_slopes");
  o.sinks = reader.Floats("sinks");
  ReadWidth(reader, r);
  ReadKeep(reader, r);
  r.return_lse = reader.Flag("return_lse");
  r.return_weights = reader.Flag("return_weights");
  if (const auto stage = reader.Word("return_scores")) r.return_scores = ReadStage(*stage);
}

AttentionRequest ReadExact(const RequestReader& reader, AttentionOptions preset) {
  AttentionRequest r;
  r.q = reader.RequiredStored("q");
  r.k = reader.RequiredStored("k");
  r.v = reader.RequiredStored("v");
  r.options = std::move(preset);
  ReadExactOptions(reader, r);
  return r;
}

AttentionOptions KernelRegressionPreset() {
  AttentionOptions options;
  options.score = Score::kSquaredDistance;
  options.normalize = Normalize::kKernelSum;
  return options;
}

std::vector<OutputSpec> PlanAttention(const AttentionRequest& r) {
  AttentionOptions options = r.options;
  options.width = r.width;
  const AttentionProblem p = ValidateAttentionInputs(r.q, r.k, r.v, options, r.return_lse);
  std::vector<OutputSpec> specs;
  // Results are stored as the queries are.
  specs.push_back({"output", 4, {p.batch, p.num_heads, p.q_len, p.head_dim_v}, p.q.dtype});
  if (r.return_lse) specs.push_back({"lse", 3, {p.batch, p.num_heads, p.q_len, 0}});
  const Extents pairs = {p.batch, p.num_heads, p.q_len, p.kv_len};
  if (r.return_weights) specs.push_back({"weights", 4, pairs});
  if (r.return_scores) specs.push_back({"scores", 4, pairs});
  return specs;
}

void RunAttentionRequest(const AttentionRequest& r, std::span<const NamedTensor> outputs,
                         ThreadPool* pool) {
  AttentionOptions options = r.options;
  options.width = r.width;
  AttentionOutputs out;
  out.stored_output = StoredOutputView(outputs, "output");
  if (r.return_lse) out.lse = OutputView(outputs, "lse");
  if (r.return_weights) out.weights = OutputView(outputs, "weights");
  if (r.return_scores) {
    out.scores = OutputView(outputs, "scores");
    out.score_stage = *r.return_scores;
  }
  Attention(r.q, r.k, r.v, options, out, pool);
}

}  // namespace heed
