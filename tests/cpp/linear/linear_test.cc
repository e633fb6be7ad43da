// Linear and Bmm against plain float64 loops, on every SIMD target.
#include "heed/linear.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "buffer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/thread_pool.h"
#include "random.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class LinearProduct : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(LinearProduct);

Buffer<float> MakeNormal(Extents shape, uint64_t seed, Layout layout = Layout::kDense) {
  Buffer<float> buffer(shape, layout, kNan);
  Random random(seed);
  buffer.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x = random.Normal(); });
  return buffer;
}

std::vector<float> MakeBias(int64_t count) {
  Random random(5);
  std::vector<float> bias;
  for (int64_t i = 0; i < count; ++i) bias.push_back(random.Normal());
  return bias;
}

// Element [b, h, i, o] of a x b + bias, where extents of 1 broadcast, and the sum of the absolute
// values of its terms.
struct Element {
  double value = 0, size = 0;
};

Element Exact(const TensorView<const float>& a, const TensorView<const float>& b, float bias,
              int64_t batch, int64_t head, int64_t i, int64_t o) {
  Element element = {bias, std::abs(bias)};
  for (int64_t t = 0; t < a.shape[3]; ++t) {
    const double term =
        static_cast<double>(a(a.shape[0] == 1 ? 0 : batch, a.shape[1] == 1 ? 0 : head, i, t)) *
        b(b.shape[0] == 1 ? 0 : batch, b.shape[1] == 1 ? 0 : head, t, o);
    element.value += term;
    element.size += std::abs(term);
  }
  return element;
}

void ExpectProduct(Buffer<float>& out, const TensorView<const float>& a,
                   const TensorView<const float>& b, const std::vector<float>& bias,
                   const std::string& what) {
  double worst = 0;
  out.ForEach([&](int64_t batch, int64_t head, int64_t i, int64_t o, float& x) {
    const float added = bias.empty() ? 0.0f : bias[static_cast<size_t>(o)];
    const Element expected = Exact(a, b, added, batch, head, i, o);
    const double error = std::abs(x - expected.value);
    // The negation catches NaN.
    if (!(error <= kLinearMaxError * expected.size)) worst = std::max(worst, 1.0);
    worst = std::max(worst, error / (kLinearMaxError * expected.size + 1e-300));
  });
  EXPECT_LE(worst, 1) << what << ": error over its bound";
  EXPECT_TRUE(out.GapsAreUntouched()) << what;
}

struct Shape {
  Extents x;
  int64_t out_dim;
};

void ExpectLinear(const Shape& shape, Layout x_layout, Layout out_layout, bool transposed) {
  const auto [batch, heads, len, in] = shape.x;
  const Buffer<float> x = MakeNormal(shape.x, 1, x_layout);
  const Extents plain = {1, 1, shape.out_dim, in};
  const Buffer<float> weight =
      MakeNormal(transposed ? Extents{1, 1, in, shape.out_dim} : plain, 2, Layout::kPadded);
  const TensorView<const float> view = transposed ? TransposedView(weight.view()) : weight.view();
  for (const std::vector<float>& bias : {std::vector<float>(), MakeBias(shape.out_dim)}) {
    Buffer<float> out({batch, heads, len, shape.out_dim}, out_layout, kNan);
    Linear(x.view(), view, bias, out.view());
    ExpectProduct(out, x.view(), TransposedView(view), bias,
                  ::testing::PrintToString(shape.x) + " -> " + std::to_string(shape.out_dim));
  }
}

TEST_P(LinearProduct, MatchesFloat64InEveryShape) {
  for (const int64_t len : {1, 2, 7, 95, 96, 97, 200}) {
    for (const int64_t in : {1, 3, 64, 255, 256, 257, 600}) {
      for (const int64_t out : {1, 5, 16, 33, 257}) {
        ExpectLinear({{1, 1, len, in}, out}, Layout::kDense, Layout::kDense, false);
      }
    }
  }
}

TEST_P(LinearProduct, MatchesFloat64InEveryLayout) {
  for (const Layout x : {Layout::kDense, Layout::kBlhd, Layout::kPadded, Layout::kReversed}) {
    for (const Layout out : {Layout::kDense, Layout::kBlhd, Layout::kPadded, Layout::kReversed}) {
      ExpectLinear({{2, 3, 37, 40}, 50}, x, out, false);
      ExpectLinear({{2, 3, 17, 40}, 50}, x, out, true);
    }
  }
  ExpectLinear({{3, 2, 50, 40}, 50}, Layout::kOneBatch, Layout::kDense, false);
}

TEST_P(LinearProduct, LongSumsOfOneSignStayWithinTheBound) {
  Buffer<float> x({1, 1, 3, 20000}, Layout::kDense, 0.1f);
  Buffer<float> weight({1, 1, 20, 20000}, Layout::kDense, 0.3f);
  Buffer<float> out({1, 1, 3, 20}, Layout::kDense, kNan);
  Linear(x.view(), weight.view(), {}, out.view());
  ExpectProduct(out, x.view(), TransposedView(std::as_const(weight).view()), {}, "0.1 x 0.3");
}

TEST_P(LinearProduct, GivesHandComputedNumbers) {
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};        // [2, 3]
  const std::vector<float> weight = {1, 0, -1, 2, 2, 2};  // [2, 3]
  const std::vector<float> bias = {10, 0.5f};
  std::vector<float> out(4, kNan);
  Linear(MatrixView(x.data(), 2, 3), MatrixView(weight.data(), 2, 3), bias,
         MatrixView(out.data(), 2, 2));
  EXPECT_THAT(out, ElementsAre(8, 12.5f, 8, 30.5f));
}

TEST_P(LinearProduct, NothingToAddGivesTheBias) {
  const std::vector<float> bias = {1, 2};
  std::vector<float> out(6, kNan);
  const TensorView<const float> nothing = MatrixView<const float>(nullptr, 3, 0);
  Linear(nothing, MatrixView<const float>(nullptr, 2, 0), bias, MatrixView(out.data(), 3, 2));
  EXPECT_THAT(out, ElementsAre(1, 2, 1, 2, 1, 2));
}

TEST_P(LinearProduct, WhatIsNotFiniteStaysInItsRowAndColumn) {
  for (const int64_t len : {5, 130}) {
    Buffer<float> x = MakeNormal({1, 1, len, 70}, 1);
    Buffer<float> weight = MakeNormal({1, 1, 37, 70}, 2);
    x(0, 0, 3, 69) = kNan;
    weight(0, 0, 20, 0) = std::numeric_limits<float>::infinity();
    Buffer<float> out({1, 1, len, 37}, Layout::kDense, 0);
    Linear(x.view(), weight.view(), {}, out.view());
    out.ForEach([&](int64_t, int64_t, int64_t i, int64_t o, float& element) {
      EXPECT_EQ(std::isfinite(element), i != 3 && o != 20) << i << ", " << o;
    });
  }
}

std::vector<uint32_t> BitsOf(const Buffer<float>& buffer) {
  const std::vector<float> elements = buffer.Elements();
  std::vector<uint32_t> bits(elements.size());
  std::memcpy(bits.data(), elements.data(), elements.size() * sizeof(float));
  return bits;
}

TEST_P(LinearProduct, SameBitsForAnyThreadCountAndForEachRowAlone) {
  const Buffer<float> x = MakeNormal({2, 3, 70, 300}, 1);
  const Buffer<float> weight = MakeNormal({1, 1, 290, 300}, 2);
  Buffer<float> expected({2, 3, 70, 290}, Layout::kDense, kNan);
  Linear(x.view(), weight.view(), {}, expected.view(), MakeThreadPool(1).get());
  for (const int threads : {2, 3, 7}) {
    Buffer<float> out({2, 3, 70, 290}, Layout::kDense, kNan);
    Linear(x.view(), weight.view(), {}, out.view(), MakeThreadPool(threads).get());
    EXPECT_EQ(BitsOf(out), BitsOf(expected)) << threads;
  }
  for (const int64_t i : {0, 5, 6, 33, 69}) {
    Buffer<float> row({1, 1, 1, 290}, Layout::kDense, kNan);
    Linear({&x(1, 2, i, 0), {1, 1, 1, 300}, {0, 0, 0, 1}}, weight.view(), {}, row.view());
    for (int64_t o = 0; o < 290; ++o) EXPECT_EQ(row(0, 0, 0, o), expected(1, 2, i, o));
  }
}

TEST_P(LinearProduct, BmmMatchesFloat64WithEveryBroadcast) {
  const std::pair<Extents, Extents> cases[] = {
      {{2, 3, 40, 50}, {2, 3, 50, 33}},    {{2, 3, 40, 50}, {1, 3, 50, 33}},
      {{2, 3, 40, 50}, {2, 1, 50, 33}},    {{2, 3, 40, 50}, {1, 1, 50, 33}},
      {{1, 3, 40, 50}, {2, 3, 50, 33}},    {{2, 1, 40, 50}, {2, 3, 50, 33}},
      {{1, 1, 40, 50}, {2, 3, 50, 33}},    {{1, 3, 40, 50}, {2, 1, 50, 33}},
      {{1, 2, 130, 300}, {1, 2, 300, 270}}};
  for (const auto& [a_shape, b_shape] : cases) {
    for (const bool transposed : {false, true}) {
      const Buffer<float> a = MakeNormal(a_shape, 1, Layout::kPadded);
      const Extents stored = {b_shape[0], b_shape[1], b_shape[3], b_shape[2]};
      const Buffer<float> b = MakeNormal(transposed ? stored : b_shape, 2, Layout::kPadded);
      const TensorView<const float> view = transposed ? TransposedView(b.view()) : b.view();
      Buffer<float> out({std::max(a_shape[0], b_shape[0]), std::max(a_shape[1], b_shape[1]),
                         a_shape[2], b_shape[3]},
                        Layout::kBlhd, kNan);
      Bmm(a.view(), view, out.view());
      ExpectProduct(out, a.view(), view, {},
                    ::testing::PrintToString(a_shape) + " x " + ::testing::PrintToString(b_shape));
    }
  }
}

TEST_P(LinearProduct, ManyRowsPassInSeveralWaves) {
  // 4 MiB of packed rows hold 64 rows of this length; blocks of 96 make 5 waves.
  ExpectLinear({{1, 1, 400, 16384}, 3}, Layout::kDense, Layout::kDense, false);
  const Buffer<float> a = MakeNormal({40, 30, 100, 20}, 1);
  const Buffer<float> b = MakeNormal({40, 30, 20, 10}, 2);
  Buffer<float> out({40, 30, 100, 10}, Layout::kDense, kNan);
  Bmm(a.view(), b.view(), out.view());
  ExpectProduct(out, a.view(), b.view(), {}, "1200 products");
}

template <typename Call>
void ExpectRefused(ErrorCode code, const std::string& text, Call&& call) {
  try {
    call();
    ADD_FAILURE() << text << ": no error";
  } catch (const Error& error) {
    EXPECT_STREQ(ErrorCodeName(error.code()), ErrorCodeName(code));
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

TEST(LinearBoundary, RefusesWhatDoesNotFit) {
  std::vector<float> x(12), weight(12), out(12);
  const auto xs = MatrixView<const float>(x.data(), 3, 4);
  const auto ws = MatrixView<const float>(weight.data(), 2, 4);
  const auto outs = MatrixView(out.data(), 3, 2);
  ExpectRefused(ErrorCode::kShape, "weight",
                [&] { Linear(xs, MatrixView<const float>(weight.data(), 2, 5), {}, outs); });
  ExpectRefused(ErrorCode::kShape, "bias has 3 values",
                [&] { Linear(xs, ws, std::vector<float>(3), outs); });
  ExpectRefused(ErrorCode::kShape, "out has shape",
                [&] { Linear(xs, ws, {}, MatrixView(out.data(), 2, 3)); });
  ExpectRefused(ErrorCode::kShape, "out overlaps x",
                [&] { Linear(xs, ws, {}, MatrixView(x.data(), 3, 2)); });
  ExpectRefused(ErrorCode::kOption, "x is missing",
                [&] { Linear(MatrixView<const float>(nullptr, 3, 4), ws, {}, outs); });
  ExpectRefused(ErrorCode::kShape, "one of its last two dimensions", [&] {
    Linear(xs, {weight.data(), {1, 1, 2, 4}, {0, 0, 2, 3}}, {}, outs);
  });
  ExpectRefused(ErrorCode::kShape, "2 and 3 batch entries", [&] {
    Bmm(Contiguous<const float>(x.data(), 2, 1, 2, 2),
        Contiguous<const float>(weight.data(), 3, 1, 2, 2), outs);
  });
  ExpectRefused(ErrorCode::kShape, "k as in a", [&] { Bmm(xs, ws, outs); });
}

}  // namespace
}  // namespace heed::testing
