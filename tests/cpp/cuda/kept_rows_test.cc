// Which keys rows keep, as steps write it: the words themselves, attention that reads them, and the
// memory that choices take.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attention_case.h"
#include "device_case.h"
#include "gtest/gtest.h"
#include "host_block.h"
#include "kept_memory.h"
#include "request_builder.h"
#include "src/cuda/kept_row_writer.h"
#include "src/cuda/request_call.h"
#include "src/cuda/step_checks.h"

namespace heed::testing {
namespace {

// Kept rows that a test writes itself.
struct WrittenRows : KeptMemory {
  using KeptMemory::KeptMemory;

  template <class Keeps>
  int64_t Write(int64_t row, int64_t end, const Keeps& keeps) {
    HostBlock block;
    cuda::KeptRowWriter<HostBlock> writer(block, rows);
    const int64_t written = writer.Write(row, end, keeps);
    EXPECT_EQ(block.complaint(), "");
    EXPECT_EQ(block.shared_bytes(), cuda::KeptRowWriter<HostBlock>::kSharedBytes);
    return written;
  }
};

TEST(KeptRows, HoldTheWordsThatKeepAKey) {
  WrittenRows memory(1, 1, 1, 3, 4);
  const std::vector<int64_t> kept = {0, 63, 64 * 130 + 5, 64 * 300 + 63};  // three rounds of words
  const auto keeps = [&](int64_t j) { return std::count(kept.begin(), kept.end(), j) > 0; };
  EXPECT_EQ(memory.Write(1, 64 * 301, keeps), 3);
  EXPECT_EQ(memory.starts[1], 4);
  EXPECT_EQ(memory.ends[1], 7);
  EXPECT_EQ(memory.tiles, (std::vector<int32_t>{-1, -1, -1, -1, 0, 130, 300, -1, -1, -1, -1, -1}));
  EXPECT_EQ(memory.words[4], uint64_t{1} | uint64_t{1} << 63);
  EXPECT_EQ(memory.words[5], uint64_t{1} << 5);
  EXPECT_EQ(memory.words[6], uint64_t{1} << 63);
}

TEST(KeptRows, EndWhereTheyAreToldTo) {
  WrittenRows memory(1, 1, 1, 1, 2);
  EXPECT_EQ(memory.Write(0, 70, [](int64_t) { return true; }), 2);
  EXPECT_EQ(memory.words[0], ~uint64_t{0});
  EXPECT_EQ(memory.words[1], uint64_t{63});
  EXPECT_EQ(memory.Write(0, 0, [](int64_t) { return true; }), 0);
  EXPECT_EQ(memory.starts[0], memory.ends[0]);
}

TEST(KeptRows, AreSharedByTheHeadsOfAList) {
  WrittenRows memory(2, 2, 3, 2, 1);
  for (int64_t row = 0; row < 8; ++row) memory.Write(row, 1, [](int64_t) { return true; });
  for (size_t n = 0; n < memory.ids.size(); ++n) {
    const size_t list = n / 2 / 3, query = n % 2;
    EXPECT_EQ(memory.ids[n], static_cast<int32_t>(list * 2 + query)) << n;
  }
  EXPECT_EQ(memory.rows.seen().patterns.head_stride, 2);
  WrittenRows of_all(2, 1, 1, 2, 1);
  EXPECT_EQ(of_all.rows.seen().patterns.head_stride, 0);
}

TEST(KeptRows, CountWordsOfBlocksAndRuns) {
  EXPECT_EQ(cuda::WordsOfBlocks(5, 1), 5);
  EXPECT_EQ(cuda::WordsOfBlocks(5, 16), 5);
  EXPECT_EQ(cuda::WordsOfBlocks(5, 128), 10);
  for (int64_t run = 1; run <= 200; ++run) {
    int64_t most = 0, most_of_block = 0;
    for (int64_t begin = 0; begin < 64 * 200; ++begin) {
      const int64_t words = (begin + run - 1) / 64 - begin / 64 + 1;
      most = std::max(most, words);
      if (begin % run == 0) most_of_block = std::max(most_of_block, words);
    }
    EXPECT_EQ(cuda::WordsOfRun(run), most) << run;
    EXPECT_GE(cuda::WordsOfBlocks(1, run), most_of_block) << run;
  }
}

constexpr int64_t kPage = 32;

// The tokens of batch entry b, in order, are pages b * (kv_len / kPage) and on.
Buffer<float> PagesOf(Buffer<float>& rows) {
  const auto [batch, heads, len, width] = rows.view().shape;
  const int64_t pages = len / kPage;
  Buffer<float> pool({batch * pages, heads, kPage, width}, Layout::kDense, std::nanf(""));
  rows.ForEach([&](int64_t b, int64_t h, int64_t j, int64_t d, float& x) {
    pool(b * pages + j / kPage, h, j % kPage, d) = x;
  });
  return pool;
}

// Attention over what rows keep. Each batch entry has one block of rows; pages of which no row of
// it keeps a key do not exist, and a look-up of one is told.
TEST(KeptRows, LeaveTilesUnreadThatNobodyKeeps) {
  const Sizes sizes = {.batch = 2, .num_heads = 2, .num_kv_heads = 1, .q_len = 3, .kv_len = 1024};
  AttentionCase c = MakeCase(sizes);
  WrittenRows memory(2, 1, 1, 3, 2);
  // Of each query half a word, and 5 keys of another that all keep.
  const auto keeps = [](int64_t row, int64_t j) {
    return j / kPage == 5 + 2 * row || (j >= 640 && j < 645);
  };
  c.keep = Buffer<uint8_t>({2, 1, 3, 1024}, Layout::kDense, 0);
  std::vector<int32_t> table(64, 1 << 30);
  for (int64_t row = 0; row < 6; ++row) {
    memory.Write(row, 1024, [&](int64_t j) { return keeps(row, j); });
    for (int64_t j = 0; j < 1024; ++j) {
      if (!keeps(row, j)) continue;
      c.keep(row / 3, 0, row % 3, j) = 1;
      const int64_t page = row / 3 * 32 + j / kPage;
      table[static_cast<size_t>(page)] = static_cast<int32_t>(page);
    }
  }
  Results results;
  results.output = Buffer<float>({2, 2, 3, sizes.head_dim_v}, Layout::kDense, std::nanf(""));
  results.lse = Buffer<float>({2, 2, 3, 1}, Layout::kDense, std::nanf(""));
  const Buffer<float> k = PagesOf(c.k), v = PagesOf(c.v);
  for (const int64_t processors : {1, 40}) {
    const cuda::SeenRules seen = memory.rows.seen();
    DeviceCall call;
    call.q = StoredTensor(c.q.view());
    call.k_pages = StoredTensor(k.view());
    call.v_pages = StoredTensor(v.view());
    call.outputs.output = results.output.view();
    call.outputs.lse = results.lse.view();
    call.table = table;
    call.table_width = 32;
    call.processors = processors;
    call.seen = &seen;
    EXPECT_EQ(RunOnDevice(call), "");
    ExpectWithinDeviceBounds(c, DType::kFloat32, results);
  }
}

// Steps that are checked and not made; adds up what they would allocate, with few scores at a time.
class CountedSteps : public cuda::StepChecks {
 public:
  int64_t ScoreBytes() const override { return int64_t{1} << 20; }
  char* AllocateBytes(size_t bytes) override {
    bytes_ += static_cast<double>(bytes);
    return StepChecks::AllocateBytes(bytes);
  }
  double bytes() const { return bytes_; }

 private:
  double bytes_ = 0;
};

double BytesOf(const std::string& id, int64_t len) {
  RequestBuilder r(id);
  const auto floats = [&](const char* name, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    r.Floats(name, shape, std::vector<float>(static_cast<size_t>(count)));
  };
  for (const char* name : {"q", "k", "v"}) {
    if (id == "reformer" && *name == 'k') continue;
    floats(name, {1, 2, len, 1});
  }
  if (id == "block_mixture") r.Param("key_block", 64.0).Param("top_blocks", 8.0);
  if (id == "quest") r.Param("page_size", 16.0).Param("top_pages", 32.0);
  if (id == "indexed") {
    r.Param("top_k", 64.0);
    floats("index_q", {1, 1, len, 1});
    floats("index_k", {1, len, 1});
    floats("index_weights", {1, 1, len});
  }
  if (id == "native_sparse") {
    floats("branch_gates", {1, 2, len, 3});
    r.Param("compress_block", 32.0).Param("compress_stride", 16.0).Param("key_block", 64.0);
    r.Param("top_blocks", 16.0).Param("window_len", 512.0);
  }
  if (id == "routing") r.Param("num_clusters", 16.0).Param("cluster_tokens", 256.0);
  if (id == "reformer") r.Param("hash_chunk", 64.0).Param("hash_buckets", 64.0);
  if (id == "heavy_hitter") r.Param("recent_tokens", 128.0).Param("heavy_tokens", 128.0);
  if (id == "streaming") r.Param("recent_tokens", 512.0).Param("sink_tokens", 4.0);
  CountedSteps steps;
  const cuda::RequestCall call(r.request());
  std::vector<std::vector<float>> memory;
  std::vector<NamedTensor> outputs;
  for (const OutputSpec& spec : call.outputs()) {
    const std::span<const int64_t> shape(spec.shape.data(), static_cast<size_t>(spec.rank));
    memory.emplace_back(static_cast<size_t>(2 * len));
    outputs.push_back({spec.name, ContiguousTensor(DType::kFloat32, memory.back().data(), shape)});
  }
  call.Run(steps, outputs);
  return steps.bytes();
}

// Twice the tokens take twice the memory beside the scores.
TEST(KeptRows, GrowWithTheTokensAndNotWithTheirSquare) {
  constexpr int64_t kLen = 16384;
  for (const char* id : {"block_mixture", "quest", "indexed", "native_sparse", "routing",
                         "reformer", "heavy_hitter", "streaming"}) {
    const double one = BytesOf(id, kLen), two = BytesOf(id, 2 * kLen), four = BytesOf(id, 4 * kLen);
    EXPECT_LE(four - two, 2.3 * (two - one)) << id;
    // A byte for every pair of both heads would be 8 GiB. Rows of a Reformer may touch 512 words.
    EXPECT_LT(four, id == std::string("reformer") ? 900e6 : 400e6) << id;
  }
}

}  // namespace
}  // namespace heed::testing
