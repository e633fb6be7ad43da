// Rows of a device against the reference, without a device: what passes, and what float8, whose
// bound is wide, may not hide.
#include "native_bench/row_oracle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "heed/attention.h"
#include "heed/cuda.h"
#include "native_bench/accuracy.h"
#include "native_bench/device_attention.h"
#include "native_bench/device_cases.h"
#include "native_bench/float8.h"

namespace heed::bench {
namespace {

using ::testing::HasSubstr;

Case PromptOf(DType dtype, Mask mask, int64_t length) {
  return {.mechanism = "scaled_dot_product",
          .batch = 2,
          .heads = {4, 2},
          .lengths = {length, length},
          .head_dim = 64,
          .mask = mask,
          .dtype = dtype,
          .device = Device::kCuda};
}

// The type of the tensors, and the scales of float8.
class Tensors {
 public:
  explicit Tensors(const Case& c) : case_(c), shapes_(ShapesOf(c)) {
    q_ = Draw(shapes_.q, 1);
    k_ = Draw(shapes_.k, 2);
    v_ = Draw(shapes_.v, 3);
  }

  RowInputs Of(const OutputRow& at) const {
    const int64_t kv_head = at.head / (case_.heads.num_heads / case_.heads.num_kv_heads);
    const int64_t kv_len = case_.lengths.kv_len;
    return {.q = Rows(q_, shapes_.q, at.batch, at.head, at.query, 1),
            .k = Rows(k_, shapes_.k, at.batch, kv_head, 0, kv_len),
            .v = Rows(v_, shapes_.v, at.batch, kv_head, 0, kv_len)};
  }

  // The output, by heed::Attention with the options of `called`.
  std::vector<float> AttentionOf(const Case& called) const {
    const auto view = [](const std::vector<float>& numbers, const Extents& shape) {
      return Contiguous(numbers.data(), shape[0], shape[1], shape[2], shape[3]);
    };
    const auto [batch, num_heads, q_len, head_dim_v] = shapes_.output;
    std::vector<float> output(static_cast<size_t>(batch * num_heads * q_len * head_dim_v));
    const SocketArrays arrays = SocketArraysOf(called);
    Attention(view(q_, shapes_.q), view(k_, shapes_.k), view(v_, shapes_.v),
              AttentionOptionsOf(called, arrays),
              {.output = Contiguous(output.data(), batch, num_heads, q_len, head_dim_v)});
    return output;
  }
  Verdict VerdictOf(const RowOracle& oracle, const std::vector<float>& output) const {
    return oracle.Compare([&](const OutputRow& at) {
      return Rows(output, shapes_.output, at.batch, at.head, at.query, 1);
    });
  }

 private:
  std::vector<float> Draw(const Extents& shape, uint64_t seed) const {
    std::mt19937_64 generator(seed);
    std::normal_distribution<float> normal;
    const int64_t heads = case_.batch * case_.heads.num_kv_heads;
    const std::vector<float> scales = Float8Scales(heads, seed);
    std::vector<float> numbers(static_cast<size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
    const size_t of_a_scale = numbers.size() / scales.size();
    for (size_t n = 0; n < numbers.size(); ++n) {
      const float scale = scales[n / of_a_scale], x = normal(generator);
      const bool is_float8 = case_.dtype == DType::kFloat8E4M3;
      numbers[n] = is_float8 ? ToFloat(ToFloat8E4M3(x / scale)) * scale : ToFloat(ToBFloat16(x));
    }
    return numbers;
  }
  static std::vector<float> Rows(const std::vector<float>& numbers, const Extents& shape, int64_t b,
                                 int64_t h, int64_t i, int64_t count) {
    const auto first = numbers.begin() + ((b * shape[1] + h) * shape[2] + i) * shape[3];
    return {first, first + count * shape[3]};
  }

  Case case_;
  AttentionShapes shapes_;
  std::vector<float> q_, k_, v_;
};

// A program that multiplies float8 as the kernel for Hopper does, and how it may go wrong.
struct Program {
  bool rounds_weights = true;
  double drops_keys = 0;  // of those seen, from the first on
  float scales_results = 1;
};

float RoundedWeight(double weight) {  // of 1 at most
  return ToFloat(ToFloat8E4M3(static_cast<float>(weight) * 256)) / 256;
}

std::vector<float> RowOf(const Case& c, const OutputRow& at, const RowInputs& inputs,
                         const Program& program) {
  const int64_t position = at.query + c.lengths.kv_len - c.lengths.q_len;
  const int64_t seen = c.mask == Mask::kCausal ? position + 1 : c.lengths.kv_len;
  std::vector<double> scores;
  for (int64_t j = 0; j < seen; ++j) {
    double sum = 0;
    for (int64_t d = 0; d < c.head_dim; ++d) {
      const size_t at_d = static_cast<size_t>(d);
      sum += static_cast<double>(inputs.q[at_d]) *
             static_cast<double>(inputs.k[static_cast<size_t>(j * c.head_dim + d)]);
    }
    scores.push_back(sum / std::sqrt(static_cast<double>(c.head_dim)));
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  std::vector<double> sums(static_cast<size_t>(c.ValueDim()));
  double total = 0;
  for (int64_t j = 0; j < seen; ++j) {
    if (static_cast<double>(j) < program.drops_keys * static_cast<double>(seen)) continue;
    const double weight = std::exp(scores[static_cast<size_t>(j)] - largest);
    const double rounded =
        program.rounds_weights ? static_cast<double>(RoundedWeight(weight)) : weight;
    total += weight;
    for (size_t d = 0; d < sums.size(); ++d) {
      sums[d] += rounded * static_cast<double>(inputs.v[static_cast<size_t>(j) * sums.size() + d]);
    }
  }
  std::vector<float> row;
  for (const double sum : sums) {
    const float result = program.scales_results * static_cast<float>(sum / total);
    row.push_back(ToFloat(ToBFloat16(result)));
  }
  return row;
}

Verdict VerdictOf(const Case& c, const Program& program) {
  const Tensors tensors(c);
  const std::vector<OutputRow> rows = SampledRows(c);
  const RowOracle oracle(c, rows, [&](const OutputRow& at) { return tensors.Of(at); });
  return oracle.Compare([&](const OutputRow& at) { return RowOf(c, at, tensors.Of(at), program); });
}

TEST(RowOracle, AllRowsAreEveryRowOnce) {
  const Case c = PromptOf(DType::kBFloat16, Mask::kFull, 3);
  const std::vector<OutputRow> rows = AllRows(c);
  EXPECT_EQ(rows.size(), 2u * 4u * 3u);
  EXPECT_EQ(rows.front(), (OutputRow{0, 0, 0}));
  EXPECT_EQ(rows[3], (OutputRow{0, 1, 0}));
  EXPECT_EQ(rows.back(), (OutputRow{1, 3, 2}));
}

TEST(RowOracle, Float8PassesWithTheRoundingOfItsWeights) {
  for (const Mask mask : {Mask::kFull, Mask::kCausal}) {
    for (const int64_t length : {95, 2048}) {
      const Case c = PromptOf(DType::kFloat8E4M3, mask, length);
      const Verdict verdict = VerdictOf(c, {});
      EXPECT_TRUE(verdict.Passed()) << c.Name() << ": " << verdict.failure << verdict.max_error;
      EXPECT_EQ(verdict.rows, static_cast<int64_t>(SampledRows(c).size()));
    }
  }
}

TEST(RowOracle, ZerosAreWithinTheBoundOfFloat8AndAreWrong) {
  const Case c = PromptOf(DType::kFloat8E4M3, Mask::kFull, 2048);
  const Verdict verdict = VerdictOf(c, {.scales_results = 0});
  EXPECT_LE(verdict.max_error, verdict.bound);
  EXPECT_FALSE(verdict.Passed());
  EXPECT_THAT(verdict.failure, HasSubstr("error of a row is 1 of its result"));
}

TEST(RowOracle, KeysThatAreMissingAndScalesThatAreWrongAreSeen) {
  for (const Mask mask : {Mask::kFull, Mask::kCausal}) {
    const Case c = PromptOf(DType::kFloat8E4M3, mask, 2048);
    EXPECT_FALSE(VerdictOf(c, {.drops_keys = 0.25}).Passed()) << c.Name();
    EXPECT_FALSE(VerdictOf(c, {.scales_results = 1.2f}).Passed()) << c.Name();
  }
}

TEST(RowOracle, NotANumberIsWrong) {
  const Case c = PromptOf(DType::kFloat8E4M3, Mask::kCausal, 95);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(VerdictOf(c, {.scales_results = nan}).Passed());
}

// The bound of other types is what it was, and there is no second one.
TEST(RowOracle, OtherTypesAreHeldToTheirBoundAlone) {
  const Case c = PromptOf(DType::kBFloat16, Mask::kFull, 2048);
  const Program precise = {.rounds_weights = false};
  const Verdict verdict = VerdictOf(c, precise);
  EXPECT_TRUE(verdict.Passed()) << verdict.max_error;
  double largest = 0;
  const Tensors tensors(c);
  for (const OutputRow& at : SampledRows(c)) {
    for (const float x : tensors.Of(at).v) largest = std::max(largest, std::abs(double{x}));
  }
  const double relative = AccuracyOf(c.mechanism).max_error + StorageAllowance(DType::kBFloat16);
  EXPECT_DOUBLE_EQ(verdict.bound, relative * largest);
  EXPECT_FALSE(VerdictOf(c, {.scales_results = 0}).Passed());
  EXPECT_EQ(VerdictOf(c, {.scales_results = 0}).failure, "");
}

// Small cases, as the benchmark looks at every row of them.
TEST(RowOracle, OptionsOfTheDeviceComputeTheSocketsAndThoseOfPlainAttentionAreWrong) {
  for (const Case& own : OwnDeviceCases()) {
    if (!IsDeviceAttention(own) || IsPlainAttention(own)) continue;
    const Case c = SmallCaseOf(own);
    const Tensors tensors(c);
    const RowOracle oracle(c, AllRows(c), [&](const OutputRow& at) { return tensors.Of(at); });
    const Verdict verdict = tensors.VerdictOf(oracle, tensors.AttentionOf(c));
    EXPECT_TRUE(verdict.Passed()) << c.Name() << ": " << verdict.max_error;
    const Case plain = {.mechanism = c.mechanism,
                        .batch = c.batch,
                        .heads = c.heads,
                        .lengths = c.lengths,
                        .head_dim = c.head_dim,
                        .mask = c.mask};
    EXPECT_FALSE(tensors.VerdictOf(oracle, tensors.AttentionOf(plain)).Passed()) << c.Name();
  }
}

TEST(RowOracle, EmptyRowsAreZero) {
  Case c = PromptOf(DType::kFloat8E4M3, Mask::kCausal, 40);
  c.lengths.kv_len = 20;
  const Tensors tensors(c);
  const RowOracle oracle(c, {{0, 0, 0}}, [&](const OutputRow& at) { return tensors.Of(at); });
  const auto rows_of = [](float x) { return [x](const OutputRow&) { return std::vector(64, x); }; };
  EXPECT_TRUE(oracle.Compare(rows_of(0)).Passed());
  EXPECT_FALSE(oracle.Compare(rows_of(1e-3f)).Passed());
}

TEST(Float8, ScalesDifferAndTheirProductsAreExact) {
  const std::vector<float> scales = Float8Scales(32, 5);
  EXPECT_EQ(Float8Scales(32, 5), scales);
  EXPECT_NE(Float8Scales(32, 6), scales);
  EXPECT_GT((std::set<float>(scales.begin(), scales.end())).size(), 24u);
  for (const float scale : scales) {
    EXPECT_GE(448 * scale, 6);
    EXPECT_LT(448 * scale, 12.01f);
    for (int bits = 0; bits < 127; ++bits) {
      const float x = ToFloat(Float8E4M3{static_cast<uint8_t>(bits)});
      EXPECT_EQ(double{x * scale}, double{x} * double{scale});
    }
  }
}

TEST(Float8, TheAllowanceIsWhatTheHeaderPromises) {
  EXPECT_DOUBLE_EQ(Float8Allowance(0, 0), cuda::kFloat8Products);
  EXPECT_DOUBLE_EQ(Float8Allowance(1024, 0) - Float8Allowance(0, 0), 1024 * cuda::kFloat8Lost);
  EXPECT_DOUBLE_EQ(Float8Allowance(0, 8) - Float8Allowance(0, 0), 16 * cuda::kFloat8Scores);
}

}  // namespace
}  // namespace heed::bench
