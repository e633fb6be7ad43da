// Softmax, LogSoftmax and MaskedSoftmax against float64 loops, on every SIMD target.
#include <cmath>
#include <limits>
#include <optional>
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

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Rows : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Rows);

Buffer<float> MakeNormal(Extents shape, double size = 3, Layout layout = Layout::kDense,
                         uint64_t seed = 1) {
  Buffer<float> buffer(shape, layout, kNan);
  Random random(seed);
  buffer.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) {
    x = static_cast<float>(size) * random.Normal();
  });
  return buffer;
}

// Non-finite numbers of the same class, also those that float cannot hold; others within `bound`.
void ExpectClose(float actual, double expected, double bound, const std::string& what) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << what << " is " << actual;
  } else if (std::isinf(static_cast<float>(expected))) {
    EXPECT_EQ(actual, static_cast<float>(expected)) << what;
  } else {
    EXPECT_NEAR(actual, expected, bound) << what;
  }
}

std::string Where(int64_t b, int64_t h, int64_t i, int64_t d) {
  return std::string("[") + std::to_string(b) + ", " + std::to_string(h) + ", " +
         std::to_string(i) + ", " + std::to_string(d) + "]";
}

// The row through (b, h, i, d) along the axis, and where the element stands in it.
std::vector<double> Along(const Buffer<float>& x, int axis, Extents at) {
  std::vector<double> row;
  for (int64_t n = 0; n < x.shape()[static_cast<size_t>(axis)]; ++n) {
    at[static_cast<size_t>(axis)] = n;
    row.push_back(x(at[0], at[1], at[2], at[3]));
  }
  return row;
}

void ExpectSoftmax(const Buffer<float>& x, int axis, Layout out_layout = Layout::kDense) {
  SCOPED_TRACE(::testing::PrintToString(x.shape()) + " along " + std::to_string(axis));
  Buffer<float> weights(x.shape(), out_layout, kNan);
  Buffer<float> logs(x.shape(), out_layout, kNan);
  Softmax(x.view(), weights.view(), axis);
  LogSoftmax(x.view(), logs.view(), axis);
  Extents lines = x.shape();
  lines[static_cast<size_t>(axis)] = x.size() == 0 ? 0 : 1;
  Buffer<float>(lines, Layout::kDense, 0)
      .ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float&) {
        const std::vector<double> row = Along(x, axis, {b, h, i, d});
        const auto expected = reference::SoftmaxOfRow(row, std::vector<bool>(row.size(), true));
        const auto expected_logs = reference::LogSoftmaxOfRow(row);
        Extents at = {b, h, i, d};
        for (size_t n = 0; n < row.size(); ++n) {
          at[static_cast<size_t>(axis)] = static_cast<int64_t>(n);
          const auto [p, q, r, s] = at;
          ExpectClose(weights(p, q, r, s), expected[n], kSoftmaxMaxError, Where(p, q, r, s));
          ExpectClose(logs(p, q, r, s), expected_logs[n],
                      kSoftmaxMaxError * std::max(1.0, std::abs(expected_logs[n])),
                      "log " + Where(p, q, r, s));
        }
      });
  EXPECT_TRUE(weights.GapsAreUntouched());
  EXPECT_TRUE(logs.GapsAreUntouched());
}

TEST_P(Rows, SoftmaxMatchesReferenceInEveryLength) {
  for (const int64_t dim : {1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 1000, 1025}) {
    ExpectSoftmax(MakeNormal({1, 2, 3, dim}), 3);
    ExpectSoftmax(MakeNormal({1, 2, dim, 3}), 2);
  }
  ExpectSoftmax(MakeNormal({1, 1, 2, 70000}), 3);
  ExpectSoftmax(MakeNormal({1, 1, 20000, 5}), 2);
  ExpectSoftmax(MakeNormal({1, 1, 200, 130}), 2);
}

TEST_P(Rows, SoftmaxMatchesReferenceAlongEveryAxisInEveryLayout) {
  for (const Layout layout : {Layout::kDense, Layout::kBlhd, Layout::kPadded, Layout::kReversed}) {
    for (int axis = 0; axis < 4; ++axis) {
      ExpectSoftmax(MakeNormal({3, 4, 5, 37}, 3, layout), axis, Layout::kPadded);
      ExpectSoftmax(MakeNormal({2, 3, 5, 16}, 3, Layout::kDense), axis, layout);
      ExpectSoftmax(MakeNormal({2, 2, 3, 300}, 3, layout), axis);
    }
  }
}

TEST_P(Rows, LargeLogitsDoNotOverflow) {
  Buffer<float> x = MakeNormal({1, 1, 4, 50}, 1000);
  for (int64_t d = 0; d < 50; ++d) {
    x(0, 0, 1, d) += 3e38f;
    x(0, 0, 2, d) = 88.0f + static_cast<float>(d);
    x(0, 0, 3, d) = d % 2 == 0 ? 3.4e38f : -3.4e38f;
  }
  ExpectSoftmax(x, 3);
  ExpectSoftmax(x, 2);
}

TEST_P(Rows, NumbersThatAreNotFiniteStayInTheirRow) {
  for (const float poison : {kNan, kInf, -kInf}) {
    for (const int64_t at : {0, 5, 39}) {
      Buffer<float> x = MakeNormal({1, 1, 6, 40});
      x(0, 0, 3, at) = poison;
      for (int64_t d = 0; d < 40; ++d) x(0, 0, 4, d) = -kInf;
      ExpectSoftmax(x, 3);
      ExpectSoftmax(x, 2);
    }
    Buffer<float> x = MakeNormal({1, 1, 1, 1});
    x(0, 0, 0, 0) = poison;
    ExpectSoftmax(x, 3);
    ExpectSoftmax(x, 2);
  }
}

TEST_P(Rows, EmptyTensorsGiveNothing) {
  for (const Extents& shape : {Extents{1, 1, 0, 5}, Extents{1, 1, 5, 0}, Extents{0, 1, 5, 5}}) {
    for (int axis = 0; axis < 4; ++axis) {
      Buffer<float> x(shape, Layout::kDense, 0), out(shape, Layout::kDense, 0);
      Softmax(x.view(), out.view(), axis);
    }
  }
}

struct Masked {
  std::vector<int32_t> lengths;
  Buffer<uint8_t> keep;  // no value = absent
};

bool Counts(const Buffer<float>& x, const Masked& m, const Extents& at) {
  const auto [b, h, i, d] = at;
  if (!m.lengths.empty()) {
    const bool per_entry = m.lengths.size() == static_cast<size_t>(x.shape()[0]);
    const int64_t row = per_entry ? b : b * x.shape()[2] + i;
    if (d >= m.lengths[static_cast<size_t>(row)]) return false;
  }
  if (!m.keep.has_value()) return true;
  const Extents& shape = m.keep.shape();
  return m.keep(shape[0] == 1 ? 0 : b, shape[1] == 1 ? 0 : h, shape[2] == 1 ? 0 : i,
                shape[3] == 1 ? 0 : d) != 0;
}

Buffer<float> RunMasked(const Buffer<float>& x, const Masked& m, ThreadPool* pool = nullptr) {
  Buffer<float> out(x.shape(), Layout::kPadded, kNan);
  MaskedSoftmaxOptions options;
  options.lengths = m.lengths;
  if (m.keep.has_value()) options.keep = m.keep.view();
  MaskedSoftmax(x.view(), options, out.view(), pool);
  EXPECT_TRUE(out.GapsAreUntouched());
  return out;
}

void ExpectMasked(const Buffer<float>& x, const Masked& m) {
  const Buffer<float> out = RunMasked(x, m);
  for (int64_t b = 0; b < x.shape()[0]; ++b) {
    for (int64_t h = 0; h < x.shape()[1]; ++h) {
      for (int64_t i = 0; i < x.shape()[2]; ++i) {
        std::vector<bool> counts;
        for (int64_t d = 0; d < x.shape()[3]; ++d) counts.push_back(Counts(x, m, {b, h, i, d}));
        const auto expected = reference::SoftmaxOfRow(Along(x, 3, {b, h, i, 0}), counts);
        for (int64_t d = 0; d < x.shape()[3]; ++d) {
          ExpectClose(out(b, h, i, d), expected[static_cast<size_t>(d)], kSoftmaxMaxError,
                      Where(b, h, i, d));
        }
      }
    }
  }
}

Buffer<uint8_t> RandomKeep(const Extents& shape, uint64_t seed) {
  Buffer<uint8_t> keep(shape, Layout::kPadded, 0);
  Random random(seed);
  keep.ForEach([&](int64_t, int64_t, int64_t, int64_t, uint8_t& x) {
    x = random.Chance(0.6) ? static_cast<uint8_t>(random.Integer(1, 255)) : 0;
  });
  return keep;
}

TEST_P(Rows, MaskedSoftmaxMatchesReference) {
  const Buffer<float> x = MakeNormal({2, 3, 5, 77}, 3, Layout::kBlhd);
  const std::vector<int32_t> per_row = {0, 1, 77, 40, 8, 16, 76, 0, 33, 2};
  for (const std::vector<int32_t>& lengths : {std::vector<int32_t>(), {77, 13}, per_row}) {
    ExpectMasked(x, {lengths, {}});
    for (const Extents& shape : {Extents{2, 3, 5, 77}, Extents{1, 1, 5, 77}, Extents{1, 1, 1, 77},
                                 Extents{2, 3, 1, 1}, Extents{2, 1, 5, 1}, Extents{1, 1, 1, 1}}) {
      ExpectMasked(x, {lengths, RandomKeep(shape, 3)});
    }
  }
}

// Dive into Deep Learning, section 11.3: masked_softmax of rand(2, 2, 4) with valid lengths [2, 3]
// and [[1, 3], [2, 4]] keeps so many weights a row, and they sum to 1.
TEST_P(Rows, LengthsKeepWhatTheBookKeeps) {
  const Buffer<float> x = MakeNormal({2, 1, 2, 4}, 1);
  for (const auto& [lengths, kept] :
       std::vector<std::pair<std::vector<int32_t>, std::vector<int64_t>>>{
           {{2, 3}, {2, 2, 3, 3}}, {{1, 3, 2, 4}, {1, 3, 2, 4}}}) {
    const Buffer<float> out = RunMasked(x, {lengths, {}});
    for (int64_t row = 0; row < 4; ++row) {
      double sum = 0;
      for (int64_t d = 0; d < 4; ++d) {
        const float weight = out(row / 2, 0, row % 2, d);
        EXPECT_EQ(weight > 0, d < kept[static_cast<size_t>(row)]);
        sum += weight;
      }
      EXPECT_NEAR(sum, 1, 4 * kSoftmaxMaxError);
    }
  }
}

TEST_P(Rows, WhatIsMaskedCannotMatter) {
  for (const float poison : {kNan, kInf, -kInf, 3e38f}) {
    Buffer<float> x = MakeNormal({2, 1, 3, 50});
    Masked m = {{20, 50}, RandomKeep({1, 1, 1, 50}, 4)};
    m.keep(0, 0, 0, 7) = 0;
    const Buffer<float> clean = RunMasked(x, m);
    for (int64_t i = 0; i < 3; ++i) {
      x(0, 0, i, 20) = x(0, 0, i, 49) = x(0, 0, i, 7) = x(1, 0, i, 7) = poison;
    }
    EXPECT_EQ(RunMasked(x, m).Elements(), clean.Elements());
    // What counts reaches its row, and only what counts.
    x(1, 0, 1, 30) = poison;
    m.keep(0, 0, 0, 30) = 1;
    ExpectMasked(x, m);
  }
}

TEST_P(Rows, ThreadsChangeNoBit) {
  const Buffer<float> x = MakeNormal({2, 3, 50, 700});
  const Masked m = {{700, 300}, RandomKeep({1, 1, 50, 700}, 5)};
  const auto one = MakeThreadPool(1);
  const auto three = MakeThreadPool(3);
  EXPECT_EQ(RunMasked(x, m, one.get()).Elements(), RunMasked(x, m, three.get()).Elements());
  for (int axis = 0; axis < 4; ++axis) {
    Buffer<float> a(x.shape(), Layout::kDense, kNan), b(x.shape(), Layout::kDense, kNan);
    Softmax(x.view(), a.view(), axis, one.get());
    Softmax(x.view(), b.view(), axis, three.get());
    EXPECT_EQ(a.Elements(), b.Elements());
  }
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

TEST(RowsErrors, NameArgumentValueAndExpectation) {
  Buffer<float> x = MakeNormal({2, 1, 3, 4});
  Buffer<float> out({2, 1, 3, 4}, Layout::kDense, kNan), other({2, 1, 4, 3}, Layout::kDense, kNan);
  const auto masked = [&](const Masked& m) {
    MaskedSoftmaxOptions options;
    options.lengths = m.lengths;
    if (m.keep.has_value()) options.keep = m.keep.view();
    return MessageOf([&] { MaskedSoftmax(x.view(), options, out.view()); });
  };
  EXPECT_THAT(MessageOf([&] { Softmax(x.view(), other.view()); }), HasSubstr("out has shape"));
  EXPECT_THAT(MessageOf([&] { Softmax(x.view(), x.view()); }), HasSubstr("out overlaps x"));
  const TensorView<float> rows = {x.view().data, {1, 1, 2, 4}, {0, 0, 8, 1}};
  TensorView<float> shifted = rows;
  shifted.data += 8;
  EXPECT_THAT(MessageOf([&] { Softmax(rows, shifted); }), HasSubstr("out overlaps x"));
  shifted.data = rows.data + 4;
  EXPECT_EQ(MessageOf([&] { Softmax(rows, shifted); }), "no error");
  EXPECT_THAT(MessageOf([&] { Softmax(x.view(), out.view(), 4); }),
              HasSubstr("axis = 4; expected 0 to 3"));
  EXPECT_THAT(MessageOf([&] { Softmax({}, out.view()); }), HasSubstr("out has shape"));
  EXPECT_THAT(masked({{1, 2, 3}, {}}), HasSubstr("lengths has 3 values; expected [batch] = 2"));
  EXPECT_THAT(masked({{1, 5}, {}}), HasSubstr("lengths holds 5; expected 0 to dim = 4"));
  EXPECT_THAT(masked({{-1, 2}, {}}), HasSubstr("lengths holds -1"));
  EXPECT_THAT(masked({{}, RandomKeep({2, 1, 3, 5}, 1)}), HasSubstr("keep has shape [2, 1, 3, 5]"));
}

}  // namespace
}  // namespace heed::testing
