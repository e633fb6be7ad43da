// Outputs of layers over what they read. Every function of the headers has its row.
#include "gtest/gtest.h"
#include "heed/latent.h"
#include "heed/linear.h"
#include "heed/rows.h"
#include "heed/set_attention.h"
#include "layer_places.h"

namespace heed::testing {
namespace {

SetBlockWeights PlaceSetBlock(Places& at, const std::string& owner = "") {
  SetBlockWeights w;
  w.attention = PlaceWeights(at, owner);
  w.norm1_weight = at.Values(owner + "norm1_weight", kWidth);
  w.norm1_bias = at.Values(owner + "norm1_bias", kWidth);
  w.norm2_weight = at.Values(owner + "norm2_weight", kWidth);
  w.norm2_bias = at.Values(owner + "norm2_bias", kWidth);
  w.w_ff = at.In(owner + "w_ff", {1, 1, kWidth, kWidth});
  w.b_ff = at.Values(owner + "b_ff", kWidth);
  return w;
}

TransformerBlockWeights PlaceBlock(Places& at) {
  TransformerBlockWeights w;
  w.attention = PlaceWeights(at);
  w.norm1_weight = at.Values("norm1_weight", kWidth);
  w.norm1_bias = at.Values("norm1_bias", kWidth);
  w.norm2_weight = at.Values("norm2_weight", kWidth);
  w.norm2_bias = at.Values("norm2_bias", kWidth);
  w.w_up = at.In("w_up", {1, 1, kFeedForward, kWidth});
  w.w_down = at.In("w_down", {1, 1, kWidth, kFeedForward});
  w.w_gate = at.In("w_gate", {1, 1, kFeedForward, kWidth});
  w.b_up = at.Values("b_up", kFeedForward);
  w.b_gate = at.Values("b_gate", kFeedForward);
  w.b_down = at.Values("b_down", kWidth);
  return w;
}

PerceiverWeights PlacePerceiver(Places& at) {
  PerceiverWeights w;
  w.attention = PlaceWeights(at);
  w.norm1_weight = at.Values("norm1_weight", kWidth);
  w.norm1_bias = at.Values("norm1_bias", kWidth);
  w.key_norm_weight = at.Values("key_norm_weight", kWidth);
  w.key_norm_bias = at.Values("key_norm_bias", kWidth);
  w.norm2_weight = at.Values("norm2_weight", kWidth);
  w.norm2_bias = at.Values("norm2_bias", kWidth);
  w.w_up = at.In("w_up", {1, 1, kFeedForward, kWidth});
  w.w_down = at.In("w_down", {1, 1, kWidth, kFeedForward});
  w.b_up = at.Values("b_up", kFeedForward);
  w.b_down = at.Values("b_down", kWidth);
  return w;
}

AttentionClassifierWeights PlaceClassifier(Places& at) {
  AttentionClassifierWeights w;
  w.embedding = at.In("embedding", {1, 1, 9, kWidth});
  w.position_table = at.In("position_table", {1, 1, kLen, kWidth});
  w.attention = PlaceWeights(at);
  w.pool_query = at.Values("pool_query", kWidth);
  w.w_class = at.In("w_class", {1, 1, 5, kWidth});
  w.b_class = at.Values("b_class", 5);
  return w;
}

// Ranks of queries and keys are 3 and 5; rotated parts have 2 dimensions.
LatentWeights PlaceLatent(Places& at) {
  LatentWeights w;
  w.w_dq = at.In("w_dq", {1, 1, 3, kWidth});
  w.w_uq = at.In("w_uq", {1, kHeads, kDim, 3});
  w.w_qr = at.In("w_qr", {1, kHeads, 2, 3});
  w.w_dkv = at.In("w_dkv", {1, 1, 5, kWidth});
  w.w_kr = at.In("w_kr", {1, 1, 2, kWidth});
  w.w_uk = at.In("w_uk", {1, kHeads, kDim, 5});
  w.w_uv = at.In("w_uv", {1, kHeads, kDim, 5});
  w.w_o = at.In("w_o", {1, kWidth, kHeads, kDim});
  w.norm_q_weight = at.Values("norm_q_weight", 3);
  w.norm_kv_weight = at.Values("norm_kv_weight", 5);
  return w;
}

LatentOptions PlaceLatentOptions(Places& at, LatentForm form) { return {PlaceOptions(at), form}; }

template <LatentForm kForm>
void CallLatent(Places& at) {
  LatentAttention(at.In("q", {kBatch, kHeads, kLen, kDim + 2}),
                  at.In("latent", {kBatch, 1, kLen, 5}), at.In("k_rope", {kBatch, 1, kLen, 2}),
                  at.In("w_uk", {1, kHeads, kDim, 5}), at.In("w_uv", {1, kHeads, kDim, 5}),
                  PlaceLatentOptions(at, kForm),
                  {.output = at.Out("output", {kBatch, kHeads, kLen, kDim}),
                   .lse = at.Out("lse", {kBatch, kHeads, kLen, 1}),
                   .weights = at.Out("weights", {kBatch, kHeads, kLen, kLen})});
}

const Function kFunctions[] = {
    {"Linear",
     [](Places& at) {
       Linear(at.In("x", {1, 1, 3, 4}), at.In("weight", {1, 1, 2, 4}), at.Values("bias", 2),
              at.Out("out", {1, 1, 3, 2}));
     }},
    {"Bmm",
     [](Places& at) {
       Bmm(at.In("a", {1, 2, 3, 4}), at.In("b", {1, 2, 4, 5}), at.Out("out", {1, 2, 3, 5}));
     }},
    {"Softmax",
     [](Places& at) {
       Softmax(at.In("x", {1, 2, 3, 4}), at.Out("out", {1, 2, 3, 4}));
     }},
    {"LogSoftmax",
     [](Places& at) {
       LogSoftmax(at.In("x", {1, 2, 3, 4}), at.Out("out", {1, 2, 3, 4}));
     }},
    {"MaskedSoftmax",
     [](Places& at) {
       MaskedSoftmax(at.In("x", {2, 1, 3, 4}),
                     {at.Numbers("lengths", {2, 3}), at.In<uint8_t>("keep", {1, 1, 3, 4})},
                     at.Out("out", {2, 1, 3, 4}));
     }},
    {"LayerNorm",
     [](Places& at) {
       LayerNorm(at.In("x", {1, 2, 3, 4}), {at.Values("weight", 4), at.Values("bias", 4)},
                 at.Out("out", {1, 2, 3, 4}),
                 {at.Out("mean", {1, 2, 3, 1}), at.Out("inverse_deviation", {1, 2, 3, 1})});
     }},
    {"RmsNorm",
     [](Places& at) {
       RmsNorm(at.In("x", {1, 2, 3, 4}), {at.Values("weight", 4), at.Values("bias", 4)},
               at.Out("out", {1, 2, 3, 4}));
     }},
    {"MultiHead",
     [](Places& at) {
       MultiHead(
           PlaceRows(at, "query"), PlaceRows(at, "key"), PlaceRows(at, "value"), PlaceWeights(at),
           PlaceLayerOptions(at),
           {at.Out("output", {kBatch, 1, kLen, kWidth}), at.Out("lse", {kBatch, kHeads, kLen, 1}),
            at.Out("weights", {kBatch, kHeads, kLen, kLen + 1})});
     }},
    {"TransformerBlock",
     [](Places& at) {
       TransformerBlock(PlaceRows(at, "x"), PlaceBlock(at), {.attention = PlaceLayerOptions(at)},
                        at.Out("output", {kBatch, 1, kLen, kWidth}));
     }},
    {"AttentionClassifier",
     [](Places& at) {
       AttentionClassifier(at.In<int32_t>("tokens", {1, 1, kBatch, kLen}), PlaceClassifier(at),
                           {PlaceLayerOptions(at), Pooling::kAttention},
                           at.Out("output", {1, 1, kBatch, 5}));
     }},
    {"SetAttentionBlock",
     [](Places& at) {
       SetAttentionBlock(PlaceRows(at, "x"), PlaceRows(at, "y"), PlaceSetBlock(at),
                         {.attention = PlaceLayerOptions(at)},
                         at.Out("output", {kBatch, 1, kLen, kWidth}));
     }},
    {"InducedSetAttention",
     [](Places& at) {
       InducedSetAttention(PlaceRows(at, "x"), PlaceRows(at, "inducing"),
                           PlaceSetBlock(at, "first."), PlaceSetBlock(at, "second."),
                           {.attention = PlaceLayerOptions(at)},
                           at.Out("output", {kBatch, 1, kLen, kWidth}));
     }},
    {"PerceiverBlock",
     [](Places& at) {
       PerceiverBlock(PlaceRows(at, "latents"), PlaceRows(at, "input"), PlacePerceiver(at),
                      {PlaceLayerOptions(at)}, at.Out("output", {kBatch, 1, kLen, kWidth}));
     }},
    {"LatentAttention, naive", CallLatent<LatentForm::kNaive>},
    {"LatentAttention, absorbed", CallLatent<LatentForm::kAbsorbed>},
    {"MultiHeadLatent",
     [](Places& at) {
       MultiHeadLatent(
           PlaceRows(at, "x"), PlaceLatent(at),
           {PlaceLatentOptions(at, LatentForm::kNaive), RopePairing::kHalf},
           {at.Out("output", {kBatch, 1, kLen, kWidth}), at.Out("lse", {kBatch, kHeads, kLen, 1}),
            at.Out("weights", {kBatch, kHeads, kLen, kLen})});
     }},
};

class LayerAliases : public ::testing::TestWithParam<Function> {};
INSTANTIATE_TEST_SUITE_P(Layers, LayerAliases, ::testing::ValuesIn(kFunctions), NameOf);
TEST_P(LayerAliases, OverlapsAreRefused) { ExpectOverlapsAreRefused(GetParam()); }

}  // namespace
}  // namespace heed::testing
