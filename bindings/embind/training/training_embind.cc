// The WebAssembly face of heed/training. A model is known by a number, given out once. TypeScript
// (training_model.ts) checked the arguments; C++ checks again.
#include <emscripten/bind.h>
#include <emscripten/val.h>
#include <malloc.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "../instance.h"
#include "../label.h"
#include "../wire.h"
#include "heed/training.h"

HEED_LABEL(HEED_WASM_FILE);

namespace {

using emscripten::val;
using heed::training::TokenBatch;
using heed::training::Trainer;
using heed::training::Transformer;
using heed::training::TransformerOptions;
using heed::wire::Guarded;
using heed::wire::InstancePool;

struct Model {
  std::unique_ptr<Transformer> transformer;
  std::optional<Trainer> trainer{};
};

std::map<int, Model>& Models() {
  static std::map<int, Model> models;
  return models;
}

val Keep(std::unique_ptr<Transformer> transformer) {
  static int next = 0;
  Models().emplace(++next, Model{std::move(transformer)});
  return val(next);
}

Model& Find(int id) {
  const auto found = Models().find(id);
  if (found == Models().end()) {
    throw heed::Error(heed::ErrorCode::kOption, "this model was disposed of");
  }
  return found->second;
}

int64_t Whole(const val& object, const char* name) {
  return static_cast<int64_t>(object[name].as<double>());
}

template <class Enum>
Enum Choice(const val& object, const char* name) {
  return static_cast<Enum>(object[name].as<int>());
}

// Words of enumerations arrive as their places in the lists of training_model.ts.
TransformerOptions ReadConfig(const val& given, const std::string& param_names, const val& params) {
  TransformerOptions config;
  config.vocabulary = Whole(given, "vocabulary");
  config.embed_dim = Whole(given, "embedDim");
  config.num_layers = Whole(given, "numLayers");
  config.num_heads = Whole(given, "numHeads");
  config.num_kv_heads = Whole(given, "numKvHeads");
  config.ff_dim = Whole(given, "ffDim");
  config.max_len = Whole(given, "maxLen");
  config.mechanism = given["mechanism"].as<std::string>();
  config.params = heed::wire::ReadParams(param_names, params);
  config.causal = given["causal"].as<bool>();
  config.position = Choice<heed::training::ModelPosition>(given, "position");
  config.rope_base = given["ropeBase"].as<double>();
  config.norm = Choice<heed::Norm>(given, "norm");
  config.activation = Choice<heed::Activation>(given, "activation");
  config.gated = given["gated"].as<bool>();
  config.bias = given["bias"].as<bool>();
  config.tied = given["tied"].as<bool>();
  config.encoder_layers = Whole(given, "encoderLayers");
  config.cross_mechanism = given["crossMechanism"].as<std::string>();
  config.seed = static_cast<uint64_t>(given["seed"].as<double>());
  return config;
}

// The configuration of a model with its defaults, and its parameters; words as above.
val Describe(const Transformer& model) {
  const TransformerOptions& config = model.options();
  val to = val::object();
  const auto number = [&](const char* name, auto value) { to.set(name, double(value)); };
  number("vocabulary", config.vocabulary);
  number("embedDim", config.embed_dim);
  number("numLayers", config.num_layers);
  number("numHeads", config.num_heads);
  number("numKvHeads", config.num_kv_heads);
  number("ffDim", config.ff_dim);
  number("maxLen", config.max_len);
  to.set("mechanism", config.mechanism);
  to.set("causal", config.causal);
  number("position", static_cast<int>(config.position));
  number("ropeBase", config.rope_base);
  number("norm", static_cast<int>(config.norm));
  number("activation", static_cast<int>(config.activation));
  to.set("gated", config.gated);
  to.set("bias", config.bias);
  to.set("tied", config.tied);
  number("encoderLayers", config.encoder_layers);
  to.set("crossMechanism", config.cross_mechanism);
  number("seed", config.seed);
  number("numParameters", model.parameters().NumElements());
  return to;
}

val ModelNew(val config, const std::string& param_names, val param_values) {
  return Guarded([&] {
    return Keep(std::make_unique<Transformer>(ReadConfig(config, param_names, param_values)));
  });
}

val ModelLoad(double pointer, double bytes) {
  return Guarded([&] {
    const auto* data = reinterpret_cast<const uint8_t*>(static_cast<uintptr_t>(pointer));
    return Keep(Transformer::Load({data, static_cast<size_t>(bytes)}));
  });
}

val ModelDescribe(int id) {
  return Guarded([&] { return Describe(*Find(id).transformer); });
}

void ModelFree(int id) { Models().erase(id); }

std::span<const int32_t> Ids(const val& numbers, size_t at) {
  const auto* data =
      reinterpret_cast<const int32_t*>(static_cast<uintptr_t>(numbers[at].as<double>()));
  return {data, static_cast<size_t>(numbers[at + 1].as<double>())};
}

// Pointers and counts: batch, tokens, source, and what else a call takes.
TokenBatch ReadBatch(const val& numbers) {
  return {static_cast<int64_t>(numbers[0].as<double>()), Ids(numbers, 1), Ids(numbers, 3)};
}

val ModelForward(int id, val numbers, double logits) {
  return Guarded([&] {
    const heed::training::Matrix& rows =
        Find(id).transformer->Forward(ReadBatch(numbers), InstancePool().get());
    std::copy_n(rows.data(), rows.size(), reinterpret_cast<float*>(static_cast<uintptr_t>(logits)));
    return val::null();
  });
}

// `numbers`: heads, layer, pointer and the four extents.
val ModelWeights(int id, val numbers) {
  return Guarded([&] {
    const auto number = [&](int at) { return static_cast<int64_t>(numbers[at].as<double>()); };
    float* data = reinterpret_cast<float*>(static_cast<uintptr_t>(number(2)));
    Find(id).transformer->Weights(
        static_cast<Transformer::Heads>(number(0)), number(1),
        heed::Contiguous(data, number(3), number(4), number(5), number(6)), InstancePool().get());
    return val::null();
  });
}

val ModelSave(int id, int dtype) {
  return Guarded([&] {
    const std::vector<uint8_t> bytes = Find(id).transformer->Save(static_cast<heed::DType>(dtype));
    // A copy outside of the module's memory.
    return val::global("Uint8Array")
        .new_(emscripten::typed_memory_view(bytes.size(), bytes.data()));
  });
}

val TrainerNew(int id, val given) {
  return Guarded([&] {
    const auto number = [&](const char* name) { return given[name].as<double>(); };
    heed::training::AdamWOptions options;
    options.schedule = {.learning_rate = number("learningRate"),
                        .min_learning_rate = number("minLearningRate"),
                        .warmup_steps = Whole(given, "warmupSteps"),
                        .total_steps = Whole(given, "totalSteps")};
    options.beta1 = number("beta1");
    options.beta2 = number("beta2");
    options.epsilon = number("epsilon");
    options.weight_decay = number("weightDecay");
    options.max_gradient_norm = number("maxGradientNorm");
    Model& model = Find(id);
    heed::training::Trainer next(*model.transformer, options);
    model.trainer.emplace(std::move(next));
    return val::null();
  });
}

val TrainStep(int id, val numbers) {
  return Guarded([&] {
    Model& model = Find(id);
    if (!model.trainer) {
      throw heed::Error(heed::ErrorCode::kOption, "the model has no trainer");
    }
    const heed::training::StepResult result =
        model.trainer->Step(ReadBatch(numbers), Ids(numbers, 5), InstancePool().get());
    val to = val::object();
    to.set("step", static_cast<double>(result.step));
    to.set("loss", result.loss);
    to.set("counted", static_cast<double>(result.counted));
    to.set("gradientNorm", result.gradient_norm);
    to.set("learningRate", result.learning_rate);
    to.set("diverged", result.diverged);
    return to;
  });
}

val TrainableMechanisms() {
  val ids = val::array();
  int index = 0;
  for (const std::string_view id : heed::training::TrainableMechanisms()) {
    ids.set(index++, std::string(id));
  }
  return ids;
}

// Null, or {code, message} when the threads could not be started.
val SetThreads(int num_threads) {
  return Guarded([&] {
    InstancePool() = heed::MakeThreadPool(num_threads);
    return val::null();
  });
}

// Bytes handed out by malloc and not yet freed: what the leak tests watch.
double HeapInUse() { return static_cast<double>(static_cast<uint32_t>(mallinfo().uordblks)); }

}  // namespace

EMSCRIPTEN_BINDINGS(heed_training) {
  emscripten::function("modelNew", &ModelNew);
  emscripten::function("modelLoad", &ModelLoad);
  emscripten::function("modelDescribe", &ModelDescribe);
  emscripten::function("modelForward", &ModelForward);
  emscripten::function("modelWeights", &ModelWeights);
  emscripten::function("modelSave", &ModelSave);
  emscripten::function("modelFree", &ModelFree);
  emscripten::function("trainerNew", &TrainerNew);
  emscripten::function("trainStep", &TrainStep);
  emscripten::function("trainableMechanisms", &TrainableMechanisms);
  emscripten::function("setThreads", &SetThreads);
  emscripten::function("heapInUse", &HeapInUse);
}
