#include "src/cuda/request_call.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "heed/linear.h"
#include "heed/registry.h"
#include "src/cuda/plan.h"
#include "src/cuda/recurrent_plan.h"
#include "src/cuda/request_rows.h"
#include "src/cuda/step_checks.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed::cuda {
namespace {

// The row of a mechanism that the device composes.
const DeviceRow& FindRow(std::string_view id) {
  for (const std::span<const DeviceRow> rows :
       {LowRankRows(), ComposedRows(), KeylessRows(), WeightedRows(), ChoiceRows(),
        NativeSparseRows(), RoutingRows(), SortingRows(), LayerRows(), LatentRows(),
        PositionRows()}) {
    for (const DeviceRow& row : rows) {
      if (row.id == id) return row;
    }
  }
  Fail(ErrorCode::kUnsupported, "mechanism \"{}\" is not offered on the GPU yet; use heed::Run()",
       {id});
}

// Before anything reads the request, of which lists are copied.
const Request& Checked(const Request& request) {
  for (const NamedTensor& input : request.inputs) CheckData(input);
  return request;
}

RequestReader ReaderOf(const Request& request) { return {*FindMechanism(request.id), request}; }

std::vector<OutputSpec> PlanExact(const AttentionRequest& r) {
  if (r.return_tiles) {
    Fail(ErrorCode::kUnsupported, "return_tiles is not offered on the GPU yet; use heed::Run()");
  }
  return PlanOnDevice(r);
}

std::vector<OutputSpec> PlanRecurrent(const RecurrentRequest& r) {
  if (r.return_projection) {
    Fail(ErrorCode::kUnsupported,
         "return_projection is not offered on the GPU yet; draw it by DrawRandomFeatures()");
  }
  return ListOutputs(r, ValidateInputsForDevice(r.q, r.k, r.v, r.Options()));
}

// A result as it was planned, no two of its numbers in the same place.
void CheckResult(const DeviceRow& row, const OutputSpec& spec, const TensorView<float>& view) {
  Extents expected = {1, 1, 1, 1};
  std::copy_n(spec.shape.begin(), spec.rank, expected.begin());
  TensorView<float> rows = view;
  // OutputView() gives lower ranks last extents of 1, which are contiguous whatever their strides.
  // An lse and the weights of edges are single numbers; all else has rows.
  if (spec.rank < 4) rows.strides[3] = 1;
  if (spec.rank > 0 && spec.rank < 4 && spec.name != "lse" && row.id != "graph") {
    const size_t last = static_cast<size_t>(spec.rank) - 1;
    CheckLastIsContiguous(spec.name, {1, 1, 1, view.shape[last]}, {0, 0, 0, view.strides[last]});
  }
  CheckOutput(spec.name, StoredOutput(rows), expected, "as planned");
}

ViewSpan SpanOfTensor(const AnyTensor& tensor) {
  Extents shape = {1, 1, 1, 1}, strides{};
  std::copy_n(tensor.shape.begin(), tensor.rank, shape.begin());
  std::copy_n(tensor.strides.begin(), tensor.rank, strides.begin());
  return SpanOf(tensor.data, shape, strides, static_cast<size_t>(ElementSize(tensor.dtype)));
}

// Is the tensor exactly the result?
bool LiesAt(const AnyTensor& tensor, const TensorView<float>& result) {
  return tensor.data == result.data &&
         std::equal(tensor.strides.begin(), tensor.strides.begin() + tensor.rank,
                    result.strides.begin());
}

// The results lie apart from each other and from what the request has in device memory.
void CheckResults(const Request& request, const DeviceRow& row, std::span<const OutputSpec> planned,
                  std::span<const NamedTensor> outputs) {
  for (const OutputSpec& spec : planned) {
    const TensorView<float> view = OutputView(outputs, spec.name);
    CheckResult(row, spec, view);
    for (const NamedTensor& input : request.inputs) {
      const bool in_place = row.in_place.result == spec.name && row.in_place.input == input.name;
      if (IsHostInput(input.name) || (in_place && LiesAt(input.tensor, view))) continue;
      CheckNoAlias(spec.name, SpanOf(view), input.name, SpanOfTensor(input.tensor));
    }
    for (const OutputSpec& other : planned) {
      if (other.name == spec.name) break;
      CheckNoAlias(spec.name, SpanOf(view), other.name, SpanOf(OutputView(outputs, other.name)));
    }
  }
}

// Results that do not exist, for a run that is only checked: nothing else lies there, the memory
// of checked steps (step_checks.h) included.
std::vector<NamedTensor> ImaginedResults(std::span<const OutputSpec> planned) {
  uintptr_t next = uintptr_t{1} << (8 * sizeof(uintptr_t) - 3);
  std::vector<NamedTensor> results;
  for (const OutputSpec& spec : planned) {
    const std::span<const int64_t> shape(spec.shape.data(), static_cast<size_t>(spec.rank));
    results.push_back(
        {spec.name, ContiguousTensor(spec.dtype, reinterpret_cast<void*>(next), shape)});
    size_t bytes = 256;
    for (const int64_t extent : shape) bytes *= static_cast<size_t>(extent);
    next += bytes + 256;
  }
  return results;
}

}  // namespace

RequestCall::RequestCall(const Request& request)
    : request_(Checked(request)),
      exact_(ReadExactRequest(request)),
      recurrent_(ReadRecurrentRequest(request)) {
  if (exact_ || recurrent_) {
    outputs_ = exact_ ? PlanExact(*exact_) : PlanRecurrent(*recurrent_);
    return;
  }
  const DeviceRow& row = FindRow(request.id);
  const RequestReader reader = ReaderOf(request);
  outputs_ = row.plan(reader);
  StepChecks checks;
  row.run(reader, ImaginedResults(outputs_), checks);
}

void RequestCall::Run(ComposedSteps& steps, std::span<const NamedTensor> outputs) const {
  if (recurrent_) return Recur(steps, outputs);
  if (exact_) {
    return steps.Attend(exact_->q, exact_->k, exact_->v, OptionsOf(*exact_),
                        FindOutputs(*exact_, outputs), {});
  }
  const RequestReader reader = ReaderOf(request_);
  const DeviceRow& row = FindRow(request_.id);
  CheckResults(request_, row, outputs_, outputs);
  StepChecks checks;
  row.run(reader, outputs, checks);
  row.run(reader, outputs, steps);
}

// Rates of heads, and a projection that is drawn, are the host's: they are sent.
void RequestCall::Recur(ComposedSteps& steps, std::span<const NamedTensor> outputs) const {
  const RecurrentRequest& r = *recurrent_;
  RecurrentOptions options = r.Options();
  RecurrentOutputs results = {OutputView(outputs, "output")};
  if (r.return_state) results.final_state = OutputView(outputs, "state");
  ValidateRecurrentForDevice(r.q, r.k, r.v, options, results);
  if (!r.rates.empty()) {
    options.log_decay.data = steps.SendArray(std::span<const float>(r.rates));
  }
  if (r.seed) {
    const int64_t features = options.projection.shape[2], dim = options.projection.shape[3];
    std::vector<float> drawn(static_cast<size_t>(features * dim));
    DrawRandomFeatures(*r.seed, MatrixView(drawn.data(), features, dim));
    options.projection = MatrixView(steps.SendArray(std::span<const float>(drawn)), features, dim);
  }
  steps.Recur(r.q, r.k, r.v, options, results);
}

std::vector<OutputSpec> PlanOnDevice(const AttentionRequest& r) {
  return ListOutputs(r, ValidateInputsForDevice(r.q, r.k, r.v, OptionsOf(r), r.return_lse));
}

bool IsHostInput(std::string_view name) {
  constexpr std::string_view kNames =
      // keep rules and biases of attention
      " key_lengths prefix_lengths query_documents key_documents global_tokens block_indptr"
      " block_indices block_keep keep_pairs alibi_slopes sinks score_bias width temperature"
      // recurrent and low-rank rows
      " head_log_decay skip inner_norm_weight inner_norm_bias position_rate conv_bias"
      " key_conv_bias value_conv_bias"
      // what is composed around attention
      " lambda norm_weight mix_scores mix_weights edges score_weight set_biases norm_weights"
      " norm_biases"
      // layers and positions
      " b_q b_k b_v b_o bias_k bias_v head_mask norm1_weight"
      " norm1_bias norm2_weight norm2_bias key_norm_weight key_norm_bias b_up b_gate b_down "
      "norm_q_weight"
      " norm_kv_weight pool_query b_class tokens positions ";
  std::string word(1, ' ');
  word.append(name).append(1, ' ');
  return kNames.find(word) != std::string_view::npos;
}

std::vector<OutputSpec> PlanOutputs(const Request& request) {
  return WithMemoryErrors("the plan of a call", [&] { return RequestCall(request).outputs(); });
}

}  // namespace heed::cuda
