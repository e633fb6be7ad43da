// A number that is no value of an enum is refused, wherever one is taken.
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/analysis.h"
#include "heed/attention.h"
#include "heed/causal_conv.h"
#include "heed/compose.h"
#include "heed/expression.h"
#include "heed/graph.h"
#include "heed/keep.h"
#include "heed/latent.h"
#include "heed/layers.h"
#include "heed/position.h"
#include "heed/recurrent.h"
#include "heed/set_attention.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

void ExpectRefused(ErrorCode code, const std::string& text, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "accepted: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

template <typename Enum>
constexpr Enum kNone = static_cast<Enum>(99);

// Tensors of zeros in which every argument has room.
class Enums : public ::testing::Test {
 protected:
  static void ExpectNone(const std::string& name, const std::function<void()>& call) {
    ExpectRefused(ErrorCode::kOption, name + " = 99; its enum has values from 0 to", call);
  }
  TensorView<const float> In(int64_t len, int64_t dim) const {
    return Contiguous<const float>(zeros_.data(), 1, 1, len, dim);
  }
  TensorView<float> Out(int64_t len, int64_t dim) { return Contiguous(out_, 1, 1, len, dim); }
  std::span<const float> Vector(size_t size) const { return {zeros_.data(), size}; }
  MultiHeadWeights Heads() const {
    MultiHeadWeights w;
    w.w_q = w.w_k = w.w_v = Contiguous<const float>(zeros_.data(), 1, 1, 2, 2);
    w.w_o = Contiguous<const float>(zeros_.data(), 1, 2, 1, 2);
    return w;
  }
  AttentionOptions With(const std::function<void(AttentionOptions&)>& change) const {
    AttentionOptions options;
    change(options);
    return options;
  }
  void Attend(const AttentionOptions& options, AttentionOutputs outputs = {}) {
    outputs.output = Out(2, 2);
    Attention(In(2, 2), In(2, 2), In(2, 2), options, outputs);
  }

 private:
  std::vector<float> zeros_ = std::vector<float>(64, 0.0f);
  float out_[64] = {};
};

TEST_F(Enums, OfAttention) {
  ExpectNone("score", [&] { Attend(With([](auto& o) { o.score = kNone<Score>; })); });
  ExpectNone("normalize", [&] { Attend(With([](auto& o) { o.normalize = kNone<Normalize>; })); });
  ExpectNone("kernel", [&] { Attend(With([](auto& o) { o.kernel = kNone<Kernel>; })); });
  ExpectNone("score_stage", [&] {
    AttentionOutputs outputs;
    outputs.score_stage = kNone<ScoreStage>;
    outputs.scores = Out(2, 2);
    Attend({}, outputs);
  });
  ExpectNone("terms", [&] {
    Attribution(StoredTensor(In(2, 2)), StoredTensor(In(2, 2)), StoredTensor(In(2, 2)), In(2, 2),
                {}, kNone<AttributionTerms>, {0, 2, 0, 2}, {.pairs = Out(2, 2)});
  });
  ExpectNone("value", [] { CompileExpression("score_mod", "score", kNone<ExpressionValue>, {}); });
}

TEST_F(Enums, OfPositions) {
  ExpectNone("pairing", [&] { Rope(In(2, 2), kNone<RopePairing>, {}, Out(2, 2)); });
  ExpectNone("side", [&] { Xpos(In(2, 2), RopePairing::kHalf, kNone<XposSide>, {}, Out(2, 2)); });
  ExpectNone("scaling.kind", [&] { RopeFrequencies(2, 1e4, {.kind = kNone<RopeScaling::Kind>}); });
  ExpectNone("layout",
             [&] { AddSinusoidal(In(2, 2), {.layout = kNone<SinusoidalLayout>}, Out(2, 2)); });
  ExpectNone("spacing",
             [&] { AddSinusoidal(In(2, 2), {.spacing = kNone<SinusoidalSpacing>}, Out(2, 2)); });
  ExpectNone("direction", [&] { T5Bucket(1, kNone<T5Direction>); });
}

TEST_F(Enums, OfComposedMechanisms) {
  ExpectNone("activation", [&] {
    CausalConvOptions options;
    options.activation = kNone<ConvActivation>;
    CausalConv(In(2, 2), In(2, 2), options, {.output = Out(2, 2)});
  });
  ExpectNone("feature_map", [&] {
    RecurrentOptions options;
    options.feature_map = kNone<FeatureMap>;
    RecurrentAttention(In(2, 2), In(2, 2), In(2, 2), options, {.output = Out(2, 2)});
  });
  ExpectNone("sub_norm", [&] {
    DifferentialOptions options;
    options.sub_norm = kNone<SubNorm>;
    const auto two = Contiguous<const float>(Vector(8).data(), 1, 2, 2, 2);
    DifferentialAttention(two, two, In(2, 2), options, {.output = Out(2, 2)});
  });
  ExpectNone("score", [&] {
    const std::vector<int32_t> edges = {0, 1};
    GraphAttention(In(2, 2), In(2, 2), In(2, 2), edges, Vector(4), {.score = kNone<GraphScore>},
                   {.output = Out(2, 2)});
  });
  ExpectNone("form", [&] {
    LatentOptions options;
    options.form = kNone<LatentForm>;
    LatentAttention(In(2, 4), In(2, 2), In(2, 2), In(2, 2), In(2, 2), options,
                    {.output = Out(2, 2)});
  });
}

TEST_F(Enums, OfLayers) {
  const auto block = [&](const std::string& name, const auto& change) {
    TransformerBlockWeights weights;
    weights.attention = Heads();
    weights.w_up = weights.w_down = In(2, 2);
    TransformerBlockOptions options;
    change(options);
    ExpectNone(name, [&] { TransformerBlock(In(2, 2), weights, options, Out(2, 2)); });
  };
  block("norm", [](auto& o) { o.norm = kNone<Norm>; });
  block("order", [](auto& o) { o.order = kNone<NormOrder>; });
  block("activation", [](auto& o) { o.activation = kNone<Activation>; });
  ExpectNone("pooling", [&] {
    AttentionClassifierWeights weights;
    weights.attention = Heads();
    weights.embedding = weights.w_class = In(2, 2);
    const int32_t tokens[2] = {0, 1};
    AttentionClassifier(Contiguous<const int32_t>(tokens, 1, 1, 1, 2), weights,
                        {.attention = {}, .pooling = kNone<Pooling>}, Out(1, 2));
  });
}

TEST_F(Enums, OfSetBlocks) {
  ExpectNone("residual", [&] {
    SetBlockWeights weights;
    weights.attention = Heads();
    weights.w_ff = In(2, 2);
    SetAttentionBlock(In(2, 2), In(2, 2), weights,
                      {.attention = {}, .residual = kNone<SetResidual>}, Out(2, 2));
  });
  ExpectNone("activation", [&] {
    PerceiverWeights weights;
    weights.attention = Heads();
    weights.w_up = weights.w_down = In(2, 2);
    PerceiverBlock(In(2, 2), In(2, 2), weights, {.attention = {}, .activation = kNone<Activation>},
                   Out(2, 2));
  });
}

// Sizes that no machine has.
TEST(HugeSizes, AreErrorsOfHeed) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  ExpectRefused(ErrorCode::kMemory, "could not allocate", [] { AlibiSlopes(kMost); });
  ExpectRefused(ErrorCode::kMemory, "could not allocate",
                [] { RopeFrequencies(kMost - 1, 1e4, {}); });
  const std::vector<int32_t> offsets = {0, 2};
  ExpectRefused(ErrorCode::kMemory, "could not allocate",
                [&] { DocumentsFromCuSeqlens(offsets, kMost); });
  ExpectRefused(ErrorCode::kRange, "len = -1", [&] { DocumentsFromCuSeqlens(offsets, -1); });
  ExpectRefused(ErrorCode::kRange, "must begin with 0", [] { DocumentsFromCuSeqlens({}, 4); });
}

TEST(CapturedTensors, MustBeThere) {
  const float number = 1;
  const auto compile = [](std::vector<CapturedTensor> captured) {
    CompileExpression("score_mod", "score + a", ExpressionValue::kScore, std::move(captured));
  };
  compile({{"a", 0, {}, {}, &number}});
  const auto refused = [&](ErrorCode code, const std::string& text,
                           std::vector<CapturedTensor> captured) {
    ExpectRefused(code, text, [&] { compile(std::move(captured)); });
  };
  refused(ErrorCode::kOption, "`a` is missing", {{"a", 0, {}, {}, nullptr}});
  refused(ErrorCode::kShape, "rank -1", {{"a", -1, {}, {}, &number}});
  refused(ErrorCode::kShape, "`a` has", {{"a", 1, {-1}, {1}, &number}});
  refused(ErrorCode::kOption, "already means something",
          {{"a", 0, {}, {}, &number}, {"a", 0, {}, {}, &number}});
}

}  // namespace
}  // namespace heed::testing
