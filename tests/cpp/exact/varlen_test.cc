// Packed sequences: each one equals attention over it alone.
#include "heed/varlen.h"

#include <cmath>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class Varlen : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Varlen);

using Offsets = std::vector<int32_t>;

Offsets Sums(const std::vector<int32_t>& lengths) {
  Offsets offsets = {0};
  for (const int32_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

// One case whose len axis holds all sequences.
AttentionCase Packed(const Offsets& q, const Offsets& kv, uint64_t seed, Layout layout) {
  return MakeCase({.batch = 1,
                   .num_heads = 4,
                   .num_kv_heads = 2,
                   .q_len = q.back() + 2,
                   .kv_len = kv.back() + 3,
                   .head_dim = 24,
                   .head_dim_v = 20},
                  seed, layout);
}

Buffer<float> Slice(const Buffer<float>& from, int64_t begin, int64_t end) {
  Extents shape = from.shape();
  shape[2] = end - begin;
  Buffer<float> to(shape, Layout::kDense, 0.0f);
  to.ForEach(
      [&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) { x = from(b, h, begin + i, d); });
  return to;
}

// Sequence s of a packed case alone.
AttentionCase Alone(const AttentionCase& c, const Offsets& q, const Offsets& kv, size_t s) {
  AttentionCase one = c;
  one.q = Slice(c.q, q[s], q[s + 1]);
  one.k = Slice(c.k, kv[s], kv[s + 1]);
  one.v = Slice(c.v, kv[s], kv[s + 1]);
  one.sizes.q_len = q[s + 1] - q[s];
  one.sizes.kv_len = kv[s + 1] - kv[s];
  return one;
}

Results RunVarlen(const AttentionCase& c, const Offsets& q, const Offsets& kv,
                  ThreadPool* pool = nullptr) {
  Results r;
  r.output = Buffer<float>({1, 4, c.sizes.q_len, c.sizes.head_dim_v}, Layout::kBlhd, NAN);
  r.lse = Buffer<float>({1, 4, c.sizes.q_len, 1}, Layout::kDense, NAN);
  AttentionVarlen(c.q.view(), c.k.view(), c.v.view(), q, kv, c.options(),
                  {.output = r.output.view(), .lse = r.lse.view()}, pool);
  return r;
}

void ExpectEachAlone(const AttentionCase& c, const Offsets& q, const Offsets& kv) {
  const Results all = RunVarlen(c, q, kv);
  for (size_t s = 0; s + 1 < q.size(); ++s) {
    SCOPED_TRACE("sequence " + std::to_string(s));
    const AttentionCase one = Alone(c, q, kv, s);
    if (one.sizes.q_len == 0) continue;
    Results part;
    part.output = Slice(all.output, q[s], q[s + 1]);
    part.lse = Slice(all.lse, q[s], q[s + 1]);
    ExpectResultsMatch(one, part, RunOracle(one));
  }
  for (int64_t i = q.back(); i < c.sizes.q_len; ++i) {
    EXPECT_EQ(all.output(0, 3, i, 5), 0.0f);
    EXPECT_EQ(all.lse(0, 3, i, 0), -INFINITY);
  }
}

TEST_P(Varlen, EverySequenceMatchesReference) {
  const Offsets q = Sums({1, 0, 17, 300, 5, 64}), kv = Sums({9, 4, 17, 40, 0, 700});
  for (const Layout layout : {Layout::kDense, Layout::kBlhd}) {
    AttentionCase c = Packed(q, kv, 1, layout);
    ExpectEachAlone(c, q, kv);
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::End();
    c.alibi_slopes = {0.5f, 0.1f, 0.01f, 0.0f};
    c.scalars.softcap = 20.0;
    ExpectEachAlone(c, q, kv);
    c.scalars.query_offset = QueryOffset::At(3);
    c.scalars.window = Window{5, 2};
    c.sinks = {0.0f, 1.0f, -1.0f, 2.0f};
    ExpectEachAlone(c, q, kv);
  }
}

TEST_P(Varlen, ManyShortSequencesMatchReference) {
  std::vector<int32_t> lengths;
  for (int32_t n = 0; n < 60; ++n) lengths.push_back(n % 13);
  const Offsets offsets = Sums(lengths);
  AttentionCase c = Packed(offsets, offsets, 2, Layout::kBlhd);
  c.scalars.causal = true;
  ExpectEachAlone(c, offsets, offsets);
}

TEST_P(Varlen, OneTokenDecodesOverLongSequences) {
  const Offsets q = Sums({1, 1, 1}), kv = Sums({1500, 3, 2000});
  AttentionCase c = Packed(q, kv, 3, Layout::kBlhd);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::End();
  ExpectEachAlone(c, q, kv);
}

TEST_P(Varlen, ReducesToAttentionForOneSequence) {
  AttentionCase c = MakeCase({.num_heads = 4, .num_kv_heads = 2, .q_len = 70, .kv_len = 70}, 4);
  c.scalars.causal = true;
  const Results expected = RunAttention(c);
  const Results r = RunVarlen(c, {0, 70}, {0, 70});
  EXPECT_EQ(Bits(r.output), Bits(expected.output));
  EXPECT_EQ(Bits(r.lse), Bits(expected.lse));
}

TEST_P(Varlen, OtherSequencesDoNotMatter) {
  const Offsets offsets = Sums({20, 30, 40});
  AttentionCase c = Packed(offsets, offsets, 5, Layout::kDense);
  const Results clean = RunVarlen(c, offsets, offsets);
  for (int64_t j = 20; j < 50; ++j) {
    c.k(0, 1, j, 2) = NAN;
    c.v(0, 1, j, 2) = INFINITY;
  }
  const auto pool = MakeThreadPool(3);
  const Results r = RunVarlen(c, offsets, offsets, pool.get());
  for (const int64_t i : {0, 19, 50, 89}) {
    for (int64_t d = 0; d < 20; ++d) EXPECT_EQ(r.output(0, 3, i, d), clean.output(0, 3, i, d)) << i;
  }
  EXPECT_TRUE(std::isnan(r.output(0, 3, 20, 2)));
}

// As attention over each sequence alone, without lse.
void ExpectAsAttentionAlone(const AttentionCase& c, const Offsets& q, const Offsets& kv,
                            double tolerance) {
  Buffer<float> all({1, 4, c.sizes.q_len, c.sizes.head_dim_v}, Layout::kBlhd, NAN);
  AttentionVarlen(c.q.view(), c.k.view(), c.v.view(), q, kv, c.options(), {.output = all.view()});
  for (size_t s = 0; s + 1 < q.size(); ++s) {
    const AttentionCase one = Alone(c, q, kv, s);
    Buffer<float> alone({1, 4, one.sizes.q_len, one.sizes.head_dim_v}, Layout::kDense, NAN);
    Attention(one.q.view(), one.k.view(), one.v.view(), one.options(), {.output = alone.view()});
    alone.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
      EXPECT_NEAR(all(b, h, q[s] + i, d), x, tolerance) << s << " " << h << " " << i;
    });
  }
}

TEST_P(Varlen, SigmoidBiasIsThatOfEachSequence) {
  const Offsets q = Sums({1, 0, 17, 300, 5, 64}), kv = Sums({9, 4, 17, 40, 0, 700});
  AttentionCase c = Packed(q, kv, 8, Layout::kBlhd);
  c.scalars.normalize = Normalize::kSigmoid;
  ExpectAsAttentionAlone(c, q, kv, 1e-5);
  c.scalars.sigmoid_bias = -1.5;
  ExpectAsAttentionAlone(c, q, kv, 1e-4);  // 700 weights add up to more than 100
}

// What a user's function finds at every pair of a sequence.
// Also where queries stand behind the last key of their sequence.
TEST_P(Varlen, GatesAreThoseOfTheOwnSequence) {
  const Offsets q = Sums({3, 4}), kv = Sums({5, 6});
  AttentionCase c = Packed(q, kv, 9, Layout::kDense);
  Random random(3);
  c.AddTensor("log_gates", {1, 4, c.sizes.kv_len}, random, 0.5);
  Buffer<float>& gates = c.tensors["log_gates"].buffer;
  gates.ForEach([](int64_t, int64_t, int64_t, int64_t j, float& x) {
    x = j == 5 ? -INFINITY : -std::abs(x);  // the first of a sequence acts on none of its keys
  });
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(4);
  const Results all = RunVarlen(c, q, kv);
  for (size_t s = 0; s < 2; ++s) {
    AttentionCase one = Alone(c, q, kv, s);
    Buffer<float> own({1, 1, 4, one.sizes.kv_len}, Layout::kDense, 0.0f);
    own.ForEach(
        [&](int64_t, int64_t, int64_t h, int64_t j, float& x) { x = gates(0, 0, h, kv[s] + j); });
    one.tensors["log_gates"].buffer = own;
    Results part;
    part.output = Slice(all.output, q[s], q[s + 1]);
    part.lse = Slice(all.lse, q[s], q[s + 1]);
    ExpectResultsMatch(one, part, RunOracle(one));
  }
}

TEST_P(Varlen, UserFunctionsSeeOneSequenceAtATime) {
  const Offsets q = Sums({1, 0, 17, 300, 5, 64}), kv = Sums({9, 4, 17, 40, 0, 700});
  AttentionCase c = Packed(q, kv, 6, Layout::kDense);
  c.scalars.query_offset = QueryOffset::At(3);
  const auto change_all = [](const PairTile& tile, float (*change)(float x, double place)) {
    for (size_t r = 0; r < tile.num_rows; ++r) {
      const PairTile::Row& row = tile.rows[r];
      for (size_t n = 0; n < tile.num_keys; ++n) {
        float& x = tile.values[r * tile.row_stride + n];
        const int64_t key = tile.key_begin + static_cast<int64_t>(n);
        x = change(x, static_cast<double>(7 * row.query + 3 * row.position + key + row.head));
      }
    }
  };
  c.scalars.score_mod = [&](const PairTile& tile) {
    change_all(tile, [](float x, double place) { return x + static_cast<float>(std::sin(place)); });
  };
  c.scalars.keep_mod = [&](const PairTile& tile) {
    change_all(tile, [](float, double place) { return std::sin(place) > -0.5 ? 1.0f : 0.0f; });
  };
  c.scalars.prob_mod = [&](const PairTile& tile) {
    change_all(tile, [](float x, double place) { return x * static_cast<float>(std::cos(place)); });
  };
  ExpectAsAttentionAlone(c, q, kv, 1e-5);
}

TEST_P(Varlen, UserFunctionsKnowTheNumberOfTheSequence) {
  const Offsets offsets = Sums({2, 3, 1});
  AttentionCase c = Packed(offsets, offsets, 7, Layout::kDense);
  c.scalars.score_mod =
      CompileExpression("score_mod", "b + kv_index / 16", ExpressionValue::kScore);
  Buffer<float> output({1, 4, c.sizes.q_len, 20}, Layout::kDense, NAN);
  Buffer<float> scores({1, 4, c.sizes.q_len, c.sizes.kv_len}, Layout::kDense, NAN);
  AttentionVarlen(c.q.view(), c.k.view(), c.v.view(), offsets, offsets, c.options(),
                  {.output = output.view(), .scores = scores.view()});
  EXPECT_EQ(scores(0, 1, 0, 1), 0.0625f);
  EXPECT_EQ(scores(0, 1, 4, 2), 1.0f);
  EXPECT_EQ(scores(0, 1, 4, 4), 1.125f);
  EXPECT_EQ(scores(0, 1, 5, 5), 2.0f);
  EXPECT_EQ(scores(0, 1, 5, 4), -INFINITY);
}

TEST_P(Varlen, KnownNumbers) {
  // Sequences of one and two equal keys: their means.
  const float q[] = {0, 0, 0}, k[] = {1, 1, 1}, v[] = {7, 2, 4};
  float out[3];
  AttentionVarlen(ContiguousBlhd(q, 1, 3, 1, 1), ContiguousBlhd(k, 1, 3, 1, 1),
                  ContiguousBlhd(v, 1, 3, 1, 1), Offsets{0, 1, 3}, Offsets{0, 1, 3}, {},
                  {.output = ContiguousBlhd(out, 1, 3, 1, 1)});
  EXPECT_THAT(out, ::testing::ElementsAre(7, 3, 3));
}

TEST(VarlenErrors, NameTheArgument) {
  const AttentionCase c = Packed({0, 4}, {0, 4}, 6, Layout::kDense);
  const auto message = [&](const Offsets& q, const Offsets& kv, AttentionOptions options = {},
                           int64_t batch = 1) -> std::string {
    Buffer<float> output({1, 4, 6, 20}, Layout::kDense, 0.0f);
    TensorView<const float> view = c.q.view();
    view.shape[0] = batch;
    view.strides[0] = 0;
    try {
      AttentionVarlen(view, c.k.view(), c.v.view(), q, kv, options, {.output = output.view()});
    } catch (const Error& error) {
      return std::string(ErrorCodeName(error.code())) + ": " + error.what();
    }
    return "no error";
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(message({0, 4}, {0, 4}), "no error");
  EXPECT_EQ(message({0}, {0}), "no error");
  EXPECT_THAT(message({}, {0}), HasSubstr("shape: cu_seqlens_q is empty"));
  EXPECT_THAT(message({1, 4}, {0, 4}), HasSubstr("range: cu_seqlens_q[0] = 1"));
  EXPECT_THAT(message({0, 3, 2}, {0, 1, 2}), HasSubstr("range: cu_seqlens_q[2] = 2"));
  EXPECT_THAT(message({0, 4}, {0, 8}), HasSubstr("range: cu_seqlens_k[1] = 8"));
  EXPECT_THAT(message({0, -1}, {0, 4}), HasSubstr("range: cu_seqlens_q[1] = -1"));
  EXPECT_THAT(message({0, 4}, {0, 2, 4}), HasSubstr("shape: cu_seqlens_q has 2 numbers"));
  EXPECT_THAT(message({0, 4}, {0, 4}, {}, 2), HasSubstr("shape: q has batch 2"));
  AttentionOptions causal;
  causal.causal = true;
  EXPECT_THAT(message({0, 3}, {0, 4}, causal), HasSubstr("option: query_offset is needed"));
  causal.query_offset = QueryOffset::PerBatch({1, 2});
  EXPECT_THAT(message({0, 3}, {0, 4}, causal), HasSubstr("shape: query_offset has 2 positions"));
  AttentionOptions lengths;
  const std::vector<int32_t> four = {4};
  lengths.key_lengths = four;
  EXPECT_THAT(message({0, 4}, {0, 4}, lengths), HasSubstr("unsupported: key_lengths"));
}

}  // namespace
}  // namespace heed::testing
