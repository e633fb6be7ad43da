// What composed mechanisms cannot honour of the options and outputs of attention is refused by
// name: nothing is ignored, and no result that was asked for is left unwritten.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/analysis.h"
#include "heed/attention_free.h"
#include "heed/cache_policy.h"
#include "heed/compose.h"
#include "heed/latent.h"
#include "heed/layers.h"
#include "heed/low_rank.h"
#include "heed/selective.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLen = 70, kDim = 4;
constexpr int64_t kTiles = (kLen + kAttentionTileKeys - 1) / kAttentionTileKeys;

// Memory that any view of these tests fits into.
struct Data {
  std::vector<float> zeros = std::vector<float>(2 * kLen * kLen * 8);
  std::vector<float> output = zeros, lse = zeros, weights = zeros;
  std::vector<float> running_max = zeros, running_sum = zeros, rescale = zeros;

  TensorView<const float> Read(int64_t heads, int64_t rows, int64_t columns) const {
    return Contiguous<const float>(zeros.data(), 1, heads, rows, columns);
  }
  TensorView<const float> Rows() const { return Read(2, kLen, kDim); }
  AttentionOutputs Output() { return {.output = Contiguous(output.data(), 1, 2, kLen, kDim)}; }
  AttentionOutputs Tiles() {
    AttentionOutputs outputs = Output();
    outputs.running_max = Contiguous(running_max.data(), 1, 2, kLen, kTiles);
    outputs.running_sum = Contiguous(running_sum.data(), 1, 2, kLen, kTiles);
    outputs.rescale = Contiguous(rescale.data(), 1, 2, kLen, kTiles);
    return outputs;
  }
};

std::string RefusalOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
    return error.what();
  }
  return "nothing was refused";
}

using Change = std::function<void(const Data&, AttentionOptions&)>;

// Tables of vectors, each with what the refusal has to name.
std::vector<std::pair<const char*, Change>> Tables() {
  const auto table = [](TensorView<const float> AttentionOptions::*member) {
    return [member](const Data& data, AttentionOptions& o) { o.*member = data.Read(1, 3, kDim); };
  };
  return {{"relative_keys", table(&AttentionOptions::relative_keys)},
          {"relative_queries", table(&AttentionOptions::relative_queries)},
          {"relative_values", table(&AttentionOptions::relative_values)},
          {"content_bias",
           [](const Data& data, AttentionOptions& o) { o.content_bias = data.Read(2, 1, kDim); }},
          {"cope", [](const Data& data, AttentionOptions& o) {
             o.normalize = Normalize::kCope;
             o.cope_table = data.Read(1, 3, kDim);
           }}};
}

TEST(UnreadOptions, LatentAttentionHasNoTablesInEitherForm) {
  for (const LatentForm form : {LatentForm::kNaive, LatentForm::kAbsorbed}) {
    for (const auto& [name, change] : Tables()) {
      Data data;
      LatentOptions options;
      options.form = form;
      change(data, options.attention);
      EXPECT_THAT(RefusalOf([&] {
                    LatentAttention(data.Rows(), data.Read(1, kLen, 3), {}, data.Read(2, kDim, 3),
                                    data.Read(2, kDim, 3), options, data.Output());
                  }),
                  HasSubstr(name));
    }
  }
}

TEST(UnreadOptions, ExtraKeysOfLayersHaveNoDistance) {
  Data data;
  MultiHeadWeights weights;
  weights.w_q = weights.w_k = weights.w_v = data.Read(2, kDim, 8);
  const TensorView<const float> x = data.Read(1, kLen, 8);
  const MultiHeadOutputs outputs = {.output = Contiguous(data.output.data(), 1, 1, kLen, 8)};
  MultiHeadOptions options;
  options.attention.relative_keys = data.Read(1, 3, kDim);
  MultiHead(x, x, x, weights, options, outputs);
  options.add_zero_attn = true;
  EXPECT_THAT(RefusalOf([&] { MultiHead(x, x, x, weights, options, outputs); }),
              HasSubstr("relative_keys"));
}

TEST(UnreadOptions, ADenseSynthesizerHasNoOtherScoresAndNoTables) {
  const auto refusal = [](const Change& change) {
    Data data;
    AttentionOptions options;
    change(data, options);
    return RefusalOf([&] {
      DenseSynthesizer(data.Rows(), data.Read(2, kLen, kDim), {}, data.Rows(), options,
                       data.Output());
    });
  };
  for (const auto& [name, change] : Tables()) EXPECT_THAT(refusal(change), HasSubstr(name));
  for (const Score score : {Score::kCosine, Score::kSquaredDistance}) {
    EXPECT_THAT(refusal([&](const Data&, AttentionOptions& o) { o.score = score; }),
                HasSubstr("score"));
  }
}

TEST(UnreadOptions, AttentionFreeTransformersHaveNoScores) {
  std::vector<std::pair<const char*, Change>> changes = Tables();
  changes.pop_back();  // cope is a normaliser
  changes.push_back({"scores", [](const Data& data, AttentionOptions& o) {
                       o.distance_bias = data.Read(1, 1, 3);
                     }});
  changes.push_back({"scores", [](const Data& data, AttentionOptions& o) {
                       o.bucket_bias = data.Read(1, 32, 2);
                     }});
  changes.push_back({"scores", [](const Data& data, AttentionOptions& o) {
                       o.causal = true;
                       o.log_gates = data.Read(1, 1, kLen);
                     }});
  for (const auto& [name, change] : changes) {
    Data data;
    AttentionFreeOptions options;
    change(data, options.attention);
    EXPECT_THAT(RefusalOf([&] {
                  AttentionFree(data.Rows(), data.Rows(), data.Rows(), options,
                                data.Output().output);
                }),
                HasSubstr("scores"))
        << name;
  }
}

TEST(UnreadOptions, TalkingHeadsHaveNoValuesByDistance) {
  Data data;
  TalkingHeadsOptions options;
  options.attention.relative_values = data.Read(1, 3, kDim);
  EXPECT_THAT(RefusalOf([&] {
                TalkingHeadsAttention(data.Rows(), data.Rows(), data.Rows(), options,
                                      data.Output());
              }),
              HasSubstr("relative_values"));
}

TEST(UnreadOptions, StatisticsOfTilesAreOfOneSoftmax) {
  Data data;
  const TensorView<const float> x = data.Rows();
  const AttentionOutputs tiles = data.Tiles();
  RoutingOptions clusters;
  clusters.num_clusters = 2;
  const std::function<void()> calls[] = {
      [&] { TalkingHeadsAttention(x, x, x, {}, tiles); },
      [&] { DifferentialAttention(x, x, x, {}, tiles); },
      [&] { ReformerAttention(x, x, {}, tiles); },
      [&] { RoutingAttention(x, x, x, clusters, tiles); },
      [&] { HeavyHitterAttention(x, x, x, {}, tiles); },
      [&] { EfficientAttention(x, x, x, {}, tiles); },
  };
  for (const auto& call : calls) EXPECT_THAT(RefusalOf(call), HasSubstr("running_max"));
}

// Those of the keys that were chosen, whether blocks are gathered or read where they lie.
TEST(UnreadOptions, BlocksHaveTheirStatistics) {
  for (const int64_t key_block : {16, 32}) {
    Data data;
    AttentionOutputs tiles = data.Tiles();
    std::fill(data.running_sum.begin(), data.running_sum.end(), -1.0f);
    BlockMixtureOptions options;
    options.key_block = key_block;
    options.top_blocks = 2;
    BlockMixtureAttention(data.Rows(), data.Rows(), data.Rows(), options, tiles);
    for (int64_t i = 0; i < kLen; ++i) {  // scores are 0: each key that is seen adds 1
      EXPECT_GE(tiles.running_sum(0, 1, i, kTiles - 1), 1.0f) << key_block;
    }
  }
}

TEST(UnreadOptions, TablesOfValuesChangeNoWeight) {
  Data data;
  AttentionOptions options;
  options.relative_values = data.Read(1, 3, kDim);
  const StoredTensor x(data.Rows());
  WeightsTile(x, x, options, {}, {0, 2, 0, kLen}, Contiguous(data.weights.data(), 1, 2, 2, kLen));
  EXPECT_NEAR(data.weights[0], 1.0 / kLen, 1e-6);
  EXPECT_THAT(RefusalOf([&] {
                Erasure(x, x, x, options, 0, 1,
                        {.change = Contiguous(data.weights.data(), 1, 2, 1, kLen)});
              }),
              HasSubstr("relative_values"));
}

}  // namespace
}  // namespace heed::testing
