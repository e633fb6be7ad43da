// Quest: against the oracle, its limit, choices by hand, and how well bounds find the true keys.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/cache_policy.h"
#include "selective_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Quest : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Quest);

RequestBuilder MakeQuest(const SelectiveSizes& s, double page_size, double pages,
                         uint64_t seed = 1) {
  RequestBuilder builder = SelectiveRequest("quest", s, seed);
  builder.Param("page_size", page_size).Param("top_pages", pages);
  return builder;
}

TEST_P(Quest, MatchesReference) {
  uint64_t seed = 1;
  for (const SelectiveSizes& s : CrossSizes()) {
    for (const double page_size : {1, 7, 16, 100}) {
      RequestBuilder builder = MakeQuest(s, page_size, 3, seed++);
      builder.Param("return_weights", true).Param("return_lse", true);
      if (s.q_len != s.kv_len) builder.Param("query_offset", std::string("end"));
      ExpectChoiceMatchesOracle(builder.request(), "pages of " + std::to_string(page_size));
    }
  }
}

TEST_P(Quest, LengthsAndOffsetsMatchReference) {
  RequestBuilder builder = MakeQuest({3, 4, 2, 40, 90, 8, 6}, 8, 2);
  builder.Integers("key_lengths", {3}, {90, 0, 29})
      .Param("query_offset", std::vector<double>{50, 0, -7})
      .Param("return_lse", true);
  ExpectChoiceMatchesOracle(builder.request(), "lengths 90, 0 and 29");
}

TEST_P(Quest, ReducesToCausalAttentionWithAllPages) {
  for (const SelectiveSizes& s : SelfSizes()) {
    RequestBuilder quest = MakeQuest(s, 16, 1000, 9);
    RequestBuilder exact = SelectiveRequest("scaled_dot_product", s, 9);
    exact.Param("causal", true);
    ExpectSameOutput(quest.request(), exact.request());
  }
}

TEST_P(Quest, ChoosesWhatOneChoosesByHand) {
  // Pages of keys (3, -9), (1, 2), and the own one. q = 1 can score 3 in the first, 2 in the
  // second; q = -1 can score 9 and -1. Means would choose otherwise. Equal weights: mean indices.
  const auto run = [](float q) {
    RequestBuilder builder("quest");
    builder.Floats("q", {1, 1, 1, 1}, {q})
        .Floats("k", {1, 1, 5, 1}, {3, -9, 1, 2, 0})
        .Floats("v", {1, 1, 5, 1}, {0, 1, 2, 3, 4})
        .Param("scale", 0.0)
        .Param("query_offset", std::string("end"))
        .Param("page_size", 2.0)
        .Param("top_pages", 2.0);
    return RunByName(builder.request()).at("output")[0];
  };
  EXPECT_NEAR(run(1), 5 / 3.0, 1e-6);
  EXPECT_NEAR(run(-1), 5 / 3.0, 1e-6);
  EXPECT_NEAR(run(0), 5 / 3.0, 1e-6);  // of equal bounds the first
}

// The share of the 16 keys with the largest weights that lie in chosen pages, over all queries.
double Recall(double pages) {
  // Neighbouring tokens resemble each other, as those of a text do.
  std::vector<float> k = Normals(4 * 1024 * 32, 2);
  for (size_t n = 32; n < k.size(); ++n) k[n] = 0.9f * k[n - 32] + 0.44f * k[n];
  const auto weights = [&](const char* id) {
    RequestBuilder builder(id);
    builder.Floats("q", {1, 4, 8, 32}, Normals(4 * 8 * 32, 1))
        .Floats("k", {1, 4, 1024, 32}, k)
        .Floats("v", {1, 4, 1024, 4}, Normals(4 * 1024 * 4, 3))
        .Param("query_offset", std::string("end"))
        .Param("return_weights", true);
    if (std::string_view(id) == "quest") {
      builder.Param("top_pages", pages);
    } else {
      builder.Param("causal", true);
    }
    return RunByName(builder.request()).at("weights");
  };
  const std::vector<double> exact = weights("scaled_dot_product"), chosen = weights("quest");
  double found = 0;
  for (size_t row = 0; row < 32; ++row) {
    std::vector<size_t> order(1024);
    std::iota(order.begin(), order.end(), row * 1024);
    std::partial_sort(order.begin(), order.begin() + 16, order.end(),
                      [&](size_t a, size_t b) { return exact[a] > exact[b]; });
    for (size_t n = 0; n < 16; ++n) found += chosen[order[n]] > 0 ? 1 : 0;
  }
  return found / (32 * 16);
}

TEST(QuestRecall, BoundsFindTheKeysThatMatter) {
  // 64 pages of 16 tokens; a quarter of them holds most of the largest keys.
  const double few = Recall(4), some = Recall(16), all = Recall(64);
  RecordProperty("recall_of_4_pages", std::to_string(few));
  RecordProperty("recall_of_16_pages", std::to_string(some));
  EXPECT_GT(few, 2 * 4 / 64.0);  // far better than chance
  EXPECT_GT(some, 0.8);
  EXPECT_GT(some, few);
  EXPECT_EQ(all, 1.0);
}

TEST_P(Quest, WhatIsNotSeenCannotMatter) {
  std::vector<float> k = Normals(40 * 4, 3), v = Normals(40 * 4, 4);
  const auto run = [&] {
    RequestBuilder builder("quest");
    builder.Floats("q", {1, 1, 6, 4}, Normals(24, 5))
        .Floats("k", {1, 1, 40, 4}, k)
        .Floats("v", {1, 1, 40, 4}, v)
        .Integers("key_lengths", {1}, {30})
        .Param("page_size", 8.0)
        .Param("top_pages", 2.0)
        .Param("query_offset", 10.0);
    return RunByName(builder.request()).at("output");
  };
  const std::vector<double> before = run();
  for (size_t n = 16 * 4; n < k.size(); ++n) k[n] = v[n] = kNan;  // later than all queries
  EXPECT_EQ(run(), before);
  // A page with a key of NaN is seen, not skipped: the rows that choose from it are lost.
  k[0] = kNan;
  for (const double x : run()) EXPECT_TRUE(std::isnan(x));
}

TEST_P(Quest, ThreadsChangeNoBit) {
  RequestBuilder builder = MakeQuest({2, 4, 2, 70, 300, 16, 8}, 16, 4);
  builder.Param("query_offset", std::string("end"));
  ExpectSameBitsForAnyThreads(builder.request());
}

TEST(QuestRefuses, WhatChoicesCannotSee) {
  const SelectiveSizes s = {1, 1, 1, 4, 4, 2, 2};
  RequestBuilder zero = MakeQuest(s, 0, 1);
  ExpectBothRefuse(zero.request(), ErrorCode::kRange, "page_size");
  RequestBuilder none = MakeQuest(s, 1, 0);
  ExpectBothRefuse(none.request(), ErrorCode::kRange, "top_pages");
  RequestBuilder lengths = MakeQuest(s, 2, 1);
  lengths.Integers("key_lengths", {1, 4}, {1, 2, 3, 4});
  ExpectBothRefuse(lengths.request(), ErrorCode::kUnsupported, "key_lengths");
}

}  // namespace
}  // namespace heed::testing
