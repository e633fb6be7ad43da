// Which calls the Hopper kernel takes, and what TMA is told of them.
#include "attention_case.h"
#include "gtest/gtest.h"
#include "src/cuda/hopper_plan.h"
#include "stored_buffer.h"

namespace heed::testing {
namespace {

using cuda::TilePath;

constexpr int64_t kProcessors = 132;

// Both questions about a case whose tensors have a type and a layout.
struct Choice {
  bool fits = false;
  bool fastest = false;
  bool base = false;
  cuda::TileMap keys{};
  int64_t num_items = 0;
};

Choice ChoiceOf(AttentionCase c, DType dtype = DType::kBFloat16, Layout layout = Layout::kDense,
                const cuda::SeenRules& seen = {}) {
  // Nothing reads the numbers, so those of 16 bits are seen as float8.
  const DType stored = dtype == DType::kFloat8E4M3 ? DType::kBFloat16 : dtype;
  const StoredBuffer q(c.q, stored, layout), k(c.k, stored, layout), v(c.v, stored, layout);
  const auto seen_as = [&](StoredTensor t) {
    t.dtype = dtype;
    return t;
  };
  Buffer<float> output({c.sizes.batch, c.sizes.num_heads, c.sizes.q_len, c.sizes.head_dim_v},
                       Layout::kDense, 0);
  AttentionOutputs outputs;
  outputs.output = output.view();
  cuda::DeviceProblem call = cuda::ValidateForDevice(seen_as(q.view()), seen_as(k.view()),
                                                     seen_as(v.view()), c.options(), outputs, {});
  call.seen = seen;
  const cuda::AttentionPlan plan(call, kProcessors, 2);
  Choice choice;
  choice.fits = cuda::TakesHopper(call, plan, TilePath::kHopper);
  choice.fastest = cuda::TakesHopper(call, plan, TilePath::kFastest);
  choice.base = cuda::TakesHopper(call, plan, TilePath::kBase);
  if (!choice.fits) return choice;
  choice.keys = cuda::HopperPlan(call).keys();
  choice.num_items = cuda::HopperPlan(call).num_items();
  return choice;
}

// Enough rows that keys are not split.
AttentionCase Many(int64_t head_dim = 32) {
  return MakeCase({.batch = 2,
                   .num_heads = 4,
                   .num_kv_heads = 2,
                   .q_len = 70,
                   .kv_len = 90,
                   .head_dim = head_dim,
                   .head_dim_v = head_dim});
}

TEST(HopperChoice, TakesWhatItIsMadeForUnlessTheBasePathIsAskedFor) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Choice choice = ChoiceOf(Many(), dtype);
    EXPECT_TRUE(choice.fits);
    EXPECT_TRUE(choice.fastest);
    EXPECT_FALSE(choice.base);
  }
  EXPECT_TRUE(ChoiceOf(Many(), DType::kBFloat16, Layout::kBlhd).fits);
}

// Rows of float8 are as many bytes as they have numbers.
TEST(HopperChoice, TakesFloat8OfRowsOf16Bytes) {
  const Choice choice = ChoiceOf(Many(), DType::kFloat8E4M3);
  EXPECT_TRUE(choice.fastest);
  EXPECT_EQ(choice.keys.strides[0], 32u);
  EXPECT_FALSE(ChoiceOf(Many(24), DType::kFloat8E4M3).fits);
  const Choice widest = ChoiceOf(Many(256), DType::kFloat8E4M3);
  EXPECT_TRUE(widest.fits);
  EXPECT_EQ(widest.keys.rows, 128u);  // of 16-bit types 64
  EXPECT_EQ(ChoiceOf(Many(256)).keys.rows, 64u);
  EXPECT_FALSE(ChoiceOf(Many(272), DType::kFloat8E4M3).fits);
}

TEST(HopperChoice, LeavesTypesWidthsAndStridesToTheBasePath) {
  EXPECT_FALSE(ChoiceOf(Many(), DType::kFloat32).fits);
  EXPECT_FALSE(ChoiceOf(Many(), DType::kBFloat16, Layout::kReversed).fits);
  EXPECT_FALSE(ChoiceOf(Many(20)).fits);  // rows of 40 bytes
  EXPECT_TRUE(ChoiceOf(Many(256)).fits);
  EXPECT_FALSE(ChoiceOf(Many(264)).fits);
}

TEST(HopperChoice, LeavesSocketsOfPairsToTheBasePath) {
  Random random(1);
  AttentionCase c = Many();
  c.bias = MakeBias({1, 1, 70, 90}, random);
  EXPECT_FALSE(ChoiceOf(c).fits);
  c = Many();
  c.keep = Buffer<uint8_t>({1, 1, 1, 90}, Layout::kDense, 1);
  EXPECT_FALSE(ChoiceOf(c).fits);
  c = Many();
  c.scalars.normalize = Normalize::kSigmoid;
  EXPECT_FALSE(ChoiceOf(c).fits);
  c = Many();
  c.scalars.dropout = {.p = 0.5, .seed = 1};
  EXPECT_FALSE(ChoiceOf(c).fits);
  c = Many();
  c.scalars.scale = -1.0;
  EXPECT_FALSE(ChoiceOf(c).fits);
  c = Many();
  c.scalars.query_offset = QueryOffset::At(int64_t{1} << 40);
  EXPECT_FALSE(ChoiceOf(c).fits);
}

// In units of which float32 has no number for a score.
TEST(HopperChoice, LeavesTheLargestAndTheSmallestSoftcapsToTheBasePath) {
  const auto fits = [](double softcap) {
    AttentionCase c = Many();
    c.scalars.softcap = softcap;
    return ChoiceOf(c).fits;
  };
  for (const double softcap : {1e-20, 0.5, 30.0, 1e20}) EXPECT_TRUE(fits(softcap)) << softcap;
  for (const double softcap : {1e-35, 3.3e38}) EXPECT_FALSE(fits(softcap)) << softcap;
}

// Slopes of ALiBi are divided by the scale, or by softcap.
TEST(HopperChoice, LeavesLargeSlopesToTheBasePath) {
  const auto fits = [](float slope, double scale, double softcap, DType dtype) {
    AttentionCase c = Many();
    c.alibi_slopes = {0.5f, slope, 0, 0.25f};
    c.scalars.scale = scale;
    c.scalars.query_offset = QueryOffset::End();
    if (softcap != 0) c.scalars.softcap = softcap;
    return ChoiceOf(c, dtype).fits;
  };
  for (const DType dtype : {DType::kBFloat16, DType::kFloat8E4M3}) {
    for (const float slope : {0.0f, 1.0f, -1.0f, 16.0f}) EXPECT_TRUE(fits(slope, 0.125, 0, dtype));
    for (const float slope : {17.0f, -17.0f, 1e30f}) EXPECT_FALSE(fits(slope, 0.125, 0, dtype));
  }
  EXPECT_TRUE(fits(1, 1e-20, 0, DType::kBFloat16));
  EXPECT_FALSE(fits(16, 1e-28, 0, DType::kBFloat16));  // 2^30 keys away its bias is none
  EXPECT_FALSE(fits(1, 1e-39, 0, DType::kBFloat16));   // 1 / scale is no float32
  EXPECT_FALSE(fits(0, 1e-39, 0, DType::kBFloat16));
  EXPECT_TRUE(fits(1, 1e-39, 30, DType::kBFloat16));
  EXPECT_TRUE(fits(1, 1e-39, 0, DType::kFloat8E4M3));
}

TEST(HopperChoice, LeavesRowsThatStepsWroteToTheBasePath) {
  const int32_t numbers[] = {0};
  cuda::SeenRules lengths, kept;
  lengths.row_lengths = numbers;
  kept.patterns.ids = numbers;
  EXPECT_FALSE(ChoiceOf(Many(), DType::kBFloat16, Layout::kDense, lengths).fits);
  EXPECT_FALSE(ChoiceOf(Many(), DType::kBFloat16, Layout::kDense, kept).fits);
}

TEST(HopperChoice, LeavesDecodingToTheBasePath) {
  Sizes sizes = Many().sizes;
  sizes.q_len = 1;
  const Choice few = ChoiceOf(MakeCase(sizes));
  EXPECT_TRUE(few.fits);
  EXPECT_FALSE(few.fastest);
  sizes.q_len = 70;
  sizes.kv_len = 5000;  // four items: keys are split
  const Choice split = ChoiceOf(MakeCase(sizes));
  EXPECT_TRUE(split.fits);
  EXPECT_FALSE(split.fastest);
}

// 106 of 132 multiprocessors are four fifths: of the base path's blocks of 64 rows there would be
// 106 already at 53 blocks of 128 rows.
TEST(HopperChoice, CountsBlocksOf128Rows) {
  Sizes sizes = Many().sizes;
  sizes.batch = 1;
  sizes.num_heads = sizes.num_kv_heads = 53;
  sizes.q_len = 128;
  sizes.kv_len = 640;
  EXPECT_FALSE(ChoiceOf(MakeCase(sizes)).fastest);
  sizes.q_len = 256;
  EXPECT_TRUE(ChoiceOf(MakeCase(sizes)).fastest);
}

TEST(HopperChoice, ItemsHaveTheRowsOfTheirKernel) {
  const auto items = [](int64_t head_dim, int64_t q_len, double softcap = 0,
                        DType dtype = DType::kBFloat16) {
    Sizes sizes = Many(head_dim).sizes;  // four packed rows a query
    sizes.num_heads = 8, sizes.q_len = q_len;
    AttentionCase c = MakeCase(sizes);
    if (softcap != 0) c.scalars.softcap = softcap;
    return ChoiceOf(c, dtype).num_items / 4;
  };
  EXPECT_EQ(items(128, 96), 3);
  EXPECT_EQ(items(64, 96, 0, DType::kFloat8E4M3), 3);
  constexpr int64_t kRows = cuda::HopperShape<BFloat16, 64, 64>::kRows;
  static_assert(kRows == 3 * 64);
  for (const int64_t q_len : {1, 32, 33, 48, 49, 96, 97, 1000}) {
    for (const double softcap : {0.0, 3.0}) {
      EXPECT_EQ(items(64, q_len, softcap), (4 * q_len + kRows - 1) / kRows) << q_len;
    }
  }
}

TEST(HopperChoice, TheKernelIsTheSmallestThatHoldsKeysAndValues) {
  const auto columns = [](int64_t head_dim, int64_t head_dim_v) {
    const cuda::HopperColumns c = cuda::HopperColumnsOf(head_dim, head_dim_v);
    return std::pair(c.keys, c.values);
  };
  EXPECT_EQ(columns(64, 8), std::pair(64, 64));
  EXPECT_EQ(columns(8, 72), std::pair(128, 128));
  EXPECT_EQ(columns(192, 128), std::pair(192, 128));
  EXPECT_EQ(columns(136, 136), std::pair(256, 256));
  EXPECT_EQ(columns(200, 64), std::pair(256, 256));
}

TEST(HopperChoice, MapsNameTheInnermostDimensionFirst) {
  const cuda::TileMap map = ChoiceOf(Many()).keys;
  EXPECT_EQ(map.sizes[0], 32u);
  EXPECT_EQ(map.sizes[1], 90u);
  EXPECT_EQ(map.sizes[2], 2u);
  EXPECT_EQ(map.sizes[3], 2u);
  EXPECT_EQ(map.strides[0], 64u);
  EXPECT_EQ(map.strides[1], 90u * 64);
  EXPECT_EQ(map.strides[2], 2u * 90 * 64);
  EXPECT_EQ(map.rows, 128u);
}

}  // namespace
}  // namespace heed::testing
