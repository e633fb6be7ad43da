#include "normalizer_checks.h"

#include <cmath>
#include <limits>

#include "attention_accuracy.h"
#include "gtest/gtest.h"
#include "heed/registry.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

bool Chooses(Normalize normalize) {
  return normalize == Normalize::kHard || normalize == Normalize::kTopK;
}

AttentionCase Prepare(AttentionCase c, Normalize normalize) {
  c.scalars.normalize = normalize;
  if (normalize == Normalize::kTopK) c.scalars.top_k = 5;
  Random random(7);
  if (normalize == Normalize::kCope) AddCopeTable(c, c.sizes.num_heads, 12, random);
  if (Chooses(normalize)) MakeScoresExact(c);
  return c;
}

}  // namespace

AttentionCase NormalizerCase(Normalize normalize, int64_t q_len, int64_t kv_len, int64_t head_dim) {
  return Prepare(MakeCase({.batch = 2,
                           .num_heads = 4,
                           .num_kv_heads = 2,
                           .q_len = q_len,
                           .kv_len = kv_len,
                           .head_dim = head_dim,
                           .head_dim_v = 9}),
                 normalize);
}

void ExpectEveryShapeMatchesReference(Normalize normalize) {
  for (const int64_t kv_len : {1, 3, 63, 65, 1000, 2100}) {
    for (const int64_t q_len : {1, 3, 65}) {
      if (kv_len > 1000 && q_len > 1) continue;
      ExpectMatchesReference(NormalizerCase(normalize, q_len, kv_len));
    }
  }
  for (const int64_t head_dim : {1, 40, 80}) {
    ExpectMatchesReference(NormalizerCase(normalize, 5, 130, head_dim));
  }
  for (const Layout layout : {Layout::kBlhd, Layout::kPadded, Layout::kReversed}) {
    AttentionCase c = MakeCase({.q_len = 30, .kv_len = 270, .head_dim = 8}, 2, layout);
    c.output_layout = layout;
    ExpectMatchesReference(Prepare(std::move(c), normalize));
  }
}

void ExpectEmptyRowsAreZero(Normalize normalize) {
  AttentionCase c = NormalizerCase(normalize);
  c.key_lengths.assign(static_cast<size_t>(2 * 33), 300);
  c.key_lengths[3] = c.key_lengths[40] = 0;
  ExpectMatchesReference(c);
  const Results r = RunAttention(c, {.lse = HasLse(c), .weights = true});
  for (const auto& [b, i] : {std::pair{0, 3}, std::pair{1, 7}}) {
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t d = 0; d < 9; ++d) EXPECT_EQ(r.output(b, h, i, d), 0.0f);
      for (int64_t j = 0; j < 300; ++j) EXPECT_EQ(r.weights(b, h, i, j), 0.0f);
      if (HasLse(c)) {
        EXPECT_EQ(r.lse(b, h, i, 0), -kInf);
      }
    }
  }
}

void ExpectHiddenPoisonDoesNotMatter(Normalize normalize) {
  for (const int64_t q_len : {2, 33}) {
    AttentionCase c = NormalizerCase(normalize, q_len);
    Random random(3);
    c.keep = MakeKeep({1, 1, 1, 300}, random, 0.7);
    AttentionCase poisoned = c;
    for (int64_t j = 0; j < 300; ++j) {
      if (c.keep(0, 0, 0, j) != 0) continue;
      poisoned.k(1, 0, j, 3) = j % 2 == 0 ? kNan : kInf;
      poisoned.v(1, 0, j, 2) = j % 3 == 0 ? kNan : -kInf;
    }
    const Results clean = RunAttention(c, {.lse = HasLse(c), .weights = true});
    const Results same = RunAttention(poisoned, {.lse = HasLse(c), .weights = true});
    EXPECT_EQ(Bits(clean.output), Bits(same.output));
    EXPECT_EQ(Bits(clean.lse), Bits(same.lse));
    EXPECT_EQ(Bits(clean.weights), Bits(same.weights));
    ExpectMatchesReference(poisoned);
  }
}

void ExpectVisiblePoisonStaysInItsRows(Normalize normalize) {
  for (const float poison : {kNan, kInf}) {
    AttentionCase c = NormalizerCase(normalize);
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::At(200);
    c.v(0, 1, 210, 4) = poison;
    c.k(1, 0, 215, 1) = poison;
    ExpectMatchesReference(c);
    const Results r = RunAttention(c, {.lse = false});
    for (int64_t i = 0; i < 10; ++i) EXPECT_TRUE(std::isfinite(r.output(0, 2, i, 4)));
    for (int64_t i = 0; i < 15; ++i) EXPECT_TRUE(std::isfinite(r.output(1, 1, i, 4)));
  }
}

void ExpectSoundNormalizer(Normalize normalize) {
  ExpectEveryShapeMatchesReference(normalize);
  ExpectEmptyRowsAreZero(normalize);
  ExpectHiddenPoisonDoesNotMatter(normalize);
  ExpectVisiblePoisonStaysInItsRows(normalize);
}

RequestBuilder RowOfScores(const std::string& id, const std::vector<float>& scores) {
  const int64_t n = static_cast<int64_t>(scores.size());
  std::vector<float> identity(static_cast<size_t>(n * n), 0.0f);
  for (int64_t j = 0; j < n; ++j) identity[static_cast<size_t>(j * n + j)] = 1;
  RequestBuilder builder(id);
  builder.Floats("q", {1, 1, 1, 1}, {1})
      .Floats("k", {1, 1, n, 1}, scores)
      .Floats("v", {1, 1, n, n}, identity)
      .Param("return_weights", true);
  const std::string_view params = FindMechanism(id)->params;
  if (params.find("scale") != std::string_view::npos) builder.Param("scale", 1.0);
  return builder;
}

std::vector<double> WeightsOf(const RequestBuilder& builder) {
  const Values values = RunByName(builder.request());
  EXPECT_EQ(values.at("weights"), values.at("output"));
  return values.at("weights");
}

}  // namespace heed::testing
