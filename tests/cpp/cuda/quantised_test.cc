// Pages of int8 and float8_e4m3: the numbers that a cache would store, against the oracle on them.
#include <cmath>
#include <string>

#include "device_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quantised_buffer.h"
#include "src/cuda/plan.h"
#include "stored_buffer.h"

namespace heed::testing {
namespace {

class DeviceQuantised : public OnDevice {};
HEED_IN_EVERY_TYPE(DeviceQuantised);

// One page a sequence, each row with its scale.
QuantisedBuffer PagesOf(Buffer<float>& from, DType stored) {
  return {from, stored, from.shape()[1], from.shape()[2], Layout::kPadded};
}

void ExpectQuantisedMatches(AttentionCase c, DType dtype, DType stored, int64_t processors) {
  const Sizes& s = c.sizes;
  const StoredBuffer q(c.q, dtype, Layout::kDense);
  const QuantisedBuffer k = PagesOf(c.k, stored), v = PagesOf(c.v, stored);
  Buffer<float> blank({s.batch, s.num_heads, s.q_len, s.head_dim_v}, Layout::kDense, std::nanf(""));
  StoredBuffer output(blank, dtype, Layout::kDense);
  DeviceCall call;
  call.q = q.view(), call.k_pages = k.view(), call.v_pages = v.view();
  call.k_scales = k.scales.view(), call.v_scales = v.scales.view();
  call.options = c.options();
  call.outputs.stored_output = output.output();
  for (int32_t b = 0; b < s.batch; ++b) call.table.push_back(b);
  call.table_width = 1;
  call.processors = processors;
  EXPECT_EQ(RunOnDevice(call), "");
  ExpectWithinDeviceBounds(c, dtype,
                           {.output = output.Widened(), .lse = {}, .weights = {}, .scores = {}});
}

AttentionCase Decoding(int64_t kv_len) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 6,
                              .num_kv_heads = 2,
                              .q_len = 1,
                              .kv_len = kv_len,
                              .head_dim = 40,
                              .head_dim_v = 24});
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::End();
  c.key_lengths = {static_cast<int32_t>(kv_len), static_cast<int32_t>(kv_len / 3)};
  return c;
}

TEST_P(DeviceQuantised, DecodingMatchesTheReference) {
  for (const DType stored : {DType::kInt8, DType::kFloat8E4M3}) {
    ExpectQuantisedMatches(Decoding(70), GetParam(), stored, 1);
    ExpectQuantisedMatches(Decoding(600), GetParam(), stored, 64);  // split
  }
}

// Their scales are below what float16 holds in full.
TEST_P(DeviceQuantised, SmallValuesKeepTheirPrecision) {
  AttentionCase c = Decoding(600);
  c.v.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x *= 1e-4f; });
  for (const DType stored : {DType::kInt8, DType::kFloat8E4M3}) {
    ExpectQuantisedMatches(c, GetParam(), stored, 64);
  }
}

TEST_P(DeviceQuantised, TheRowKernelReadsThemToo) {
  AttentionCase c = Decoding(90);
  c.scalars.normalize = Normalize::kSparsemax;
  for (const DType stored : {DType::kInt8, DType::kFloat8E4M3}) {
    ExpectQuantisedMatches(c, GetParam(), stored, 2);
  }
}

// A cache stores rows that are not finite as NaN: behind the length they reach nobody.
TEST_P(DeviceQuantised, HiddenNaNReachesNoRow) {
  AttentionCase c = Decoding(70);
  c.k(1, 0, 40, 3) = c.v(1, 1, 30, 2) = std::nanf("");
  ExpectQuantisedMatches(c, GetParam(), DType::kFloat8E4M3, 1);
}

TEST(DeviceQuantisedPages, ScalesAndTypesGoTogether) {
  AttentionCase c = Decoding(8);
  const QuantisedBuffer k = PagesOf(c.k, DType::kInt8), v = PagesOf(c.v, DType::kInt8);
  Buffer<float> output({2, 6, 1, 24}, Layout::kDense, 0);
  const int32_t table[] = {0, 1};
  const auto refused = [&](const cuda::PagedKeys& keys) {
    try {
      cuda::ValidateForDevice(StoredTensor(c.q.view()), keys, {}, {.output = output.view()}, {});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  EXPECT_EQ(refused({k.view(), v.view(), table, 1, k.scales.view(), v.scales.view()}),
            "not refused");
  EXPECT_THAT(refused({k.view(), v.view(), table, 1, {}, v.scales.view()}),
              ::testing::HasSubstr("k_scales is missing"));
  EXPECT_THAT(
      refused({StoredTensor(c.k.view()), v.view(), table, 1, k.scales.view(), v.scales.view()}),
      ::testing::HasSubstr("k_scales is given"));
}

}  // namespace
}  // namespace heed::testing
