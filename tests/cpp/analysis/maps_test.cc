// Head similarity, rollout, multi-hop and flow against loops over whole matrices.
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "analysis_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using ::testing::ElementsAre;

class MapsTest : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(MapsTest);

struct Similarity {
  Buffer<float> cosine, frobenius, jensen_shannon;
};

Similarity RunSimilarity(const AttentionCase& c, ThreadPool* pool = nullptr) {
  const Extents shape = {c.sizes.batch, c.sizes.num_heads, c.sizes.num_heads, 1};
  Similarity s;
  for (Buffer<float>* buffer : {&s.cosine, &s.frobenius, &s.jensen_shannon}) {
    *buffer = Buffer<float>(shape, Layout::kPadded, kNan);
  }
  HeadSimilarity(c.q.view(), c.k.view(), c.options(),
                 {s.cosine.view(), s.frobenius.view(), s.jensen_shannon.view()}, pool);
  return s;
}

TEST_P(MapsTest, SimilarityMatchesReference) {
  for (const AttentionCase& c : AnalysisCases()) {
    SCOPED_TRACE(c.Describe());
    const reference::WeightMaps maps = reference::Weights(c.request());
    Similarity s = RunSimilarity(c);
    const double bound = 4 * kAnalysisMaxError;
    const double rows = static_cast<double>(c.sizes.q_len);
    s.cosine.ForEach([&](int64_t b, int64_t g, int64_t h, int64_t, float& cosine) {
      const auto of_g = maps.Map(b, g), of_h = maps.Map(b, h);
      EXPECT_NEAR(cosine, reference::Cosine(of_g, of_h), bound);
      EXPECT_NEAR(s.frobenius(b, g, h, 0), reference::Frobenius(of_g, of_h), bound * rows);
      EXPECT_NEAR(s.jensen_shannon(b, g, h, 0),
                  reference::JensenShannon(of_g, of_h, c.sizes.kv_len), bound);
      if (g != h) return;
      EXPECT_EQ(s.frobenius(b, g, h, 0), 0.0f);
      EXPECT_EQ(s.jensen_shannon(b, g, h, 0), 0.0f);
    });
  }
}

// Squares of weights that float32 cannot hold, small and large ones.
TEST_P(MapsTest, WeightsOfAnySizeAreAlikeToThemselves) {
  for (const double shift : {-60.0, 70.0}) {
    AttentionCase c = MakeCase({.num_heads = 2, .num_kv_heads = 2, .q_len = 3, .kv_len = 30});
    c.scalars.normalize = shift < 0 ? Normalize::kSigmoid : Normalize::kReluSquared;
    if (shift < 0) c.scalars.sigmoid_bias = shift;
    if (shift > 0) c.scalars.scale = 1e8;
    const reference::WeightMaps maps = reference::Weights(c.request());
    const Similarity s = RunSimilarity(c);
    for (int64_t h = 0; h < 2; ++h) EXPECT_NEAR(s.cosine(0, h, h, 0), 1, 1e-5) << shift;
    const double distance = reference::Frobenius(maps.Map(0, 0), maps.Map(0, 1));
    EXPECT_NEAR(s.frobenius(0, 0, 1, 0) / distance, 1, 1e-4) << shift;
  }
}

TEST_P(MapsTest, DisjointHeadsAreAsFarApartAsCanBe) {
  // By hand: each head sees one key of its own: cosine 0, distance sqrt(2) a row, divergence log 2.
  AttentionCase c = MakeCase({.num_heads = 2, .num_kv_heads = 1, .q_len = 2, .kv_len = 2});
  c.keep = Buffer<uint8_t>({1, 2, 1, 2}, Layout::kDense, 0);
  c.keep(0, 0, 0, 0) = c.keep(0, 1, 0, 1) = 1;
  const Similarity s = RunSimilarity(c);
  EXPECT_EQ(s.cosine(0, 0, 1, 0), 0.0f);
  EXPECT_EQ(s.cosine(0, 1, 1, 0), 1.0f);
  EXPECT_NEAR(s.frobenius(0, 0, 1, 0), 2.0, 1e-6);
  EXPECT_NEAR(s.jensen_shannon(0, 1, 0, 0), std::log(2.0), 1e-6);
}

// Layers with different sizes of everything but batch and length.
std::vector<AttentionCase> Stack(int64_t len) {
  std::vector<AttentionCase> layers;
  layers.push_back(MakeCase(
      {.batch = 2, .num_heads = 3, .num_kv_heads = 3, .q_len = len, .kv_len = len, .head_dim = 5},
      1));
  layers.push_back(MakeCase(
      {.batch = 2, .num_heads = 4, .num_kv_heads = 2, .q_len = len, .kv_len = len, .head_dim = 8},
      2));
  layers[1].scalars.causal = true;
  layers.push_back(MakeCase(
      {.batch = 2, .num_heads = 1, .num_kv_heads = 1, .q_len = len, .kv_len = len, .head_dim = 16},
      3));
  return layers;
}

std::vector<RolloutLayer> Views(const std::vector<AttentionCase>& cases) {
  std::vector<RolloutLayer> layers;
  for (const AttentionCase& c : cases) layers.push_back({c.q.view(), c.k.view(), c.options()});
  return layers;
}

Buffer<float> AllTokens(int64_t batch, int64_t len) {
  Buffer<float> start({batch, 1, len, len}, Layout::kDense, 0);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < len; ++i) start(b, 0, i, i) = 1;
  }
  return start;
}

TEST_P(MapsTest, RolloutIsTheProductOfMixedMaps) {
  const int64_t len = 150;  // more rows than go through a layer together, and several blocks
  const std::vector<AttentionCase> cases = Stack(len);
  const double residual = 0.5;
  Buffer<float> output({2, 1, len, len}, Layout::kPadded, kNan);
  Rollout(Views(cases), residual, AllTokens(2, len).view(), output.view());
  for (int64_t b = 0; b < 2; ++b) {
    std::vector<double> product;
    for (size_t n = cases.size(); n-- > 0;) {
      const std::vector<double> mixed =
          reference::MixedMap(reference::Weights(cases[n].request()), b, residual);
      product = product.empty() ? mixed : reference::Product(product, mixed, len);
    }
    for (int64_t i = 0; i < len; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < len; ++j) {
        EXPECT_NEAR(output(b, 0, i, j), product[static_cast<size_t>(i * len + j)],
                    3 * kAnalysisMaxError);
        sum += static_cast<double>(output(b, 0, i, j));
      }
      EXPECT_NEAR(sum, 1, 1e-5);
    }
  }
}

TEST_P(MapsTest, RolloutOfTwoTokensByHand) {
  // Queries 0: uniform maps of two tokens. A' = [[.75, .25], [.25, .75]]; A'A' = [[.625, .375],
  // ..].
  std::vector<AttentionCase> cases(
      2, MakeCase({.num_heads = 1, .num_kv_heads = 1, .q_len = 2, .kv_len = 2, .head_dim = 1}));
  for (AttentionCase& c : cases) c.q(0, 0, 0, 0) = c.q(0, 0, 1, 0) = 0;
  Buffer<float> output({1, 1, 2, 2}, Layout::kDense, kNan);
  Rollout(Views(cases), 0.5, AllTokens(1, 2).view(), output.view());
  EXPECT_THAT(output.Elements(), ElementsAre(0.625f, 0.375f, 0.375f, 0.625f));
}

TEST_P(MapsTest, RolloutReducesToItsStartWithoutAttention) {
  const std::vector<AttentionCase> cases = Stack(20);
  const Buffer<float> start = AllTokens(2, 20);
  Buffer<float> output({2, 1, 20, 20}, Layout::kDense, kNan);
  Rollout(Views(cases), 1.0, start.view(), output.view());
  EXPECT_EQ(Bits(output), Bits(start));
  Rollout({}, 0.5, start.view(), output.view());
  EXPECT_EQ(Bits(output), Bits(start));
}

TEST_P(MapsTest, SameBitsForAnyNumberOfThreads) {
  const std::vector<AttentionCase> cases = Stack(200);
  const auto one = MakeThreadPool(1);
  const auto three = MakeThreadPool(3);
  std::vector<Buffer<float>> outputs(2, Buffer<float>({2, 1, 200, 200}, Layout::kDense, kNan));
  Rollout(Views(cases), 0.5, AllTokens(2, 200).view(), outputs[0].view(), one.get());
  Rollout(Views(cases), 0.5, AllTokens(2, 200).view(), outputs[1].view(), three.get());
  EXPECT_EQ(Bits(outputs[0]), Bits(outputs[1]));
  EXPECT_EQ(Bits(RunSimilarity(cases[1], one.get()).jensen_shannon),
            Bits(RunSimilarity(cases[1], three.get()).jensen_shannon));
}

TEST_P(MapsTest, HopsArePowersOfTheMap) {
  AttentionCase c =
      MakeCase({.num_heads = 4, .num_kv_heads = 2, .q_len = 70, .kv_len = 70, .head_dim = 12});
  const reference::WeightMaps maps = reference::Weights(c.request());
  Random random(4);
  Buffer<float> x({1, 4, 70, 3}, Layout::kPadded, kNan);
  x.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& value) { value = random.Normal(); });
  for (const int64_t hops : {0, 1, 2, 3}) {
    Buffer<float> output({1, 4, 70, 3}, Layout::kDense, kNan);
    MultiHop(c.q.view(), c.k.view(), c.options(), hops, x.view(), output.view());
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t d = 0; d < 3; ++d) {
        std::vector<double> column;
        for (int64_t i = 0; i < 70; ++i) column.push_back(static_cast<double>(x(0, h, i, d)));
        for (int64_t hop = 0; hop < hops; ++hop) {
          std::vector<double> next(70);
          for (int64_t i = 0; i < 70; ++i) {
            for (int64_t j = 0; j < 70; ++j) {
              next[static_cast<size_t>(i)] +=
                  maps.Row(0, h, i)[static_cast<size_t>(j)] * column[static_cast<size_t>(j)];
            }
          }
          column = next;
        }
        for (int64_t i = 0; i < 70; ++i) {
          EXPECT_NEAR(output(0, h, i, d), column[static_cast<size_t>(i)],
                      5 * static_cast<double>(hops) * kAnalysisMaxError);
        }
      }
    }
  }
}

TEST(Flow, MatchesAugmentingPaths) {
  const int64_t layers = 3, len = 7;
  Random random(6);
  Buffer<float> maps({2, layers, len, len}, Layout::kDense, 0);
  maps.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) {
    x = random.Chance(0.3) ? 0.0f : static_cast<float>(random.Uniform());
  });
  const std::vector<int64_t> sources = {0, 4};
  Buffer<float> output({2, 1, 2, len}, Layout::kPadded, kNan);
  AttentionFlow(maps.view(), sources, output.view());
  for (int64_t b = 0; b < 2; ++b) {
    std::vector<double> capacities;
    for (int64_t n = 0; n < layers * len * len; ++n) {
      capacities.push_back(static_cast<double>(maps(b, n / len / len, n / len % len, n % len)));
    }
    for (int64_t n = 0; n < 2; ++n) {
      for (int64_t j = 0; j < len; ++j) {
        EXPECT_NEAR(output(b, 0, n, j),
                    reference::MaxFlow(capacities, layers, len, sources[static_cast<size_t>(n)], j),
                    1e-5);
      }
    }
  }
}

TEST(Flow, OfTwoLayersByHand) {
  // From token 0 on top: .5 each way. Below, .9 and .1 from token 0, .2 and .8 from token 1: to
  // token 0 at most min(.5, .9) + min(.5, .2) = .7, to token 1 min(.5, .1) + min(.5, .8) = .6.
  Buffer<float> maps({1, 2, 2, 2}, Layout::kDense, 0);
  const float values[] = {0.9f, 0.1f, 0.2f, 0.8f, 0.5f, 0.5f, 1.0f, 0.0f};
  maps.ForEach(
      [&, n = 0](int64_t, int64_t, int64_t, int64_t, float& x) mutable { x = values[n++]; });
  Buffer<float> output({1, 1, 1, 2}, Layout::kDense, kNan);
  const int64_t sources[] = {0};
  AttentionFlow(maps.view(), sources, output.view());
  EXPECT_NEAR(output(0, 0, 0, 0), 0.7, 1e-6);
  EXPECT_NEAR(output(0, 0, 0, 1), 0.6, 1e-6);
}

TEST(Maps, RefuseWhatDoesNotFit) {
  const AttentionCase oblong = MakeCase({.q_len = 3, .kv_len = 5});
  const AttentionCase square = MakeCase({.q_len = 5, .kv_len = 5});
  Buffer<float> x({1, 2, 5, 1}, Layout::kDense, 0);
  Buffer<float> y = x;
  EXPECT_THROW(MultiHop(oblong.q.view(), oblong.k.view(), {}, 1, x.view(), y.view()), Error);
  EXPECT_THROW(MultiHop(square.q.view(), square.k.view(), {}, -1, x.view(), y.view()), Error);
  EXPECT_THROW(MultiHop(square.q.view(), square.k.view(), {}, 1, x.view(), x.view()), Error);
  Buffer<float> start({1, 1, 2, 5}, Layout::kDense, 0);
  Buffer<float> rows = start;
  const RolloutLayer layer[] = {{square.q.view(), square.k.view(), {}}};
  EXPECT_THROW(Rollout(layer, 1.5, start.view(), rows.view()), Error);
  EXPECT_THROW(Rollout(layer, 0.5, start.view(), start.view()), Error);
  Buffer<float> maps({1, 1, 2, 2}, Layout::kDense, -1);
  Buffer<float> flow({1, 1, 1, 2}, Layout::kDense, 0);
  const int64_t sources[] = {2};
  EXPECT_THROW(AttentionFlow(maps.view(), {sources, 1}, flow.view()), Error);
  const int64_t fine[] = {1};
  EXPECT_THROW(AttentionFlow(maps.view(), fine, flow.view()), Error) << "negative capacities";
}

}  // namespace
}  // namespace heed::testing
