// Rotary embeddings against the oracle, against each other, and against published numbers.
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/position.h"
#include "position/position_case.h"
#include "request_builder.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

class Rotary : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Rotary);

const Extents kShapes[] = {{1, 1, 1, 2},    {2, 3, 5, 6},     {1, 2, 63, 64}, {2, 1, 65, 80},
                           {3, 2, 130, 40}, {1, 1, 300, 128}, {2, 5, 7, 98},  {40, 3, 2, 16}};
const Layout kLayouts[] = {Layout::kDense, Layout::kBlhd, Layout::kPadded, Layout::kReversed};
const char* const kPairings[] = {"half", "interleaved"};

// The bound of kRopeMaxError: relative to the length of the pair, which is that of the result up to
// `magnitude`; dimensions that do not turn are copied.
struct PairBound {
  PositionCase& call;
  bool half;
  int64_t rotary_dim;
  double position = 0, magnitude = 1;

  double operator()(int64_t b, int64_t h, int64_t i, int64_t d, double) const {
    if (d >= rotary_dim) return 0;
    const int64_t pairs = rotary_dim / 2;
    const int64_t other = half ? (d < pairs ? d + pairs : d - pairs) : (d ^ 1);
    const double length = std::hypot(call.x()(b, h, i, d), call.x()(b, h, i, other));
    return (kRopeMaxError + position * kPositionAngleError) * length * magnitude;
  }
};

TEST_P(Rotary, MatchesReference) {
  uint64_t seed = 1;
  for (const Extents& shape : kShapes) {
    for (const Layout layout : kLayouts) {
      for (const std::string pairing : kPairings) {
        PositionCase call("rope", shape, layout, ++seed);
        call.Param("pairing", pairing);
        const int64_t rotary_dim = seed % 3 == 0 && shape[3] >= 4 ? shape[3] / 4 * 2 : shape[3];
        call.Param("rotary_dim", static_cast<double>(rotary_dim));
        call.Param("position_offset", static_cast<double>(seed * 37 % 1000));
        if (seed % 2 == 0) call.Param("base", 500000.0);
        if (seed % 5 == 0) call.Param("inverse", true);
        call.ExpectMatch(PairBound{call, pairing == "half", rotary_dim, 1300});
      }
    }
  }
}

TEST_P(Rotary, PositionsOfRowsAndBatchesMatchReference) {
  for (const std::string pairing : kPairings) {
    for (const bool per_batch : {false, true}) {
      PositionCase call("rope", {3, 2, 70, 12}, Layout::kBlhd, 5);
      Random random(9);
      std::vector<int32_t> rows;
      for (int i = 0; i < (per_batch ? 3 : 1) * 70; ++i) {
        rows.push_back(static_cast<int32_t>(random.Integer(-2000, 100000)));
      }
      call.Positions(rows, per_batch).Param("pairing", pairing);
      call.Param("position_offset", std::vector<double>{0, 7, -300});
      call.ExpectMatch(PairBound{call, pairing == "half", 12, 1e5});
    }
  }
}

TEST_P(Rotary, ScalingsMatchReference) {
  for (const std::string scaling : {"none", "linear", "ntk", "dynamic_ntk", "yarn", "llama3"}) {
    for (const double factor : {0.5, 1.0, 4.0, 40.0}) {
      for (const bool inverse : {false, true}) {
        PositionCase call("rope", {1, 2, 90, 64}, Layout::kDense, 3);
        call.Param("pairing", std::string("half")).Param("scaling", scaling);
        if (scaling != "none") call.Param("scaling_factor", factor);
        const bool of_trained =
            scaling == "dynamic_ntk" || scaling == "yarn" || scaling == "llama3";
        if (of_trained) call.Param("original_len", 60.0);
        call.Param("inverse", inverse).Param("position_offset", 11.0);
        // 0.1 ln 40 + 1 = 1.37.
        call.ExpectMatch(PairBound{call, true, 64, 100, 1.4});
      }
    }
  }
}

// What checkpoints have beside the defaults: Llama 4 leaves nothing between its two wavelengths,
// gpt-oss does not round where YaRN's blend begins and ends.
TEST_P(Rotary, ScalingsOfLlama4AndGptOssMatchReference) {
  PositionCase llama("rope", {1, 2, 90, 64}, Layout::kDense, 3);
  llama.Param("pairing", std::string("half")).Param("position_offset", 1000.0);
  llama.Param("scaling", "llama3").Param("scaling_factor", 16.0);
  llama.Param("original_len", 8192.0).Param("base", 5e5);
  llama.Param("low_freq_factor", 1.0).Param("high_freq_factor", 1.0);
  llama.ExpectMatch(PairBound{llama, true, 64, 1100});
  PositionCase gpt("rope", {1, 2, 90, 64}, Layout::kDense, 3);
  gpt.Param("pairing", std::string("half")).Param("position_offset", 1000.0);
  gpt.Param("scaling", "yarn").Param("scaling_factor", 32.0);
  gpt.Param("original_len", 4096.0).Param("base", 150000.0).Param("yarn_bounds", "exact");
  gpt.ExpectMatch(PairBound{gpt, true, 64, 1100, 1.4});
}

// Angles of openai/gpt-oss for a head of 8, base 100, factor 4 and 64 trained tokens: the blend
// runs from pair 0, where it would begin below, to log(64 / 2 pi) / log(100) * 4 = 2.0159.
TEST(YarnBounds, ExactOnesLieBetweenPairs) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::kYarn;
  scaling.factor = 4;
  scaling.original_len = 64;
  scaling.bounds = RopeScaling::Bounds::kExact;
  const std::vector<double> f = RopeFrequencies(8, 100, scaling);
  const double end = 4 * std::log(64 / (2 * std::numbers::pi)) / std::log(100.0);
  for (int t = 0; t < 4; ++t) {
    const double ramp = std::min(1.0, t / end), plain = std::pow(100.0, -t / 4.0);
    EXPECT_NEAR(f[static_cast<size_t>(t)], plain * (1 - ramp) + plain / 4 * ramp, 1e-15) << t;
  }
  scaling.bounds = RopeScaling::Bounds::kWhole;  // to pair 3
  EXPECT_GT(RopeFrequencies(8, 100, scaling)[2], f[2] * 1.1);
}

TEST_P(Rotary, ImagesMatchReference) {
  for (const std::string pairing : kPairings) {
    for (const auto& [height, width] : {std::pair(1, 1), std::pair(7, 3), std::pair(2, 70)}) {
      PositionCase call("rope", {2, 2, height * width, 24}, Layout::kPadded, 8);
      call.Param("pairing", pairing).Param("rotary_dim", 20.0);
      call.Param("image_height", static_cast<double>(height));
      call.Param("image_width", static_cast<double>(width));
      call.ExpectMatch(PairBound{call, pairing == "half", 20});
    }
  }
}

TEST_P(Rotary, GivenTablesMatchReference) {
  for (const std::string pairing : kPairings) {
    for (const int64_t tables : {1, 2}) {
      const Buffer<float> cos = RandomBuffer({tables, 1, 30, 5}, Layout::kDense, 1);
      const Buffer<float> sin = RandomBuffer({tables, 1, 30, 5}, Layout::kDense, 2);
      PositionCase call("rope", {2, 3, 19, 10}, Layout::kDense, 8);
      AnyTensor c = cos.any(DType::kFloat32, 3);
      c.shape = {tables, 30, 5}, c.strides = {150, 5, 1};
      AnyTensor s = c;
      s.data = sin.any(DType::kFloat32).data;
      call.Input("cos", c).Input("sin", s).Param("pairing", pairing);
      call.Param("position_offset", std::vector<double>{2, 11}).Param("inverse", tables == 2);
      // The rows of the tables are no unit vectors; they are below 5.
      call.ExpectMatch(PairBound{call, pairing == "half", 10, 0, 5});
    }
  }
}

// --- what rotation means ---

std::vector<float> Rotated(const Buffer<float>& x, RopePairing pairing, const RopeOptions& options,
                           ThreadPool* pool = nullptr) {
  Buffer<float> y(x.shape(), Layout::kDense, kNanFloat);
  Rope(x.view(), pairing, options, y.view(), pool);
  return y.Elements();
}

RopeOptions From(int64_t offset) {
  RopeOptions options;
  options.positions.offset = {offset};
  return options;
}

TEST_P(Rotary, ProductsDependOnTheDistanceOnly) {
  const int64_t len = 200, dim = 32;
  Buffer<float> q = RandomBuffer({1, 1, len, dim}, Layout::kDense, 1);
  Buffer<float> k = RandomBuffer({1, 1, len, dim}, Layout::kDense, 2);
  for (int64_t i = 0; i < len; ++i) {  // the same vector at every position
    for (int64_t d = 0; d < dim; ++d) q(0, 0, i, d) = q(0, 0, 0, d), k(0, 0, i, d) = k(0, 0, 0, d);
  }
  for (const RopePairing pairing : {RopePairing::kHalf, RopePairing::kInterleaved}) {
    const std::vector<float> a = Rotated(q, pairing, From(1000));
    const std::vector<float> b = Rotated(k, pairing, From(1000));
    const auto product = [&](int64_t i, int64_t j) {
      double sum = 0;
      for (int64_t d = 0; d < dim; ++d) sum += static_cast<double>(a[i * dim + d]) * b[j * dim + d];
      return sum;
    };
    for (const int64_t distance : {0, 1, 17, 150}) {
      for (int64_t j = 0; j + distance < len; ++j) {
        EXPECT_NEAR(product(j + distance, j), product(distance, 0), 1e-5);
      }
    }
    // With no rotation at all this could not fail: distances differ.
    EXPECT_GT(std::abs(product(17, 0) - product(0, 0)), 0.05);
  }
}

TEST_P(Rotary, BitsOfARowDependOnItsPositionOnly) {
  const Buffer<float> x = RandomBuffer({2, 3, 200, 24}, Layout::kDense, 4);
  Buffer<float> one_row({1, 1, 1, 24}, Layout::kDense, 0);
  for (const RopePairing pairing : {RopePairing::kHalf, RopePairing::kInterleaved}) {
    const std::vector<float> all = Rotated(x, pairing, From(-70));
    for (const int64_t i : {0, 5, 63, 64, 69, 70, 71, 199}) {
      for (int64_t d = 0; d < 24; ++d) one_row(0, 0, 0, d) = x(1, 2, i, d);
      const std::vector<float> alone = Rotated(one_row, pairing, From(i - 70));
      EXPECT_EQ(std::memcmp(alone.data(), &all[((1 * 3 + 2) * 200 + i) * 24], 24 * 4), 0) << i;
    }
  }
}

TEST_P(Rotary, SameBitsForAnyNumberOfThreads) {
  const Buffer<float> x = RandomBuffer({3, 4, 500, 64}, Layout::kBlhd, 4);
  const auto one = MakeThreadPool(1), five = MakeThreadPool(5);
  RopeOptions options = From(123);
  options.positions.offset = {123, 4, 77};
  EXPECT_EQ(Rotated(x, RopePairing::kHalf, options, one.get()),
            Rotated(x, RopePairing::kHalf, options, five.get()));
}

TEST_P(Rotary, PairingsAreOnePermutationApart) {
  const int64_t dim = 22;
  const Buffer<float> x = RandomBuffer({1, 2, 9, dim}, Layout::kDense, 6);
  Buffer<float> halves(x.shape(), Layout::kDense, 0);
  halves.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& e) {
    e = x(b, h, i, d < dim / 2 ? 2 * d : 2 * (d - dim / 2) + 1);
  });
  const std::vector<float> interleaved = Rotated(x, RopePairing::kInterleaved, From(3));
  const std::vector<float> half = Rotated(halves, RopePairing::kHalf, From(3));
  for (size_t n = 0; n < half.size(); ++n) {
    const size_t row = n / dim * dim, d = n % dim;
    EXPECT_EQ(half[n], interleaved[row + (d < dim / 2 ? 2 * d : 2 * (d - dim / 2) + 1)]);
  }
}

TEST_P(Rotary, InverseUndoesEveryScaling) {
  const Buffer<float> x = RandomBuffer({1, 2, 50, 48}, Layout::kDense, 6);
  using Kind = RopeScaling::Kind;
  for (const Kind kind : {Kind::kNone, Kind::kLinear, Kind::kNtk, Kind::kYarn, Kind::kLlama3}) {
    RopeOptions options = From(1000000);
    options.scaling = {.kind = kind, .factor = 8, .original_len = 4096};
    Buffer<float> y(x.shape(), Layout::kDense, 0);
    Rope(x.view(), RopePairing::kHalf, options, y.view());
    options.inverse = true;
    EXPECT_THAT(Rotated(y, RopePairing::kHalf, options), Pointwise(FloatNear(3e-6f), x.Elements()));
  }
}

TEST_P(Rotary, ReducesToIdentityAtPositionZero) {
  const Buffer<float> x = RandomBuffer({2, 3, 7, 26}, Layout::kPadded, 2);
  const std::vector<int32_t> zeros(7, 0);
  RopeOptions options;
  options.positions.rows = zeros;
  EXPECT_EQ(Rotated(x, RopePairing::kInterleaved, options), x.Elements());
}

TEST_P(Rotary, ScalingsReduceToNoneForAFactorOfOne) {
  const Buffer<float> x = RandomBuffer({1, 2, 70, 64}, Layout::kDense, 6);
  const std::vector<float> plain = Rotated(x, RopePairing::kHalf, From(9));
  using Kind = RopeScaling::Kind;
  for (const Kind kind :
       {Kind::kLinear, Kind::kNtk, Kind::kDynamicNtk, Kind::kYarn, Kind::kLlama3}) {
    RopeOptions options = From(9);
    options.scaling = {.kind = kind, .factor = 1, .original_len = 100};
    EXPECT_THAT(Rotated(x, RopePairing::kHalf, options), Pointwise(FloatNear(1e-6f), plain));
  }
}

TEST_P(Rotary, InPlaceEqualsApart) {
  for (const RopePairing pairing : {RopePairing::kHalf, RopePairing::kInterleaved}) {
    Buffer<float> x = RandomBuffer({2, 3, 67, 46}, Layout::kPadded, 6);
    RopeOptions options = From(5);
    options.rotary_dim = 42;
    const std::vector<float> apart = Rotated(x, pairing, options);
    Rope(x.view(), pairing, options, x.view());
    EXPECT_EQ(x.Elements(), apart);
    EXPECT_TRUE(x.GapsAreUntouched());
  }
}

TEST_P(Rotary, NonFiniteValuesReachTheirOwnPairOnly) {
  for (const RopePairing pairing : {RopePairing::kHalf, RopePairing::kInterleaved}) {
    Buffer<float> x = RandomBuffer({1, 1, 3, 20}, Layout::kDense, 6);
    const std::vector<float> clean = Rotated(x, pairing, From(4));
    x(0, 0, 1, 3) = kNanFloat;
    const std::vector<float> dirty = Rotated(x, pairing, From(4));
    const size_t other = pairing == RopePairing::kHalf ? 13 : 2;
    for (size_t n = 0; n < clean.size(); ++n) {
      if (n == 20 + 3 || n == 20 + other) {
        EXPECT_TRUE(std::isnan(dirty[n])) << n;
      } else {
        EXPECT_EQ(dirty[n], clean[n]) << n;
      }
    }
  }
}

// Angles of long double (64 bits of mantissa on x86) as the truth. The naive way multiplies a
// float32 position by a float32 frequency.
TEST_P(Rotary, StaysRightAtAMillionWhereFloatAnglesDoNot) {
  const int64_t dim = 128, position = 1000003;
  Buffer<float> x({1, 1, 1, dim}, Layout::kDense, 0);
  x.ForEach([](int64_t, int64_t, int64_t, int64_t d, float& e) { e = d < dim / 2 ? 1.0f : 0.0f; });
  const std::vector<float> y = Rotated(x, RopePairing::kHalf, From(position));
  double worst = 0, worst_naive = 0;
  for (int64_t t = 0; t < dim / 2; ++t) {
    const long double f = std::pow(10000.0L, -2.0L * static_cast<long double>(t) / dim);
    const double cos = static_cast<double>(std::cos(position * f));
    const double sin = static_cast<double>(std::sin(position * f));
    worst = std::max({worst, std::abs(y[t] - cos), std::abs(y[dim / 2 + t] - sin)});
    const float naive = static_cast<float>(position) *
                        static_cast<float>(std::pow(10000.0, -2.0 * static_cast<double>(t) / dim));
    worst_naive = std::max(worst_naive, std::abs(std::cos(naive) - cos));
  }
  EXPECT_LE(worst, kRopeMaxError + static_cast<double>(position) * kPositionAngleError);
  EXPECT_GT(worst_naive, 1e-3);
  RecordProperty("error_in_1e9", static_cast<int>(worst * 1e9));
  RecordProperty("naive_error_in_1e9", static_cast<int>(worst_naive * 1e9));
}

TEST_P(Rotary, EmptyTensorsAreFine) {
  for (const Extents& shape : {Extents{0, 2, 3, 4}, Extents{1, 0, 3, 4}, Extents{1, 2, 0, 4}}) {
    const Buffer<float> x(shape, Layout::kDense, 0);
    EXPECT_TRUE(Rotated(x, RopePairing::kHalf, From(5)).empty());
  }
}

// --- numbers that others published ---

// keras-hub rotary_embedding_test.py: ones, dim 6, position 3.
TEST(PublishedRope, KerasHubHalf) {
  Buffer<float> ones({1, 1, 4, 6}, Layout::kDense, 1.0f);
  ones.ForEach([](int64_t, int64_t, int64_t, int64_t, float& e) { e = 1; });
  const std::vector<float> y = Rotated(ones, RopePairing::kHalf, {});
  EXPECT_THAT(std::vector<float>(y.begin() + 18, y.end()),
              Pointwise(FloatNear(1e-4f), std::vector<float>{-1.1311f, 0.8515f, 0.9935f, -0.8489f,
                                                             1.1291f, 1.0064f}));
}

// flax gemma positional_embeddings_test.py: ones, dim 4, position 3, base 100.
TEST(PublishedRope, FlaxBaseHundred) {
  Buffer<float> ones({1, 1, 1, 4}, Layout::kDense, 1.0f);
  RopeOptions options = From(3);
  options.base = 100;
  EXPECT_THAT(Rotated(ones, RopePairing::kHalf, options),
              Pointwise(FloatNear(1e-6f),
                        std::vector<float>{-1.1311126f, 0.6598157f, -0.8488725f, 1.2508571f}));
}

// Hugging Face transformers, tests/utils/test_modeling_rope_utils.py: Llama's dim 128, base 10000,
// trained length 2048, factor 10. Five digits of pairs at both ends and inside the blends.
void ExpectFrequencies(RopeScaling::Kind kind, std::vector<std::pair<size_t, double>> published) {
  const std::vector<double> f =
      RopeFrequencies(128, 10000, {.kind = kind, .factor = 10, .original_len = 2048}, 16384);
  ASSERT_EQ(f.size(), 64u);
  for (const auto& [t, value] : published) EXPECT_NEAR(f[t], value, 6e-5 * value) << "pair " << t;
}

TEST(PublishedRope, HuggingFaceFrequencies) {
  using Kind = RopeScaling::Kind;
  ExpectFrequencies(Kind::kNone, {{0, 1.0}, {1, 8.6596e-1}, {31, 1.1548e-2}, {63, 1.1548e-4}});
  ExpectFrequencies(Kind::kDynamicNtk,
                    {{0, 1.0}, {1, 8.0931e-1}, {12, 7.8955e-2}, {40, 2.1115e-4}, {63, 1.6265e-6}});
  ExpectFrequencies(Kind::kYarn, {{16, 1.0e-1},
                                  {17, 8.3479e-2},
                                  {24, 2.2515e-2},
                                  {36, 1.5746e-3},
                                  {40, 4.3007e-4},
                                  {41, 2.7384e-4},
                                  {63, 1.1548e-5}});
  ExpectFrequencies(Kind::kLlama3, {{30, 1.3335e-2},
                                    {31, 1.0730e-2},
                                    {35, 2.8248e-3},
                                    {40, 3.4539e-4},
                                    {41, 2.7384e-4},
                                    {63, 1.1548e-5}});
  EXPECT_DOUBLE_EQ(RopeMagnitude({.kind = Kind::kYarn, .factor = 10, .original_len = 2048}),
                   0.1 * std::log(10.0) + 1);
}

// --- refusals ---

// The library and the oracle refuse x [2, 1, 3, 4] with these parameters, naming `name`.
void ExpectRefused(const std::vector<std::pair<std::string, ParamValue>>& params, ErrorCode code,
                   const std::string& name, const std::string& id = "rope") {
  PositionCase call(id, {2, 1, 3, 4}, Layout::kDense, 1);
  for (const auto& [key, value] : params) call.Param(key, value);
  for (const bool oracle : {false, true}) {
    try {
      if (oracle) {
        call.Oracle();
      } else {
        call.Run();
      }
      ADD_FAILURE() << name << ": nothing was thrown by " << (oracle ? "the oracle" : "heed");
    } catch (const Error& error) {
      EXPECT_STREQ(ErrorCodeName(error.code()), ErrorCodeName(code)) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
  }
}

TEST(RopeErrors, NameTheArgument) {
  const std::pair<std::string, ParamValue> half = {"pairing", std::string("half")};
  const auto scaled = [](const char* kind) {
    return std::pair<std::string, ParamValue>("scaling", std::string(kind));
  };
  ExpectRefused({}, ErrorCode::kOption, "pairing");
  ExpectRefused({{"pairing", std::string("neox")}}, ErrorCode::kOption, "pairing");
  ExpectRefused({half, {"rotary_dim", 3.0}}, ErrorCode::kRange, "rotary_dim");
  ExpectRefused({half, {"rotary_dim", 6.0}}, ErrorCode::kRange, "rotary_dim");
  ExpectRefused({half, {"rotary_dim", 0.0}}, ErrorCode::kRange, "rotary_dim");
  ExpectRefused({half, {"base", 1.0}}, ErrorCode::kRange, "base");
  ExpectRefused({half, {"position_offset", 0.5}}, ErrorCode::kRange, "position_offset");
  ExpectRefused({half, {"position_offset", 3e9}}, ErrorCode::kRange, "positions");
  ExpectRefused({half, {"position_offset", std::vector<double>{1, 2, 3}}}, ErrorCode::kShape,
                "offset");
  ExpectRefused({half, scaled("linear")}, ErrorCode::kOption, "scaling_factor");
  ExpectRefused({half, scaled("linear"), {"scaling_factor", -1.0}}, ErrorCode::kRange, "factor");
  ExpectRefused({half, scaled("yarn"), {"scaling_factor", 2.0}}, ErrorCode::kOption,
                "original_len");
  ExpectRefused({half, scaled("longrope")}, ErrorCode::kOption, "scaling");
  ExpectRefused({half, {"image_height", 3.0}}, ErrorCode::kOption, "image_width");
  ExpectRefused({half, {"image_height", 2.0}, {"image_width", 2.0}}, ErrorCode::kShape, "image");
  ExpectRefused({half, {"image_height", 3.0}, {"image_width", 1.0}, {"position_offset", 1.0}},
                ErrorCode::kOption, "image");
}

TEST(RopeErrors, OverlapsAndMissingTensors) {
  Buffer<float> x = RandomBuffer({1, 2, 4, 8}, Layout::kDense, 1);
  TensorView<float> shifted = x.view();
  shifted.shape[2] = 3;
  shifted.data += 8;
  TensorView<const float> first = x.view();
  first.shape[2] = 3;
  Buffer<float> y({1, 2, 3, 8}, Layout::kDense, 0);
  EXPECT_THROW(Rope({}, RopePairing::kHalf, {}, {nullptr, {1, 1, 1, 2}, {2, 2, 2, 1}}), Error);
  EXPECT_THROW(Rope(x.view(), RopePairing::kHalf, {}, y.view()), Error);
  TensorView<float> other_order = x.view();
  other_order.shape = {1, 4, 2, 8}, other_order.strides = {64, 8, 32, 1};
  TensorView<const float> same = x.view();
  same.shape = {1, 4, 2, 8}, same.strides = {64, 16, 8, 1};
  EXPECT_THROW(Rope(same, RopePairing::kHalf, {}, other_order), Error);
  RopeOptions half_tables;
  half_tables.cos = y.view();
  EXPECT_THROW(Rope(x.view(), RopePairing::kHalf, half_tables, x.view()), Error);
}

// Found by tests/cpp/property_test.cc: the sines of the first batch entry served all.
TEST_P(Rotary, CosinesMayBeSharedWhereSinesAreNot) {
  Buffer<float> x = RandomBuffer({3, 1, 7, 6}, Layout::kDense, 1);
  const Buffer<float> cos = RandomBuffer({1, 1, 7, 3}, Layout::kDense, 2);
  const Buffer<float> sin = RandomBuffer({3, 1, 7, 3}, Layout::kDense, 3);
  RopeOptions options;
  options.cos = cos.view();
  options.sin = sin.view();
  Buffer<float> y(x.shape(), Layout::kDense, kNanFloat);
  Rope(x.view(), RopePairing::kHalf, options, y.view());
  for (int64_t b = 0; b < 3; ++b) {
    for (int64_t i = 0; i < 7; ++i) {
      EXPECT_NEAR(y(b, 0, i, 0), x(b, 0, i, 0) * cos(0, 0, i, 0) - x(b, 0, i, 3) * sin(b, 0, i, 0),
                  2e-6);
    }
  }
}

TEST(RopeErrors, TablesMustReachEveryPosition) {
  Buffer<float> x = RandomBuffer({1, 2, 4, 8}, Layout::kDense, 1);
  const Buffer<float> table = RandomBuffer({1, 1, 6, 4}, Layout::kDense, 2);
  RopeOptions options = From(2);
  options.cos = options.sin = table.view();
  Rope(x.view(), RopePairing::kHalf, options, x.view());
  options.positions.offset = {3};
  EXPECT_THROW(Rope(x.view(), RopePairing::kHalf, options, x.view()), Error);
  options.positions.offset = {-1};
  EXPECT_THROW(Rope(x.view(), RopePairing::kHalf, options, x.view()), Error);
}

}  // namespace
}  // namespace heed::testing
