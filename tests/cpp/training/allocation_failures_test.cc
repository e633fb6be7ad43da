// Any single allocation of the training kit may fail: the failure is heed's, and what objects hold
// after it is what their comments say.
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "expect_memory_errors.h"
#include "gtest/gtest.h"
#include "heed/registry.h"
#include "heed/training.h"
#include "training/plain.h"

namespace heed::testing {
namespace {

using training::AdamW;
using training::AdamWOptions;
using training::AttentionLayer;
using training::AttentionLayerOptions;
using training::Block;
using training::BlockOptions;
using training::EmbeddingLayer;
using training::FeedForward;
using training::FeedForwardOptions;
using training::HeadPosition;
using training::LinearLayer;
using training::LinearLayerOptions;
using training::Matrix;
using training::ModelPosition;
using training::NormLayer;
using training::NormLayerOptions;
using training::ParameterSet;
using training::SafetensorsFile;
using training::SequenceShape;
using training::TokenBatch;
using training::Trainer;
using training::Transformer;
using training::TransformerOptions;

const std::string kName = "a name that is too long to stand in the string itself";

// A call that is refused, unless memory is too little to say so.
template <class Body>
auto Refused(ErrorCode code, const Body& body) {
  return [code, &body] {
    bool refused = false;
    try {
      body();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kMemory) throw;
      refused = error.code() == code;
    }
    if (!refused) ADD_FAILURE() << "not refused";
  };
}

std::vector<float> ValuesOf(const ParameterSet& parameters) {
  std::vector<float> values;
  for (const training::Parameter& parameter : parameters) {
    values.insert(values.end(), parameter.value.begin(), parameter.value.end());
  }
  return values;
}

class TrainingAllocationFailures : public ::testing::Test {
 protected:
  static constexpr int64_t kBatch = 2, kLen = 3, kDim = 8;

  // A layer is made, and goes both ways.
  template <class Layer, class Options>
  void ExpectOfLayer(const std::string& what, const Options& options, const Matrix& x,
                     const Matrix& d_y) {
    ExpectMemoryErrors(what, [&] {
      ParameterSet parameters(1);
      Layer layer(parameters, kName, options);
      layer.Forward(x, &pool());
      layer.Backward(d_y, &pool());
    });
  }

  void ExpectOfAttention(const AttentionLayerOptions& options, bool self) {
    const Matrix x = RandomMatrix(kBatch * kLen, kDim, 1), other = RandomMatrix(8, kDim, 2);
    const Matrix& context = self ? x : other;
    const SequenceShape shape = {kBatch, kLen, self ? kLen : 4, 5};
    const Matrix d_y = RandomMatrix(kBatch * kLen, kDim, 3);
    std::vector<float> pairs(static_cast<size_t>(kBatch * options.num_heads * kLen * shape.kv_len));
    const auto weights = Contiguous(pairs.data(), kBatch, options.num_heads, kLen, shape.kv_len);
    ExpectMemoryErrors(options.mechanism, [&] {
      ParameterSet parameters(1);
      AttentionLayer layer(parameters, kName, options);
      layer.Forward(x, context, shape, &pool());
      if (options.mechanism != "attention_free") layer.Weights(weights, &pool());
      layer.Backward(d_y, &pool());
    });
  }

  ThreadPool& pool() { return *pool_; }

 private:
  std::unique_ptr<ThreadPool> pool_ = MakeThreadPool(1);
};

AttentionLayerOptions Attention(const std::string& mechanism, bool causal = true) {
  return {.embed_dim = 8, .num_heads = 2, .mechanism = mechanism, .causal = causal};
}

TransformerOptions SmallModel() {
  TransformerOptions config;
  config.vocabulary = 5;
  config.embed_dim = 8;
  config.num_layers = 1;
  config.num_heads = 2;
  config.ff_dim = 6;
  return config;
}

// All that a model may have.
TransformerOptions RichModel() {
  TransformerOptions config = SmallModel();
  config.num_layers = 2;
  config.params = {{"dropout_p", 0.25}, {"window_left", 2.0}};
  config.position = ModelPosition::kLearned;
  config.max_len = 4;
  config.norm = Norm::kLayer;
  config.bias = true;
  config.tied = true;
  config.encoder_layers = 1;
  return config;
}

const std::vector<int32_t> kTokens = {0, 1, 2, 3, 4, 1}, kSource = {1, 2, 3, 4};
const std::vector<int32_t> kTargets = {1, 2, -1, 4, 1, -1};

TokenBatch BatchFor(const TransformerOptions& config) {
  TokenBatch batch = {2, kTokens};
  if (config.encoder_layers > 0) batch.source = kSource;
  return batch;
}

TEST_F(TrainingAllocationFailures, OfMatricesAndParameters) {
  const Matrix from = RandomMatrix(3, 5, 1);
  ExpectMemoryErrors("copies", [&] {
    Matrix to(2, 3);
    to = from;
    const Matrix copy = to;
  });
  Matrix kept = from;
  ExpectMemoryErrors("sizes", Refused(ErrorCode::kRange, [&] { kept.Resize(-1, 3); }));
  EXPECT_EQ(kept.rows(), 3);
  const std::vector<int64_t> shape = {3, 4}, none = {0};
  ExpectMemoryErrors("a set", [&] {
    ParameterSet parameters(1);
    parameters.Add(kName, shape, {.deviation = 1});
  });
  ParameterSet parameters(1);
  parameters.Add(kName, shape, {});
  ExpectMemoryErrors("a name",
                     Refused(ErrorCode::kOption, [&] { parameters.Add(kName, shape, {}); }));
  ExpectMemoryErrors("a shape",
                     Refused(ErrorCode::kShape, [&] { parameters.Add("other", none, {}); }));
  EXPECT_EQ(parameters.NumElements(), 12);
}

TEST_F(TrainingAllocationFailures, OfLayers) {
  const Matrix x = RandomMatrix(4, kDim, 1), d_y = RandomMatrix(4, kDim, 2);
  for (const bool bias : {false, true}) {
    const LinearLayerOptions linear = {.in_dim = kDim, .out_dim = kDim, .bias = bias};
    ExpectOfLayer<LinearLayer>("linear", linear, x, d_y);
    const Norm norm = bias ? Norm::kLayer : Norm::kRms;
    ExpectOfLayer<NormLayer>("norm", NormLayerOptions{.dim = 4, .norm = norm}, x, d_y);
    const FeedForwardOptions network = {
        .embed_dim = kDim, .ff_dim = 5, .gated = bias, .bias = bias};
    ExpectOfLayer<FeedForward>("feed-forward", network, x, d_y);
  }
  const std::vector<int32_t> ids = {3, 0, 3, 1};
  ExpectMemoryErrors("embedding", [&] {
    ParameterSet parameters(1);
    EmbeddingLayer layer(parameters, kName, 4, kDim, 1);
    layer.Forward(ids, &pool());
    layer.Backward(d_y, &pool());
  });
}

TEST_F(TrainingAllocationFailures, OfRefusals) {
  const Matrix x = RandomMatrix(4, kDim, 1), narrow = RandomMatrix(4, 3, 2);
  ParameterSet parameters(1);
  const auto expect = [](const char* what, ErrorCode code, const auto& body) {
    ExpectMemoryErrors(what, Refused(code, body));
  };
  LinearLayer linear(parameters, "a", {.in_dim = kDim, .out_dim = 3});
  expect("no Forward()", ErrorCode::kOption, [&] { linear.Backward(narrow, &pool()); });
  expect("linear", ErrorCode::kShape, [&] { linear.Forward(narrow, &pool()); });
  const std::vector<int32_t> ids = {7};
  EmbeddingLayer embedding(parameters, "b", 4, kDim, 1);
  expect("ids", ErrorCode::kRange, [&] { embedding.Forward(ids, &pool()); });
  expect("no ids", ErrorCode::kOption, [&] { embedding.Backward(x, &pool()); });
  const NormLayerOptions epsilon = {.dim = 4, .epsilon = 0};
  expect("norm", ErrorCode::kRange, [&] { NormLayer(parameters, "c", epsilon); });
  Matrix d;
  expect("targets", ErrorCode::kShape, [&] { training::CrossEntropy(x, ids, d, &pool()); });
  expect("rows", ErrorCode::kShape, [&] { training::MeanSquaredError(x, narrow, d, &pool()); });
  const AdamWOptions rate = {.schedule = {.learning_rate = -1}};
  expect("rate", ErrorCode::kRange, [&] { AdamW(parameters, rate); });
  AdamW adam(parameters, {});
  expect("norm", ErrorCode::kRange, [&] { adam.Step(HUGE_VAL, &pool()); });
  const std::vector<uint8_t> bytes(30, '{');
  expect("file", ErrorCode::kOption, [&] { const SafetensorsFile file(bytes); });
  expect("model", ErrorCode::kOption, [&] { Transformer::Load(bytes); });
  TransformerOptions config = SmallModel();
  config.mechanism = "a mechanism that there is not";
  expect("mechanism", ErrorCode::kOption, [&] { const Transformer model(config); });
}

TEST_F(TrainingAllocationFailures, OfLosses) {
  const Matrix x = RandomMatrix(3, 4, 1), y = RandomMatrix(3, 4, 2);
  const std::vector<int32_t> targets = {1, -1, 3};
  ExpectMemoryErrors("cross-entropy", [&] {
    Matrix d;
    training::CrossEntropy(x, targets, d, &pool());
  });
  ExpectMemoryErrors("squares", [&] {
    Matrix d;
    training::MeanSquaredError(x, y, d, &pool());
  });
}

TEST_F(TrainingAllocationFailures, OfAttentionLayers) {
  for (const std::string_view id : training::TrainableMechanisms()) {
    const Mechanism& row = *FindMechanism(id);
    const bool causal = row.capabilities.find("causal") != std::string_view::npos;
    AttentionLayerOptions options = Attention(std::string(id), causal);
    if (id == "routing") options.params = {{"num_clusters", 2.0}};
    ExpectOfAttention(options, true);
  }
  ExpectMemoryErrors("mechanisms", [] { training::TrainableMechanisms(); });
}

TEST_F(TrainingAllocationFailures, OfAttentionWithPositionsAndContexts) {
  AttentionLayerOptions options = Attention("scaled_dot_product");
  options.num_kv_heads = 1;
  options.bias = true;
  options.params = {{"dropout_p", 0.5}};
  for (const HeadPosition position : {HeadPosition::kRope, HeadPosition::kAlibi}) {
    options.position = position;
    ExpectOfAttention(options, true);
  }
  ExpectOfAttention(Attention("scaled_dot_product", false), false);
}

TEST_F(TrainingAllocationFailures, OfBlocks) {
  BlockOptions options;
  options.attention = Attention("scaled_dot_product");
  options.feed_forward = {.embed_dim = kDim, .ff_dim = 5};
  const Matrix x = RandomMatrix(kBatch * kLen, kDim, 1), context = RandomMatrix(8, kDim, 2);
  const SequenceShape shape = {kBatch, kLen, kLen};
  ExpectMemoryErrors("a block", [&] {
    ParameterSet parameters(1);
    Block block(parameters, kName, options);
    block.Forward(x, shape, &pool());
    block.Backward(x, &pool());
  });
  options.cross_attention = Attention("sigmoid", false);
  ExpectMemoryErrors("two sequences", [&] {
    ParameterSet parameters(1);
    Block block(parameters, kName, options);
    block.Forward(x, shape, context, 4, &pool());
    block.Backward(x, &pool());
  });
}

TEST_F(TrainingAllocationFailures, OfModels) {
  for (const TransformerOptions& config : {SmallModel(), RichModel()}) {
    TokenBatch batch = BatchFor(config);
    batch.dropout_draw = 3;
    const Matrix d_logits = RandomMatrix(6, 5, 1);
    std::vector<float> pairs(2 * 2 * 3 * 3);
    const auto weights = Contiguous(pairs.data(), 2, 2, 3, 3);
    ExpectMemoryErrors("a model", [&] {
      Transformer model(config);
      model.Forward(batch, &pool());
      model.Weights(Transformer::Heads::kSelf, 0, weights, &pool());
      model.Backward(d_logits, &pool());
    });
  }
}

// What has not come forward does not go back, whatever rows some layers have by then.
TEST_F(TrainingAllocationFailures, OfForwardLeavesNothingToGoBackFrom) {
  const TransformerOptions config = RichModel();
  const std::vector<int32_t> more = {0, 1, 2, 3, 4, 1, 2, 3}, source = {1, 2, 3, 4, 1, 2};
  const Matrix small = RandomMatrix(6, 5, 1), large = RandomMatrix(8, 5, 2);
  std::optional<Transformer> model;
  bool grows = false;
  const auto body = [&] {
    grows = false;
    model.emplace(config);
    model->Forward(BatchFor(config), &pool());
    grows = true;
    model->Forward({2, more, source}, &pool());
    grows = false;
  };
  ExpectMemoryErrors("rows that grow", body, [&] {
    if (!grows) return;
    EXPECT_THROW(model->Backward(small, &pool()), Error);
    EXPECT_THROW(model->Backward(large, &pool()), Error);
    model->Forward({2, more, source}, &pool());
    model->Backward(large, &pool());
  });
}

TEST_F(TrainingAllocationFailures, OfOptimisers) {
  ParameterSet parameters(1);
  const LinearLayer layer(parameters, "map", {.in_dim = 3, .out_dim = 4, .bias = true});
  ExpectMemoryErrors("moments", [&] { const AdamW adam(parameters, {}); });
  ExpectMemoryErrors("a norm", [&] { training::GradientNorm(parameters, &pool()); });
}

// A model, a step, and the memory of its rows.
TEST_F(TrainingAllocationFailures, OfFirstSteps) {
  for (const TransformerOptions& config : {SmallModel(), RichModel()}) {
    const std::vector<float> start = ValuesOf(Transformer(config).parameters());
    std::optional<Transformer> model;
    std::optional<Trainer> trainer;
    const auto body = [&] {
      trainer.reset();
      model.reset();
      model.emplace(config);
      trainer.emplace(*model, AdamWOptions());
      trainer->Step(BatchFor(config), kTargets, &pool());
    };
    ExpectMemoryErrors("a first step", body, [&] {
      if (!trainer) return;
      ASSERT_EQ(trainer->steps(), 0);
      ASSERT_FALSE(trainer->diverged());
      ASSERT_EQ(ValuesOf(model->parameters()), start);
    });
  }
}

// Steps that failed leave no trace in those that come after.
TEST_F(TrainingAllocationFailures, OfLaterSteps) {
  for (const TransformerOptions& config : {SmallModel(), RichModel()}) {
    Transformer model(config), expected(config);
    Trainer trainer(model, {}), untroubled(expected, {});
    const TokenBatch batch = BatchFor(config);
    std::vector<float> before = ValuesOf(model.parameters());
    int64_t steps = 0;
    const auto body = [&] {
      trainer.Step(batch, kTargets, &pool());
      ++steps;
    };
    ExpectMemoryErrors("a step", body, [&] { ASSERT_EQ(trainer.steps(), steps); });
    for (int64_t n = 0; n < steps; ++n) untroubled.Step(batch, kTargets, &pool());
    EXPECT_EQ(ValuesOf(model.parameters()), ValuesOf(expected.parameters()));
    EXPECT_NE(ValuesOf(model.parameters()), before);
  }
}

TEST_F(TrainingAllocationFailures, OfFiles) {
  TransformerOptions config = RichModel();
  config.rope_base = 12345.678;
  const Transformer model(config);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    ExpectMemoryErrors("Save", [&] { model.Save(dtype); });
  }
  const std::vector<uint8_t> bytes = model.Save();
  ExpectMemoryErrors("a file", [&] { const SafetensorsFile file(bytes); });
  ExpectMemoryErrors("Load", [&] { Transformer::Load(bytes); });

  const SafetensorsFile file(bytes);
  config.seed = 9;
  Transformer other(config);
  const std::vector<float> before = ValuesOf(other.parameters());
  const std::vector<float> saved = ValuesOf(model.parameters());
  ASSERT_NE(before, saved);
  const auto start = [&] {
    size_t n = 0;
    for (training::Parameter& parameter : other.parameters()) {
      for (float& x : parameter.value) x = before[n++];
    }
  };
  const auto body = [&] {
    start();
    training::LoadParameters(file, other.parameters());
  };
  ExpectMemoryErrors("parameters", body, [&] { ASSERT_EQ(ValuesOf(other.parameters()), before); });
  EXPECT_EQ(ValuesOf(other.parameters()), saved);
}

}  // namespace
}  // namespace heed::testing
