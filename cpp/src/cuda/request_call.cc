#include "src/cuda/request_call.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "heed/linear.h"
#include "heed/registry.h"
#include "src/cuda/low_rank_calls.h"
#include "src/cuda/plan.h"
#include "src/cuda/recurrent_plan.h"
#include "src/low_rank/request.h"
#include "src/message.h"

namespace heed::cuda {
namespace {

AttentionOutputs ResultsOf(std::span<const NamedTensor> outputs) {
  AttentionOutputs results;
  results.output = OutputView(outputs, "output");
  results.weights = OutputView(outputs, "weights");
  results.lse = OutputView(outputs, "lse");
  return results;
}

void RunLinformer(const RequestReader& reader, const LowRankRequest& r,
                  std::span<const NamedTensor> outputs, ComposedSteps& steps) {
  LinformerCall(r.q, r.k, r.v, ReadLinformer(reader, r), ResultsOf(outputs)).Run(steps);
}

void RunEfficient(const RequestReader& /*reader*/, const LowRankRequest& r,
                  std::span<const NamedTensor> outputs, ComposedSteps& steps) {
  EfficientCall(r.q, r.k, r.v, {r.key_lengths}, ResultsOf(outputs)).Run(steps);
}

void RunMemoryCompressed(const RequestReader& reader, const LowRankRequest& r,
                         std::span<const NamedTensor> outputs, ComposedSteps& steps) {
  MemoryCompressedCall(r.q, r.k, r.v, ReadMemoryCompressed(reader, r), ResultsOf(outputs))
      .Run(steps);
}

void RunNystrom(const RequestReader& reader, const LowRankRequest& r,
                std::span<const NamedTensor> outputs, ComposedSteps& steps) {
  const NystromOutputs results = {OutputView(outputs, "output"), OutputView(outputs, "weights"),
                                  OutputView(outputs, "residual")};
  NystromCall(r.q, r.k, r.v, ReadNystrom(reader, r), results).Run(steps);
}

struct LowRankRow {
  std::string_view id;
  std::vector<OutputSpec> (*plan)(const RequestReader&);
  void (*run)(const RequestReader&, const LowRankRequest&, std::span<const NamedTensor>,
              ComposedSteps&);
};

constexpr LowRankRow kLowRankRows[] = {
    {"linformer", PlanLinformer, RunLinformer},
    {"efficient", PlanEfficient, RunEfficient},
    {"memory_compressed", PlanMemoryCompressed, RunMemoryCompressed},
    {"nystrom", PlanNystrom, RunNystrom}};

const LowRankRow& FindLowRankRow(std::string_view id) {
  for (const LowRankRow& row : kLowRankRows) {
    if (row.id == id) return row;
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

// As PlanAttention(), without a look at what tensors hold.
std::vector<OutputSpec> PlanExact(const AttentionRequest& r) {
  if (r.return_tiles) {
    Fail(ErrorCode::kUnsupported, "return_tiles is not offered on the GPU yet; use heed::Run()");
  }
  return ListOutputs(r, ValidateInputsForDevice(r.q, r.k, r.v, OptionsOf(r), r.return_lse));
}

std::vector<OutputSpec> PlanRecurrent(const RecurrentRequest& r) {
  if (r.return_projection) {
    Fail(ErrorCode::kUnsupported,
         "return_projection is not offered on the GPU yet; draw it by DrawRandomFeatures()");
  }
  return ListOutputs(r, ValidateInputsForDevice(r.q, r.k, r.v, r.Options()));
}

}  // namespace

RequestCall::RequestCall(const Request& request)
    : request_(Checked(request)),
      exact_(ReadExactRequest(request)),
      recurrent_(ReadRecurrentRequest(request)) {
  outputs_ = exact_       ? PlanExact(*exact_)
             : recurrent_ ? PlanRecurrent(*recurrent_)
                          : FindLowRankRow(request.id).plan(ReaderOf(request));
}

void RequestCall::Run(ComposedSteps& steps, std::span<const NamedTensor> outputs) const {
  if (recurrent_) return Recur(steps, outputs);
  if (exact_) {
    return steps.Attend(exact_->q, exact_->k, exact_->v, OptionsOf(*exact_),
                        FindOutputs(*exact_, outputs));
  }
  const RequestReader reader = ReaderOf(request_);
  FindLowRankRow(request_.id).run(reader, ReadLowRank(reader), outputs, steps);
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

bool IsHostInput(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "key_lengths",  "prefix_lengths", "query_documents", "key_documents",     "global_tokens",
      "block_indptr", "block_indices",  "block_keep",      "keep_pairs",        "alibi_slopes",
      "sinks",        "score_bias",     "width",           "temperature",       "head_log_decay",
      "skip",         "key_conv_bias",  "value_conv_bias", "inner_norm_weight", "inner_norm_bias"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

std::vector<OutputSpec> PlanOutputs(const Request& request) {
  return RequestCall(request).outputs();
}

}  // namespace heed::cuda
