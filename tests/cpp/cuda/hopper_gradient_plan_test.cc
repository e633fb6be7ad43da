// Which calls the gradient kernels for Hopper take, what the row table says, and which tiles a
// block visits.
#include "src/cuda/hopper_gradient_plan.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention_case.h"
#include "gtest/gtest.h"
#include "host_block.h"
#include "host_warp_group.h"
#include "shared_cases.h"
#include "src/cuda/hopper_gradient_rows.h"
#include "stored_buffer.h"

namespace heed::testing {
namespace {

using cuda::HopperSums;
using cuda::TilePath;

constexpr float kInf = std::numeric_limits<float>::infinity();
using KeysShape = cuda::HopperGradientShape<BFloat16, 64, HopperSums::kKeys>;
using QueriesShape = cuda::HopperGradientShape<BFloat16, 64, HopperSums::kQueries>;

// A case with everything that its backward call needs; query i has an lse of i.
struct Planned {
  AttentionCase c;
  Buffer<float> output, lse;
  Buffer<float> d_query;
  StoredBuffer q, k, v, d_out, d_q;
  std::vector<float> d_slopes;
  AttentionGradients wanted;
  cuda::DeviceGradient call;

  explicit Planned(AttentionCase the_case, DType dtype = DType::kBFloat16,
                   Layout layout = Layout::kDense, bool wants_slopes = false)
      : c(std::move(the_case)),
        output({c.sizes.batch, c.sizes.num_heads, c.sizes.q_len, c.sizes.head_dim_v},
               Layout::kDense, 0),
        lse({c.sizes.batch, c.sizes.num_heads, c.sizes.q_len, 1}, Layout::kDense, 0),
        d_query(c.q.shape(), Layout::kDense, 0),
        q(c.q, dtype, layout),
        k(c.k, dtype, layout),
        v(c.v, dtype, layout),
        d_out(output, dtype, layout),
        d_q(d_query, dtype, Layout::kDense),
        d_slopes(c.alibi_slopes) {
    lse.ForEach([](int64_t, int64_t, int64_t i, int64_t, float& x) { x = static_cast<float>(i); });
    wanted.d_q = d_q.output();
    if (wants_slopes) wanted.d_alibi_slopes = d_slopes;
    call = cuda::ValidateGradientForDevice(q.view(), k.view(), v.view(), d_out.view(),
                                           std::as_const(lse).view(), d_out.view(), c.options(),
                                           wanted, {});
  }
};

AttentionCase Several(int64_t head_dim = 32) {
  return MakeCase({.batch = 2,
                   .num_heads = 4,
                   .num_kv_heads = 2,
                   .q_len = 150,
                   .kv_len = 300,
                   .head_dim = head_dim,
                   .head_dim_v = head_dim});
}

TEST(HopperGradientPlan, TakesWhatItIsMadeForUnlessTheBasePathIsAskedFor) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Planned planned(Several(), dtype);
    EXPECT_TRUE(cuda::TakesHopperGradient(planned.call, TilePath::kHopper));
    EXPECT_TRUE(cuda::TakesHopperGradient(planned.call, TilePath::kFastest));
    EXPECT_FALSE(cuda::TakesHopperGradient(planned.call, TilePath::kBase));
  }
  AttentionCase few = MakeCase({.q_len = 64, .kv_len = 300, .head_dim = 32, .head_dim_v = 32});
  EXPECT_TRUE(cuda::TakesHopperGradient(Planned(few).call, TilePath::kHopper));
  EXPECT_FALSE(cuda::TakesHopperGradient(Planned(few).call, TilePath::kFastest));
}

TEST(HopperGradientPlan, LeavesTheRestToTheBasePath) {
  const auto fits = [](const Planned& planned) { return FitsHopperGradient(planned.call); };
  EXPECT_TRUE(fits(Planned(Several(128))));
  EXPECT_FALSE(fits(Planned(Several(136))));
  EXPECT_FALSE(fits(Planned(Several(20))));  // rows of 40 bytes
  EXPECT_FALSE(fits(Planned(Several(), DType::kFloat32)));
  EXPECT_FALSE(fits(Planned(Several(), DType::kBFloat16, Layout::kReversed)));
  AttentionCase c = Several();
  c.scalars.dropout = {.p = 0.5, .seed = 1};
  EXPECT_FALSE(fits(Planned(c)));
  c = Several();
  c.scalars.query_offset = QueryOffset::End();
  c.alibi_slopes = AlibiSlopes(4);
  EXPECT_TRUE(fits(Planned(c)));
  EXPECT_FALSE(fits(Planned(c, DType::kBFloat16, Layout::kDense, true)));
}

TEST(HopperGradientPlan, ItemsAreThoseOfWhatIsWanted) {
  Planned planned(Several());
  cuda::HopperGradientPlan plan(planned.call);
  EXPECT_EQ(plan.num_table_blocks(), 2 * 4 * 4);  // 150 rows in tiles of 48
  EXPECT_EQ(plan.num_items(HopperSums::kQueries), 2 * 4 * 2);
  EXPECT_EQ(plan.num_items(HopperSums::kKeys), 0);
  planned.call.problem.gradients.d_v = planned.v.output();
  EXPECT_EQ(cuda::HopperGradientPlan(planned.call).num_items(HopperSums::kKeys), 2 * 2 * 3);
}

// Memory beside inputs and results grows with rows alone.
TEST(HopperGradientPlan, TheTableGrowsWithRowsAlone) {
  for (const int64_t kv_len : {1, 300, 3000}) {
    Sizes sizes = Several().sizes;
    sizes.kv_len = kv_len;
    const Planned planned(MakeCase(sizes));
    EXPECT_EQ(cuda::HopperGradientPlan(planned.call).table_words(),
              2 * 4 * 4 * cuda::kTableTileWords);
  }
}

// The row table of a case, and its parameters.
struct Table {
  Planned planned;
  cuda::GradientPlan base;
  cuda::HopperGradientPlan plan;
  std::vector<float> scratch;
  std::vector<uint32_t> words;
  cuda::GradientParams params;

  explicit Table(const AttentionCase& c)
      : planned(c),
        base(planned.call),
        plan(planned.call),
        scratch(static_cast<size_t>(base.scratch_floats())),
        words(static_cast<size_t>(plan.table_words()), 0x7fffffffu) {
    for (size_t n = 0; n < scratch.size(); ++n) {
      scratch[n] = static_cast<float>(2 * (n % static_cast<size_t>(c.sizes.q_len)));
    }
    params =
        plan.Params(base.Params(base.host_arrays().data(), scratch.data(), nullptr), words.data());
    Fill();
  }

  void Fill() {
    for (int64_t index = 0; index < plan.num_table_blocks(); ++index) {
      HostBlock block;
      cuda::RowTableKernel<HostBlock>(block, params).Run(index);
      EXPECT_EQ(block.complaint(), "");
    }
  }

  // What query i of a batch entry sees, by the rules themselves.
  cuda::RowKeys Sees(int b, int64_t i) const {
    const cuda::AttentionParams& p = params.attention;
    if (i >= p.q_len) return {0, 0};
    const int query = static_cast<int>(i);
    const int32_t length = cuda::StoredLength(p.rules, b, query, p.q_len, p.kv_len);
    const int64_t position = cuda::PositionOf(p.rules, b, query, p.q_len, length);
    return cuda::KeysOfRow(p.rules, b, position, length, p.kv_len);
  }
  // Whether some of queries [first, first + count) sees a key of [begin, end).
  bool Meet(int b, int64_t first, int64_t count, int64_t begin, int64_t end) const {
    for (int64_t i = first; i < first + count; ++i) {
      const cuda::RowKeys keys = Sees(b, i);
      if (keys.begin < keys.end && keys.begin < end && keys.end > begin) return true;
    }
    return false;
  }
};

// Cases in which rows see all there is of intervals.
void ForRules(const ExpectCase& expect) {
  const Sizes sizes = Several().sizes;
  expect(MakeCase(sizes));
  ForCausalOffsets(sizes, expect);
  ForWindowsOfEverySide(sizes, expect);
  ForLengths(sizes, expect);
}

TEST(HopperGradientPlan, TheTableSaysWhatRowsSee) {
  ForRules([](const AttentionCase& c) {
    const Table table(c);
    for (int b = 0; b < 2; ++b) {
      for (int32_t tile = 0; tile < table.params.table_tiles; ++tile) {
        const uint32_t* words = cuda::TableTile(table.params, b, 3, tile);
        const auto word = [&](int at) { return static_cast<int32_t>(words[at]); };
        int32_t begin = 0, end = table.params.attention.kv_len;
        for (int r = 0; r < cuda::kTableRows; ++r) {
          const int64_t i = int64_t{tile} * cuda::kTableRows + r;
          const cuda::RowKeys keys = table.Sees(b, i);
          ASSERT_EQ(word(RowWordAt(cuda::kRowBegin, r)), keys.begin) << c.Describe();
          ASSERT_EQ(word(RowWordAt(cuda::kRowEnd, r)), keys.end) << c.Describe();
          begin = std::max(begin, keys.begin);
          end = std::min(end, keys.end);
          if (i >= c.sizes.q_len) continue;
          const float lse = cuda::AsFloat(words[RowWordAt(cuda::kRowLse, r)]);
          ASSERT_FLOAT_EQ(lse, static_cast<float>(i) * cuda::kLog2E);
          ASSERT_EQ(cuda::AsFloat(words[RowWordAt(cuda::kRowDelta, r)]), static_cast<float>(2 * i));
        }
        ASSERT_EQ(word(TileWordAt(cuda::kAllBegin)), begin) << c.Describe();
        ASSERT_EQ(word(TileWordAt(cuda::kAllEnd)), end) << c.Describe();
      }
    }
  });
}

TEST(HopperGradientPlan, RowsWithoutAWeightSeeNothing) {
  Table table(Several());
  table.planned.lse(1, 2, 5, 0) = -kInf;
  table.Fill();
  const uint32_t* words = cuda::TableTile(table.params, 1, 2, 0);
  EXPECT_EQ(words[RowWordAt(cuda::kRowEnd, 5)], 0u);
  EXPECT_EQ(words[RowWordAt(cuda::kRowEnd, 6)], 300u);
  EXPECT_EQ(words[TileWordAt(cuda::kAllEnd)], 0u);
}

// The items of a kernel, as the first warp group of a block finds them.
template <class Shape>
std::vector<cuda::GradientItem> ItemsOf(const Table& table) {
  std::vector<cuda::GradientItem> items;
  HostHopperBlock block(Shape::kBytes);
  EXPECT_EQ(block.Run([&](HostWarpGroup& group) {
    if (group.index() != 0) return;
    for (int32_t n = 0; n < cuda::GradientItemsOf<Shape>(table.params.attention); ++n) {
      items.push_back(cuda::FindGradientItem<Shape>(group, table.params, n));
    }
  }),
            "");
  return items;
}

// The span holds every tile in which there is something to see, and ends with such tiles.
template <class Meets>
void ExpectSpan(const cuda::TileSpan& span, int64_t tiles, const std::string& what,
                const Meets& meets) {
  int64_t first = tiles, last = -1;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    if (!meets(tile)) continue;
    first = std::min(first, tile);
    last = tile;
  }
  if (last < 0) {
    EXPECT_GE(span.begin, span.end) << what;
  } else {
    EXPECT_EQ(span.begin, first) << what;
    EXPECT_EQ(span.end, last + 1) << what;
  }
}

TEST(HopperGradientPlan, KeysVisitTheQueriesThatSeeThem) {
  ForRules([](const AttentionCase& c) {
    const Table table(c);
    for (const cuda::GradientItem& item : ItemsOf<KeysShape>(table)) {
      EXPECT_EQ(item.first, 2 * item.head);
      EXPECT_EQ(item.heads, 2);
      ExpectSpan(item.span, table.params.table_tiles, c.Describe(), [&](int64_t tile) {
        return table.Meet(item.batch, tile * cuda::kTableRows, cuda::kTableRows, item.tile * 128,
                          item.tile * 128 + 128);
      });
    }
  });
}

// The first head of a group stands for the others, which may have weights where it has none.
TEST(HopperGradientPlan, KeysVisitQueriesWithoutAWeightInTheFirstHead) {
  Table table(CausalCase(Several().sizes, 150, 300));
  const auto expected = ItemsOf<KeysShape>(table);
  for (int64_t i = 0; i < 150; ++i) table.planned.lse(1, 2, i, 0) = -kInf;
  table.Fill();
  const auto actual = ItemsOf<KeysShape>(table);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t n = 0; n < actual.size(); ++n) {
    EXPECT_EQ(actual[n].span.begin, expected[n].span.begin) << n;
    EXPECT_EQ(actual[n].span.end, expected[n].span.end) << n;
  }
}

// Their rows are found by tiles of the table, so neighbours of the block's own rows may join.
TEST(HopperGradientPlan, QueriesVisitTheKeysThatTheySee) {
  ForRules([](const AttentionCase& c) {
    const Table table(c);
    for (const cuda::GradientItem& item : ItemsOf<QueriesShape>(table)) {
      EXPECT_EQ(item.first, item.head / 2);
      EXPECT_EQ(item.heads, 1);
      const int64_t first = item.tile * 128 / 48 * 48;
      const int64_t end = (item.tile * 128 + 127) / 48 * 48 + 48;
      for (int64_t tile = 0; tile < 4; ++tile) {
        const bool visits = tile >= item.span.begin && tile < item.span.end;
        if (table.Meet(item.batch, first, end - first, tile * 80, tile * 80 + 80)) {
          EXPECT_TRUE(visits) << c.Describe();
        }
      }
    }
  });
}

TEST(HopperGradientPlan, EveryItemIsAnotherBlockOfRows) {
  const Table table(Several());
  std::vector<int> keys(2 * 2 * 3), queries(2 * 4 * 2);
  for (const cuda::GradientItem& item : ItemsOf<KeysShape>(table)) {
    ++keys.at(static_cast<size_t>((item.batch * 2 + item.head) * 3 + item.tile));
  }
  for (const cuda::GradientItem& item : ItemsOf<QueriesShape>(table)) {
    ++queries.at(static_cast<size_t>((item.batch * 4 + item.head) * 2 + item.tile));
  }
  EXPECT_EQ(keys, std::vector<int>(keys.size(), 1));
  EXPECT_EQ(queries, std::vector<int>(queries.size(), 1));
}

// Both kernels fit a block of a Hopper GPU: 227 KiB.
TEST(HopperGradientPlan, TilesFitSharedMemory) {
  using Wide = cuda::HopperGradientShape<BFloat16, 128, HopperSums::kQueries>;
  using WideKeys = cuda::HopperGradientShape<BFloat16, 128, HopperSums::kKeys>;
  for (const int bytes :
       {KeysShape::kBytes, QueriesShape::kBytes, Wide::kBytes, WideKeys::kBytes}) {
    EXPECT_LE(bytes + cuda::kExtraBytes + cuda::kSwizzleBytes, 227 * 1024);
  }
  EXPECT_EQ(Wide::TileAt(1, 1) % cuda::kSwizzleBytes, 0);
  EXPECT_EQ(WideKeys::TileAt(2, 1) % cuda::kSwizzleBytes, 0);
}

}  // namespace
}  // namespace heed::testing
