// The whole model: gradients, files, the same bits for any number of threads.
#include "heed/training/transformer.h"

#include <clocale>
#include <cmath>
#include <map>
#include <string>
#include <variant>

#include "allocations.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "training/plain.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;
using training::BlockOptions;
using training::CrossEntropy;
using training::Matrix;
using training::ModelPosition;
using training::ParameterSet;
using training::SequenceShape;
using training::StepResult;
using training::TokenBatch;
using training::Trainer;
using training::Transformer;
using training::TransformerOptions;

BlockOptions SmallBlock() {
  BlockOptions options;
  // Turned keys make a bias of keys matter.
  options.attention = {.embed_dim = 8,
                       .num_heads = 2,
                       .causal = true,
                       .position = training::HeadPosition::kRope,
                       .bias = true};
  options.feed_forward = {.embed_dim = 8, .ff_dim = 5};
  options.norm = Norm::kLayer;
  return options;
}

TEST(Block, MatchesFiniteDifferences) {
  for (const bool crosses : {false, true}) {
    BlockOptions options = SmallBlock();
    if (crosses) options.cross_attention = {.embed_dim = 8, .num_heads = 4};
    ParameterSet parameters(2);
    training::Block block(parameters, "block", options);
    Scramble(parameters, 3, 0.2);
    const SequenceShape shape = {2, 3, 3};
    const Matrix x = RandomMatrix(6, 8, 4), context = RandomMatrix(10, 8, 5);
    const Matrix y = crosses ? block.Forward(x, shape, context, 5) : block.Forward(x, shape);
    const Matrix cotangent = RandomMatrix(6, 8, 6);
    const Matrix d_x = block.Backward(cotangent);
    Tensors at = ToTensors(parameters);
    at["x"] = ToPlain(x).values;
    at["context"] = ToPlain(context).values;
    const auto plain = [&](const Tensors& t) {
      return PlainBlock(t, "block", options, {8, t.at("x")}, {8, t.at("context")}, shape, 5);
    };
    const Plain expected = plain(at);
    for (int64_t n = 0; n < y.size(); ++n) {
      ASSERT_NEAR(double(y.data()[n]), expected.values[static_cast<size_t>(n)], 3e-5) << n;
    }
    const auto value = [&](const Tensors& t) { return Dot(plain(t), cotangent); };
    ExpectGradient(value, at, "x", d_x.data(), 1e-4);
    if (crosses) ExpectGradient(value, at, "context", block.context_gradient().data(), 1e-4);
    ExpectGradients(value, at, parameters, 1e-4);
  }
}

TEST(Block, RefusesAContextThatDoesNotFit) {
  ParameterSet parameters(2);
  training::Block without(parameters, "a", SmallBlock());
  const Matrix x = RandomMatrix(6, 8, 4);
  EXPECT_THROW(without.Forward(x, {2, 3, 3}, x, 3), Error);
  BlockOptions options = SmallBlock();
  options.cross_attention = {.embed_dim = 8, .num_heads = 4};
  training::Block with(parameters, "b", options);
  EXPECT_THROW(with.Forward(x, {2, 3, 3}), Error);
  options.cross_attention->embed_dim = 12;
  EXPECT_THROW(training::Block(parameters, "c", options), Error);
}

std::vector<int32_t> RandomTokens(int64_t count, int32_t vocabulary, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(random.Integer(0, vocabulary - 1)));
  }
  return tokens;
}

TransformerOptions SmallConfig() {
  TransformerOptions config;
  config.vocabulary = 5;
  config.embed_dim = 8;
  config.num_heads = 2;
  config.ff_dim = 7;
  config.seed = 3;
  return config;
}

// The gradient of the loss along a random direction of all parameters together, against a
// difference of losses of the model itself: what the parts' own tests leave is how they are joined.
void ExpectJoined(const TransformerOptions& config, int64_t source_len,
                  std::optional<uint64_t> dropout_draw = {}) {
  Transformer model(config);
  Scramble(model.parameters(), 4, 0.1);
  const std::vector<int32_t> tokens = RandomTokens(2 * 6, 5, 1);
  const std::vector<int32_t> source = RandomTokens(2 * source_len, 5, 2);
  const std::vector<int32_t> targets = RandomTokens(2 * 6, 5, 3);
  const TokenBatch batch = {2, tokens, source, dropout_draw};
  Matrix d;
  CrossEntropy(model.Forward(batch), targets, d);
  model.parameters().ZeroGradients();
  model.Backward(d);
  Random random(5);
  double along = 0;
  std::vector<std::vector<float>> directions;
  for (const training::Parameter& p : model.parameters()) {
    std::vector<float>& direction = directions.emplace_back();
    double own = 0;
    for (const float g : p.gradient) {
      direction.push_back(random.Normal());
      along += double(g) * double(direction.back());
      own += std::abs(double(g));
    }
    EXPECT_GT(own, 0) << p.name << " has no gradient";
  }
  const auto loss_at = [&](float step) {
    size_t n = 0;
    for (training::Parameter& p : model.parameters()) {
      for (size_t i = 0; i < p.value.size(); ++i) p.value[i] += step * directions[n][i];
      ++n;
    }
    return CrossEntropy(model.Forward(batch), targets, d).value;
  };
  constexpr float kStep = 1e-3f;
  const double up = loss_at(kStep), down = loss_at(-2 * kStep);
  EXPECT_NEAR((up - down) / (2 * double(kStep)), along, 3e-3 * std::max(1.0, std::abs(along)));
}

TEST(Transformer, JoinsTheGradientsOfItsParts) {
  for (const bool tied : {false, true}) {
    for (const ModelPosition position : {ModelPosition::kNone, ModelPosition::kLearned,
                                         ModelPosition::kRope, ModelPosition::kAlibi}) {
      TransformerOptions config = SmallConfig();
      config.tied = tied;
      config.position = position;
      config.max_len = 6;
      SCOPED_TRACE(std::to_string(int(position)) + (tied ? " tied" : ""));
      ExpectJoined(config, 0);
      config.encoder_layers = 2;
      ExpectJoined(config, 4);
    }
  }
}

TransformerOptions DroppingConfig() {
  TransformerOptions config = SmallConfig();
  config.params = {{"dropout_p", 0.4}, {"dropout_seed", std::string("18446744073709551615")}};
  return config;
}

TEST(Transformer, JoinsTheGradientsOfWhatItDropped) {
  ExpectJoined(DroppingConfig(), 0, 5);
  TransformerOptions config = DroppingConfig();
  config.encoder_layers = 1;
  ExpectJoined(config, 4, 6);
}

// Which of the weights that a layer's queries may have are zero.
std::vector<bool> DroppedIn(Transformer& model, int64_t layer) {
  constexpr int64_t kLen = 12;
  std::vector<float> weights(2 * kLen * kLen);
  model.Weights(Transformer::Heads::kSelf, layer, Contiguous(weights.data(), 1, 2, kLen, kLen));
  std::vector<bool> dropped;
  for (size_t n = 0; n < weights.size(); ++n) {
    const bool seen = n % kLen <= n / kLen % kLen;
    if (seen) dropped.push_back(weights[n] == 0);
  }
  return dropped;
}

TEST(Transformer, DropsInEachLayerAndDrawItsOwnAndNothingWithoutADraw) {
  const std::vector<int32_t> tokens = RandomTokens(12, 5, 1);
  Transformer model(DroppingConfig()), whole(SmallConfig());
  const Matrix expected = whole.Forward({1, tokens});
  const auto run = [&](std::optional<uint64_t> draw) {
    const Matrix& logits = model.Forward({1, tokens, {}, draw});
    return std::vector<float>(logits.data(), logits.data() + logits.size());
  };
  const auto same = std::vector<float>(expected.data(), expected.data() + expected.size());
  EXPECT_EQ(run({}), same);
  EXPECT_EQ(std::ranges::count(DroppedIn(model, 0), true), 0);
  const std::vector<float> first = run(0);
  const std::vector<bool> in_first = DroppedIn(model, 0), in_second = DroppedIn(model, 1);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(in_first, true)) / 156, 0.4, 0.15);
  EXPECT_NE(in_first, in_second);
  EXPECT_NE(run(1), first);
  EXPECT_NE(DroppedIn(model, 0), in_first);
  EXPECT_EQ(run(0), first);
  EXPECT_EQ(run({}), same);
}

TEST(Transformer, SavesAndLoadsItself) {
  TransformerOptions config = SmallConfig();
  config.mechanism = "scaled_dot_product";
  config.params = {{"window_left", 3.0}, {"softcap", 30.1234567890123}};
  config.rope_base = 1e9 / 3;
  config.position = ModelPosition::kLearned;
  config.max_len = 9;
  config.norm = Norm::kLayer;
  config.activation = Activation::kGeluTanh;
  config.gated = false;
  config.bias = true;
  Transformer model(config);
  const std::vector<uint8_t> bytes = model.Save();
  const std::unique_ptr<Transformer> loaded = Transformer::Load(bytes);
  EXPECT_EQ(loaded->Save(), bytes);
  EXPECT_EQ(loaded->options().rope_base, 1e9 / 3);
  EXPECT_EQ(loaded->options().activation, Activation::kGeluTanh);
  const std::vector<int32_t> tokens = RandomTokens(2 * 6, 5, 1);
  const Matrix logits = model.Forward({2, tokens});
  const Matrix& again = loaded->Forward({2, tokens});
  for (int64_t n = 0; n < logits.size(); ++n) EXPECT_EQ(logits.data()[n], again.data()[n]);
}

TEST(Transformer, WritesEveryNumberAsItWas) {
  for (const double number : {10000.0, 0.1, 123456.0, 1e-22, 2.5e22, 1e300, 5e-324, 2.0 / 3}) {
    TransformerOptions config = SmallConfig();
    config.mechanism = "relu";
    config.params = {{"length_power", number}};
    const Transformer model(config);
    EXPECT_EQ(std::get<double>(Transformer::Load(model.Save())->options().params.at(0).value),
              number);
  }
}

TEST(Transformer, WritesEverySeedAsItWas) {
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1} << 63, ~uint64_t{0}}) {
    TransformerOptions config = SmallConfig();
    config.seed = seed;
    EXPECT_EQ(Transformer::Load(Transformer(config).Save())->options().seed, seed);
  }
}

// A program may have a locale in which numbers have a comma.
TEST(Transformer, ReadsNumbersInAnyLocale) {
  const std::string before = std::setlocale(LC_NUMERIC, nullptr);
  const Transformer model(SmallConfig());
  const training::SafetensorsFile file(model.Save());
  std::map<std::string, std::string> metadata = file.metadata();
  metadata["heed.rope_base"] = "2.5e+03";
  const std::vector<uint8_t> bytes = SaveSafetensors(model.parameters(), metadata);
  int others = 0;
  for (const char* name : {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "fr_FR"}) {
    if (std::setlocale(LC_NUMERIC, name) == nullptr) continue;
    ++others;
    EXPECT_EQ(Transformer::Load(bytes)->options().rope_base, 2500) << name;
  }
  std::setlocale(LC_NUMERIC, before.c_str());
  EXPECT_EQ(Transformer::Load(bytes)->options().rope_base, 2500);
  if (others == 0) GTEST_SKIP() << "this machine has no locale in which numbers have a comma";
}

// As other programs write numbers: the last places of long ones may differ.
TEST(Transformer, ReadsLongNumbersAndLargeExponents) {
  TransformerOptions config = SmallConfig();
  config.mechanism = "relu";
  const Transformer model(config);
  const training::SafetensorsFile file(model.Save());
  std::map<std::string, std::string> metadata = file.metadata();
  const auto number_of = [&](const std::string& text) {
    metadata["heed.params.length_power"] = "number " + text;
    const auto loaded = Transformer::Load(SaveSafetensors(model.parameters(), metadata));
    return std::get<double>(loaded->options().params.at(0).value);
  };
  // Read by the compiler.
  const std::vector<std::pair<std::string, double>> numbers = {
      {"0.30000000000000004", 0.30000000000000004},
      {"12345678901234567890123", 12345678901234567890123.0},
      {"1e23", 1e23},
      {"1.7976931348623157E+308", 1.7976931348623157E+308},
      {"4.9406564584124654e-300", 4.9406564584124654e-300},
      {"0.00000000000000000000000000012345678901234567",
       0.00000000000000000000000000012345678901234567},
      {"10000.00000000000000000000", 10000.0},
  };
  for (const auto& [text, number] : numbers) {
    EXPECT_NEAR(number_of(text) / number, 1, 1e-14) << text;
  }
}

TEST(Transformer, RefusesFilesOfSomethingElse) {
  Transformer model(SmallConfig());
  const auto refuse = [](const std::vector<uint8_t>& bytes, const char* words) {
    try {
      Transformer::Load(bytes);
      ADD_FAILURE() << "expected: " << words;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  };
  refuse(SaveSafetensors(model.parameters()), "heed.format is missing");
  const std::vector<uint8_t> good = model.Save();
  const auto with = [&](std::string key, std::string text) {
    const training::SafetensorsFile file(good);
    std::map<std::string, std::string> metadata = file.metadata();
    metadata[key] = text;
    return SaveSafetensors(model.parameters(), metadata);
  };
  refuse(with("heed.format", "transformer 2"), "no value of heed.format");
  refuse(with("heed.norm", "9"), "no value of heed.norm");
  refuse(with("heed.embed_dim", "8x"), "no value of heed.embed_dim");
  for (const char* text : {"", ".", "-", "1,5", "1.5.", " 1", "1e", "0x1p3", "nan", "1e309",
                           "-1e+400", "1e99999", "+1", "1e5.0", "bits:"}) {
    refuse(with("heed.rope_base", text), "no value of heed.rope_base");
  }
  for (const char* text : {"-1", "+1", " 1", "1.0", "", "18446744073709551616"}) {
    refuse(with("heed.seed", text), "no value of heed.seed");
  }
  refuse(with("heed.cross_mechanism", "abc"), "cross_mechanism = \"abc\"");
  refuse(with("heed.params.softcap", "number 0"), "softcap = 0");
  refuse(with("heed.rope_base", "0.5"), "rope_base = 0.5");
  refuse(with("heed.embed_dim", "4"), "another shape");
  // Nothing is allocated for what the file does not hold.
  refuse(with("heed.embed_dim", "16"), "more weights than the file");
  refuse(with("heed.vocabulary", "2000000000"), "more weights than the file");
  refuse(with("heed.vocabulary", "9000000000000000000"), "at most 2147483647");
  refuse(with("heed.ff_dim", "2147483647"), "more weights than the file");
  refuse(with("heed.num_layers", "1000"), "more weights than the file");
  refuse(with("heed.mechanism", "native_sparse"), "needs branch_gates");
  refuse(with("heed.colour", "1"), "none of a heed transformer");
  refuse(with("heed.bias", "1"), "is missing");
  refuse(with("heed.num_layers", "1000000"), "at most 1000");
}

TEST(Transformer, RefusesWhatDoesNotFit) {
  Transformer model(SmallConfig());
  const std::vector<int32_t> tokens = {0, 1, 2, 3, 4}, outside = {0, 5};
  EXPECT_THROW(model.Forward({2, tokens}), Error);
  EXPECT_THROW(model.Forward({0, tokens}), Error);
  EXPECT_THROW(model.Forward({1, outside}), Error);
  EXPECT_THROW(model.Forward({1, tokens, tokens}), Error);
  model.Forward({1, tokens});
  std::vector<float> weights(2 * 5 * 5);
  const TensorView<float> view = Contiguous(weights.data(), 1, 2, 5, 5);
  model.Weights(Transformer::Heads::kSelf, 1, view);
  EXPECT_THROW(model.Weights(Transformer::Heads::kSelf, 2, view), Error);
  EXPECT_THROW(model.Weights(Transformer::Heads::kCross, 0, view), Error);
  EXPECT_THROW(model.Weights(Transformer::Heads::kEncoder, 0, view), Error);
  const TensorView<float> small = Contiguous(weights.data(), 1, 2, 4, 5);
  EXPECT_THROW(model.Weights(Transformer::Heads::kSelf, 0, small), Error);
  for (auto change : {+[](TransformerOptions& c) { c.vocabulary = 0; },
                      +[](TransformerOptions& c) { c.num_heads = 3; },
                      +[](TransformerOptions& c) { c.num_layers = 0; },
                      +[](TransformerOptions& c) { c.encoder_layers = -1; },
                      +[](TransformerOptions& c) { c.mechanism = "cope"; },
                      +[](TransformerOptions& c) {
                        c.params = {{"no_such", 1.0}};
                      },
                      +[](TransformerOptions& c) {
                        c.params = {{"window_left", std::string("x")}};
                      }}) {
    TransformerOptions config = SmallConfig();
    change(config);
    EXPECT_THROW(Transformer{config}, Error);
  }
}

void ExpectRefused(const TransformerOptions& config, ErrorCode code, const char* words) {
  try {
    const Transformer model(config);
    ADD_FAILURE() << "expected: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(words));
  }
}

// The embedding alone would be a gigabyte.
TEST(Transformer, RefusesOptionsBeforeItAllocates) {
  const LargestAllocation limit(1 << 20);
  TransformerOptions config;
  config.vocabulary = int64_t{1} << 28;
  config.embed_dim = config.num_heads = 1;
  ExpectRefused(config, ErrorCode::kRange, "embed_dim / num_heads = 1");
  config.position = ModelPosition::kNone;
  ExpectRefused(config, ErrorCode::kMemory, "model.embed_tokens.weight");
  config.params = {{"softcap", 0.0}};
  ExpectRefused(config, ErrorCode::kRange, "softcap = 0");
  config.params.clear();
  config.mechanism = "nonsense";
  ExpectRefused(config, ErrorCode::kOption, "nonsense");
  config.mechanism = "linear";
  config.encoder_layers = 1;
  config.cross_mechanism = "nonsense";
  ExpectRefused(config, ErrorCode::kOption, "cross_mechanism: there is no mechanism \"nonsense\"");
  config.cross_mechanism = "retention";
  ExpectRefused(config, ErrorCode::kUnsupported,
                "cross_mechanism: causal: mechanism \"retention\"");
}

TEST(Transformer, RefusesACrossMechanismWithoutAnEncoder) {
  TransformerOptions config = SmallConfig();
  for (const char* mechanism : {"nonsense", "linear"}) {
    config.cross_mechanism = mechanism;
    ExpectRefused(config, ErrorCode::kOption, "without an encoder");
  }
  config.encoder_layers = 1;
  EXPECT_EQ(Transformer(config).options().cross_mechanism, "linear");
}

TEST(Transformer, NamesTheArgumentThatDoesNotFit) {
  TransformerOptions config = SmallConfig();
  config.position = ModelPosition::kLearned;
  config.max_len = 3;
  config.encoder_layers = 1;
  Transformer model(config);
  const std::vector<int32_t> good = {0, 1, 4}, beyond = {0, 5}, below = {-1}, longer = {0, 1, 2, 3};
  const auto refuse = [&](const TokenBatch& batch, const char* words) {
    try {
      model.Forward(batch);
      ADD_FAILURE() << "expected: " << words;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  };
  refuse({1, beyond, good}, "tokens[1] = 5; ids lie in [0, vocabulary = 5)");
  refuse({1, good, beyond}, "source[1] = 5");
  refuse({1, below, good}, "tokens[0] = -1");
  refuse({1, longer, good}, "tokens has 4 ids for each sequence; expected at most max_len = 3");
  refuse({1, good, longer}, "source has 4 ids");
  EXPECT_EQ(model.Forward({1, good, good}).rows(), 3);
}

TEST(Transformer, HasTheSameBitsForAnyNumberOfThreads) {
  for (const char* mechanism : {"scaled_dot_product", "delta_rule"}) {
    std::vector<uint8_t> expected;
    for (const int threads : {1, 2, 5}) {
      const std::unique_ptr<ThreadPool> pool = MakeThreadPool(threads);
      TransformerOptions config = SmallConfig();
      config.embed_dim = 40;
      config.mechanism = mechanism;
      Transformer model(config);
      Trainer trainer(model, {});
      double loss = 0;
      for (uint64_t step = 0; step < 4; ++step) {
        const std::vector<int32_t> tokens = RandomTokens(40 * 33, 5, step);
        const std::vector<int32_t> targets = RandomTokens(40 * 33, 5, step + 9);
        loss = trainer.Step({40, tokens}, targets, pool.get()).loss;
      }
      EXPECT_GT(loss, 0);
      const std::vector<uint8_t> bytes = model.Save();
      if (expected.empty()) expected = bytes;
      EXPECT_TRUE(bytes == expected) << threads << " threads: " << mechanism;
    }
  }
}

}  // namespace
}  // namespace heed::testing
