// Operations by name do what the typed functions do, and refuse what does not fit.
#include "heed/operations.h"

#include <limits>
#include <map>
#include <vector>

#include "analysis_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/merge.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Memory of the planned results.
struct Outputs {
  explicit Outputs(const Request& request) {
    for (const OutputSpec& spec : PlanOperation(request)) {
      int64_t count = 1;
      AnyTensor tensor;
      tensor.dtype = spec.dtype;
      tensor.rank = spec.rank;
      tensor.shape = spec.shape;
      for (int axis = spec.rank - 1; axis >= 0; --axis) {
        tensor.strides[static_cast<size_t>(axis)] = count;
        count *= spec.shape[static_cast<size_t>(axis)];
      }
      memory[spec.name].assign(static_cast<size_t>(count), kNan);
      tensor.data = memory[spec.name].data();
      named.push_back({spec.name, tensor});
    }
    RunOperation(request, named);
  }
  std::vector<uint32_t> BitsOf(const std::string& name) const {
    std::vector<uint32_t> bits;
    for (const float x : memory.at(name)) bits.push_back(std::bit_cast<uint32_t>(x));
    return bits;
  }
  std::map<std::string, std::vector<float>> memory;  // every element type has at most 4 bytes
  std::vector<NamedTensor> named;
};

class Operations : public ::testing::Test {
 protected:
  Operations() {
    c_ = MakeCase({.batch = 2,
                   .num_heads = 4,
                   .num_kv_heads = 2,
                   .q_len = 9,
                   .kv_len = 9,
                   .head_dim = 5,
                   .head_dim_v = 3});
    c_.scalars.causal = true;
    c_.sinks = {1, 0, -1, 2};
  }

  // The case's inputs and parameters, for an operation.
  Request Make(const std::string& id) const {
    Request request = c_.request();
    request.id = id;
    return request;
  }

  AttentionCase c_;
};

TEST_F(Operations, AnalyzeIsAnalyze) {
  Buffer<float> entropy({2, 4, 9, 1}, Layout::kDense, kNan), lse = entropy, max = entropy;
  Buffer<float> distance = entropy, columns = entropy;
  Buffer<float> top({2, 4, 9, 2}, Layout::kDense, kNan);
  Buffer<int32_t> index({2, 4, 9, 2}, Layout::kDense, -7);
  Buffer<int32_t> max_index({2, 4, 9, 1}, Layout::kDense, -7);
  Analyze(c_.q.view(), c_.k.view(), c_.options(), {},
          {.entropy = entropy.view(),
           .top_weights = top.view(),
           .top_indices = index.view(),
           .max_weight = max.view(),
           .max_index = max_index.view(),
           .expected_distance = distance.view(),
           .column_sums = columns.view(),
           .lse = lse.view()});
  Request request = Make("analyze");
  for (const char* name : {"entropy", "max", "expected_distance", "column_sums", "return_lse"}) {
    request.params.push_back({name, true});
  }
  request.params.push_back({"top_weights", 2.0});
  const Outputs out(request);
  EXPECT_EQ(out.BitsOf("entropy"), Bits(entropy));
  EXPECT_EQ(out.BitsOf("max_weight"), Bits(max));
  EXPECT_EQ(out.BitsOf("top_weights"), Bits(top));
  EXPECT_EQ(out.BitsOf("expected_distance"), Bits(distance));
  EXPECT_EQ(out.BitsOf("column_sums"), Bits(columns));
  EXPECT_EQ(out.BitsOf("lse"), Bits(lse));
  const auto* indices = reinterpret_cast<const int32_t*>(out.memory.at("top_indices").data());
  EXPECT_EQ(std::vector<int32_t>(indices, indices + index.size()), index.Elements());
}

TEST_F(Operations, OptionsThatTheRequestOwnsArrive) {
  c_.sinks.clear();
  c_.scalars.score = Score::kSquaredDistance;
  c_.width = {2.0f};
  Buffer<float> entropy({2, 4, 9, 1}, Layout::kDense, kNan);
  Analyze(c_.q.view(), c_.k.view(), c_.options(), {}, {.entropy = entropy.view()});
  const std::vector<NamedTensor> inputs = {{"q", c_.q.any(DType::kFloat32)},
                                           {"k", c_.k.any(DType::kFloat32)},
                                           {"v", c_.v.any(DType::kFloat32)}};
  const Request request = {"analyze",
                           inputs,
                           {{"score", std::string("squared_distance")},
                            {"width", 2.0},
                            {"causal", true},
                            {"entropy", true}}};
  EXPECT_EQ(Outputs(request).BitsOf("entropy"), Bits(entropy));
}

// top_k is the normaliser's, as everywhere.
TEST_F(Operations, AnalyzeKeepsTheNormalisersTopK) {
  c_.sinks.clear();
  Request request = Make("analyze");
  for (const char* name : {"entropy", "max"}) request.params.push_back({name, true});
  request.params.push_back({"normalize", std::string("top_k")});
  request.params.push_back({"top_k", 1.0});
  const Outputs out(request);
  EXPECT_THAT(out.memory.at("entropy"), ::testing::Each(0.0f));
  EXPECT_THAT(out.memory.at("max_weight"), ::testing::Each(1.0f));
}

TEST_F(Operations, TilesTakeTheLse) {
  Results all = RunAttention(c_, {.lse = true, .weights = true});
  Request request = Make("weights_tile");
  request.inputs.push_back({"lse", all.lse.any(DType::kFloat32, 3)});
  for (const auto& [name, value] :
       std::map<std::string, double>{{"q_begin", 2}, {"q_end", 9}, {"k_begin", 1}, {"k_end", 5}}) {
    request.params.push_back({name, value});
  }
  const Outputs out(request);
  size_t n = 0;
  for (int64_t row = 0; row < 2 * 4 * 7; ++row) {
    for (int64_t j = 1; j < 5; ++j) {
      EXPECT_NEAR(out.memory.at("weights")[n++], all.weights(row / 28, row / 7 % 4, row % 7 + 2, j),
                  4 * kAnalysisMaxError);
    }
  }
}

TEST_F(Operations, TheRestIsTheTypedFunctions) {
  Buffer<float> cosine({2, 4, 4, 1}, Layout::kDense, kNan);
  HeadSimilarity(c_.q.view(), c_.k.view(), c_.options(), {.cosine = cosine.view()});
  Request request = Make("head_similarity");
  request.params.push_back({"cosine", true});
  EXPECT_EQ(Outputs(request).BitsOf("cosine"), Bits(cosine));

  Buffer<float> start({2, 1, 3, 9}, Layout::kDense, 0.25f), rows = start;
  const RolloutLayer layer[] = {{c_.q.view(), c_.k.view(), c_.options()}};
  Rollout(layer, 0.25, start.view(), rows.view());
  request = Make("rollout_layer");
  AnyTensor three = start.any(DType::kFloat32, 3);
  three.shape = {2, 3, 9, 0};
  three.strides = {27, 9, 1, 0};
  request.inputs.push_back({"rows", three});
  request.params.push_back({"residual", 0.25});
  EXPECT_EQ(Outputs(request).BitsOf("rows"), Bits(rows));

  Buffer<float> x({2, 4, 9, 2}, Layout::kDense, 0.5f), y = x;
  MultiHop(c_.q.view(), c_.k.view(), c_.options(), 2, x.view(), y.view());
  request = Make("multi_hop");
  request.inputs.push_back({"x", x.any(DType::kFloat32)});
  request.params.push_back({"hops", 2.0});
  EXPECT_EQ(Outputs(request).BitsOf("output"), Bits(y));

  Buffer<float> change({2, 4, 1, 9}, Layout::kDense, kNan);
  Buffer<float> without({2, 4, 9, 3}, Layout::kDense, kNan);
  Erasure(c_.q.view(), c_.k.view(), c_.v.view(), c_.options(), 6, 7,
          {.change = change.view(), .without = without.view()});
  request = Make("erasure");
  request.params.push_back({"change", true});
  request.params.push_back({"without", true});
  request.params.push_back({"q_begin", 6.0});
  request.params.push_back({"q_end", 7.0});
  EXPECT_EQ(Outputs(request).BitsOf("change"), Bits(change));
  EXPECT_EQ(Outputs(request).BitsOf("without"), Bits(without));
}

TEST_F(Operations, OfGivenTensors) {
  Buffer<float> maps({1, 2, 3, 3}, Layout::kDense, 0.5f);
  Buffer<float> flow({1, 1, 1, 3}, Layout::kDense, kNan);
  const int64_t sources[] = {1};
  AttentionFlow(maps.view(), sources, flow.view());
  Request request{"attention_flow",
                  {{"maps", maps.any(DType::kFloat32)}},
                  {{"sources", std::vector<double>{1}}}};
  EXPECT_EQ(Outputs(request).BitsOf("flow"), Bits(flow));

  const Results r = RunAttention(c_);
  request = {"head_importance", {{"output", r.output.any(DType::kFloat32)}}, {}};
  const Outputs importance(request);
  EXPECT_EQ(importance.memory.at("importance"), HeadImportance(r.output.view(), {}));
  request = {"prune_heads", {{"importance", importance.named[0].tensor}}, {{"num_kept", 1.0}}};
  const Outputs keep(request);
  const auto* kept = reinterpret_cast<const uint8_t*>(keep.memory.at("keep").data());
  EXPECT_EQ(std::vector<uint8_t>(kept, kept + 4),
            PruneHeads(importance.memory.at("importance"), 1));

  request = {
      "merge",
      {{"output_0", r.output.any(DType::kFloat32)}, {"lse_0", r.lse.any(DType::kFloat32, 3)}},
      {}};
  EXPECT_EQ(Outputs(request).BitsOf("output"), Bits(r.output));
  EXPECT_EQ(Outputs(request).BitsOf("lse"), Bits(r.lse));
}

TEST_F(Operations, RefuseWhatDoesNotFit) {
  const auto expect_refused = [](const Request& request, const std::string& word) {
    try {
      PlanOperation(request);
      ADD_FAILURE() << request.id << " was not refused: " << word;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(word));
    }
  };
  expect_refused(Make("nothing"), "unknown");
  Request request = Make("analyze");
  request.params.push_back({"return_weights", true});
  expect_refused(request, "neither weights");
  request = Make("analyze");
  request.params.push_back({"top_weights", 10.0});
  expect_refused(request, "top_weights = 10");
  request = Make("weights_tile");
  expect_refused(request, "q_begin is missing");
  request = Make("attention_flow");
  expect_refused(request, "attention_flow");
  request = {"merge", {{"output_0", c_.q.any(DType::kFloat32)}}, {}};
  expect_refused(request, "pairs");
  request = {"merge", {}, {}};
  expect_refused(request, "at least one");
  request = Make("multi_hop");
  expect_refused(request, "x is missing");
}

}  // namespace
}  // namespace heed::testing
