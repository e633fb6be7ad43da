// Recurrent attention in chunks with the kernel for Hopper, against the float64 oracle.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "buffer.h"
#include "chunk_case.h"
#include "chunk_results.h"
#include "device_backend.h"
#include "gtest/gtest.h"
#include "request_builder.h"
#include "src/cuda/hopper_chunk_plan.h"
#include "stored_buffer.h"

namespace heed::testing {
namespace {

using cuda::TilePath;

class DeviceHopperChunks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }
};

bool FitsHopper(const ChunkCall& c) { return cuda::FitsHopperChunks(Checked(c, c.Options())); }

ChunkCall HopperCall(const Rule& rule) {
  ChunkCall c;
  c.rule = rule;
  c.on_hopper = true;
  return c;
}
ChunkCall OfOneHead(const Rule& rule) {
  ChunkCall c = HopperCall(rule);
  c.batch = 1, c.heads = c.kv_heads = 1;
  return c;
}
void ExpectOnHopper(ChunkCall& c, const std::string& what) {
  ASSERT_TRUE(FitsHopper(c)) << what;
  ExpectMatchesOracle(c, what);
}

constexpr Rule kPlain = {.decays = false, .betas = false};
constexpr Rule kLinear = {.features = FeatureMap::kEluPlusOne,
                          .normalize = true,
                          .decays = false,
                          .betas = false,
                          .begins = true};

TEST_F(DeviceHopperChunks, EveryRuleMatchesTheOracle) {
  const Rule rules[] = {kPlain,
                        {},
                        {.betas = false},
                        {.decays = false},
                        {.skips = true, .begins = true},
                        {.features = FeatureMap::kRelu},
                        {.features = FeatureMap::kEluPlusOne, .begins = true},
                        kLinear};
  for (const Rule& rule : rules) {
    ChunkCall c = HopperCall(rule);
    c.Draw();
    ExpectOnHopper(c, "rule " + std::to_string(&rule - rules));
    if (HasFatalFailure()) return;
  }
}

// Rows of a normalised call with gates: what values and a column of ones add up to, one by the
// other.
void ExpectNormalizedMatchesOracle(ChunkCall& c, const std::string& what) {
  const ChunkResults actual = RunCall(c);
  const auto with_ones = [&](bool absolute) {
    ChunkCall wide = c;
    wide.rule.normalize = false;
    wide.dim_v = c.dim_v + 1;
    wide.v = Buffer<float>({c.batch, c.kv_heads, c.len, wide.dim_v}, Layout::kDense, 1);
    c.v.ForEach(
        [&](int64_t b, int64_t h, int64_t t, int64_t d, float& x) { wide.v(b, h, t, d) = x; });
    wide.scale = 1;
    return RunOracle(wide.OracleCall(absolute).request());
  };
  const Values sums = with_ones(false), terms = with_ones(true);
  std::vector<double> expected, expected_terms;
  const std::vector<double>&all = sums.at("output"), &of_terms = terms.at("output");
  const size_t cols = static_cast<size_t>(c.dim_v + 1);
  for (size_t n = 0; n < all.size(); ++n) {
    if (n % cols == cols - 1) continue;
    const double whole = all[n / cols * cols + cols - 1];
    ASSERT_GT(whole, 0) << what;
    expected.push_back(all[n] / whole);
    expected_terms.push_back(of_terms[n] / whole);
  }
  ExpectNear(actual.output, expected, expected_terms, 2 * cuda::kBFloat16Recurrent,
             RoundingOf(c.out_dtype), what + ", output");
  ExpectNear(actual.state, sums.at("state"), terms.at("state"), 2 * cuda::kBFloat16Recurrent, 0,
             what + ", state");
  ExpectNearTogether(actual.output, expected, RoundingOf(DType::kBFloat16), what + ", output");
}

TEST_F(DeviceHopperChunks, NormalizedRowsWithGatesMatchTheOracle) {
  for (const bool betas : {false, true}) {
    ChunkCall c = HopperCall(
        {.features = FeatureMap::kEluPlusOne, .normalize = true, .betas = betas, .begins = true});
    c.len = 200;
    c.Draw();
    ASSERT_TRUE(FitsHopper(c));
    ExpectNormalizedMatchesOracle(c, "betas " + std::to_string(betas));
    if (HasFatalFailure()) return;
  }
}

// Ragged lengths, more chunks than stages, several slices of values.
TEST_F(DeviceHopperChunks, EverySizeMatchesTheOracle) {
  struct Size {
    int64_t len, dim, dim_v;
  };
  for (const Size& size : {Size{64, 8, 8},
                           {65, 64, 64},
                           {100, 56, 72},
                           {127, 40, 200},
                           {600, 32, 64},
                           {1000, 64, 48}}) {
    for (const Rule& rule : {Rule{.begins = true}, kLinear, kPlain}) {
      ChunkCall c = OfOneHead(rule);
      c.len = size.len, c.dim = size.dim, c.dim_v = size.dim_v;
      c.out_dtype = DType::kBFloat16;
      c.Draw();
      ExpectOnHopper(c, "length " + std::to_string(size.len));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(DeviceHopperChunks, EveryOutputMatchesTheOracle) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (const Layout layout :
         {Layout::kDense, Layout::kBlhd, Layout::kPadded, Layout::kReversed}) {
      ChunkCall c = HopperCall({.skips = true});
      if (layout == Layout::kBlhd) c.layout = layout;
      c.out_layout = layout;
      c.out_dtype = dtype;
      c.order = 1;
      c.Draw();
      ExpectOnHopper(c, DTypeName(dtype));
      if (HasFatalFailure()) return;
    }
  }
}

// Decays of 0, of e^-90 and of all but 1 beside each other.
TEST_F(DeviceHopperChunks, StrongDecaysAreExact) {
  ChunkCall c = HopperCall({});
  c.Draw();
  for (size_t n = 0; n < c.gates.size(); ++n) {
    c.gates[n] = n % 11 == 3 ? -kInfinity : n % 7 == 2 ? -90.0f : -1e-4f;
  }
  ExpectOnHopper(c, "some");
  std::fill(c.gates.begin(), c.gates.end(), -kInfinity);
  ExpectOnHopper(c, "all");
}

// Over several chunks.
TEST_F(DeviceHopperChunks, WhatIsNotFiniteReachesLaterTokensOnly) {
  for (const Rule& rule : {Rule{}, kPlain, Rule{.skips = true}}) {
    ChunkCall c = HopperCall(rule);
    c.batch = 1, c.len = 260;
    c.Draw();
    ASSERT_TRUE(FitsHopper(c));
    ExpectPoisonReachesLaterTokensOnly(c, rule.skips ? "skip, " : rule.decays ? "" : "plain, ");
    if (HasFatalFailure()) return;
  }
}

// Of weights that have a sum: a value loses its column, a key all that is behind it.
TEST_F(DeviceHopperChunks, WhatIsNotFiniteStaysInItsColumnOfNormalizedRows) {
  constexpr int64_t kToken = 70;
  ChunkCall c = OfOneHead(kLinear);
  c.len = 200, c.dim_v = 8;
  c.Draw();
  const ChunkResults clean = RunCall(c);
  ChunkCall in_value = c, in_key = c;
  in_value.v(0, 0, kToken, 3) = kNan;
  in_key.k(0, 0, kToken, 3) = kInfinity;
  const ChunkResults value = RunCall(in_value), key = RunCall(in_key);
  for (size_t n = 0; n < clean.output.size(); ++n) {
    const int64_t token = static_cast<int64_t>(n) / c.dim_v,
                  col = static_cast<int64_t>(n) % c.dim_v;
    const bool is_later = token >= kToken;
    EXPECT_TRUE(is_later && col == 3 ? std::isnan(value.output[n])
                                     : value.output[n] == clean.output[n])
        << n;
    EXPECT_TRUE(is_later ? !std::isfinite(key.output[n]) : key.output[n] == clean.output[n]) << n;
  }
}

// Rows without weights are 0: relu leaves nothing of their queries.
TEST_F(DeviceHopperChunks, RowsWithoutWeightsAreZero) {
  ChunkCall c = OfOneHead(kLinear);
  c.rule.features = FeatureMap::kRelu;
  c.rule.begins = false;
  c.Draw();
  for (int64_t d = 0; d < c.dim; ++d) c.q(0, 0, 100, d) = -1;
  const ChunkResults results = RunCall(c);
  for (int64_t d = 0; d < c.dim_v; ++d) {
    EXPECT_EQ(results.output[static_cast<size_t>(100 * c.dim_v + d)], 0);
  }
}

// The same weights of equal values are those values, to the rounding of the output.
TEST_F(DeviceHopperChunks, WeightsOfNormalizedRowsSumToOne) {
  ChunkCall c = OfOneHead(kLinear);
  c.rule.begins = false;
  c.len = 640, c.dim = 64;
  c.Draw();
  c.v.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = 1; });
  const ChunkResults results = RunCall(c);
  for (const float x : results.output) ASSERT_NEAR(x, 1, 0x1p-8);
}

TEST_F(DeviceHopperChunks, AStateInPlaceContinuesACall) {
  for (const Rule& rule : {Rule{.begins = true}, kLinear}) {
    ChunkCall c = HopperCall(rule);
    c.heads = c.kv_heads;
    c.Draw();
    ASSERT_TRUE(FitsHopper(c));
    const ChunkResults apart = RunCall(c);
    const StoredBuffer q(c.q, c.dtype, c.layout), k(c.k, c.dtype, c.layout),
        v(c.v, c.dtype, c.layout);
    Buffer<float> output({c.batch, c.heads, c.len, c.dim_v}, Layout::kDense, kNan);
    std::vector<float> state = c.initial;
    const auto view = Contiguous(state.data(), c.batch, c.kv_heads, c.dim, c.cols());
    RecurrentOptions options = c.Options();
    options.initial_state = view;
    RunStoredRecurrentOnDevice(q.view(), k.view(), v.view(), options,
                               {StoredOutput(output.view()), view}, {.on_hopper = true});
    EXPECT_EQ(output.Elements(), apart.output);
    EXPECT_EQ(state, apart.state);
  }
}

// A call of so many heads, of which only shapes are looked at.
ChunkCall OfHeads(int64_t heads) {
  ChunkCall c;
  c.batch = 1, c.heads = c.kv_heads = heads;
  c.len = 64, c.dim = c.dim_v = 64;
  return c;
}
bool Takes(const ChunkCall& c, TilePath path) {
  return cuda::TakesHopperChunks(Checked(c, {}), 132, path);
}

TEST(DeviceHopperChunkPlan, TakesCallsThatFillTheGpu) {
  EXPECT_TRUE(Takes(OfHeads(128), TilePath::kFastest));
  EXPECT_TRUE(Takes(OfHeads(99), TilePath::kFastest));
  EXPECT_FALSE(Takes(OfHeads(98), TilePath::kFastest));
  EXPECT_FALSE(Takes(OfHeads(140), TilePath::kFastest));  // a second turn of eight
  EXPECT_TRUE(Takes(OfHeads(198), TilePath::kFastest));
  ChunkCall wide = OfHeads(64);
  EXPECT_FALSE(Takes(wide, TilePath::kFastest));
  wide.dim_v = 128;
  EXPECT_TRUE(Takes(wide, TilePath::kFastest));
}

TEST(DeviceHopperChunkPlan, PathsAreObeyed) {
  EXPECT_FALSE(Takes(OfHeads(128), TilePath::kBase));
  EXPECT_TRUE(Takes(OfHeads(1), TilePath::kHopper));
  ChunkCall c = OfHeads(128);
  c.dim = 72;
  EXPECT_FALSE(Takes(c, TilePath::kHopper));
}

TEST(DeviceHopperChunkPlan, FitsWhatTheKernelComputes) {
  ChunkCall c = OfHeads(2);
  c.Draw();
  EXPECT_TRUE(FitsHopper(c));
  ChunkCall other = c;
  other.dtype = DType::kFloat16;
  EXPECT_FALSE(FitsHopper(other));
  other = c, other.lengths = {64};
  EXPECT_FALSE(FitsHopper(other));
  other = c, other.len = 63;
  EXPECT_FALSE(FitsHopper(other));
  // TMA wants rows that are multiples of 16 bytes.
  other = c, other.dim = 20;
  EXPECT_FALSE(FitsHopper(other));
  other = c, other.dim_v = 20;
  EXPECT_FALSE(FitsHopper(other));
  RecurrentOptions options = c.Options();
  options.feature_map = FeatureMap::kUnit;
  EXPECT_FALSE(cuda::FitsHopperChunks(Checked(c, options)));
}

// Blocks that begin with a state which another one of the same KV head writes.
TEST(DeviceHopperChunkPlan, StatesInPlaceHaveOneBlock) {
  ChunkCall c = OfHeads(2);
  c.rule.begins = true;
  c.Draw();
  cuda::StoredRecurrentProblem call = Checked(c, c.Options());
  const auto in_place = [&] {
    call.problem.outputs.final_state = Contiguous(c.initial.data(), 1, 2, 64, 64);
    return cuda::FitsHopperChunks(call);
  };
  EXPECT_TRUE(in_place());
  call.problem.group = 2, call.problem.num_heads = 4;
  EXPECT_FALSE(in_place());
  call.problem.group = 1, call.problem.num_heads = 2, call.problem.head_dim_v = 72;
  EXPECT_FALSE(in_place());
}

TEST(HopperChunkLayout, PlacesAreThoseOfTheSwizzle) {
  for (int t = 0; t < cuda::kGroupThreads; ++t) {
    for (int n = 0; n < 32; n += 2) {
      const int row = t / 32 * 16 + t % 32 / 4 + n % 4 / 2 * 8, col = n / 4 * 8 + t % 4 * 2;
      EXPECT_EQ(cuda::NextPair(cuda::PairAt(t), n), cuda::SwizzledOffset(64, row, col));
    }
    for (int n = 0; n < cuda::kEightsOfTile; ++n) {
      EXPECT_EQ(cuda::NextEight(cuda::EightAt(t), n),
                cuda::SwizzledByte(64, t / 8 + 16 * n, t % 8 * 16));
    }
  }
}

// Operands of products begin with eight rows, nothing lies upon anything else.
TEST(HopperChunkLayout, StagesAreApart) {
  using Shape = cuda::HopperChunkShape<cuda::TokenGates::kSome, cuda::ChunkRowEnd::kNormalized>;
  for (int stage = 0; stage < Shape::kStages; ++stage) {
    for (const int at : {Shape::QueriesAt(stage), Shape::KeysAt(stage), Shape::ValuesAt(stage),
                         Shape::StateAt(stage), Shape::SumsAt(stage)}) {
      EXPECT_EQ(at % cuda::kSwizzleBytes, 0);
    }
    EXPECT_EQ(Shape::StateAt(stage) + Shape::kTileBytes, Shape::QueriesAt(stage + 1));
    EXPECT_EQ(Shape::DecaysAt(stage) % 16, 0);
    EXPECT_LT(Shape::HasPoisonAt(stage), Shape::DecaysAt(stage + 1));
  }
  EXPECT_EQ(Shape::SumsAt(Shape::kStages), Shape::OnesAt());
  EXPECT_EQ(Shape::OnesAt() + Shape::kSumBytes, Shape::DecaysAt(0));
  EXPECT_EQ(Shape::DecaysAt(Shape::kStages), Shape::kBytes);
}

TEST(DeviceHopperChunkPlan, TellsKernelAndMaps) {
  ChunkCall c = OfHeads(2);
  c.rule = {.betas = false};
  c.Draw();
  const cuda::HopperChunkPlan gated(Checked(c, c.Options()));
  EXPECT_EQ(gated.gates(), cuda::TokenGates::kSome);
  EXPECT_EQ(gated.row_end(), cuda::ChunkRowEnd::kScaled);
  c.rule = kLinear, c.dim_v = 130;
  c.Draw();
  const cuda::HopperChunkPlan linear(Checked(c, c.Options()));
  EXPECT_EQ(linear.gates(), cuda::TokenGates::kNone);
  EXPECT_EQ(linear.row_end(), cuda::ChunkRowEnd::kNormalized);
  EXPECT_EQ(linear.num_blocks(), 2 * 3);
  EXPECT_EQ(linear.maps().v.sizes[0], 130u);
  EXPECT_EQ(linear.maps().q.rows, 64u);
}

}  // namespace
}  // namespace heed::testing
