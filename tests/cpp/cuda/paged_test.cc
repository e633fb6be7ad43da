// Keys in pages, and arrays that only the device can read.
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "device_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "stored_buffer.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

class DevicePages : public OnDevice {};
HEED_IN_EVERY_TYPE(DevicePages);

// A case whose keys also lie in shuffled pages of a pool full of NaN.
struct PagedCase {
  AttentionCase dense;
  int64_t page_size;
  Buffer<float> k_pool, v_pool;
  std::vector<int32_t> table;

  PagedCase(const AttentionCase& c, int64_t page) : dense(c), page_size(page) {
    const Sizes& s = c.sizes;
    const int64_t width = s.kv_len / page, pages = s.batch * width + 3;
    k_pool =
        Buffer<float>({pages, s.num_kv_heads, page, s.head_dim}, Layout::kDense, std::nanf(""));
    v_pool =
        Buffer<float>({pages, s.num_kv_heads, page, s.head_dim_v}, Layout::kDense, std::nanf(""));
    for (int64_t n = 0; n < s.batch * width; ++n) {
      // A step that shares no factor with the number of places visits each once.
      table.push_back(static_cast<int32_t>(1 + n * 7 % (s.batch * width)));
    }
    Copy(c.k, k_pool);
    Copy(c.v, v_pool);
  }

  void Copy(const Buffer<float>& from, Buffer<float>& pool) {
    const Sizes& s = dense.sizes;
    const_cast<Buffer<float>&>(from).ForEach(
        [&](int64_t b, int64_t h, int64_t j, int64_t d, float& x) {
          const int64_t at = b * (s.kv_len / page_size) + j / page_size;
          pool(table[static_cast<size_t>(at)], h, j % page_size, d) = x;
        });
  }
};

// Runs the paged form; the dense one is rounded to the type, for the oracle.
struct PagedRun {
  Results results;
  std::string fault;
};
PagedRun RunPaged(PagedCase& c, DType dtype, std::vector<int32_t> device_lengths,
                  int64_t processors) {
  const Sizes& s = c.dense.sizes;
  const StoredBuffer q(c.dense.q, dtype, Layout::kDense), k(c.dense.k, dtype, Layout::kDense),
      v(c.dense.v, dtype, Layout::kDense), k_pool(c.k_pool, dtype, Layout::kDense),
      v_pool(c.v_pool, dtype, Layout::kDense);
  Buffer<float> blank({s.batch, s.num_heads, s.q_len, s.head_dim_v}, Layout::kDense, std::nanf(""));
  StoredBuffer output(blank, dtype, Layout::kDense);
  PagedRun run;
  run.results.lse =
      Buffer<float>({s.batch, s.num_heads, s.q_len, 1}, Layout::kDense, std::nanf(""));
  DeviceCall call;
  call.q = q.view(), call.k_pages = k_pool.view(), call.v_pages = v_pool.view();
  call.options = c.dense.options();
  if (!device_lengths.empty()) call.options.key_lengths = {};
  call.key_lengths = std::move(device_lengths);
  call.outputs.stored_output = output.output();
  call.outputs.lse = run.results.lse.view();
  call.table = c.table;
  call.table_width = s.kv_len / c.page_size;
  call.processors = processors;
  run.fault = RunOnDevice(call);
  run.results.output = output.Widened();
  return run;
}

AttentionCase Decoding(int64_t q_len, int64_t head_dim = 32, int64_t head_dim_v = 24) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 8,
                              .num_kv_heads = 2,
                              .q_len = q_len,
                              .kv_len = 480,
                              .head_dim = head_dim,
                              .head_dim_v = head_dim_v});
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::End();
  c.key_lengths = {301, 480};
  return c;
}

TEST_P(DevicePages, PagesAreReadThroughTheTable) {
  for (const int64_t page_size : {1, 5, 16, 120}) {
    for (const int64_t processors : {1, 40}) {
      PagedCase c(Decoding(3), page_size);
      const PagedRun run = RunPaged(c, GetParam(), {}, processors);
      EXPECT_EQ(run.fault, "");
      ExpectWithinDeviceBounds(c.dense, GetParam(), run.results);
    }
  }
}

// 8 tokens a page are too few for the kernel of single queries, and 48 no power of two.
TEST_P(DevicePages, SingleQueriesReadThemToo) {
  for (const int64_t columns : {64, 128}) {
    for (const int64_t page_size : {8, 16, 32, 48}) {
      PagedCase c(Decoding(1, columns, columns), page_size);
      const PagedRun run = RunPaged(c, GetParam(), {301, 480}, page_size == 32 ? 40 : 1);
      EXPECT_EQ(run.fault, "");
      ExpectWithinDeviceBounds(c.dense, GetParam(), run.results);
    }
  }
}

TEST_P(DevicePages, LengthsAndTheirEndMayLieOnTheDevice) {
  PagedCase c(Decoding(2), 16);
  const PagedRun run = RunPaged(c, GetParam(), {301, 480}, 40);
  EXPECT_EQ(run.fault, "");
  ExpectWithinDeviceBounds(c.dense, GetParam(), run.results);
}

// Columns of keys and of values: those of the kernel for few rows, and of that of single queries.
constexpr std::pair<int64_t, int64_t> kColumns[] = {{32, 24}, {64, 64}, {128, 128}};

// 288 tokens are 18 pages, the others 19, of which the last is seen in part.
TEST_P(DevicePages, TableEntriesBeyondTheLengthAreNotRead) {
  for (const auto& [head_dim, head_dim_v] : kColumns) {
    for (const int32_t length : {288, 289, 301}) {
      for (const int64_t processors : {1, 40}) {
        AttentionCase dense = Decoding(1, head_dim, head_dim_v);
        dense.key_lengths = {length, 480};
        PagedCase c(dense, 16);
        for (size_t page = length > 288 ? 19 : 18; page < 30; ++page) c.table[page] = 1 << 30;
        const PagedRun run = RunPaged(c, GetParam(), {}, processors);
        EXPECT_EQ(run.fault, "");
        ExpectWithinDeviceBounds(c.dense, GetParam(), run.results);
      }
    }
  }
}

// The query stands at 300 or 479, so a window of 70 begins at 230 and 409: in pages 14 and 25.
TEST_P(DevicePages, TableEntriesBeforeTheWindowAreNotRead) {
  for (const auto& [head_dim, head_dim_v] : kColumns) {
    PagedCase c(Decoding(1, head_dim, head_dim_v), 16);
    c.dense.scalars.window = Window{70, 0};
    for (size_t page = 0; page < 14; ++page) c.table[page] = -1;
    for (size_t page = 30; page < 30 + 25; ++page) c.table[page] = -1;
    const PagedRun run = RunPaged(c, GetParam(), {301, 480}, 1);
    EXPECT_EQ(run.fault, "");
    ExpectWithinDeviceBounds(c.dense, GetParam(), run.results);
  }
}

// A look-up of such a page would be told.
TEST_P(DevicePages, TilesThatPatternsHideAreNotRead) {
  for (const int64_t processors : {1, 40}) {
    PagedCase c(Decoding(2), 16);
    c.dense.key_lengths.clear();
    c.dense.lists.q_block = 2;
    c.dense.lists.block_keep = Buffer<uint8_t>({1, 1, 1, 8}, Layout::kDense, 0);
    for (const int64_t block : {1, 2, 6}) c.dense.lists.block_keep(0, 0, 0, block) = 1;
    for (size_t page = 0; page < c.table.size(); ++page) {
      const size_t block = page % 30 / 4;
      if (block != 1 && block != 2 && block != 6) c.table[page] = 1 << 30;
    }
    const PagedRun run = RunPaged(c, GetParam(), {}, processors);
    EXPECT_EQ(run.fault, "");
    ExpectWithinDeviceBounds(c.dense, GetParam(), run.results);
  }
}

TEST_P(DevicePages, APageThatDoesNotExistIsToldAndCountsAsZeros) {
  for (const int64_t columns : {24, 64}) {
    PagedCase c(Decoding(1, columns, columns), 16);
    c.table[4] = -3;
    const PagedRun run = RunPaged(c, GetParam(), {}, 1);
    EXPECT_THAT(run.fault, HasSubstr("the page table holds -3 at [4]"));
    for (int64_t j = 64; j < 80; ++j) {
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t d = 0; d < columns; ++d) c.dense.k(0, h, j, d) = c.dense.v(0, h, j, d) = 0;
      }
    }
    ExpectWithinDeviceBounds(c.dense, GetParam(), run.results);
  }
}

TEST_P(DevicePages, ALengthOutsideIsToldAndTakenAsTheNearestInside) {
  for (const auto& [head_dim, head_dim_v] : kColumns) {
    PagedCase c(Decoding(1, head_dim, head_dim_v), 16);
    const PagedRun run = RunPaged(c, GetParam(), {301, 481}, 1);
    EXPECT_THAT(run.fault, HasSubstr("key_lengths holds 481 at [1]"));
    ExpectWithinDeviceBounds(c.dense, GetParam(), run.results);
  }
}

TEST_P(DevicePages, DocumentsMayLieOnTheDevice) {
  AttentionCase c = Decoding(70);
  c.key_lengths.clear();
  c.scalars.causal = false;
  for (int i = 0; i < 70; ++i) c.query_documents.push_back(i / 30);
  for (int j = 0; j < 480; ++j) c.key_documents.push_back(j / 190 - (j > 400 ? 5 : 0));
  const Results host = RunDevice(c, GetParam());
  ExpectWithinDeviceBounds(c, GetParam(), host);
  DeviceCall call;
  const StoredBuffer q(c.q, GetParam(), Layout::kDense), k(c.k, GetParam(), Layout::kDense),
      v(c.v, GetParam(), Layout::kDense);
  Buffer<float> output({2, 8, 70, 24}, Layout::kDense, std::nanf(""));
  call.q = q.view(), call.k = k.view(), call.v = v.view();
  call.options.query_offset = QueryOffset::End();
  call.query_documents = c.query_documents;
  call.key_documents = c.key_documents;
  call.outputs.stored_output = output.view();
  EXPECT_EQ(RunOnDevice(call), "");
  Results device;
  device.output = output;
  ExpectWithinDeviceBounds(c, GetParam(), device);
}

}  // namespace
}  // namespace heed::testing
