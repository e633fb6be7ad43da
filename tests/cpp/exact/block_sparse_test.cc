// Block-sparse attention: lists of blocks and pairs, the patterns of the Sparse Transformer, axial
// attention, documents and prefixes.
#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pattern_request.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::ElementsAre;

class BlockSparseAttention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(BlockSparseAttention);

AttentionCase Small(int64_t q_len, int64_t kv_len) {
  return MakeCase({.batch = 2,
                   .num_heads = 4,
                   .num_kv_heads = 2,
                   .q_len = q_len,
                   .kv_len = kv_len,
                   .head_dim = 16,
                   .head_dim_v = 16});
}

AttentionCase WithPattern(int64_t len, const KeepPattern& pattern) {
  AttentionCase c = Small(len, len);
  c.scalars.patterns = {pattern};
  return c;
}

int64_t Blocks(int64_t len, int64_t block) { return (len + block - 1) / block; }

TEST_P(BlockSparseAttention, BlockMasksMatchReference) {
  for (const auto& [q_block, kv_block] : std::vector<std::pair<int64_t, int64_t>>{
           {64, 64}, {16, 128}, {5, 7}, {1000, 1}, {30, 64}, {40, 100}, {96, 32}}) {
    for (const int64_t heads : {1, 4}) {
      for (const double kept : {0.1, 0.6}) {
        AttentionCase c = Small(90, 530);
        Random random(static_cast<uint64_t>(q_block + heads));
        c.lists.q_block = q_block;
        c.lists.kv_block = kv_block;
        c.lists.block_keep =
            MakeKeep({1, heads, Blocks(90, q_block), Blocks(530, kv_block)}, random, kept);
        ExpectMatchesReference(c);
      }
    }
  }
}

TEST_P(BlockSparseAttention, RowsInCsrMatchTheirMask) {
  for (const int64_t heads : {1, 4}) {
    AttentionCase mask = Small(150, 700);
    Random random(3);
    mask.lists.q_block = 32;
    mask.lists.kv_block = 48;
    mask.lists.block_keep = MakeKeep({1, heads, Blocks(150, 32), Blocks(700, 48)}, random, 0.3);
    AttentionCase rows = mask;
    rows.lists.block_keep = {};
    rows.lists.block_indptr = {0};
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < Blocks(150, 32); ++i) {
        for (int64_t j = Blocks(700, 48); j-- > 0;) {  // any order
          if (mask.lists.block_keep(0, h, i, j) == 0) continue;
          rows.lists.block_indices.push_back(static_cast<int32_t>(j));
        }
        rows.lists.block_indptr.push_back(static_cast<int32_t>(rows.lists.block_indices.size()));
      }
    }
    ExpectMatchesReference(rows);
    EXPECT_EQ(Bits(RunAttention(rows).output), Bits(RunAttention(mask).output));
  }
}

TEST_P(BlockSparseAttention, PairsMatchReference) {
  AttentionCase c = Small(150, 700);
  Random random(5);
  c.lists.pairs.emplace();
  ExpectMatchesReference(c);  // no pair: every row is empty
  for (int n = 0; n < 2000; ++n) {
    c.lists.pairs->push_back(static_cast<int32_t>(random.Integer(0, 140)));
    c.lists.pairs->push_back(static_cast<int32_t>(random.Integer(0, 699)));
  }
  ExpectMatchesReference(c);
}

TEST_P(BlockSparseAttention, OnePairGivesItsValueExactly) {
  AttentionCase c = Small(40, 700);
  c.lists.pairs = {{7, 513, 7, 513}};
  const Results r = RunAttention(c, {.lse = true, .weights = true});
  EXPECT_EQ(r.output(1, 3, 7, 4), c.v(1, 1, 513, 4));
  EXPECT_EQ(r.weights(1, 3, 7, 513), 1.0f);
  EXPECT_EQ(r.output(1, 3, 8, 4), 0.0f);
}

TEST_P(BlockSparseAttention, NamedPatternsMatchReference) {
  for (const int64_t len : {1, 63, 300, 600}) {
    for (const int64_t stride : {1, 7, 64, 1000}) {
      if (len == 600 && stride != 7) continue;  // one with three tiles says enough
      ExpectMatchesReference(WithPattern(len, Strided{stride}));
      ExpectMatchesReference(WithPattern(len, Fixed{stride, std::min<int64_t>(stride, 5)}));
      ExpectMatchesReference(WithPattern(len, DilatedWindow{5, {stride}}));
    }
  }
}

TEST_P(BlockSparseAttention, NamedPatternsFollowTheOffset) {
  for (const int64_t offset : {-50, 0, 100, 500}) {
    for (const KeepPattern& pattern : std::vector<KeepPattern>{Strided{17}, Fixed{17, 3}}) {
      AttentionCase c = Small(70, 300);
      c.scalars.patterns = {pattern};
      c.scalars.query_offset = QueryOffset::At(offset);
      ExpectMatchesReference(c);
    }
  }
}

TEST_P(BlockSparseAttention, AxialMatchesReference) {
  const std::optional<int64_t> any;
  for (const std::optional<int64_t> axis : {any, std::optional<int64_t>(0), {1}}) {
    ExpectMatchesReference(WithPattern(17 * 19, Axial{{17, 19}, axis}));
    ExpectMatchesReference(WithPattern(5 * 9 * 7, Axial{{5, 9, 7}, axis}));
  }
}

TEST_P(BlockSparseAttention, DocumentsMatchReferenceSortedOrNot) {
  for (const bool sorted : {false, true}) {
    AttentionCase c = Small(150, 600);
    Random random(2);
    for (int64_t n = 0; n < 150; ++n) {
      c.query_documents.push_back(static_cast<int32_t>(sorted ? n / 40 : random.Integer(-1, 3)));
    }
    for (int64_t n = 0; n < 2 * 600; ++n) {
      const int64_t id = sorted ? n % 600 / 200 : random.Integer(-1, 4);
      c.key_documents.push_back(static_cast<int32_t>(id));
    }
    ExpectMatchesReference(c);
  }
}

TEST_P(BlockSparseAttention, PrefixMatchesReference) {
  AttentionCase c = Small(300, 300);
  c.prefix_lengths = {0, 133};
  ExpectMatchesReference(c);
  c.scalars.window = Window{30, std::nullopt};
  ExpectMatchesReference(c);
}

TEST_P(BlockSparseAttention, ReducesToCausalWithoutPrefix) {
  AttentionCase c = Small(130, 130);
  AttentionCase causal = c;
  c.prefix_lengths = {0, 0};
  causal.scalars.causal = true;
  EXPECT_EQ(Bits(RunAttention(c).output), Bits(RunAttention(causal).output));
}

// A packed batch is its documents one by one.
TEST_P(BlockSparseAttention, ReducesToSeparateCallsForDocuments) {
  AttentionCase packed = MakeCase({.num_heads = 2, .num_kv_heads = 2, .q_len = 512, .kv_len = 512});
  packed.query_documents = packed.key_documents =
      DocumentsFromCuSeqlens(std::vector{0, 256, 512}, 512);
  packed.scalars.causal = true;
  const Results all = RunAttention(packed);
  AttentionCase last = MakeCase({.num_heads = 2, .num_kv_heads = 2, .q_len = 256, .kv_len = 256});
  last.scalars.causal = true;
  for (auto [part, whole] :
       {std::pair{&last.q, &packed.q}, {&last.k, &packed.k}, {&last.v, &packed.v}}) {
    part->ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
      x = (*whole)(b, h, i + 256, d);
    });
  }
  const Results alone = RunAttention(last);
  for (int64_t i = 0; i < 256; ++i) {
    EXPECT_NEAR(alone.output(0, 1, i, 5), all.output(0, 1, i + 256, 5), 4e-6);
  }
}

TEST_P(BlockSparseAttention, RunsByItsOwnName) {
  AttentionCase c = WithPattern(150, Strided{12});
  Request request = c.request();
  const std::vector<double> expected = RunByName(request).at("output");
  request.id = "block_sparse";
  std::erase_if(request.params,
                [](const NamedParam& p) { return p.name == "score" || p.name == "normalize"; });
  EXPECT_EQ(RunByName(request).at("output"), expected);
}

// Figure 3 of the Sparse Transformer, drawn smaller by hand from its formulas.
TEST(BlockSparsePicture, SparseTransformer) {
  EXPECT_THAT(Picture(Strided{2}, 5), ElementsAre("x....", "xx...", "xxx..", ".xxx.", "x.xxx"));
  EXPECT_THAT(Picture(Fixed{2, 1}, 5), ElementsAre("x....", "xx...", ".xx..", ".xxx.", ".x.xx"));
}

TEST(BlockSparsePicture, Axial) {
  EXPECT_THAT(Picture(Axial{{2, 3}, 1}, 6),
              ElementsAre("xxx...", "xxx...", "xxx...", "...xxx", "...xxx", "...xxx"));
  EXPECT_THAT(Picture(Axial{{2, 3}, 0}, 6),
              ElementsAre("x..x..", ".x..x.", "..x..x", "x..x..", ".x..x.", "..x..x"));
  EXPECT_EQ(Picture(Axial{{2, 3}, {}}, 6)[4], ".x.xxx");
}

TEST(BlockSparseArrays, CuSeqlensMakeDocuments) {
  EXPECT_THAT(DocumentsFromCuSeqlens(std::vector{0, 3, 3, 5}, 7),
              ElementsAre(0, 0, 0, 2, 2, -1, -1));
  EXPECT_THROW(DocumentsFromCuSeqlens(std::vector{1, 3}, 7), Error);
  EXPECT_THROW(DocumentsFromCuSeqlens(std::vector{0, 3, 2}, 7), Error);
  EXPECT_THROW(DocumentsFromCuSeqlens(std::vector{0, 8}, 7), Error);
}

TEST(BlockSparseArrays, SparseMatricesMakeDenseKeeps) {
  EXPECT_THAT(KeepFromCoo(std::vector{1, 0}, std::vector{2, 0}, 2, 3),
              ElementsAre(1, 0, 0, 0, 0, 1));
  EXPECT_THAT(KeepFromCsr(std::vector{0, 1, 3}, std::vector{2, 1, 0}, 2, 3),
              ElementsAre(0, 0, 1, 1, 1, 0));
  EXPECT_THROW(KeepFromCoo(std::vector{2}, std::vector{0}, 2, 3), Error);
  EXPECT_THROW(KeepFromCsr(std::vector{0, 2, 1}, std::vector{2, 1}, 2, 3), Error);
  EXPECT_THROW(KeepFromCsr(std::vector{0, 1, 2}, std::vector{2, 3}, 2, 3), Error);
  EXPECT_THROW(KeepFromCsr(std::vector{1, 1, 2}, std::vector{99, 0}, 2, 3), Error);
  EXPECT_THROW(KeepFromCsr(std::vector{0, 1, 1}, std::vector{0, 1}, 2, 3), Error);
}

}  // namespace
}  // namespace heed::testing
