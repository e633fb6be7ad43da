// Mechanisms by name on the device path, at their edges: choices among equal scores, keys that are
// hidden and hold NaN, entries without keys. Against heed::Run().
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "device_request.h"
#include "gtest/gtest.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kBound = 2e-5;  // sums of a few numbers of size 1

class DeviceRequestEdges : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }
};

void ExpectNear(const Values& actual, const Values& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [name, values] : expected) {
    for (size_t n = 0; n < values.size(); ++n) {
      const double x = actual.at(name)[n];
      if (x == values[n]) continue;  // infinities too
      ASSERT_NEAR(x, values[n], kBound) << what << ": " << name << "[" << n << "]";
    }
  }
}

// Whole numbers from -1 to 1: products of them tie.
std::vector<float> SmallNumbers(size_t count, uint32_t seed) {
  std::vector<float> values;
  for (uint32_t state = seed; values.size() < count;) {
    state = state * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(static_cast<int>((state >> 24) % 3) - 1));
  }
  return values;
}

// Numbers of [-1, 1) that differ.
std::vector<float> Numbers(size_t count, uint32_t seed) {
  std::vector<float> values;
  for (uint32_t state = seed; values.size() < count;) {
    state = state * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(state >> 8) * 0x1p-23f - 1);
  }
  return values;
}

constexpr int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kLen = 21, kDim = 3;
constexpr size_t kQueries = kBatch * kHeads * kLen * kDim, kKeys = kBatch * kKvHeads * kLen * kDim;

// What the compressed branch and the window of native_sparse read in place of k and v.
void AddTokensOfBranches(RequestBuilder& r, uint32_t seed) {
  r.Floats("compress_k", {kBatch, kKvHeads, kLen, kDim}, SmallNumbers(kKeys, seed + 4));
  r.Floats("compress_v", {kBatch, kKvHeads, kLen, kDim}, Numbers(kKeys, seed + 5));
  r.Floats("window_k", {kBatch, kKvHeads, kLen, kDim}, SmallNumbers(kKeys, seed + 6));
  r.Floats("window_v", {kBatch, kKvHeads, kLen, kDim}, Numbers(kKeys, seed + 7));
}

// The requests that choose, of which several blocks are chosen among many.
RequestBuilder Choosing(const std::string& id, uint32_t seed) {
  RequestBuilder r(id);
  r.Floats("q", {kBatch, kHeads, kLen, kDim}, SmallNumbers(kQueries, seed));
  r.Floats("v", {kBatch, kKvHeads, kLen, kDim}, Numbers(kKeys, seed + 2));
  if (id != "reformer") {
    r.Floats("k", {kBatch, kKvHeads, kLen, kDim}, SmallNumbers(kKeys, seed + 1));
  }
  if (id == "block_mixture") r.Param("key_block", 2.0).Param("top_blocks", 3.0);
  if (id == "quest") r.Param("page_size", 3.0).Param("top_pages", 3.0);
  if (id == "indexed") {
    constexpr int64_t kIndexHeads = 2;
    r.Param("top_k", 5.0);
    r.Floats("index_q", {kBatch, kIndexHeads, kLen, 2}, SmallNumbers(kBatch * 2 * kLen * 2, seed));
    r.Floats("index_k", {kBatch, kLen, 2}, SmallNumbers(kBatch * kLen * 2, seed + 3));
    r.Floats("index_weights", {kBatch, kIndexHeads, kLen}, SmallNumbers(kBatch * 2 * kLen, seed));
  }
  if (id == "native_sparse") {
    r.Floats("branch_gates", {kBatch, kHeads, kLen, 3},
             SmallNumbers(kBatch * kHeads * kLen * 3, 7));
    r.Param("compress_block", 4.0).Param("compress_stride", 2.0).Param("key_block", 3.0);
    r.Param("top_blocks", 4.0).Param("window_len", 4.0);
    if (seed % 2 == 1) AddTokensOfBranches(r, seed);
  }
  if (id == "routing") r.Param("num_clusters", 4.0).Param("centroid_seed", 5.0);
  if (id == "reformer") r.Param("hash_chunk", 4.0).Param("hash_buckets", 4.0);
  if (id == "heavy_hitter") r.Param("recent_tokens", 3.0).Param("heavy_tokens", 4.0);
  if (id == "streaming") r.Param("recent_tokens", 3.0).Param("sink_tokens", 2.0);
  if (id == "sinkhorn") r.Param("key_block", 4.0);
  return r;
}

constexpr const char* kChoosing[] = {"block_mixture", "quest",        "indexed",
                                     "native_sparse", "routing",      "reformer",
                                     "streaming",     "heavy_hitter", "sinkhorn"};

bool HasWeights(const std::string& id) { return id != "native_sparse" && id != "sinkhorn"; }

TEST_F(DeviceRequestEdges, ChoosesAsTheCpuDoesWhereScoresTie) {
  for (const char* id : kChoosing) {
    for (uint32_t seed = 1; seed < 9; ++seed) {
      RequestBuilder r = Choosing(id, seed);
      if (HasWeights(id)) r.Param("return_weights", true);
      const Values expected = RunByName(r.request()), actual = RunOnDevice(r.request());
      const std::string what = std::string(id) + ", seed " + std::to_string(seed);
      ExpectNear(actual, expected, what);
      if (!HasWeights(id)) continue;
      for (size_t n = 0; n < expected.at("weights").size(); ++n) {
        ASSERT_EQ(actual.at("weights")[n] == 0, expected.at("weights")[n] == 0)
            << what << ": key " << n % kLen << " of query " << n / kLen % kLen;
      }
    }
  }
}

// The gates of an average are part of its scores, though its weights do not follow them.
TEST_F(DeviceRequestEdges, AddsGatesToTheScoresOfAnAverage) {
  RequestBuilder r("average");
  constexpr int64_t kTokens = 5;
  r.Floats("q", {1, 1, kTokens, 1}, Numbers(kTokens, 1))
      .Floats("k", {1, 1, kTokens, 1}, Numbers(kTokens, 2));
  r.Floats("v", {1, 1, kTokens, 1}, Numbers(kTokens, 3));
  r.Floats("log_gates", {1, 1, kTokens}, {-1, -0.5, -2, -0.25, -1});
  r.Param("causal", true).Param("return_scores", std::string("biased"));
  ExpectNear(RunOnDevice(r.request()), RunByName(r.request()), "average");
}

// Keys, values and what belongs to them of tokens beyond the lengths become NaN.
void PoisonBeyond(Request& request, const std::vector<int32_t>& lengths, const std::string& id) {
  const bool all = id == "reformer" || id == "sinkhorn" || id == "heavy_hitter";
  for (NamedTensor& input : request.inputs) {
    const AnyTensor& t = input.tensor;
    constexpr std::string_view kKeysAndValues[] = {
        "k", "v", "index_k", "compress_k", "compress_v", "window_k", "window_v"};
    const bool of_keys = std::find(std::begin(kKeysAndValues), std::end(kKeysAndValues),
                                   input.name) != std::end(kKeysAndValues);
    if (!of_keys && !(all && input.name == "q")) continue;
    const size_t axis = static_cast<size_t>(t.rank) - 2;
    const int64_t width = t.shape[axis + 1], rows = t.shape[axis];
    const int64_t of_entry = axis == 2 ? t.shape[1] * rows : rows;
    for (int64_t row = 0; row < t.shape[0] * of_entry; ++row) {
      if (row % rows < lengths[static_cast<size_t>(row / of_entry)]) continue;
      std::fill_n(static_cast<float*>(t.data) + row * width, width, kNan);
    }
  }
}

// A request of a row that is composed around exact attention.
RequestBuilder Composed(const std::string& id) {
  if (std::find(std::begin(kChoosing), std::end(kChoosing), id) != std::end(kChoosing)) {
    return Choosing(id, 3);
  }
  RequestBuilder r(id);
  constexpr int64_t kWidth = 4;
  const auto rows = [](int64_t heads) {
    return static_cast<size_t>(kBatch * heads * kLen * kWidth);
  };
  if (id != "attention_pooling" && id != "synthesizer") {
    r.Floats("q", {kBatch, kHeads, kLen, kWidth}, Numbers(rows(kHeads), 1));
  }
  if (id != "synthesizer") {
    r.Floats("k", {kBatch, kKvHeads, kLen, kWidth}, Numbers(rows(kKvHeads), 2));
    r.Floats("v", {kBatch, kKvHeads, kLen, kWidth}, Numbers(rows(kKvHeads), 3));
  } else {
    r.Floats("v", {kBatch, kHeads, kLen, kWidth}, Numbers(rows(kHeads), 3));
    r.Floats("synthetic_scores", {kHeads, kLen, kLen}, Numbers(kHeads * kLen * kLen, 4));
  }
  if (id == "attention_pooling") r.Floats("queries", {kHeads, 3, kWidth}, Numbers(kHeads * 12, 1));
  if (id == "gated") r.Floats("output_gate", {1, 1, 1, kWidth}, {1, -1, kNan, 2});
  if (id == "hopfield") r.Param("steps", 3.0);
  if (id == "talking_heads") {
    r.Floats("mix_scores", {kHeads, kHeads}, Numbers(kHeads * kHeads, 5));
    r.Floats("mix_weights", {kHeads, kHeads}, Numbers(kHeads * kHeads, 6));
  }
  return r;
}

// The second entry has no token at all.
TEST_F(DeviceRequestEdges, PassesOverWhatTokensBeyondTheLengthsHold) {
  std::vector<std::string> ids(std::begin(kChoosing), std::end(kChoosing));
  for (const char* id : {"differential", "talking_heads", "hopfield", "gated", "attention_pooling",
                         "synthesizer", "attention_free"}) {
    ids.push_back(id);
  }
  const std::vector<int32_t> lengths = {13, 0};
  for (const std::string& id : ids) {
    RequestBuilder r = Composed(id);
    r.Integers("key_lengths", {kBatch}, lengths);
    Request request = r.request();
    PoisonBeyond(request, lengths, id);
    const Values expected = RunByName(request), actual = RunOnDevice(request);
    for (size_t n = 0; n < expected.at("output").size(); ++n) {
      const double x = actual.at("output")[n], y = expected.at("output")[n];
      if (std::isnan(y)) {
        ASSERT_EQ(id, "gated") << "only its gate is NaN";
        ASSERT_TRUE(std::isnan(x)) << id << " at " << n;
      } else {
        ASSERT_NEAR(x, y, kBound) << id << " at " << n;
      }
    }
  }
}

}  // namespace
}  // namespace heed::testing
