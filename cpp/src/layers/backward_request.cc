// Gradients of layers and positions behind requests: which row, and what it gives.
#include "src/layers/backward_request.h"

#include <string>

#include "heed/registry.h"
#include "src/gradient/backward_views.h"
#include "src/gradient/request.h"
#include "src/layers/request.h"
#include "src/message.h"
#include "src/position/backward_position.h"
#include "src/position/request.h"

namespace heed {
namespace {

struct Layer {
  std::string_view id;
  std::vector<OutputSpec> (*plan)(const RequestReader&);
  void (*run)(const RequestReader&, NamedTensors, ThreadPool*);
  void (*backward)(const RequestReader&, NamedTensors, const GradientPlaces&, ThreadPool&);
};

template <auto kRead, auto kRun>
constexpr Layer Position(std::string_view id, decltype(Layer::backward) backward) {
  return {id, PlanPosition<kRead>, RunPosition<kRead, kRun>, backward};
}

constexpr Layer kLayers[] = {
    {"multi_head", PlanMultiHead, RunMultiHead, MultiHeadRequestBackward},
    {"multi_query", PlanMultiQuery, RunMultiQuery, MultiQueryRequestBackward},
    {"grouped_query", PlanMultiHead, RunMultiHead, MultiHeadRequestBackward},
    {"transformer_block", PlanTransformerBlock, RunTransformerBlock,
     TransformerBlockRequestBackward},
    {"attention_classifier", PlanAttentionClassifier, RunAttentionClassifier,
     AttentionClassifierRequestBackward},
    {"multi_head_latent", PlanMultiHeadLatent, RunMultiHeadLatent, MultiHeadLatentRequestBackward},
    Position<ReadRope, Rotate>("rope", RopeBackward),
    Position<ReadXpos, Rotate>("xpos", XposBackward),
    Position<ReadSinusoidal, Add>("sinusoidal", SinusoidalBackward),
    Position<ReadLearnedPosition, Add>("learned_position", LearnedPositionBackward),
};

const Layer& LayerOf(const Request& request) {
  for (const Layer& layer : kLayers) {
    if (layer.id == request.id) return layer;
  }
  RefuseMechanism(request);
}

RequestReader ReaderOf(const Request& request) {
  CheckFloat32Inputs(request);
  const RequestReader reader(*FindMechanism(request.id), request);
  if (reader.Param("return_weights") != nullptr && reader.Flag("return_weights")) {
    Fail(ErrorCode::kUnsupported, "return_weights gives a result without a gradient");
  }
  return reader;
}

BackwardPlan PlanLayerBackward(const Request& request) {
  const Layer& layer = LayerOf(request);
  return {layer.plan(ReaderOf(request)), FloatInputs(request)};
}

void RunLayerForward(const Request& request, std::span<const NamedTensor> results,
                     ThreadPool* pool) {
  LayerOf(request).run(ReaderOf(request), results, pool);
}

void RunLayerBackward(const Request& request, std::span<const NamedTensor>,
                      std::span<const NamedTensor> d_results,
                      std::span<const NamedTensor> gradients, ThreadPool* pool) {
  CheckAreRows(gradients);
  LayerOf(request).backward(ReaderOf(request), d_results, GradientPlaces(gradients),
                            pool != nullptr ? *pool : DefaultThreadPool());
}

}  // namespace

const GradientVerbs kLayerGradient = {PlanLayerBackward, RunLayerForward, RunLayerBackward};

}  // namespace heed
