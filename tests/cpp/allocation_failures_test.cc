// Any single allocation of a call may fail: the failure is heed's, and the call works when it is
// made again. Scratch memory, which does not come from operator new, is not failed here.
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "backward_case.h"
#include "every_row.h"
#include "expect_memory_errors.h"
#include "gtest/gtest.h"
#include "heed/heed.h"
#include "random.h"
#include "random_request.h"
#include "request_outcome.h"

namespace heed::testing {
namespace {

// Calls of small sizes on one thread, the test's own.
class AllocationFailures : public ::testing::Test {
 protected:
  static constexpr int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kLen = 40, kDim = 16;
  static constexpr float kUnwritten = 777;

  TensorView<const float> In(int64_t batch, int64_t heads, int64_t len, int64_t dim) {
    std::vector<float>& values =
        inputs_.emplace_back(static_cast<size_t>(batch * heads * len * dim));
    for (float& x : values) x = 0.5f * random_.Normal();
    return Contiguous<const float>(values.data(), batch, heads, len, dim);
  }
  TensorView<float> Out(int64_t batch, int64_t heads, int64_t len, int64_t dim) {
    std::vector<float>& values =
        outputs_.emplace_back(static_cast<size_t>(batch * heads * len * dim));
    return Contiguous(values.data(), batch, heads, len, dim);
  }
  TensorView<const float> Queries() { return In(kBatch, kHeads, kLen, kDim); }
  TensorView<const float> Keys() { return In(kBatch, kKvHeads, kLen, kDim); }
  TensorView<float> Rows() { return Out(kBatch, kHeads, kLen, kDim); }
  TensorView<float> Map() { return Out(kBatch, kHeads, kLen, kLen); }

  // Results may be half written.
  template <class Body>
  void Expect(const std::string& what, const Body& body) {
    ExpectMemoryErrors(what, body);
  }

  // Everything is allocated before anything is written.
  template <class Body>
  void ExpectNothingWritten(const std::string& what, const Body& body) {
    const auto clear = [&] {
      for (std::vector<float>& values : outputs_)
        std::fill(values.begin(), values.end(), kUnwritten);
    };
    const auto cleared = [&] {
      clear();
      body();
    };
    ExpectMemoryErrors(what, cleared, [&] {
      for (const std::vector<float>& values : outputs_) {
        for (const float x : values) ASSERT_EQ(x, kUnwritten);
      }
    });
    outputs_.clear();
  }

  MultiHeadWeights LayerWeights() {
    MultiHeadWeights w;
    w.w_q = In(1, kHeads, 4, kDim);
    w.w_k = In(1, kKvHeads, 4, kDim);
    w.w_v = In(1, kKvHeads, 4, kDim);
    w.w_o = In(1, kDim, kHeads, 4);
    return w;
  }

  ThreadPool& pool() { return *pool_; }

 private:
  Random random_{1};
  std::deque<std::vector<float>> inputs_, outputs_;
  std::unique_ptr<ThreadPool> pool_ = MakeThreadPool(1);
};

TEST_F(AllocationFailures, OfExactAttention) {
  const auto q = Queries(), k = Keys(), v = Keys();
  const std::vector<int32_t> lengths = {30, 40};
  const std::vector<float> sinks = {0, 1, 2, 3}, slopes = {0.1f, 0.1f, 0.2f, 0.3f};
  AttentionOptions options;
  options.causal = true;
  options.sinks = sinks;
  options.key_lengths = lengths;
  AttentionOutputs all;
  all.output = Rows();
  all.lse = Out(kBatch, kHeads, kLen, 1);
  all.weights = Map();
  ExpectNothingWritten("softmax", [&] { Attention(q, k, v, options, all, &pool()); });

  AttentionOptions patterns;
  patterns.normalize = Normalize::kSparsemax;
  patterns.patterns = {KeepPattern(BigBird{4, 3, 1, 1, 3}),
                       KeepPattern(Longformer{5, {1}, {3, 4}})};
  AttentionOutputs output;
  output.output = Rows();
  ExpectNothingWritten("patterns", [&] { Attention(q, k, v, patterns, output, &pool()); });
  std::vector<uint8_t> picture(static_cast<size_t>(kBatch * kHeads * kLen * kLen));
  const auto pixels = Contiguous(picture.data(), kBatch, kHeads, kLen, kLen);
  Expect("a picture", [&] { Explain(patterns, pixels); });

  AttentionOptions tables;
  tables.causal = true;
  tables.normalize = Normalize::kCope;
  tables.cope_table = In(1, 1, 5, kDim);
  tables.relative_keys = In(1, 1, 5, kDim);
  tables.alibi_slopes = slopes;
  output.output = Rows();
  ExpectNothingWritten("tables", [&] { Attention(q, k, v, tables, output, &pool()); });
}

TEST_F(AllocationFailures, OfPackedAndMergedAttention) {
  const auto q = In(1, kHeads, kLen, kDim), k = In(1, kKvHeads, kLen, kDim);
  const std::vector<int32_t> ends = {0, 10, 10, 40};
  AttentionOptions options;
  options.score_mod = [](const PairTile&) {};
  AttentionOutputs output;
  output.output = Out(1, kHeads, kLen, kDim);
  ExpectNothingWritten("packed",
                       [&] { AttentionVarlen(q, k, k, ends, ends, options, output, &pool()); });

  const PartialAttention parts[] = {{q, In(1, kHeads, kLen, 1)}, {q, In(1, kHeads, kLen, 1)}};
  const auto to = Out(1, kHeads, kLen, kDim), lse = Out(1, kHeads, kLen, 1);
  ExpectNothingWritten("merged", [&] { Merge(parts, to, lse, &pool()); });
}

TEST_F(AllocationFailures, OfGradients) {
  const auto q = Queries(), k = Keys(), v = Keys(), d_out = Queries(), out = Queries();
  const auto lse = In(kBatch, kHeads, kLen, 1);
  AttentionOptions options;
  options.causal = true;
  options.relative_keys = In(1, 1, 5, kDim);
  AttentionGradients gradients;
  gradients.d_q = Rows();
  gradients.d_k = Out(kBatch, kKvHeads, kLen, kDim);
  gradients.d_relative_keys = Out(1, 1, 5, kDim);
  Expect("tables",
         [&] { AttentionBackward(q, k, v, out, lse, d_out, options, gradients, &pool()); });

  AttentionOptions entmax;
  entmax.normalize = Normalize::kEntmax15;
  AttentionGradients plain;
  plain.d_q = Rows();
  plain.d_v = Out(kBatch, kKvHeads, kLen, kDim);
  Expect("entmax", [&] { AttentionBackward(q, k, v, {}, {}, d_out, entmax, plain, &pool()); });
}

TEST_F(AllocationFailures, OfSlopesAndExpressions) {
  Expect("expression",
         [&] { CompileExpression("score_mod", "score * 2 + qIndex", ExpressionValue::kScore); });
  Expect("feature map", [&] { CompileFeatureMap("feature_mod", "x > 0 ? x + 1 : exp(x)"); });
}

TEST_F(AllocationFailures, OfRecurrentAttention) {
  const auto q = Queries(), k = Keys(), v = Keys(), d_out = Queries();
  RecurrentOutputs outputs;
  outputs.output = Rows();
  RecurrentGradients gradients;
  gradients.d_q = Rows();
  gradients.d_k = Out(kBatch, kKvHeads, kLen, kDim);
  gradients.d_v = Out(kBatch, kKvHeads, kLen, kDim);
  RecurrentOptions plain, delta, random, learning, levels;
  delta.delta = true;
  delta.feature_map = FeatureMap::kUnit;
  random.feature_map = FeatureMap::kRandom;
  random.normalize = true;
  random.projection = In(1, 1, 20, kDim);
  learning.mini_batch = 8;
  levels.level_weights = In(kBatch, kHeads, kLen, 8);
  for (const RecurrentOptions* options : {&plain, &delta, &random, &learning, &levels}) {
    Expect("forward", [&] { RecurrentAttention(q, k, v, *options, outputs, &pool()); });
    Expect("backward", [&] { RecurrentBackward(q, k, v, d_out, *options, gradients, &pool()); });
  }
  const auto projection = Out(1, 1, 20, kDim);
  Expect("random features", [&] { DrawRandomFeatures(3, projection); });
}

TEST_F(AllocationFailures, OfSelectiveAttention) {
  const auto q = Queries(), k = Keys(), v = Keys();
  AttentionOutputs output;
  output.output = Rows();
  AttentionOutputs maps = output;
  maps.weights = Map();
  BlockMixtureOptions mixture;
  mixture.key_block = 8;
  mixture.top_blocks = 2;
  Expect("block mixture", [&] { BlockMixtureAttention(q, k, v, mixture, output, &pool()); });
  ReformerOptions reformer;
  reformer.hash_chunk = 8;
  Expect("Reformer", [&] { ReformerAttention(q, v, reformer, maps, &pool()); });
  NativeSparseOptions sparse;
  sparse.compress_block = 8;
  sparse.compress_stride = 4;
  sparse.key_block = 32;
  sparse.window_len = 8;
  const auto gates = In(kBatch, kHeads, kLen, 3);
  Expect("native sparse",
         [&] { NativeSparseAttention(q, k, v, gates, sparse, output.output, &pool()); });
  IndexedOptions indexed;
  indexed.top_k = 4;
  const IndexTensors index = {In(kBatch, 2, kLen, 4), In(kBatch, 1, kLen, 4),
                              In(kBatch, 2, kLen, 1)};
  Expect("indexed", [&] { IndexedAttention(q, k, v, index, indexed, output, &pool()); });
  RoutingOptions routing;
  routing.num_clusters = 4;
  Expect("routing", [&] { RoutingAttention(q, k, v, routing, maps, &pool()); });
  SinkhornOptions sinkhorn;
  sinkhorn.key_block = 8;
  Expect("Sinkhorn", [&] { SinkhornAttention(q, k, v, sinkhorn, output.output, &pool()); });
}

TEST_F(AllocationFailures, OfCachePolicies) {
  const auto q = Queries(), k = Keys(), v = Keys();
  AttentionOutputs output;
  output.output = Rows();
  StreamingOptions streaming;
  Expect("streaming", [&] { StreamingAttention(q, k, v, streaming, output, &pool()); });
  QuestOptions quest;
  quest.page_size = 4;
  quest.top_pages = 2;
  Expect("Quest", [&] { QuestAttention(q, k, v, quest, output, &pool()); });
  HeavyHitterOptions hitters;
  hitters.recent_tokens = 4;
  hitters.heavy_tokens = 4;
  const auto few = In(1, 2, 12, kDim);
  AttentionOutputs maps;
  maps.output = Out(1, 2, 12, kDim);
  maps.weights = Out(1, 2, 12, 12);
  Expect("heavy hitters", [&] { HeavyHitterAttention(few, few, few, hitters, maps, &pool()); });
}

TEST_F(AllocationFailures, OfCaches) {
  KvCacheOptions options;
  options.batch = kBatch;
  options.num_kv_heads = kKvHeads;
  options.head_dim = kDim;
  options.page_size = 4;
  Expect("a cache", [&] { const KvCache cache(options); });
  KvCache cache(options);
  const auto k = Keys(), more = In(kBatch, kKvHeads, 5, kDim);
  cache.Append(k, k);
  Expect("a fork", [&] { cache.Fork(); });
  Expect("tokens", [&] { cache.Fork().Append(more, more); });
  Expect("the tokens of a head", [&] { cache.tokens(0, 0); });
  Expect("its memory", [&] { cache.memory(); });
  const auto q = In(kBatch, kHeads, 1, kDim);
  AttentionOutputs output;
  output.output = Out(kBatch, kHeads, 1, kDim);
  DecodeOptions all, pages;
  pages.top_pages = 2;
  ExpectNothingWritten("decoding", [&] { Decode(q, cache, all, output, &pool()); });
  output.output = Out(kBatch, kHeads, 1, kDim);
  ExpectNothingWritten("pages", [&] { Decode(q, cache, pages, output, &pool()); });
}

TEST_F(AllocationFailures, OfLowRankAttention) {
  const auto q = Queries(), k = Keys(), v = Keys();
  AttentionOutputs output;
  output.output = Rows();
  AttentionOutputs maps = output;
  maps.weights = Map();
  LinformerOptions linformer;
  linformer.key_projection = In(1, 1, 7, kLen);
  Expect("Linformer", [&] { Linformer(q, k, v, linformer, output, &pool()); });
  Expect("efficient", [&] { EfficientAttention(q, k, v, {}, maps, &pool()); });
  NystromOptions nystrom;
  nystrom.num_landmarks = 6;
  NystromOutputs landmarks;
  landmarks.output = output.output;
  landmarks.weights = maps.weights;
  Expect("Nystrom", [&] { NystromAttention(q, k, v, nystrom, landmarks, &pool()); });
  MemoryCompressedOptions compressed;
  compressed.key_conv = In(1, kDim, kDim, 3);
  Expect("memory compressed",
         [&] { MemoryCompressedAttention(q, k, v, compressed, output, &pool()); });
}

TEST_F(AllocationFailures, OfComposedAttention) {
  const auto q = Queries(), k = Keys(), v = Keys();
  AttentionOutputs output;
  output.output = Rows();
  AttentionOutputs maps = output;
  maps.weights = Map();
  Expect("differential", [&] { DifferentialAttention(q, k, v, {}, maps, &pool()); });
  const std::vector<float> mix(kHeads * kHeads, 0.25f);
  TalkingHeadsOptions talking;
  talking.mix_scores = mix;
  talking.mix_weights = mix;
  Expect("talking heads", [&] { TalkingHeadsAttention(q, k, v, talking, output, &pool()); });
  HopfieldOptions hopfield;
  hopfield.steps = 3;
  Expect("Hopfield", [&] { HopfieldRetrieval(q, k, v, hopfield, output, &pool()); });
  Expect("gated", [&] { GatedAttention(q, k, v, q, {}, output, &pool()); });
  const auto one = In(1, kHeads, kLen, kDim);
  Expect("pooling", [&] { AttentionPooling(one, k, v, {}, output, &pool()); });
  AttentionFreeOptions free;
  free.local_window = 3;
  free.attention.bias = In(1, 1, kLen, kLen);
  Expect("attention-free", [&] { AttentionFree(q, k, v, free, output.output, &pool()); });
}

TEST_F(AllocationFailures, OfKeylessAttention) {
  const auto q = Queries();
  const std::vector<int32_t> lengths = {30, 40};
  ExternalOptions options;
  options.lengths = lengths;
  const auto memory = In(1, kHeads, 6, kDim);
  AttentionOutputs output;
  output.output = Rows();
  Expect("external", [&] { ExternalAttention(q, memory, memory, options, output, &pool()); });
  const auto weight = In(1, kHeads, kLen, kDim), v = In(kBatch, kHeads, kLen, kDim);
  Expect("dense", [&] { DenseSynthesizer(q, weight, {}, v, {}, output, &pool()); });
  const auto scores = In(1, kHeads, kLen, kLen);
  Expect("random", [&] { RandomSynthesizer(scores, v, {}, output, &pool()); });

  const auto nodes = Keys();
  std::vector<int32_t> edges;
  for (int i = 0; i < 4 * kLen; ++i) edges.push_back(i % kLen);
  const std::vector<float> score_weight(kHeads * 2 * kDim, 0.1f);
  GraphOutputs graph;
  graph.output = Rows();
  Expect("graph",
         [&] { GraphAttention(q, nodes, nodes, edges, score_weight, {}, graph, &pool()); });
}

TEST_F(AllocationFailures, OfLayers) {
  const auto x = In(kBatch, 1, kLen, kDim);
  const MultiHeadWeights weights = LayerWeights();
  MultiHeadOptions options;
  options.add_zero_attn = true;
  MultiHeadOutputs outputs;
  outputs.output = Out(kBatch, 1, kLen, kDim);
  outputs.weights = Out(kBatch, 1, kLen, kLen + 1);
  Expect("multi-head", [&] { MultiHead(x, x, x, weights, options, outputs, &pool()); });
  TransformerBlockWeights block;
  block.attention = weights;
  block.w_up = In(1, 1, 20, kDim);
  block.w_down = In(1, 1, kDim, 20);
  Expect("block", [&] { TransformerBlock(x, block, {}, outputs.output, &pool()); });
  SetBlockWeights set;
  set.attention = weights;
  set.w_ff = In(1, 1, kDim, kDim);
  Expect("set block", [&] { SetAttentionBlock(x, x, set, {}, outputs.output, &pool()); });
  const auto inducing = In(1, 1, 3, kDim);
  Expect("induced",
         [&] { InducedSetAttention(x, inducing, set, set, {}, outputs.output, &pool()); });
  PerceiverWeights perceiver;
  perceiver.attention = weights;
  perceiver.w_up = In(1, 1, 20, kDim);
  perceiver.w_down = In(1, 1, kDim, 20);
  Expect("Perceiver", [&] { PerceiverBlock(x, x, perceiver, {}, outputs.output, &pool()); });
  MultiHeadAttentionSizes sizes;
  sizes.embed_dim = 8;
  sizes.num_heads = 2;
  Expect("a layer", [&] { const MultiHeadAttention layer(sizes); });
}

TEST_F(AllocationFailures, OfLatentAttention) {
  const auto q = In(kBatch, kHeads, kLen, 12), latent = In(kBatch, 1, kLen, 8);
  const auto k_rope = In(kBatch, 1, kLen, 4), w_uk = In(1, kHeads, 8, 8);
  const auto w_uv = In(1, kHeads, kDim, 8);
  AttentionOutputs outputs;
  outputs.output = Rows();
  outputs.weights = Map();
  for (const LatentForm form : {LatentForm::kNaive, LatentForm::kAbsorbed}) {
    LatentOptions options;
    options.form = form;
    Expect("latent",
           [&] { LatentAttention(q, latent, k_rope, w_uk, w_uv, options, outputs, &pool()); });
  }
}

TEST_F(AllocationFailures, OfAnalyses) {
  const auto q = Queries(), k = Keys(), v = Keys();
  AnalysisOutputs analysis;
  analysis.entropy = Out(kBatch, kHeads, kLen, 1);
  analysis.column_sums = Out(kBatch, kHeads, kLen, 1);
  ExpectNothingWritten("analysis", [&] { Analyze(q, k, {}, {}, analysis, &pool()); });
  const auto tile = Out(kBatch, kHeads, 5, 6);
  Expect("a tile", [&] { WeightsTile(q, k, {}, {}, {0, 5, 0, 6}, tile, &pool()); });
  HeadSimilarityOutputs similarity;
  similarity.cosine = Out(kBatch, kHeads, kHeads, 1);
  Expect("similarity", [&] { HeadSimilarity(q, k, {}, similarity, &pool()); });
  const RolloutLayer layers[] = {{q, k}, {q, k}};
  const auto start = In(kBatch, 1, 2, kLen);
  const auto rows = Out(kBatch, 1, 2, kLen);
  Expect("rollout", [&] { Rollout(layers, 0.5, start, rows, &pool()); });
  const auto x = In(kBatch, kHeads, kLen, 8);
  const auto hops = Out(kBatch, kHeads, kLen, 8);
  Expect("hops", [&] { MultiHop(q, k, {}, 3, x, hops, &pool()); });
  ErasureOutputs erasure;
  erasure.change = Out(kBatch, kHeads, 5, kLen);
  Expect("erasure", [&] { Erasure(q, k, v, {}, 0, 5, erasure, &pool()); });
  AttributionOutputs attribution;
  attribution.pairs = Out(kBatch, kHeads, 5, kLen);
  Expect("attribution", [&] {
    Attribution(q, k, v, q, {}, AttributionTerms::kPositive, {0, 5, 0, kLen}, attribution, &pool());
  });
}

TEST_F(AllocationFailures, OfFlowAndHeads) {
  const auto maps = In(2, 2, 6, 6);
  for (int64_t n = 0; n < maps.size(); ++n) const_cast<float*>(maps.data)[n] = 0.3f;
  const std::vector<int64_t> sources = {0, 1};
  const auto flow = Out(2, 1, 2, 6);
  Expect("flow", [&] { AttentionFlow(maps, sources, flow, &pool()); });
  const auto output = Queries();
  Expect("importance", [&] { HeadImportance(output, {}); });
  const std::vector<float> importance = {3, 1, 2};
  Expect("pruning", [&] { PruneHeads(importance, 2); });
  Expect("slopes", [&] { AlibiSlopes(3); });
  const std::vector<int32_t> rows = {0, 1};
  Expect("pairs", [&] { KeepFromCoo(rows, rows, 4, 4); });
  Expect("an offset", [&] { QueryOffset::At(3); });
  Expect("a pool", [&] { MakeThreadPool(1); });
}

TEST_F(AllocationFailures, OfProductsAndPositions) {
  const auto x = In(1, 1, 200, kDim), weight = In(1, 1, 20, kDim);
  const auto y = Out(1, 1, 200, 20);
  ExpectNothingWritten("linear", [&] { Linear(x, weight, {}, y, &pool()); });
  const auto q = Queries();
  const auto turned = Rows();
  const RopeOptions options;
  ExpectNothingWritten("rope", [&] { Rope(q, RopePairing::kHalf, options, turned, &pool()); });
  const auto coded = Rows();
  ExpectNothingWritten("sinusoidal", [&] { AddSinusoidal(q, {}, coded, &pool()); });
  Expect("frequencies", [&] { RopeFrequencies(8, 10000, {}, 10); });
}

// Draws of a row that are accepted.
std::vector<DrawnRequest> SomeDraws(std::string_view id) {
  std::vector<DrawnRequest> draws;
  for (uint64_t seed = 0; seed < 20 && draws.size() < 2; ++seed) {
    const Draw kind = seed == 0 ? Draw::kLeast : Draw::kTidy;
    DrawnRequest draw = DrawRequest(*FindMechanism(id), kind, seed);
    if (!Try([&] { PlanOutputs(draw.request()); }).thrown()) draws.push_back(std::move(draw));
  }
  return draws;
}

// Memory for results of any type.
struct Results {
  explicit Results(const std::vector<OutputSpec>& specs) {
    for (const OutputSpec& spec : specs) {
      const auto shape = std::span(spec.shape).first(static_cast<size_t>(spec.rank));
      int64_t count = 1;
      for (const int64_t extent : shape) count *= extent;
      std::vector<double>& values = memory.emplace_back(static_cast<size_t>(count) + 1);
      named.push_back({spec.name, ContiguousTensor(spec.dtype, values.data(), shape)});
    }
  }
  std::deque<std::vector<double>> memory;
  std::vector<NamedTensor> named;
};

class AllocationFailuresByName : public ::testing::TestWithParam<std::string_view> {
 protected:
  std::unique_ptr<ThreadPool> pool_ = MakeThreadPool(1);
};

INSTANTIATE_TEST_SUITE_P(Registry, AllocationFailuresByName, ::testing::ValuesIn(AllRows()),
                         RowName);

TEST_P(AllocationFailuresByName, OfCalls) {
  const std::vector<DrawnRequest> draws = SomeDraws(GetParam());
  ASSERT_FALSE(draws.empty());
  for (const DrawnRequest& draw : draws) {
    SCOPED_TRACE(draw.Describe());
    const Request request = draw.request();
    const Outcome before = RunOn(request, pool_.get());
    ExpectMemoryErrors("PlanOutputs", [&] { PlanOutputs(request); });
    ExpectMemoryErrors("EstimateCost", [&] { EstimateCost(request, 1); });
    const Results results(PlanOutputs(request));
    ExpectMemoryErrors("Run", [&] { heed::Run(request, results.named, pool_.get()); });
    EXPECT_EQ(RunOn(request, pool_.get()).bytes, before.bytes);
  }
}

TEST_P(AllocationFailuresByName, OfGradients) {
  const DrawnRequest draw = DrawRequest(*FindMechanism(GetParam()), Draw::kLeast, 0);
  const Request request = draw.request();
  const Refusal refusal = Try([&] { PlanBackward(request); });
  if (refusal.thrown()) GTEST_SKIP() << refusal.text;
  Backward backward(request, pool_.get());
  ExpectMemoryErrors("PlanBackward", [&] { PlanBackward(request); });
  ExpectMemoryErrors("RunForward",
                     [&] { RunForward(request, backward.results.named(), pool_.get()); });
  ExpectMemoryErrors("RunBackward", [&] { backward.Run(request, pool_.get()); });
}

}  // namespace
}  // namespace heed::testing
