// LayerNorm and RmsNorm against float64 loops, on every SIMD target.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "buffer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/rows.h"
#include "random.h"
#include "reference/rows.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class RowNorms : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(RowNorms);

Buffer<float> MakeNormal(Extents shape, float mean = 0.5f, float deviation = 2,
                         Layout layout = Layout::kDense) {
  Buffer<float> buffer(shape, layout, kNan);
  Random random(3);
  buffer.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) {
    x = mean + deviation * random.Normal();
  });
  return buffer;
}

std::vector<float> Vector(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values;
  for (int64_t n = 0; n < count; ++n) values.push_back(random.Normal());
  return values;
}

struct NormCase {
  std::vector<float> weight, bias;
  double epsilon = 1e-5;
  RowNormOptions options() const { return {weight, bias, epsilon}; }
};

using Reference = reference::NormedRow (*)(const std::vector<double>&, double);

// Compares rows of a result, and the statistics where there are any.
void ExpectRows(const Buffer<float>& x, const NormCase& c, Reference reference,
                const Buffer<float>& out, const Buffer<float>* mean,
                const Buffer<float>* inverse_deviation) {
  for (int64_t b = 0; b < x.shape()[0]; ++b) {
    for (int64_t h = 0; h < x.shape()[1]; ++h) {
      for (int64_t i = 0; i < x.shape()[2]; ++i) {
        std::vector<double> row;
        for (int64_t d = 0; d < x.shape()[3]; ++d) row.push_back(x(b, h, i, d));
        const reference::NormedRow expected = reference(row, c.epsilon);
        for (size_t d = 0; d < row.size(); ++d) {
          const double normed = expected.values[d] * (c.weight.empty() ? 1 : c.weight[d]);
          const double bias = c.bias.empty() ? 0 : c.bias[d];
          const float actual = out(b, h, i, static_cast<int64_t>(d));
          if (std::isnan(normed)) {
            EXPECT_TRUE(std::isnan(actual)) << actual;
          } else {
            EXPECT_NEAR(actual, normed + bias,
                        kNormMaxError * (std::abs(normed) + std::abs(bias)) + 1e-37);
          }
        }
        if (mean == nullptr) continue;
        EXPECT_FLOAT_EQ((*mean)(b, h, i, 0), static_cast<float>(expected.mean));
        EXPECT_FLOAT_EQ((*inverse_deviation)(b, h, i, 0),
                        static_cast<float>(expected.inverse_deviation));
      }
    }
  }
}

void ExpectNorms(const Buffer<float>& x, const NormCase& c, Layout layout = Layout::kDense) {
  SCOPED_TRACE(::testing::PrintToString(x.shape()));
  const Extents rows = {x.shape()[0], x.shape()[1], x.shape()[2], 1};
  Buffer<float> out(x.shape(), layout, kNan), mean(rows, layout, kNan),
      deviation(rows, layout, kNan);
  LayerNorm(x.view(), c.options(), out.view(), {mean.view(), deviation.view()});
  const bool finite = std::isfinite(x(0, 0, 0, 0));
  ExpectRows(x, c, reference::LayerNormOfRow, out, finite ? &mean : nullptr, &deviation);
  EXPECT_TRUE(out.GapsAreUntouched() && mean.GapsAreUntouched());
  RmsNorm(x.view(), c.options(), out.view());
  ExpectRows(x, c, reference::RmsNormOfRow, out, nullptr, nullptr);
}

TEST_P(RowNorms, MatchReferenceInEveryLength) {
  for (const int64_t dim : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 64, 100, 768, 5000}) {
    const Buffer<float> x = MakeNormal({1, 2, 3, dim});
    ExpectNorms(x, {});
    ExpectNorms(x, {Vector(dim, 1), Vector(dim, 2)});
    ExpectNorms(x, {Vector(dim, 1), {}, 0.1});
    ExpectNorms(x, {{}, Vector(dim, 2), 1e-12});
  }
}

TEST_P(RowNorms, MatchReferenceInEveryLayout) {
  for (const Layout layout : {Layout::kDense, Layout::kBlhd, Layout::kPadded, Layout::kReversed}) {
    ExpectNorms(MakeNormal({2, 3, 5, 37}, 0, 1, layout), {Vector(37, 1), Vector(37, 2)},
                Layout::kPadded);
    ExpectNorms(MakeNormal({2, 3, 5, 37}), {}, layout);
  }
}

TEST_P(RowNorms, FarMeansAndExtremeNumbersLoseNoDigits) {
  ExpectNorms(MakeNormal({1, 1, 3, 300}, 10000, 1), {});
  ExpectNorms(MakeNormal({1, 1, 3, 300}, 0, 1e30f), {});
  ExpectNorms(MakeNormal({1, 1, 3, 300}, 0, 1e-20f), {});
  Buffer<float> equal({1, 1, 2, 40}, Layout::kDense, 3.25f);
  ExpectNorms(equal, {{}, Vector(40, 7)});
}

TEST_P(RowNorms, NanStaysInItsRow) {
  Buffer<float> x = MakeNormal({1, 1, 3, 20});
  x(0, 0, 1, 19) = kNan;
  NormCase c;
  Buffer<float> out(x.shape(), Layout::kDense, 0);
  LayerNorm(x.view(), c.options(), out.view());
  ExpectRows(x, c, reference::LayerNormOfRow, out, nullptr, nullptr);
}

TEST_P(RowNorms, InPlaceIsTheSame) {
  Buffer<float> x = MakeNormal({2, 2, 5, 33}, 1, 1, Layout::kPadded);
  Buffer<float> out(x.shape(), Layout::kDense, kNan);
  const NormCase c = {Vector(33, 1), Vector(33, 2)};
  LayerNorm(x.view(), c.options(), out.view());
  LayerNorm(x.view(), c.options(), x.view());
  EXPECT_EQ(x.Elements(), out.Elements());
}

TEST_P(RowNorms, ThreadsChangeNoBit) {
  const Buffer<float> x = MakeNormal({2, 3, 100, 300});
  const auto one = MakeThreadPool(1);
  const auto three = MakeThreadPool(3);
  Buffer<float> a(x.shape(), Layout::kDense, kNan), b(x.shape(), Layout::kDense, kNan);
  LayerNorm(x.view(), {}, a.view(), {}, one.get());
  LayerNorm(x.view(), {}, b.view(), {}, three.get());
  EXPECT_EQ(a.Elements(), b.Elements());
}

template <class Body>
std::string MessageOf(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(RowNormErrors, NameArgumentValueAndExpectation) {
  Buffer<float> x = MakeNormal({1, 1, 3, 4});
  Buffer<float> out({1, 1, 3, 4}, Layout::kDense, kNan), wrong({1, 1, 3, 2}, Layout::kDense, kNan);
  const std::vector<float> three = {1, 2, 3};
  const auto layer = [&](const RowNormOptions& options, const RowStatistics& statistics = {}) {
    return MessageOf([&] { LayerNorm(x.view(), options, out.view(), statistics); });
  };
  EXPECT_THAT(layer({three, {}}), HasSubstr("weight has 3 values; expected dim = 4"));
  EXPECT_THAT(layer({{}, three}), HasSubstr("bias has 3 values"));
  EXPECT_THAT(layer({{}, {}, 0}), HasSubstr("epsilon = 0; it must be positive"));
  EXPECT_THAT(layer({}, {wrong.view(), {}}), HasSubstr("mean has shape [1, 1, 3, 2]"));
  TensorView<float> shifted = x.view();
  shifted.data += 1;
  EXPECT_THAT(MessageOf([&] { LayerNorm(x.view(), {}, shifted); }), HasSubstr("out overlaps x"));
}

}  // namespace
}  // namespace heed::testing
