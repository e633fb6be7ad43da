// Storage types: q, k, v and output as float16 or bfloat16, each its own.
#include <bit>
#include <cmath>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/cost.h"
#include "request_builder.h"
#include "simd_targets.h"
#include "tile_units.h"

namespace heed::testing {
namespace {

class Storage : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Storage);

constexpr DType kAll[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

uint16_t Round(float x, DType dtype) {
  return dtype == DType::kFloat16 ? ToFloat16(x).bits : ToBFloat16(x).bits;
}
float Widen(uint16_t bits, DType dtype) {
  return dtype == DType::kFloat16 ? ToFloat(Float16{bits}) : ToFloat(BFloat16{bits});
}

// A tensor in its storage type. Making one rounds the floats it is made of.
struct Stored {
  DType dtype = DType::kFloat32;
  Buffer<float> floats;
  Buffer<uint16_t> halves;

  Stored(Buffer<float>& from, DType type, Layout layout) : dtype(type) {
    if (type != DType::kFloat32) {
      halves = Buffer<uint16_t>(from.shape(), layout, 0x7fff);  // gaps are NaN
      from.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
        const uint16_t bits = Round(x, type);
        halves(b, h, i, d) = bits;
        x = Widen(bits, type);
      });
    }
    floats = from;
  }
  StoredTensor view() const {
    const AnyTensor tensor = any();
    return {tensor.data, dtype, tensor.shape, tensor.strides};
  }
  AnyTensor any() const { return dtype == DType::kFloat32 ? floats.any(dtype) : halves.any(dtype); }
};

// An output of a storage type, as floats.
Buffer<float> RunStored(const AttentionCase& c, const Stored& q, const Stored& k, const Stored& v,
                        DType dtype, Layout layout = Layout::kDense) {
  const Extents shape = {c.sizes.batch, c.sizes.num_heads, c.sizes.q_len, c.sizes.head_dim_v};
  Buffer<float> output(shape, Layout::kDense, std::nanf(""));
  if (dtype == DType::kFloat32) {
    Attention(q.view(), k.view(), v.view(), c.options(), {.output = output.view()});
    return output;
  }
  Buffer<uint16_t> halves(shape, layout, 0x7fff);
  const AnyTensor any = halves.any(dtype);
  Attention(q.view(), k.view(), v.view(), c.options(),
            {.stored_output = {any.data, dtype, any.shape, any.strides}});
  EXPECT_TRUE(halves.GapsAreUntouched());
  output.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
    x = Widen(halves(b, h, i, d), dtype);
  });
  return output;
}

std::vector<AttentionCase> Cases() {
  std::vector<AttentionCase> cases;
  cases.push_back(MakeCase({.head_dim = 40, .head_dim_v = 33}, 1));
  cases.push_back(MakeCase(
      {.batch = 2, .num_heads = 4, .num_kv_heads = 2, .q_len = 130, .kv_len = 300, .head_dim = 64},
      2));
  cases.back().scalars.causal = true;
  cases.back().scalars.query_offset = QueryOffset::End();
  cases.back().scalars.softcap = 20.0;
  cases.push_back(MakeCase({.num_heads = 8, .num_kv_heads = 2, .q_len = 1, .kv_len = 700}, 3));
  cases.push_back(MakeCase({.q_len = 3, .kv_len = 5, .head_dim = 1, .head_dim_v = 1}, 4));
  cases.push_back(MakeCase({.q_len = 20, .kv_len = 70, .head_dim = 17, .head_dim_v = 9}, 5));
  cases.back().scalars.score = Score::kSquaredDistance;
  cases.back().scalars.normalize = Normalize::kKernelSum;
  cases.push_back(MakeCase({.num_heads = 4, .q_len = 30, .kv_len = 270, .head_dim = 32}, 6));
  cases.back().prob_mod = "prob * (2 - prob)";
  return cases;
}

TEST_P(Storage, IsFloat32AttentionOfTheStoredNumbersBitForBit) {
  for (AttentionCase c : Cases()) {
    for (const DType dq : kAll) {
      for (const DType dk : kAll) {
        for (const DType dv : kAll) {
          const Stored q(c.q, dq, Layout::kPadded), k(c.k, dk, Layout::kBlhd),
              v(c.v, dv, Layout::kReversed);
          const Results expected = RunAttention(c, {.lse = false});
          const Buffer<float> output = RunStored(c, q, k, v, DType::kFloat32);
          EXPECT_EQ(Bits(output), Bits(expected.output))
              << DTypeName(dq) << " " << DTypeName(dk) << " " << DTypeName(dv) << c.Describe();
        }
      }
    }
  }
}

TEST_P(Storage, OutputIsRoundedOnce) {
  for (AttentionCase c : Cases()) {
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      const Stored q(c.q, dtype, Layout::kDense), k(c.k, dtype, Layout::kDense),
          v(c.v, dtype, Layout::kDense);
      // Matches the reference within its bound; its bits are its own.
      if (dtype == DType::kBFloat16 && MultipliesBFloat16(GetParam())) continue;
      Buffer<float> expected = RunAttention(c, {.lse = false}).output;
      expected.ForEach(
          [&](int64_t, int64_t, int64_t, int64_t, float& x) { x = Widen(Round(x, dtype), dtype); });
      for (const Layout layout : {Layout::kDense, Layout::kPadded, Layout::kBlhd}) {
        EXPECT_EQ(Bits(RunStored(c, q, k, v, dtype, layout)), Bits(expected)) << c.Describe();
      }
    }
  }
}

// The declared bound of an output element.
double Bound(DType dtype, const RowBound& row, double expected) {
  if (dtype == DType::kFloat16)
    return row.Output() + kFloat16Rounding * std::abs(expected) + 0x1p-25;
  return row.Output() + kBFloat16Rounding * std::abs(expected) + kBFloat16Products * row.max_v;
}

TEST_P(Storage, MatchesReferenceOnStoredInputs) {
  for (AttentionCase c : Cases()) {
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      const Stored q(c.q, dtype, Layout::kDense), k(c.k, dtype, Layout::kDense),
          v(c.v, dtype, Layout::kDense);
      const Values expected = RunOracle(c);
      // The oracle reads the storage types too.
      Request request = c.request();
      request.inputs[0].tensor = q.any();
      request.inputs[1].tensor = k.any();
      request.inputs[2].tensor = v.any();
      EXPECT_EQ(RunOracle(request).at("output"), expected.at("output"));
      const std::vector<RowBound> rows = RowBounds(c, expected);
      const std::vector<double>& numbers = expected.at("output");
      std::vector<double> bounds;
      for (size_t n = 0; n < numbers.size(); ++n) {
        bounds.push_back(
            Bound(dtype, rows[n / static_cast<size_t>(c.sizes.head_dim_v)], numbers[n]));
      }
      OnEveryTileUnit(GetParam(), [&] {
        ExpectWithin(RunStored(c, q, k, v, dtype).Elements(), numbers, bounds,
                     std::string(DTypeName(dtype)).append(" of ").append(c.Describe()));
      });
    }
  }
}

// The rule of all kernels: at most twice the error of the plain computation in the same type, or
// four roundings of the largest value.
TEST_P(Storage, ErrorIsAtMostTwiceThatOfThePlainComputation) {
  for (const auto& [dtype, unit] :
       {std::pair{DType::kFloat16, 0x1p-11}, std::pair{DType::kBFloat16, 0x1p-8}}) {
    AttentionCase c = MakeCase({.num_heads = 1, .num_kv_heads = 1, .q_len = 40, .kv_len = 300}, 6);
    const Stored q(c.q, dtype, Layout::kDense), k(c.k, dtype, Layout::kDense),
        v(c.v, dtype, Layout::kDense);
    const std::vector<double> expected = RunOracle(c).at("output");
    const std::vector<float> actual = RunStored(c, q, k, v, dtype).Elements();
    const auto store = [dtype](float x) { return Widen(Round(x, dtype), dtype); };
    double error = 0, plain_error = 0, max_v = 0;
    for (const float x : c.v.Elements()) max_v = std::max<double>(max_v, std::abs(x));
    for (int64_t i = 0; i < 40; ++i) {
      // Unfused: scores and weights are tensors of the storage type.
      std::vector<float> weights;
      float row_max = -INFINITY, sum = 0;
      for (int64_t j = 0; j < 300; ++j) {
        float dot = 0;
        for (int64_t d = 0; d < 64; ++d) dot += c.q(0, 0, i, d) * c.k(0, 0, j, d);
        weights.push_back(store(dot / 8));
        row_max = std::max(row_max, weights.back());
      }
      for (float& weight : weights) sum += weight = std::exp(weight - row_max);
      for (float& weight : weights) weight = store(weight / sum);
      for (int64_t d = 0; d < 64; ++d) {
        float plain = 0;
        for (int64_t j = 0; j < 300; ++j)
          plain += weights[static_cast<size_t>(j)] * c.v(0, 0, j, d);
        const size_t n = static_cast<size_t>(i * 64 + d);
        error = std::max(error, std::abs(actual[n] - expected[n]));
        plain_error = std::max(plain_error, std::abs(store(plain) - expected[n]));
      }
    }
    EXPECT_LE(error, std::max(2 * plain_error, 4 * unit * max_v)) << DTypeName(dtype);
    EXPECT_LE(error, plain_error) << DTypeName(dtype) << ": rounding once is better";
  }
}

TEST_P(Storage, GivesKnownHalves) {
  // One key: the output is its value. 0x3555 is the float16 next to 1/3, 0x3eab the bfloat16.
  Buffer<float> one({1, 1, 1, 1}, Layout::kDense, 1.0f);
  for (const auto& [dtype, third] : {std::pair{DType::kFloat16, uint16_t{0x3555}},
                                     std::pair{DType::kBFloat16, uint16_t{0x3eab}}}) {
    uint16_t output = 0;
    Buffer<float> value({1, 1, 1, 1}, Layout::kDense, 1.0f / 3);
    const Stored v(value, DType::kFloat32, Layout::kDense);
    const Stored q(one, dtype, Layout::kDense);
    Attention(q.view(), q.view(), v.view(), {},
              {.stored_output = {&output, dtype, {1, 1, 1, 1}, {1, 1, 1, 1}}});
    EXPECT_EQ(output, third);
  }
}

void ExpectEmptyRowsAndMaskedNan() {
  AttentionCase c = MakeCase({.num_heads = 2, .num_kv_heads = 1, .q_len = 40, .kv_len = 40}, 7);
  c.key_lengths.assign(40, 5);
  c.key_lengths[3] = 0;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Stored q(c.q, dtype, Layout::kDense), k(c.k, dtype, Layout::kDense);
    Stored v(c.v, dtype, Layout::kDense);
    const Buffer<float> clean = RunStored(c, q, k, v, dtype);
    for (int64_t d = 0; d < 64; ++d) EXPECT_EQ(clean(0, 1, 3, d), 0.0f);
    for (int64_t d = 0; d < 64; ++d) v.halves(0, 0, 5, d) = 0x7fff;  // NaN in both types
    EXPECT_EQ(Bits(RunStored(c, q, k, v, dtype)), Bits(clean));
    v.halves(0, 0, 4, 1) = dtype == DType::kFloat16 ? 0x7c00 : 0x7f80;  // infinity
    EXPECT_EQ(RunStored(c, q, k, v, dtype)(0, 0, 9, 1), INFINITY);
  }
}

TEST_P(Storage, EmptyRowsAreZeroAndMaskedNanDoesNotMatter) {
  OnEveryTileUnit(GetParam(), [] { ExpectEmptyRowsAndMaskedNan(); });
}

// More rows than are read in place, pairs of keys and of dimensions that are not whole, tiles that
// are seen in part, values that are hidden beside ones that are not.
TEST_P(Storage, AllBFloat16MatchesReferenceWhateverTheSizesAndMasks) {
  for (const Sizes& sizes : {Sizes{.q_len = 17, .kv_len = 33, .head_dim = 1},
                             Sizes{.q_len = 40, .kv_len = 300, .head_dim = 33},
                             Sizes{.batch = 2,
                             .num_heads = 4,
                             .num_kv_heads = 2,
                             .q_len = 130,
                             .kv_len = 131,
                             .head_dim = 64,
                             .head_dim_v = 31},
                             Sizes{.q_len = 60, .kv_len = 90, .head_dim = 130, .head_dim_v = 200},
                             Sizes{.q_len = 300, .kv_len = 519}}) {
    AttentionCase c = MakeCase(sizes, 11);
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::End();
    c.scalars.window = Window{.left = 70, .right = {}};
    const Stored q(c.q, DType::kBFloat16, Layout::kPadded), k(c.k, DType::kBFloat16, Layout::kBlhd);
    Stored v(c.v, DType::kBFloat16, Layout::kDense);
    const Values expected = RunOracle(c);
    const std::vector<RowBound> rows = RowBounds(c, expected);
    const std::vector<double>& numbers = expected.at("output");
    std::vector<double> bounds;
    for (size_t n = 0; n < numbers.size(); ++n) {
      const RowBound& row = rows[n / static_cast<size_t>(c.sizes.head_dim_v)];
      bounds.push_back(Bound(DType::kBFloat16, row, numbers[n]));
    }
    uint16_t& last_value = v.halves(0, 0, c.sizes.kv_len - 1, 0);
    const uint16_t kept = last_value;
    OnEveryTileUnit(GetParam(), [&] {
      last_value = kept;
      const Buffer<float> clean = RunStored(c, q, k, v, DType::kBFloat16);
      ExpectWithin(clean.Elements(), numbers, bounds, c.Describe());
      // The last key's value reaches the last query alone, whose bits nobody asks for.
      last_value = 0x7fff;
      const Buffer<float> poisoned = RunStored(c, q, k, v, DType::kBFloat16);
      const int64_t last = c.sizes.q_len - 1;
      EXPECT_TRUE(std::isnan(poisoned(0, 0, last, 0)));
      for (int64_t i = 0; i < last; ++i) {
        for (int64_t d = 0; d < c.sizes.head_dim_v; ++d) {
          EXPECT_EQ(std::bit_cast<uint32_t>(poisoned(0, 0, i, d)),
                    std::bit_cast<uint32_t>(clean(0, 0, i, d)))
              << i << " " << d << c.Describe();
        }
      }
    });
  }
}

TEST_P(Storage, AllBFloat16GivesTheSameBitsForAnyNumberOfThreads) {
  AttentionCase c = MakeCase({.num_heads = 3, .num_kv_heads = 1, .q_len = 90, .kv_len = 1100}, 12);
  const Stored q(c.q, DType::kBFloat16, Layout::kDense), k(c.k, DType::kBFloat16, Layout::kDense),
      v(c.v, DType::kBFloat16, Layout::kDense);
  const auto run = [&](int threads) {
    const auto pool = MakeThreadPool(threads);
    std::vector<BFloat16> output(static_cast<size_t>(3 * 90 * c.sizes.head_dim_v));
    Attention(q.view(), k.view(), v.view(), c.options(),
              {.stored_output = Contiguous(output.data(), 1, 3, 90, c.sizes.head_dim_v)},
              pool.get());
    return output;
  };
  std::vector<BFloat16> by_emulation, by_amx;
  OnEveryTileUnit(GetParam(), [&] {
    const std::vector<BFloat16> one = run(1);
    for (const int threads : {2, 3}) {
      const std::vector<BFloat16> more = run(threads);
      for (size_t n = 0; n < one.size(); ++n) EXPECT_EQ(more[n].bits, one[n].bits);
    }
    if (CurrentTileUnit() == TileUnit::kEmulated) by_emulation = one;
    if (CurrentTileUnit() == TileUnit::kAmx) by_amx = one;
  });
  for (size_t n = 0; n < by_amx.size(); ++n) EXPECT_EQ(by_amx[n].bits, by_emulation[n].bits);
}

TEST_P(Storage, CostsTheSameFlopsInEveryType) {
  AttentionCase c = MakeCase({.num_heads = 1, .num_kv_heads = 1, .q_len = 40, .kv_len = 70}, 13);
  const auto flops = [&](DType dtype) {
    const Stored q(c.q, dtype, Layout::kDense), k(c.k, dtype, Layout::kDense),
        v(c.v, dtype, Layout::kDense);
    Request request = c.request();
    request.inputs[0].tensor = q.any();
    request.inputs[1].tensor = k.any();
    request.inputs[2].tensor = v.any();
    return EstimateCost(request, 1).flops;
  };
  EXPECT_EQ(flops(DType::kBFloat16), flops(DType::kFloat32));
  EXPECT_EQ(flops(DType::kFloat16), flops(DType::kFloat32));
}

TEST_P(Storage, TypedViewsNeedNoNames) {
  std::vector<BFloat16> data(8, ToBFloat16(1.5f));
  std::vector<BFloat16> out(2);
  const TensorView<BFloat16> x = Contiguous(data.data(), 1, 1, 4, 2);
  TensorView<const BFloat16> q = x;
  q.shape[2] = 1;
  Attention(q, x, x, {}, {.stored_output = Contiguous(out.data(), 1, 1, 1, 2)});
  EXPECT_EQ(ToFloat(out[0]), 1.5f);
  EXPECT_EQ(ToFloat(out[1]), 1.5f);
}

TEST(StorageErrors, NameTheArgumentAndItsType) {
  float x = 1;
  const Extents one = {1, 1, 1, 1};
  const StoredTensor q(&x, DType::kFloat32, one, one), bad(&x, DType::kInt8, one, one);
  float out = 0;
  const auto message = [&](const StoredTensor& k, const AttentionOutputs& outputs) -> std::string {
    try {
      Attention(q, k, q, {}, outputs);
    } catch (const Error& error) {
      return std::string(ErrorCodeName(error.code())) + ": " + error.what();
    }
    return "";
  };
  const TensorView<float> output = Contiguous(&out, 1, 1, 1, 1);
  EXPECT_THAT(message(bad, {.output = output}),
              ::testing::StartsWith("dtype: k has element type int8"));
  EXPECT_THAT(message(q, {.output = output, .stored_output = output}),
              ::testing::HasSubstr("both given"));
  EXPECT_THAT(message(q, {.stored_output = {&out, DType::kInt32, one, one}}),
              ::testing::StartsWith("dtype: output has element type int32"));
  EXPECT_THAT(message(q, {}), ::testing::HasSubstr("output"));
}

}  // namespace
}  // namespace heed::testing
