// Few rows and many keys: splits, their merge by the last block or a second kernel, and entries of
// different lengths.
#include <limits>
#include <vector>

#include "device_case.h"
#include "gtest/gtest.h"
#include "shared_cases.h"

namespace heed::testing {
namespace {

class DeviceDecode : public OnDevice {};
HEED_IN_EVERY_TYPE(DeviceDecode);

constexpr int64_t kProcessors = 132;

AttentionCase Decoding(int64_t batch, int64_t head_dim_v = 24, int64_t head_dim = 40) {
  AttentionCase c = MakeCase({.batch = batch,
                              .num_heads = 8,
                              .num_kv_heads = 2,
                              .q_len = 1,
                              .kv_len = 900,
                              .head_dim = head_dim,
                              .head_dim_v = head_dim_v});
  c.sinks = {0, 1, 2, 3, -1, -2, 0.5, 9};
  return c;
}

// In every order of blocks, the last one's merge has the bits of the second kernel's.
void ExpectOneMerge(AttentionCase c, DType dtype) {
  const Results apart = RunDevice(c, dtype, {.processors = kProcessors, .merges_apart = true});
  ExpectWithinDeviceBounds(c, dtype, apart);
  for (const uint64_t order : {0, 1, 2, 3}) {
    const Results merged =
        RunDevice(c, dtype, {.processors = kProcessors, .block_order = order, .must_merge = true});
    EXPECT_EQ(Bits(apart.output), Bits(merged.output)) << "order " << order;
    EXPECT_EQ(Bits(apart.lse), Bits(merged.lse)) << "order " << order;
  }
}

TEST_P(DeviceDecode, TheLastBlockMergesInAnyOrder) { ExpectOneMerge(Decoding(2), GetParam()); }

TEST_P(DeviceDecode, EntriesAreSplitByTheirOwnLengths) {
  AttentionCase c = Decoding(5);
  for (const std::vector<int32_t>& lengths :
       {std::vector<int32_t>{900, 130, 0, 5, 64}, {3, 900, 1, 1, 1}}) {
    c.key_lengths = lengths;
    ExpectOneMerge(c, GetParam());
  }
  c.key_lengths = {0, 0, 0, 0, 1};  // nothing to split
  ExpectDeviceMatches(c, GetParam(), {.processors = kProcessors});
}

// Those of the kernel of single queries.
TEST_P(DeviceDecode, WholeColumnsMergeToo) {
  for (const int64_t columns : {64, 128}) {
    AttentionCase c = Decoding(2, columns, columns);
    c.key_lengths = {900, 333};
    ExpectOneMerge(c, GetParam());
  }
}

TEST_P(DeviceDecode, WhatIsNotFiniteMergesToo) {
  for (const int64_t columns : {40, 64, 128}) {
    AttentionCase c = Decoding(1, columns, columns);
    c.v(0, 0, 500, 3) = -std::numeric_limits<float>::quiet_NaN();
    c.v(0, 1, 899, 7) = std::numeric_limits<float>::infinity();
    c.k(0, 1, 20, 1) = std::numeric_limits<float>::quiet_NaN();
    ExpectOneMerge(c, GetParam());
  }
}

TEST_P(DeviceDecode, RowsOfSeveralBlocksAndQueriesOfDifferentLengths) {
  AttentionCase c = CausalCase(Decoding(2).sizes, 20, 900);  // 80 packed rows
  c.key_lengths = {900, 77};
  ExpectDeviceMatches(c, GetParam(), {.processors = kProcessors});
  c.key_lengths.clear();
  c.scalars.query_offset = QueryOffset::At(880);
  for (int n = 0; n < 40; ++n) c.key_lengths.push_back(n < 20 ? 20 * n : 100 + n);
  ExpectDeviceMatches(c, GetParam(), {.processors = kProcessors});
}

TEST_P(DeviceDecode, NormalisersWithoutADenominatorMergeToo) {
  AttentionCase c = Decoding(2);
  c.sinks.clear();
  c.scalars.normalize = Normalize::kSigmoid;
  c.key_lengths = {900, 0};
  ExpectOneMerge(c, GetParam());
}

TEST_P(DeviceDecode, WideValuesAndNoValuesMerge) {
  for (const int64_t head_dim_v : {0, 1, 129, 256}) {
    ExpectOneMerge(Decoding(1, head_dim_v), GetParam());
  }
}

}  // namespace
}  // namespace heed::testing
