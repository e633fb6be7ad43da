// Outputs of attention, of what analyses it and of positions and recurrence over what they read.
// Every function of the headers has its row.
#include <vector>

#include "gtest/gtest.h"
#include "heed/analysis.h"
#include "heed/cache.h"
#include "heed/causal_conv.h"
#include "heed/gradient.h"
#include "heed/merge.h"
#include "heed/position.h"
#include "heed/recurrent.h"
#include "heed/varlen.h"
#include "layer_places.h"

namespace heed::testing {
namespace {

constexpr Extents kRows = {kBatch, kHeads, kLen, kDim};
constexpr Extents kPairs = {kBatch, kHeads, kLen, kLen};
constexpr Extents kOnes = {kBatch, kHeads, kLen, 1};

AttentionOutputs PlaceOutputs(Places& at) {
  return {.output = at.Out("output", kRows),
          .lse = at.Out("lse", kOnes),
          .weights = at.Out("weights", kPairs),
          .scores = at.Out("scores", kPairs)};
}

void CallAttention(Places& at, const AttentionOptions& options) {
  Attention(at.In("q", kRows), at.In("k", kRows), at.In("v", kRows), options, PlaceOutputs(at));
}

void CallPatterns(Places& at) {
  AttentionOptions options;
  options.patterns = {BlockList{.q_block = 2,
                                .kv_block = 2,
                                .keep = at.In<uint8_t>("BlockList.keep", {1, 1, 2, 2}),
                                .indptr = {},
                                .indices = {}},
                      BlockList{.q_block = 2,
                                .kv_block = 2,
                                .keep = {},
                                .indptr = at.Numbers("BlockList.indptr", {0, 1, 2}),
                                .indices = at.Numbers("BlockList.indices", {0, 1})},
                      PairList{at.Numbers("PairList.pairs", {0, 0, 2, 1})}};
  options.prefix_lengths = at.Numbers("prefix_lengths", {2});
  options.query_documents = at.Numbers("query_documents", {0, 0, 1});
  options.key_documents = at.Numbers("key_documents", {0, 0, 1});
  CallAttention(at, options);
}

void CallAdditive(Places& at) {
  AttentionOptions options;
  options.score = Score::kAdditive;
  options.query_weight = at.In("query_weight", {1, kHeads, 5, kDim});
  options.key_weight = at.In("key_weight", {1, kHeads, 5, kDim});
  options.score_bias = at.Values("score_bias", 5);
  options.score_vector = at.In("score_vector", {1, 1, kHeads, 5});
  options.sinks = at.Values("sinks", kHeads);
  CallAttention(at, options);
}

void CallExplain(Places& at) {
  AttentionOptions options = PlaceOptions(at);
  options.patterns = {PairList{at.Numbers("PairList.pairs", {0, 0, 2, 1})}};
  Explain(options, at.Out<uint8_t>("picture", kPairs));
}

void CallAnalyze(Places& at) {
  Analyze(at.In("q", kRows), at.In("k", kRows), PlaceOptions(at), {},
          {.entropy = at.Out("entropy", kOnes),
           .top_weights = at.Out("top_weights", {kBatch, kHeads, kLen, 2}),
           .top_indices = at.Out<int32_t>("top_indices", {kBatch, kHeads, kLen, 2}),
           .max_weight = at.Out("max_weight", kOnes),
           .max_index = at.Out<int32_t>("max_index", kOnes),
           .expected_distance = at.Out("expected_distance", kOnes),
           .column_sums = at.Out("column_sums", kOnes),
           .lse = at.Out("lse", kOnes)});
}

void CallRollout(Places& at) {
  const RolloutLayer layers[] = {{at.In("q", kRows), at.In("k", kRows), PlaceOptions(at)}};
  Rollout(layers, 0.5, at.In("start", {kBatch, 1, 2, kLen}),
          at.Out("output", {kBatch, 1, 2, kLen}));
}

void CallRead(Places& at) {
  KvCache cache({.num_kv_heads = kHeads, .head_dim = kDim});
  const std::vector<float> rows(kBatch * kHeads * kLen * kDim, 1.0f);
  const auto view = Contiguous(rows.data(), kBatch, kHeads, kLen, kDim);
  cache.Append(view, view);
  cache.Read(0, 0, kLen, at.Out("k", kRows), at.Out("v", kRows));
}

void CallDecode(Places& at) {
  KvCache cache({.num_kv_heads = kHeads, .head_dim = kDim});
  const std::vector<float> rows(kBatch * kHeads * kLen * kDim, 1.0f);
  const auto view = Contiguous(rows.data(), kBatch, kHeads, kLen, kDim);
  cache.Append(view, view);
  DecodeOptions options;
  options.sinks = at.Values("sinks", kHeads);
  options.alibi_slopes = at.Values("alibi_slopes", kHeads);
  options.query_lengths = at.Numbers("query_lengths", {2});
  Decode(at.In("q", kRows), cache, options,
         {.output = at.Out("output", kRows), .lse = at.Out("lse", kOnes)});
}

void CallMerge(Places& at) {
  const PartialAttention states[] = {
      {at.In("states[0].output", kRows), at.In("states[0].lse", kOnes)},
      {at.In("states[1].output", kRows), at.In("states[1].lse", kOnes)}};
  Merge(states, at.Out("output", kRows), at.Out("lse", kOnes));
}

void CallAttentionBackward(Places& at) {
  AttentionOptions options = PlaceOptions(at);
  options.sinks = at.Values("sinks", kHeads);
  AttentionGradients to;
  to.d_lse = at.In("d_lse", kOnes);
  to.d_q = at.Out("d_q", kRows);
  to.d_k = at.Out("d_k", kRows);
  to.d_v = at.Out("d_v", kRows);
  to.d_bias = at.Out("d_bias", {1, 1, kLen, kLen});
  to.d_alibi_slopes = at.OutValues("d_alibi_slopes", kHeads);
  to.d_sinks = at.OutValues("d_sinks", kHeads);
  AttentionBackward(at.In("q", kRows), at.In("k", kRows), at.In("v", kRows), at.In("out", kRows),
                    at.In("lse", kOnes), at.In("d_out", kRows), options, to);
}

RecurrentOptions PlaceDecays(Places& at) {
  RecurrentOptions options;
  options.log_decay = at.In("log_decay", kOnes, -1.0f);
  options.skip = at.Values("skip", kHeads);
  options.key_lengths = at.Numbers("key_lengths", {2});
  return options;
}

void CallRecurrent(Places& at) {
  RecurrentOptions options = PlaceDecays(at);
  options.initial_state = at.In("initial_state", {kBatch, kHeads, kDim, kDim});
  RecurrentAttention(
      at.In("q", kRows), at.In("k", kRows), at.In("v", kRows), options,
      {at.Out("output", kRows), at.Out("final_state", {kBatch, kHeads, kDim, kDim})});
}

void CallRecurrentStep(Places& at) {
  RecurrentOptions options;
  options.log_decay = at.In("log_decay", {kBatch, kHeads, 1, 1}, -1.0f);
  options.skip = at.Values("skip", kHeads);
  const Extents row = {kBatch, kHeads, 1, kDim};
  RecurrentStep(at.In("q", row), at.In("k", row), at.In("v", row), options,
                at.Out("state", {kBatch, kHeads, kDim, kDim}), at.Out("output", row));
}

void CallRecurrentBackward(Places& at) {
  RecurrentGradients to;
  to.d_q = at.Out("d_q", kRows);
  to.d_log_decay = at.Out("d_log_decay", kOnes);
  to.d_skip = at.OutValues("d_skip", kHeads);
  RecurrentBackward(at.In("q", kRows), at.In("k", kRows), at.In("v", kRows), at.In("d_out", kRows),
                    PlaceDecays(at), to);
}

void CallConv(Places& at) {
  CausalConv(at.In("x", kRows), at.In("weight", {1, kHeads, kDim, 3}),
             {.bias = at.Values("bias", kHeads * kDim),
              .lengths = at.Numbers("lengths", {2}),
              .initial_state = at.In("initial_state", {kBatch, kHeads, 2, kDim})},
             {at.Out("output", kRows), at.Out("final_state", {kBatch, kHeads, 2, kDim})});
}

Positions PlacePositions(Places& at) { return {.rows = at.Numbers("positions.rows", {2, 0, 1})}; }

const Function kFunctions[] = {
    {"Attention", [](Places& at) { CallAttention(at, PlaceOptions(at)); }},
    {"Attention, patterns", CallPatterns},
    {"Attention, additive", CallAdditive},
    {"AttentionVarlen",
     [](Places& at) {
       AttentionVarlen(at.In("q", kRows), at.In("k", kRows), at.In("v", kRows),
                       at.Numbers("cu_seqlens_q", {0, 1, 3}), at.Numbers("cu_seqlens_k", {0, 1, 3}),
                       {}, PlaceOutputs(at));
     }},
    {"Explain", CallExplain},
    {"Merge", CallMerge},
    {"Read", CallRead},
    {"Decode", CallDecode},
    {"AttentionBackward", CallAttentionBackward},
    {"Analyze", CallAnalyze},
    {"Analyze, with an lse",
     [](Places& at) {
       Analyze(at.In("q", kRows), at.In("k", kRows), {}, at.In("lse", kOnes),
               {.entropy = at.Out("entropy", kOnes)});
     }},
    {"WeightsTile",
     [](Places& at) {
       WeightsTile(at.In("q", kRows), at.In("k", kRows), PlaceOptions(at), at.In("lse", kOnes),
                   {0, 2, 0, 2}, at.Out("weights", {kBatch, kHeads, 2, 2}));
     }},
    {"HeadSimilarity",
     [](Places& at) {
       const Extents heads = {kBatch, kHeads, kHeads, 1};
       HeadSimilarity(
           at.In("q", kRows), at.In("k", kRows), PlaceOptions(at),
           {at.Out("cosine", heads), at.Out("frobenius", heads), at.Out("jensen_shannon", heads)});
     }},
    {"Rollout", CallRollout},
    {"AttentionFlow",
     [](Places& at) {
       AttentionFlow(at.In("maps", {1, 2, kLen, kLen}), at.Numbers<int64_t>("sources", {0, 2}),
                     at.Out("output", {1, 1, 2, kLen}));
     }},
    {"MultiHop",
     [](Places& at) {
       MultiHop(at.In("q", kRows), at.In("k", kRows), PlaceOptions(at), 2, at.In("x", kRows),
                at.Out("output", kRows));
     }},
    {"Erasure",
     [](Places& at) {
       Erasure(at.In("q", kRows), at.In("k", kRows), at.In("v", kRows), PlaceOptions(at), 1, 2,
               {at.Out("change", {kBatch, kHeads, 1, kLen}), at.Out("without", kRows)});
     }},
    {"Attribution",
     [](Places& at) {
       Attribution(at.In("q", kRows), at.In("k", kRows), at.In("v", kRows), at.In("d_out", kRows),
                   PlaceOptions(at), AttributionTerms::kSigned, {0, 2, 0, 2},
                   {at.Out("column_sums", kOnes), at.Out("pairs", {kBatch, kHeads, 2, 2})});
     }},
    {"RecurrentAttention", CallRecurrent},
    {"RecurrentStep", CallRecurrentStep},
    {"RecurrentBackward", CallRecurrentBackward},
    {"CausalConv", CallConv},
    {"Rope",
     [](Places& at) {
       Rope(at.In("x", kRows), RopePairing::kHalf, {.positions = PlacePositions(at), .scaling = {}},
            at.Out("output", kRows));
     }},
    {"Rope, with tables",
     [](Places& at) {
       Rope(at.In("x", kRows), RopePairing::kHalf,
            {.scaling = {},
             .cos = at.In("cos", {1, 1, kLen, kDim / 2}),
             .sin = at.In("sin", {1, 1, kLen, kDim / 2})},
            at.Out("output", kRows));
     }},
    {"Xpos",
     [](Places& at) {
       Xpos(at.In("x", kRows), RopePairing::kHalf, XposSide::kKey,
            {.positions = PlacePositions(at), .scaling = {}}, at.Out("output", kRows));
     }},
    {"AddSinusoidal",
     [](Places& at) {
       AddSinusoidal(at.In("x", kRows), {.positions = PlacePositions(at)}, at.Out("output", kRows));
     }},
    {"AddLearnedPosition",
     [](Places& at) {
       AddLearnedPosition(at.In("x", kRows), at.In("table", {1, 1, 5, kDim}),
                          {.positions = PlacePositions(at)}, at.Out("output", kRows));
     }},
};

class AttentionAliases : public ::testing::TestWithParam<Function> {};
INSTANTIATE_TEST_SUITE_P(Attention, AttentionAliases, ::testing::ValuesIn(kFunctions), NameOf);
TEST_P(AttentionAliases, OverlapsAreRefused) { ExpectOverlapsAreRefused(GetParam()); }

}  // namespace
}  // namespace heed::testing
