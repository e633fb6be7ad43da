// heed::Run and heed::PlanOutputs: from an id to the mechanism's own functions.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/call.h"
#include "heed/cost.h"
#include "heed/registry.h"
#include "src/compose/request.h"
#include "src/exact/request.h"
#include "src/float_request.h"
#include "src/from_javascript.h"
#include "src/layers/request.h"
#include "src/low_rank/request.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/parallel/dry_run.h"
#include "src/param_checks.h"
#include "src/position/request.h"
#include "src/recurrent/request.h"
#include "src/request_reader.h"
#include "src/request_spans.h"
#include "src/selective/request.h"

namespace heed {
namespace {

AttentionOptions NoPreset() { return {}; }

// How a mechanism is run: by verbs of its own, or as a row of the exact family.
struct Runner {
  std::string_view id;
  std::vector<OutputSpec> (*plan)(const RequestReader&);
  void (*run)(const RequestReader&, std::span<const NamedTensor>, ThreadPool*);
  bool counted = false;  // does a dry run of it count everything?
  // Of the exact family alone: what the row fixes, and how it reads the rest.
  AttentionOptions (*preset)() = nullptr;
  AttentionRequest (*read)(const RequestReader&, AttentionOptions) = nullptr;

  AttentionRequest Read(const RequestReader& reader) const { return read(reader, preset()); }
};

constexpr Runner Exact(std::string_view id, AttentionOptions (*preset)(),
                       AttentionRequest (*read)(const RequestReader&,
                                                AttentionOptions) = ReadExact) {
  return {id, nullptr, nullptr, true, preset, read};
}

// A runner whose steps are Attention(), matrix products and tasks of its pool (see DryRun). Modules
// that train (HEED_TRAINING) only ask how rows of the exact family are read: what the others would
// run is not linked.
constexpr Runner Counted(std::string_view id,
                         [[maybe_unused]] std::vector<OutputSpec> (*plan)(const RequestReader&),
                         [[maybe_unused]] void (*run)(const RequestReader&,
                                                      std::span<const NamedTensor>, ThreadPool*)) {
#ifdef HEED_TRAINING
  return {id, nullptr, nullptr};
#else
  return {id, plan, run, true};
#endif
}

// A runner of the position family: one output, shaped as x.
template <auto kRead, auto kRun>
constexpr Runner Position(std::string_view id) {
  return Counted(id, PlanPosition<kRead>, RunPosition<kRead, kRun>);
}

constexpr Runner kRunners[] = {
    Exact("attention", NoPreset),
    Exact("scaled_dot_product", NoPreset),
    Exact("luong_dot", UnscaledPreset),
    Exact("luong_general", BilinearPreset),
    Exact("luong_concat", AdditivePreset),
    Exact("luong_location", UnscaledPreset),
    Exact("additive", AdditivePreset),
    Exact("t5_relative", UnscaledPreset),
    Exact("shaw_relative", NoPreset),
    Exact("transformer_xl", NoPreset),
    Exact("disentangled", DisentangledPreset),
    Exact("forgetting", ForgettingPreset),
    Exact("cosine", CosinePreset),
    Exact("gaussian", GaussianPreset),
    Exact("kernel_regression", KernelRegressionPreset),
    Counted("multi_head", PlanMultiHead, RunMultiHead),
    Counted("multi_query", PlanMultiQuery, RunMultiQuery),
    Counted("grouped_query", PlanMultiHead, RunMultiHead),
    Counted("attention_classifier", PlanAttentionClassifier, RunAttentionClassifier),
    Counted("multi_head_latent", PlanMultiHeadLatent, RunMultiHeadLatent),
    Counted("transformer_block", PlanTransformerBlock, RunTransformerBlock),
    Position<ReadRope, Rotate>("rope"),
    Position<ReadXpos, Rotate>("xpos"),
    Position<ReadSinusoidal, Add>("sinusoidal"),
    Position<ReadLearnedPosition, Add>("learned_position"),
    Counted("differential", PlanDifferential, RunDifferential),
    Counted("talking_heads", PlanTalkingHeads, RunTalkingHeads),
    Counted("hopfield", PlanHopfield, RunHopfield),
    Counted("gated", PlanGated, RunGated),
    Counted("attention_pooling", PlanAttentionPooling, RunAttentionPooling),
    Counted("graph", PlanGraph, RunGraph),
    Counted("external", PlanExternal, RunExternal),
    Counted("synthesizer", PlanSynthesizer, RunSynthesizer),
    Exact("hard", NormalizePreset<Normalize::kHard>),
    Exact("average", NormalizePreset<Normalize::kAverage>),
    Exact("top_k", NormalizePreset<Normalize::kTopK>),
    Exact("sigmoid", NormalizePreset<Normalize::kSigmoid>),
    Exact("relu", NormalizePreset<Normalize::kRelu>),
    Exact("relu_squared", NormalizePreset<Normalize::kReluSquared>),
    Exact("sparsemax", NormalizePreset<Normalize::kSparsemax>),
    Exact("entmax15", NormalizePreset<Normalize::kEntmax15>),
    Exact("sink", NoPreset, ReadSink),
    Exact("softmax1", NormalizePreset<Normalize::kSoftmax1>),
    Exact("stick_breaking", NormalizePreset<Normalize::kStickBreaking>),
    Exact("cope", NormalizePreset<Normalize::kCope>),
    Exact("flash", NoPreset, ReadFlash),
    Counted("attention_free", PlanAttentionFree, RunAttentionFree),
    Counted("induced_set", PlanInducedSet, RunInducedSet),
    Counted("perceiver", PlanPerceiver, RunPerceiver),
    Exact("block_sparse", NoPreset),
    Exact("longformer", LongformerPreset),
    Exact("bigbird", BigBirdPreset),
    Exact("swin_window", SwinWindowPreset),
    Exact("neighborhood", NeighborhoodPreset),
#ifndef HEED_CORE
    Counted("linformer", PlanLinformer, RunLinformer),
    Counted("efficient", PlanEfficient, RunEfficient),
    Counted("nystrom", PlanNystrom, RunNystrom),
    Counted("memory_compressed", PlanMemoryCompressed, RunMemoryCompressed),
    Counted("causal_conv", PlanCausalConv, RunCausalConv),
    Counted("performer", PlanPerformer, RunPerformer),
    Counted("cosformer", PlanCosformer, RunCosformer),
    Counted("based", PlanBased, RunBased),
    Counted("lightning", PlanLightning, RunLightning),
    Counted("hgrn2", PlanHgrn2, RunHgrn2),
    Counted("rwkv6", PlanRwkv6, RunRwkv6),
    Counted("rwkv7", PlanRwkv7, RunRwkv7),
    Counted("log_linear", PlanLogLinear, RunLogLinear),
    Counted("ttt_linear", PlanTttLinear, RunTttLinear),
    Counted("linear", PlanLinearAttention, RunLinearAttention),
    Counted("retention", PlanRetention, RunRetention),
    Counted("gated_linear", PlanGatedLinear, RunGatedLinear),
    Counted("mamba2", PlanMamba2, RunMamba2),
    Counted("delta_rule", PlanDeltaRule, RunDeltaRule),
    Counted("gated_delta_rule", PlanDeltaRule, RunDeltaRule),
    Counted("kimi_delta", PlanDeltaRule, RunDeltaRule),
    Counted("block_mixture", PlanBlockMixture, RunBlockMixture),
    Counted("reformer", PlanReformer, RunReformer),
    Counted("native_sparse", PlanNativeSparse, RunNativeSparse),
    Counted("streaming", PlanStreaming, RunStreaming),
    Counted("quest", PlanQuest, RunQuest),
    Counted("indexed", PlanIndexed, RunIndexed),
    Counted("heavy_hitter", PlanHeavyHitter, RunHeavyHitter),
    Counted("routing", PlanRouting, RunRouting),
    Counted("sinkhorn", PlanSinkhorn, RunSinkhorn),
#endif
};

// Every row of mechanisms.inc has a runner: a row without one does not compile.
constexpr bool HasRunner(std::string_view id) {
  for (const Runner& runner : kRunners) {
    if (runner.id == id) return true;
  }
  return false;
}
#define HEED_MECHANISM(id, ...) static_assert(HasRunner(#id), #id " has no runner in run.cc");
#include "heed/mechanisms.inc"
#undef HEED_MECHANISM

const Runner& FindRunner(const std::string& id) {
  for (const Runner& runner : kRunners) {
    if (runner.id == id) return runner;
  }
  std::string known;
  for (const Runner& runner : kRunners) {
    known += (known.empty() ? "" : ", ") + std::string(runner.id);
  }
  Fail(ErrorCode::kOption, "mechanism \"{}\" is unknown; heed has: {}", {id, known});
}

int64_t Bytes(DType dtype, int rank, const Extents& shape) {
  int64_t bytes = ElementSize(dtype);
  for (int axis = 0; axis < rank; ++axis) bytes *= shape[static_cast<size_t>(axis)];
  return bytes;
}

// A contiguous result that is never written.
AnyTensor OutputOfNothing(const OutputSpec& spec) {
  static float nothing = 0;
  const std::span<const int64_t> shape(spec.shape);
  return ContiguousTensor(spec.dtype, &nothing, shape.first(static_cast<size_t>(spec.rank)));
}

}  // namespace

std::optional<AttentionRequest> ReadExactRequest(const Request& request) {
  const Runner& runner = FindRunner(request.id);
  const RequestReader reader(*FindMechanism(request.id), request);
  if (runner.read == nullptr) return std::nullopt;
  return runner.Read(reader);
}

// What a request says, in the words of its family.
class Call::Read {
 public:
  explicit Read(const Request& request)
      : request_(request),
        runner_(FindRunner(request.id)),
        reader_(std::in_place, Row(request), request) {
    for (const NamedTensor& input : request.inputs) CheckData(input);
    if (runner_.read != nullptr) {
      exact_.emplace(runner_.Read(*reader_));
#ifdef __EMSCRIPTEN__  // whose callers have a Call, and where code is to be small
      outputs_ = PlanAttention(*exact_);
#else
      ValidateRequest(*exact_, problem_.emplace());
      outputs_ = ListOutputs(*exact_, *problem_);
#endif
      return;
    }
    floats_.emplace(request);
    if (floats_->has_copies()) reader_.emplace(Row(request), floats_->get());
    outputs_ = runner_.plan(*reader_);
    if (floats_->has_copies()) outputs_.front().dtype = floats_->output_dtype();
  }

  const std::vector<OutputSpec>& outputs() const { return outputs_; }

  void CheckOutputs(std::span<const NamedTensor> outputs) const {
    CheckOutputNames(outputs_, outputs);
    if (kFromJavaScript) return;
    CheckResultsApart({"{}", outputs});
    CheckResultsReplaceOrApart({"{}", outputs}, {"{}", request_.inputs});
  }

  // The only run, right after the reading: what was validated then still holds.
  void RunOnce(std::span<const NamedTensor> outputs, ThreadPool* pool) {
    CheckOutputs(outputs);
#ifndef __EMSCRIPTEN__
    if (exact_) {
      CompleteOutputs(*problem_, FindOutputs(*exact_, outputs));
      return RunProblem(*problem_, pool);
    }
#endif
    Run(outputs, pool);
  }

  void Run(std::span<const NamedTensor> outputs, ThreadPool* pool) const {
    if (exact_) return RunAttentionRequest(*exact_, outputs, pool);
    std::vector<NamedTensor> results(outputs.begin(), outputs.end());
    const FloatOutput output(results);
    runner_.run(*reader_, results, pool);
    output.Store();
  }

 private:
  static const Mechanism& Row(const Request& request) { return *FindMechanism(request.id); }

  const Request& request_;
  const Runner& runner_;
  std::optional<FloatRequest> floats_;  // of families other than the exact one
  std::optional<RequestReader> reader_;
  std::optional<AttentionRequest> exact_;
#ifndef __EMSCRIPTEN__
  std::optional<AttentionProblem> problem_;  // of exact_
#endif
  std::vector<OutputSpec> outputs_;
};

Call::Call(const Request& request) {
  WithMemoryErrors("a call", [&] { read_ = std::make_unique<Read>(request); });
}
Call::~Call() = default;

const std::vector<OutputSpec>& Call::outputs() const { return read_->outputs(); }

void Call::Run(std::span<const NamedTensor> outputs, ThreadPool* pool) const {
  WithMemoryErrors("a call", [&] {
    read_->CheckOutputs(outputs);
    read_->Run(outputs, pool);
  });
}

Cost EstimateCost(const Request& request, int num_threads) {
  return WithMemoryErrors("an estimate of cost", [&] {
    if (num_threads < 1) {
      Fail(ErrorCode::kRange, "num_threads = {}; it must be at least 1", {num_threads});
    }
    Cost cost;
    std::vector<NamedTensor> outputs;
    for (const OutputSpec& spec : PlanOutputs(request)) {
      cost.bytes_written += Bytes(spec.dtype, spec.rank, spec.shape);
      outputs.push_back({spec.name, OutputOfNothing(spec)});
    }
    for (const NamedTensor& input : request.inputs) {
      const AnyTensor& tensor = input.tensor;
      cost.bytes_read += Bytes(tensor.dtype, tensor.rank, tensor.shape);
    }
    if (!FindRunner(request.id).counted) return cost;
    DryRun dry;
    IdlePool pool(num_threads);
    Call(request).Run(outputs, &pool);
    cost.flops = dry.flops();
    cost.scratch_bytes = dry.most_bytes();
    return cost;
  });
}

std::vector<OutputSpec> PlanOutputs(const Request& request) {
  return WithMemoryErrors("the plan of a call", [&] { return Call(request).outputs(); });
}

void Run(const Request& request, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  WithMemoryErrors("a call", [&] { Call::Read(request).RunOnce(outputs, pool); });
}

void Explain(const Request& request, TensorView<uint8_t> picture) {
  WithMemoryErrors("a picture of keep rules", [&] {
    const Runner& runner = FindRunner(request.id);
    if (runner.read == nullptr) {
      Fail(ErrorCode::kUnsupported, "mechanism \"{}\" has no keep rules that could be explained",
           {request.id});
    }
    ExplainRequest(runner.Read(RequestReader(*FindMechanism(request.id), request)), picture);
  });
}

}  // namespace heed
