// heed::Run and heed::PlanOutputs: from an id to the mechanism's own functions.
#include <string>

#include "heed/cost.h"
#include "heed/registry.h"
#include "src/compose/request.h"
#include "src/exact/request.h"
#include "src/layers/request.h"
#include "src/position/request.h"
#include "src/request_reader.h"

namespace heed {
namespace {

// The verbs of a mechanism.
struct Runner {
  std::string_view id;
  std::vector<OutputSpec> (*plan)(const RequestReader&);
  void (*run)(const RequestReader&, std::span<const NamedTensor>, ThreadPool*);
  AttentionCost (*cost)(const RequestReader&, int num_threads) = nullptr;  // only where it is known
  // The picture of the keep rules; nullptr where there are none.
  void (*explain)(const RequestReader&, const TensorView<uint8_t>&) = nullptr;
};

AttentionOptions NoPreset() { return {}; }

// A runner of the exact family from what its row fixes.
template <AttentionOptions (*kPreset)()>
constexpr Runner Exact(std::string_view id) {
  return {id,
          [](const RequestReader& reader) { return PlanAttention(ReadExact(reader, kPreset())); },
          [](const RequestReader& reader, std::span<const NamedTensor> outputs, ThreadPool* pool) {
            RunAttentionRequest(ReadExact(reader, kPreset()), outputs, pool);
          },
          [](const RequestReader& reader, int num_threads) {
            return CostOfAttention(ReadExact(reader, kPreset()), num_threads);
          },
          [](const RequestReader& reader, const TensorView<uint8_t>& picture) {
            ExplainRequest(ReadExact(reader, kPreset()), picture);
          }};
}

// The same for a row with a reader of its own.
template <AttentionRequest (*kRead)(const RequestReader&)>
constexpr Runner ExactRead(std::string_view id) {
  return {id, [](const RequestReader& reader) { return PlanAttention(kRead(reader)); },
          [](const RequestReader& reader, std::span<const NamedTensor> outputs, ThreadPool* pool) {
            RunAttentionRequest(kRead(reader), outputs, pool);
          },
          [](const RequestReader& reader, int num_threads) {
            return CostOfAttention(kRead(reader), num_threads);
          },
          [](const RequestReader& reader, const TensorView<uint8_t>& picture) {
            ExplainRequest(kRead(reader), picture);
          }};
}

// A runner of the position family: one output, shaped as x.
template <auto kRead, auto kRun>
constexpr Runner Position(std::string_view id) {
  return {id,
          [](const RequestReader& reader) {
            kRead(reader);
            return PlanLikeX(reader);
          },
          [](const RequestReader& reader, std::span<const NamedTensor> outputs, ThreadPool* pool) {
            kRun(kRead(reader), OutputLikeX(outputs), pool);
          }};
}

constexpr Runner kRunners[] = {
    Exact<NoPreset>("attention"),
    Exact<NoPreset>("scaled_dot_product"),
    Exact<UnscaledPreset>("luong_dot"),
    Exact<BilinearPreset>("luong_general"),
    Exact<AdditivePreset>("luong_concat"),
    Exact<UnscaledPreset>("luong_location"),
    Exact<AdditivePreset>("additive"),
    Exact<UnscaledPreset>("t5_relative"),
    Exact<NoPreset>("shaw_relative"),
    Exact<NoPreset>("transformer_xl"),
    Exact<DisentangledPreset>("disentangled"),
    Exact<ForgettingPreset>("forgetting"),
    Exact<CosinePreset>("cosine"),
    Exact<GaussianPreset>("gaussian"),
    Exact<KernelRegressionPreset>("kernel_regression"),
    {"multi_head", PlanMultiHead, RunMultiHead},
    {"multi_query", PlanMultiQuery, RunMultiQuery},
    {"grouped_query", PlanMultiHead, RunMultiHead},
    {"attention_classifier", PlanAttentionClassifier, RunAttentionClassifier},
    {"multi_head_latent", PlanMultiHeadLatent, RunMultiHeadLatent},
    {"transformer_block", PlanTransformerBlock, RunTransformerBlock},
    Position<ReadRope, Rotate>("rope"),
    Position<ReadXpos, Rotate>("xpos"),
    Position<ReadSinusoidal, Add>("sinusoidal"),
    Position<ReadLearnedPosition, Add>("learned_position"),
    {"differential", PlanDifferential, RunDifferential},
    {"talking_heads", PlanTalkingHeads, RunTalkingHeads},
    {"hopfield", PlanHopfield, RunHopfield},
    {"gated", PlanGated, RunGated},
    {"attention_pooling", PlanAttentionPooling, RunAttentionPooling},
    {"graph", PlanGraph, RunGraph},
    {"external", PlanExternal, RunExternal},
    {"synthesizer", PlanSynthesizer, RunSynthesizer},
    Exact<NormalizePreset<Normalize::kHard>>("hard"),
    Exact<NormalizePreset<Normalize::kAverage>>("average"),
    Exact<NormalizePreset<Normalize::kTopK>>("top_k"),
    Exact<NormalizePreset<Normalize::kSigmoid>>("sigmoid"),
    Exact<NormalizePreset<Normalize::kRelu>>("relu"),
    Exact<NormalizePreset<Normalize::kReluSquared>>("relu_squared"),
    Exact<NormalizePreset<Normalize::kSparsemax>>("sparsemax"),
    Exact<NormalizePreset<Normalize::kEntmax15>>("entmax15"),
    ExactRead<ReadSink>("sink"),
    Exact<NormalizePreset<Normalize::kSoftmax1>>("softmax1"),
    Exact<NormalizePreset<Normalize::kStickBreaking>>("stick_breaking"),
    Exact<NormalizePreset<Normalize::kCope>>("cope"),
    ExactRead<ReadFlash>("flash"),
    {"attention_free", PlanAttentionFree, RunAttentionFree},
    {"induced_set", PlanInducedSet, RunInducedSet},
    {"perceiver", PlanPerceiver, RunPerceiver},
    Exact<NoPreset>("block_sparse"),
    Exact<LongformerPreset>("longformer"),
    Exact<BigBirdPreset>("bigbird"),
    Exact<SwinWindowPreset>("swin_window"),
    Exact<NeighborhoodPreset>("neighborhood"),
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
  throw Error(ErrorCode::kOption, "mechanism \"" + id + "\" is unknown; heed has: " + known);
}

int64_t Bytes(DType dtype, int rank, const Extents& shape) {
  int64_t bytes = ElementSize(dtype);
  for (int axis = 0; axis < rank; ++axis) bytes *= shape[static_cast<size_t>(axis)];
  return bytes;
}

}  // namespace

Cost EstimateCost(const Request& request, int num_threads) {
  if (num_threads < 1) {
    throw Error(ErrorCode::kRange,
                "num_threads = " + std::to_string(num_threads) + "; it must be at least 1");
  }
  Cost cost;
  for (const OutputSpec& spec : PlanOutputs(request)) {
    cost.bytes_written += Bytes(spec.dtype, spec.rank, spec.shape);
  }
  for (const NamedTensor& input : request.inputs) {
    const AnyTensor& tensor = input.tensor;
    cost.bytes_read += Bytes(tensor.dtype, tensor.rank, tensor.shape);
  }
  const Runner& runner = FindRunner(request.id);
  if (runner.cost == nullptr) return cost;
  const AttentionCost known =
      runner.cost(RequestReader(*FindMechanism(request.id), request), num_threads);
  cost.flops = known.flops;
  cost.scratch_bytes = known.scratch_bytes;
  return cost;
}

std::vector<OutputSpec> PlanOutputs(const Request& request) {
  const Runner& runner = FindRunner(request.id);
  return runner.plan(RequestReader(*FindMechanism(request.id), request));
}

void Run(const Request& request, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  const Runner& runner = FindRunner(request.id);
  const std::vector<OutputSpec> specs = PlanOutputs(request);
  for (const OutputSpec& spec : specs) {
    bool found = false;
    for (const NamedTensor& output : outputs) found = found || output.name == spec.name;
    if (!found) throw Error(ErrorCode::kOption, "output tensor \"" + spec.name + "\" is missing");
  }
  for (const NamedTensor& output : outputs) {
    bool planned = false;
    for (const OutputSpec& spec : specs) planned = planned || spec.name == output.name;
    if (!planned) {
      throw Error(ErrorCode::kOption, "output tensor \"" + output.name + "\" was not asked for");
    }
  }
  runner.run(RequestReader(*FindMechanism(request.id), request), outputs, pool);
}

void Explain(const Request& request, TensorView<uint8_t> picture) {
  const Runner& runner = FindRunner(request.id);
  if (runner.explain == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                "mechanism \"" + request.id + "\" has no keep rules that could be explained");
  }
  runner.explain(RequestReader(*FindMechanism(request.id), request), picture);
}

}  // namespace heed
