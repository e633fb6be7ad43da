// heed::PlanOperation and heed::RunOperation: from names to the typed functions of analysis.h.
#include "heed/operations.h"

#include <algorithm>
#include <string>

#include "heed/analysis.h"
#include "heed/merge.h"
#include "heed/registry.h"
#include "src/exact/problem.h"
#include "src/exact/request.h"
#include "src/from_javascript.h"
#include "src/linear/operations.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/request_reader.h"
#include "src/request_spans.h"
#include "src/rows/operations.h"
#include "src/view_checks.h"
#include "src/word_lists.h"

namespace heed {
namespace {

// Names that an operation has beside those of attention.
struct Operation {
  std::string_view id;
  bool attends;  // takes what attention takes
  std::string_view inputs;
  std::string_view params;
};

constexpr Operation kOperations[] = {
    {"analyze", true, "lse?", "entropy max top_weights expected_distance column_sums return_lse"},
    {"weights_tile", true, "lse?", "q_begin q_end k_begin k_end"},
    {"head_similarity", true, "", "cosine frobenius jensen_shannon"},
    {"rollout_layer", true, "rows", "residual"},
    {"multi_hop", true, "x", "hops"},
    {"erasure", true, "", "q_begin q_end change without"},
    {"attribution", true, "d_out", "q_begin q_end k_begin k_end positive column_sums pairs"},
    {"attention_flow", false, "maps", "sources"},
    {"head_importance", false, "output w_o?", ""},
    {"prune_heads", false, "importance", "num_kept"},
    {"linear", false, "x weight bias?", ""},
    {"bmm", false, "a b", "transpose_b"},
    {"softmax", false, "x", "axis"},
    {"log_softmax", false, "x", "axis"},
    {"masked_softmax", false, "x lengths? keep?", ""},
    {"layer_norm", false, "x weight? bias?", "axis epsilon return_statistics"},
    {"rms_norm", false, "x weight?", "axis epsilon"},
};

Mechanism RowOf(const Operation& operation) {
  Mechanism row;
  row.id = operation.id;
  row.inputs = operation.inputs;
  row.params = operation.params;
  return row;
}

// The part of a request that has these names, or the part that has not.
Request Part(const Request& request, const Operation& operation, bool own) {
  Request part;
  part.id = own ? request.id : "attention";
  for (const NamedTensor& input : request.inputs) {
    if (HasWord(operation.inputs, input.name) == own) part.inputs.push_back(input);
  }
  for (const NamedParam& param : request.params) {
    if (HasWord(operation.params, param.name) == own) part.params.push_back(param);
  }
  return part;
}

const Mechanism& AttentionRow() { return *FindMechanism("attention"); }

// A request in reading: the operation's own names, and those of attention.
class Reading {
 public:
  Reading(const Operation& operation, const Request& request)
      : own_request_(Part(request, operation, true)),
        rest_(Part(request, operation, false)),
        row_(RowOf(operation)),
        own_(row_, own_request_) {
    if (operation.attends) {
      attention_ = ReadExact(RequestReader(AttentionRow(), rest_), {});
      attention_.options = OptionsOf(attention_);
      if (attention_.return_lse || attention_.return_weights || attention_.return_scores) {
        Fail(ErrorCode::kOption, "{} returns neither weights nor scores", {request.id});
      }
      const AttentionProblem p = Problem(false);
      rows_ = {p.batch, p.num_heads, p.q_len, 0};
      kv_len_ = p.kv_len;
    } else if (!rest_.inputs.empty() || !rest_.params.empty()) {
      Fail(ErrorCode::kOption, "{} is unknown to {}",
           {(rest_.inputs.empty() ? rest_.params[0].name : rest_.inputs[0].name), request.id});
    }
  }

  AttentionProblem Problem(bool wants_lse) const {
    return ValidateAttentionInputs(attention_.q, attention_.k, attention_.v, attention_.options,
                                   wants_lse);
  }
  const RequestReader& own() const { return own_; }
  const AttentionRequest& attention() const { return attention_; }

  int64_t batch() const { return rows_[0]; }
  int64_t num_heads() const { return rows_[1]; }
  int64_t q_len() const { return rows_[2]; }
  int64_t kv_len() const { return kv_len_; }
  Extents rows() const { return rows_; }

  // An input [batch, num_heads, q_len], with a last extent of 1; absent when not given.
  TensorView<const float> RowInput(std::string_view name) const {
    if (own_.Input(name) == nullptr) return {};
    const TensorView<const float> t = RankThree(name, "[batch, num_heads, q_len]");
    return {t.data,
            {t.shape[1], t.shape[2], t.shape[3], 1},
            {t.strides[1], t.strides[2], t.strides[3], 1}};
  }

  // A required input [batch, rows, len] as [batch, 1, rows, len].
  TensorView<const float> MapRows(std::string_view name) const {
    Required(name);
    const TensorView<const float> t = RankThree(name, "[batch, rows, len]");
    return {t.data,
            {t.shape[1], 1, t.shape[2], t.shape[3]},
            {t.strides[1], 0, t.strides[2], t.strides[3]}};
  }

  TensorView<const float> Required(std::string_view name) const {
    const TensorView<const float> view = own_.FloatTensor(name);
    if (own_.Input(name) == nullptr) {
      Fail(ErrorCode::kOption, "input {} is missing", {name});
    }
    return view;
  }

  int64_t Count(std::string_view name) const {
    const std::optional<int64_t> count = own_.Count(name);
    if (!count) Fail(ErrorCode::kOption, "parameter {} is missing", {name});
    return *count;
  }

  WeightsRange Range() const {
    return {Count("q_begin"), Count("q_end"), Count("k_begin"), Count("k_end")};
  }

 private:
  TensorView<const float> RankThree(std::string_view name, const char* meaning) const {
    const int rank = own_.Input(name)->rank;
    if (rank != 3) {
      Fail(ErrorCode::kShape, "{} has rank {}; expected 3 ({})", {name, rank, meaning});
    }
    return own_.FloatTensor(name);
  }

  Request own_request_, rest_;
  Mechanism row_;
  RequestReader own_;
  AttentionRequest attention_;
  Extents rows_{};
  int64_t kv_len_ = 0;
};

// A range's length, 0 when it is none: the typed function refuses it with better words.
int64_t Length(int64_t begin, int64_t end, int64_t len) {
  return begin >= 0 && begin <= end && end <= len ? end - begin : 0;
}

TensorView<float> View(std::span<const NamedTensor> outputs, std::string_view name) {
  return OutputView(outputs, name);
}

// A result [batch, rows, len] as [batch, 1, rows, len].
TensorView<float> MapRowsView(std::span<const NamedTensor> outputs, std::string_view name) {
  const TensorView<float> t = OutputView(outputs, name);
  return {t.data,
          {t.shape[0], 1, t.shape[1], t.shape[2]},
          {t.strides[0], 0, t.strides[1], t.strides[2]}};
}

TensorView<int32_t> IntView(std::span<const NamedTensor> outputs, std::string_view name) {
  for (const NamedTensor& output : outputs) {
    if (output.name != name) continue;
    const AnyTensor& tensor = output.tensor;
    TensorView<int32_t> view = {static_cast<int32_t*>(tensor.data), tensor.shape, tensor.strides};
    if (tensor.rank == 3) view.shape[3] = view.strides[3] = 1;
    return view;
  }
  return {};
}

std::vector<OutputSpec> PlanAnalyze(const Reading& r) {
  std::vector<OutputSpec> specs;
  const RequestReader& own = r.own();
  if (own.Flag("entropy")) specs.push_back({"entropy", 3, r.rows()});
  if (own.Flag("max")) {
    specs.push_back({"max_weight", 3, r.rows()});
    specs.push_back({"max_index", 3, r.rows(), DType::kInt32});
  }
  if (const std::optional<int64_t> count = own.Count("top_weights")) {
    if (*count < 1 || *count > r.kv_len()) {
      Fail(ErrorCode::kRange, "top_weights = {}; it lies in [1, kv_len = {}]",
           {*count, r.kv_len()});
    }
    const Extents top = {r.batch(), r.num_heads(), r.q_len(), *count};
    specs.push_back({"top_weights", 4, top});
    specs.push_back({"top_indices", 4, top, DType::kInt32});
  }
  if (own.Flag("expected_distance")) specs.push_back({"expected_distance", 3, r.rows()});
  if (own.Flag("column_sums")) {
    specs.push_back({"column_sums", 3, {r.batch(), r.num_heads(), r.kv_len(), 0}});
  }
  if (own.Flag("return_lse")) specs.push_back({"lse", 3, r.rows()});
  return specs;
}

void RunAnalyze(const Reading& r, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  AnalysisOutputs out;
  out.entropy = View(outputs, "entropy");
  out.max_weight = View(outputs, "max_weight");
  out.max_index = IntView(outputs, "max_index");
  out.top_weights = View(outputs, "top_weights");
  out.top_indices = IntView(outputs, "top_indices");
  out.expected_distance = View(outputs, "expected_distance");
  out.column_sums = View(outputs, "column_sums");
  out.lse = View(outputs, "lse");
  const AttentionRequest& a = r.attention();
  Analyze(a.q, a.k, a.options, r.RowInput("lse"), out, pool);
}

std::vector<OutputSpec> PlanWeightsTile(const Reading& r) {
  const WeightsRange range = r.Range();
  return {{"weights",
           4,
           {r.batch(), r.num_heads(), Length(range.q_begin, range.q_end, r.q_len()),
            Length(range.k_begin, range.k_end, r.kv_len())}}};
}

void RunWeightsTile(const Reading& r, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  const AttentionRequest& a = r.attention();
  WeightsTile(a.q, a.k, a.options, r.RowInput("lse"), r.Range(), View(outputs, "weights"), pool);
}

std::vector<OutputSpec> PlanHeadSimilarity(const Reading& r) {
  std::vector<OutputSpec> specs;
  for (const char* name : {"cosine", "frobenius", "jensen_shannon"}) {
    if (r.own().Flag(name)) {
      specs.push_back({name, 3, {r.batch(), r.num_heads(), r.num_heads(), 0}});
    }
  }
  return specs;
}

void RunHeadSimilarity(const Reading& r, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  const AttentionRequest& a = r.attention();
  HeadSimilarity(
      a.q, a.k, a.options,
      {View(outputs, "cosine"), View(outputs, "frobenius"), View(outputs, "jensen_shannon")}, pool);
}

std::vector<OutputSpec> PlanRolloutLayer(const Reading& r) {
  const Extents rows = r.MapRows("rows").shape;
  return {{"rows", 3, {rows[0], rows[2], rows[3], 0}}};
}

void RunRolloutLayer(const Reading& r, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  const AttentionRequest& a = r.attention();
  const RolloutLayer layer[] = {{a.q, a.k, a.options}};
  Rollout(layer, r.own().Number("residual").value_or(0.5), r.MapRows("rows"),
          MapRowsView(outputs, "rows"), pool);
}

std::vector<OutputSpec> PlanMultiHop(const Reading& r) {
  return {{"output", 4, r.Required("x").shape}};
}

void RunMultiHop(const Reading& r, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  const AttentionRequest& a = r.attention();
  MultiHop(a.q, a.k, a.options, r.Count("hops"), r.Required("x"), View(outputs, "output"), pool);
}

std::vector<OutputSpec> PlanErasure(const Reading& r) {
  std::vector<OutputSpec> specs;
  const int64_t rows = Length(r.Count("q_begin"), r.Count("q_end"), r.q_len());
  if (r.own().Flag("change")) {
    specs.push_back({"change", 4, {r.batch(), r.num_heads(), rows, r.kv_len()}});
  }
  if (r.own().Flag("without")) {
    const int64_t width = r.attention().v.shape[3];
    specs.push_back({"without", 4, {r.batch(), r.num_heads(), r.kv_len(), width}});
  }
  return specs;
}

void RunErasure(const Reading& r, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  const AttentionRequest& a = r.attention();
  Erasure(a.q, a.k, a.v, a.options, r.Count("q_begin"), r.Count("q_end"),
          {View(outputs, "change"), View(outputs, "without")}, pool);
}

std::vector<OutputSpec> PlanAttribution(const Reading& r) {
  std::vector<OutputSpec> specs;
  if (r.own().Flag("column_sums")) {
    specs.push_back({"column_sums", 3, {r.batch(), r.num_heads(), r.kv_len(), 0}});
  }
  if (r.own().Flag("pairs")) {
    specs.push_back({"pairs", 4, PlanWeightsTile(r)[0].shape});
  }
  return specs;
}

void RunAttribution(const Reading& r, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  const AttentionRequest& a = r.attention();
  const bool positive = r.own().Flag("positive");
  Attribution(a.q, a.k, a.v, r.Required("d_out"), a.options,
              positive ? AttributionTerms::kPositive : AttributionTerms::kSigned, r.Range(),
              {View(outputs, "column_sums"), View(outputs, "pairs")}, pool);
}

std::vector<int64_t> Sources(const Reading& r) {
  std::vector<int64_t> sources;
  for (const double source : r.own().Numbers("sources")) {
    sources.push_back(WholeNumber("sources", source));
  }
  return sources;
}

std::vector<OutputSpec> PlanAttentionFlow(const Reading& r) {
  const Extents maps = r.Required("maps").shape;
  const int64_t num = static_cast<int64_t>(Sources(r).size());
  return {{"flow", 3, {maps[0], num, maps[3], 0}}};
}

void RunAttentionFlow(const Reading& r, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  AttentionFlow(r.Required("maps"), Sources(r), MapRowsView(outputs, "flow"), pool);
}

std::vector<OutputSpec> PlanHeadImportance(const Reading& r) {
  return {{"importance", 1, {r.Required("output").shape[1], 0, 0, 0}}};
}

void RunHeadImportance(const Reading& r, std::span<const NamedTensor> outputs, ThreadPool*) {
  const std::vector<float> importance =
      HeadImportance(r.Required("output"), r.own().FloatTensor("w_o"));
  std::copy(importance.begin(), importance.end(), static_cast<float*>(outputs[0].tensor.data));
}

std::vector<OutputSpec> PlanPruneHeads(const Reading& r) {
  const int64_t num_heads = static_cast<int64_t>(r.own().Floats("importance").size());
  return {{"keep", 4, {1, num_heads, 1, 1}, DType::kUint8}};
}

void RunPruneHeads(const Reading& r, std::span<const NamedTensor> outputs, ThreadPool*) {
  const std::vector<uint8_t> keep = PruneHeads(r.own().Floats("importance"), r.Count("num_kept"));
  std::copy(keep.begin(), keep.end(), static_cast<uint8_t*>(outputs[0].tensor.data));
}

// Operations that read nothing of attention.
template <auto kPlan>
std::vector<OutputSpec> PlanOwn(const Reading& r) {
  return kPlan(r.own());
}
template <auto kRun>
void RunOwn(const Reading& r, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  kRun(r.own(), outputs, pool);
}

struct Verbs {
  std::vector<OutputSpec> (*plan)(const Reading&);
  void (*run)(const Reading&, std::span<const NamedTensor>, ThreadPool*);
};

// In the order of kOperations.
constexpr Verbs kVerbs[] = {
    {PlanAnalyze, RunAnalyze},
    {PlanWeightsTile, RunWeightsTile},
    {PlanHeadSimilarity, RunHeadSimilarity},
    {PlanRolloutLayer, RunRolloutLayer},
    {PlanMultiHop, RunMultiHop},
    {PlanErasure, RunErasure},
    {PlanAttribution, RunAttribution},
    {PlanAttentionFlow, RunAttentionFlow},
    {PlanHeadImportance, RunHeadImportance},
    {PlanPruneHeads, RunPruneHeads},
    {PlanOwn<PlanLinear>, RunOwn<RunLinear>},
    {PlanOwn<PlanBmm>, RunOwn<RunBmm>},
    {PlanOwn<PlanSoftmax>, RunOwn<RunSoftmax>},
    {PlanOwn<PlanSoftmax>, RunOwn<RunLogSoftmax>},
    {PlanOwn<PlanMaskedSoftmax>, RunOwn<RunMaskedSoftmax>},
    {PlanOwn<PlanLayerNorm>, RunOwn<RunLayerNorm>},
    {PlanOwn<PlanRmsNorm>, RunOwn<RunRmsNorm>},
};
static_assert(std::size(kVerbs) == std::size(kOperations));

size_t FindOperation(const std::string& id) {
  for (size_t n = 0; n < std::size(kOperations); ++n) {
    if (kOperations[n].id == id) return n;
  }
  Fail(ErrorCode::kOption, "operation \"{}\" is unknown", {id});
}

// The states of a merge: pairs output_n, lse_n.
std::vector<PartialAttention> ReadStates(const Request& request) {
  if (request.inputs.size() % 2 != 0 || !request.params.empty()) {
    Fail(ErrorCode::kOption, "merge takes pairs output_n, lse_n and no parameters");
  }
  std::vector<PartialAttention> states;
  for (size_t n = 0; n < request.inputs.size() / 2; ++n) {
    const NamedTensor& output = request.inputs[2 * n];
    const NamedTensor& lse = request.inputs[2 * n + 1];
    const std::string number = std::to_string(n);
    if (output.name != "output_" + number || lse.name != "lse_" + number ||
        output.tensor.rank != 4 || lse.tensor.rank != 3 || output.tensor.dtype != DType::kFloat32 ||
        lse.tensor.dtype != DType::kFloat32) {
      Fail(ErrorCode::kOption,
           "merge expects output_{} (float32, rank 4) and lse_{} (float32, rank 3) at this place",
           {number, number});
    }
    const Extents& shape = lse.tensor.shape;
    const Extents& strides = lse.tensor.strides;
    states.push_back({{static_cast<const float*>(output.tensor.data), output.tensor.shape,
                       output.tensor.strides},
                      {static_cast<const float*>(lse.tensor.data),
                       {shape[0], shape[1], shape[2], 1},
                       {strides[0], strides[1], strides[2], 1}}});
  }
  if (states.empty()) Fail(ErrorCode::kOption, "merge needs at least one state");
  return states;
}

void CheckOutputNames(const std::vector<OutputSpec>& specs, std::span<const NamedTensor> outputs) {
  bool same = specs.size() == outputs.size();
  for (size_t n = 0; same && n < specs.size(); ++n) {
    same = outputs[n].name == specs[n].name && outputs[n].tensor.rank == specs[n].rank &&
           outputs[n].tensor.dtype == specs[n].dtype;
  }
  if (!same) Fail(ErrorCode::kOption, "outputs are not those that were planned, in their order");
}

}  // namespace

std::vector<OutputSpec> PlanOperation(const Request& request) {
  return WithMemoryErrors("the plan of an operation", [&]() -> std::vector<OutputSpec> {
    if (request.id == "merge") {
      const Extents shape = ReadStates(request)[0].output.shape;
      return {{"output", 4, shape}, {"lse", 3, {shape[0], shape[1], shape[2], 0}}};
    }
    const size_t n = FindOperation(request.id);
    return kVerbs[n].plan(Reading(kOperations[n], request));
  });
}

void RunOperation(const Request& request, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  WithMemoryErrors("an operation", [&] {
    CheckOutputNames(PlanOperation(request), outputs);
    if (!kFromJavaScript) {
      CheckResultsApart({"{}", outputs});
      CheckResultsReplaceOrApart({"{}", outputs}, {"{}", request.inputs});
    }
    if (request.id == "merge") {
      Merge(ReadStates(request), View(outputs, "output"), View(outputs, "lse"), pool);
      return;
    }
    const size_t n = FindOperation(request.id);
    kVerbs[n].run(Reading(kOperations[n], request), outputs, pool);
  });
}

}  // namespace heed
