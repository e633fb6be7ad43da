// Outputs of mechanisms around and beside attention over what they read. Every function of the
// headers has its row.
#include "gtest/gtest.h"
#include "heed/attention_free.h"
#include "heed/cache_policy.h"
#include "heed/compose.h"
#include "heed/graph.h"
#include "heed/low_rank.h"
#include "heed/selective.h"
#include "layer_places.h"

namespace heed::testing {
namespace {

constexpr Extents kRows = {kBatch, kHeads, kLen, kDim};
constexpr Extents kPairs = {kBatch, kHeads, kLen, kLen};
constexpr Extents kOnes = {kBatch, kHeads, kLen, 1};

TensorView<const float> Q(Places& at) { return at.In("q", kRows); }
TensorView<const float> K(Places& at) { return at.In("k", kRows); }
TensorView<const float> V(Places& at) { return at.In("v", kRows); }
std::span<const int32_t> Lengths(Places& at) { return at.Numbers("key_lengths", {2}); }

AttentionOutputs OutputAndWeights(Places& at) {
  return {.output = at.Out("output", kRows), .weights = at.Out("weights", kPairs)};
}
AttentionOutputs WithLse(Places& at) {
  AttentionOutputs outputs = OutputAndWeights(at);
  outputs.lse = at.Out("lse", kOnes);
  return outputs;
}

// What choices of keys look at.
AttentionOptions PlaceChoosable(Places& at) {
  AttentionOptions options;
  options.sinks = at.Values("sinks", kHeads);
  options.key_lengths = Lengths(at);
  return options;
}

const Function kComposed[] = {
    {"DifferentialAttention",
     [](Places& at) {
       DifferentialOptions options;
       options.attention = PlaceOptions(at);
       options.lambda = at.Values("lambda", kHeads);
       options.norm_weight = at.Values("norm_weight", kDim);
       DifferentialAttention(Q(at), K(at), V(at), options, OutputAndWeights(at));
     }},
    {"TalkingHeadsAttention",
     [](Places& at) {
       TalkingHeadsAttention(Q(at), K(at), V(at),
                             {PlaceOptions(at), at.Values("mix_scores", kHeads * kHeads),
                              at.Values("mix_weights", kHeads * kHeads)},
                             WithLse(at));
     }},
    {"HopfieldRetrieval",
     [](Places& at) {
       HopfieldRetrieval(Q(at), K(at), V(at), {PlaceOptions(at), 3, 0}, WithLse(at));
     }},
    {"GatedAttention",
     [](Places& at) {
       GatedAttention(Q(at), K(at), V(at), at.In("output_gate", kRows), PlaceOptions(at),
                      WithLse(at));
     }},
    {"AttentionPooling",
     [](Places& at) {
       AttentionPooling(at.In("queries", kRows), K(at), V(at), PlaceOptions(at), WithLse(at));
     },
     {{"queries", "q"}}},
    {"ExternalAttention",
     [](Places& at) {
       ExternalAttention(Q(at), at.In("memory_k", {1, kHeads, 5, kDim}),
                         at.In("memory_v", {1, kHeads, 5, kDim}),
                         {.lengths = at.Numbers("lengths", {2})},
                         {.output = at.Out("output", kRows),
                          .weights = at.Out("weights", {kBatch, kHeads, kLen, 5})});
     },
     {{"memory_k", "k"}, {"memory_v", "v"}}},
    {"DenseSynthesizer",
     [](Places& at) {
       AttentionOptions options;
       options.key_lengths = Lengths(at);
       DenseSynthesizer(at.In("hidden", kRows), at.In("weight", {1, kHeads, 5, kDim}),
                        at.In("bias", {1, kHeads, 1, 5}), V(at), options, WithLse(at));
     },
     {{"hidden", "q"}, {"weight", "k"}}},
    {"RandomSynthesizer",
     [](Places& at) {
       AttentionOptions options;
       options.key_lengths = Lengths(at);
       RandomSynthesizer(at.In("scores", {1, kHeads, 5, 5}), V(at), options, WithLse(at));
     },
     {{"scores", "bias"}}},
    {"AttentionFree",
     [](Places& at) {
       AttentionFreeOptions options;
       options.attention.bias = at.In("bias", {1, 1, kLen, kLen});
       options.attention.key_lengths = Lengths(at);
       AttentionFree(Q(at), K(at), V(at), options, at.Out("output", kRows));
     }},
    {"GraphAttention",
     [](Places& at) {
       GraphAttention(Q(at), K(at), V(at), at.Numbers("edges", {0, 1, 2, 1}),
                      at.Values("score_weight", kHeads * 2 * kDim), {},
                      {at.Out("output", kRows), at.Out("lse", kOnes),
                       at.Out("weights", {kBatch, kHeads, 2, 1})});
     }},
};

const Function kSelective[] = {
    {"StreamingAttention",
     [](Places& at) {
       StreamingAttention(Q(at), K(at), V(at), {PlaceChoosable(at), 2, 1}, WithLse(at));
     }},
    {"QuestAttention",
     [](Places& at) {
       QuestAttention(Q(at), K(at), V(at), {PlaceChoosable(at), 1, 2}, WithLse(at));
     }},
    {"HeavyHitterAttention",
     [](Places& at) {
       HeavyHitterOptions options;
       options.recent_tokens = options.heavy_tokens = 1;
       options.sinks = at.Values("sinks", kHeads);
       options.key_lengths = Lengths(at);
       HeavyHitterAttention(Q(at), K(at), V(at), options, WithLse(at));
     }},
    {"BlockMixtureAttention",
     [](Places& at) {
       BlockMixtureAttention(Q(at), K(at), V(at), {PlaceChoosable(at), 1, 2}, WithLse(at));
     }},
    {"ReformerAttention",
     [](Places& at) {
       ReformerOptions options;
       options.key_lengths = Lengths(at);
       options.hash_rounds = 2;
       options.hash_buckets = 4;
       options.rotations = at.In("rotations", {1, 2, kDim, 2});
       ReformerAttention(Q(at), V(at), options, WithLse(at));
     }},
    {"NativeSparseAttention",
     [](Places& at) {
       NativeSparseOptions options;
       options.key_lengths = Lengths(at);
       options.compress_block = options.key_block = 2;
       options.compress_stride = 1;
       options.top_blocks = 2;
       options.local_blocks = 1;
       options.window_len = 2;
       options.compress_k_weight = at.In("compress_k_weight", {1, 1, kHeads, 2});
       options.compress_v_weight = at.In("compress_v_weight", {1, 1, kHeads, 2});
       options.compress_k = at.In("compress_k", kRows);
       options.compress_v = at.In("compress_v", kRows);
       options.window_k = at.In("window_k", kRows);
       options.window_v = at.In("window_v", kRows);
       NativeSparseAttention(Q(at), K(at), V(at), at.In("branch_gates", {kBatch, kHeads, kLen, 3}),
                             options, at.Out("output", kRows));
     }},
    {"IndexedAttention",
     [](Places& at) {
       IndexedAttention(
           Q(at), K(at), V(at),
           {at.In("index.q", {kBatch, 3, kLen, 2}), at.In("index.k", {kBatch, 1, kLen, 2}),
            at.In("index.weights", {kBatch, 3, kLen, 1})},
           {PlaceChoosable(at), 2}, WithLse(at));
     }},
    {"RoutingAttention",
     [](Places& at) {
       RoutingOptions options;
       options.key_lengths = Lengths(at);
       options.num_clusters = 2;
       options.centroids = at.In("centroids", {1, kHeads, 2, kDim});
       RoutingAttention(Q(at), K(at), V(at), options, OutputAndWeights(at));
     }},
    {"SinkhornAttention",
     [](Places& at) {
       SinkhornOptions options;
       options.key_lengths = Lengths(at);
       options.key_block = 2;
       options.sort_logits = at.In("sort_logits", {kBatch, kHeads, 2, 2});
       SinkhornAttention(Q(at), K(at), V(at), options, at.Out("output", kRows));
     }},
};

const Function kLowRank[] = {
    {"Linformer",
     [](Places& at) {
       LinformerOptions options;
       options.key_projection = at.In("key_projection", {1, 1, 2, kLen});
       options.value_projection = at.In("value_projection", {1, 1, 2, kLen});
       options.key_lengths = Lengths(at);
       Linformer(Q(at), K(at), V(at), options,
                 {.output = at.Out("output", kRows),
                  .lse = at.Out("lse", kOnes),
                  .weights = at.Out("weights", {kBatch, kHeads, kLen, 2})});
     }},
    {"EfficientAttention",
     [](Places& at) {
       EfficientAttention(Q(at), K(at), V(at), {Lengths(at)}, OutputAndWeights(at));
     }},
    {"NystromAttention",
     [](Places& at) {
       NystromOptions options;
       options.key_lengths = Lengths(at);
       options.depthwise_conv = at.In("depthwise_conv", {1, 1, kHeads, 3});
       NystromAttention(Q(at), K(at), V(at), options,
                        {at.Out("output", kRows), at.Out("weights", kPairs),
                         at.Out("residual", {kBatch, kHeads, 1, 1})});
     }},
    {"MemoryCompressedAttention",
     [](Places& at) {
       MemoryCompressedOptions options;
       options.key_conv = at.In("key_conv", {1, kDim, kDim, 2});
       options.value_conv = at.In("value_conv", {1, kDim, kDim, 2});
       options.key_conv_bias = at.Values("key_conv_bias", kDim);
       options.value_conv_bias = at.Values("value_conv_bias", kDim);
       options.sinks = at.Values("sinks", kHeads);
       options.key_lengths = Lengths(at);
       MemoryCompressedAttention(Q(at), K(at), V(at), options,
                                 {.output = at.Out("output", kRows),
                                  .lse = at.Out("lse", kOnes),
                                  .weights = at.Out("weights", {kBatch, kHeads, kLen, 2})});
     }},
};

class MechanismAliases : public ::testing::TestWithParam<Function> {};
INSTANTIATE_TEST_SUITE_P(Composed, MechanismAliases, ::testing::ValuesIn(kComposed), NameOf);
INSTANTIATE_TEST_SUITE_P(Selective, MechanismAliases, ::testing::ValuesIn(kSelective), NameOf);
INSTANTIATE_TEST_SUITE_P(LowRank, MechanismAliases, ::testing::ValuesIn(kLowRank), NameOf);
TEST_P(MechanismAliases, OverlapsAreRefused) { ExpectOverlapsAreRefused(GetParam()); }

}  // namespace
}  // namespace heed::testing
