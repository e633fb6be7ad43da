// Reformer: against the oracle, its limits, buckets by hand, and how much hashing finds.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/selective.h"
#include "selective_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Reformer : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Reformer);

RequestBuilder Hashed(const SelectiveSizes& s, uint64_t seed) {
  RequestBuilder builder("reformer");
  builder
      .Floats("q", {s.batch, s.num_heads, s.q_len, s.head_dim},
              Normals(s.batch * s.num_heads * s.q_len * s.head_dim, seed))
      .Floats("v", {s.batch, s.num_kv_heads, s.q_len, s.head_dim_v},
              Normals(s.batch * s.num_kv_heads * s.q_len * s.head_dim_v, seed + 1));
  return builder;
}

TEST_P(Reformer, MatchesReference) {
  uint64_t seed = 1;
  for (const SelectiveSizes& s : SelfSizes()) {
    for (const double rounds : {1, 3}) {
      for (const bool causal : {true, false}) {
        RequestBuilder builder = Hashed(s, seed);
        builder.Param("hash_rounds", rounds)
            .Param("hash_buckets", s.q_len > 100 ? 8.0 : 4.0)
            .Param("hash_chunk", 16.0)
            .Param("hash_seed", static_cast<double>(seed++))
            .Param("causal", causal)
            .Param("return_weights", true)
            .Param("return_lse", true);
        ExpectChoiceMatchesOracle(builder.request(), "length " + std::to_string(s.q_len), 2);
      }
    }
  }
}

TEST_P(Reformer, LengthsAndGivenRotationsMatchReference) {
  const SelectiveSizes s = {3, 4, 2, 50, 50, 6, 5};
  RequestBuilder builder = Hashed(s, 3);
  builder.Integers("key_lengths", {3}, {50, 0, 17})
      .Floats("rotations", {2, 6, 3}, Normals(36, 8))
      .Param("hash_chunk", 5.0)
      .Param("return_lse", true);
  ExpectChoiceMatchesOracle(builder.request(), "lengths 50, 0 and 17", 2);
}

// Exact attention of queries to their directions, but not to themselves.
RequestBuilder SharedQk(const SelectiveSizes& s, uint64_t seed) {
  std::vector<float> k = Normals(s.num_heads * s.q_len * s.head_dim, seed);
  for (auto row = k.begin(); row < k.end(); row += s.head_dim) {
    double squares = 0;
    for (int64_t d = 0; d < s.head_dim; ++d) squares += double{row[d]} * row[d];
    for (int64_t d = 0; d < s.head_dim; ++d) {
      row[d] = static_cast<float>(row[d] / std::sqrt(squares));
    }
  }
  std::vector<uint8_t> others(static_cast<size_t>(s.q_len * s.q_len), 1);
  for (int64_t i = 0; i < s.q_len; ++i) others[static_cast<size_t>(i * s.q_len + i)] = 0;
  RequestBuilder exact("scaled_dot_product");
  exact
      .Floats("q", {1, s.num_heads, s.q_len, s.head_dim},
              Normals(s.num_heads * s.q_len * s.head_dim, seed))
      .Floats("k", {1, s.num_heads, s.q_len, s.head_dim}, k)
      .Floats("v", {1, s.num_heads, s.q_len, s.head_dim_v},
              Normals(s.num_heads * s.q_len * s.head_dim_v, seed + 1))
      .Bytes("keep", {s.q_len, s.q_len}, others);
  return exact;
}

TEST_P(Reformer, ReducesToExactAttentionWithOneBucketAndOneChunk) {
  const SelectiveSizes s = {1, 2, 2, 70, 70, 12, 9};
  for (const double rounds : {1, 2}) {
    RequestBuilder reformer = Hashed(s, 4);
    reformer.Param("hash_buckets", 1.0).Param("hash_chunk", 70.0).Param("hash_rounds", rounds);
    ExpectSameOutput(reformer.request(), SharedQk(s, 4).request());
  }
}

// Tokens on a line: a rotation of 1 sorts them by sign. Equal weights on what is seen.
RequestBuilder BySign(std::vector<float> q) {
  const int64_t len = static_cast<int64_t>(q.size());
  std::vector<float> v;
  for (int64_t i = 0; i < len; ++i) v.push_back(static_cast<float>(i));
  RequestBuilder builder("reformer");
  builder.Floats("q", {1, 1, len, 1}, std::move(q))
      .Floats("v", {1, 1, len, 1}, std::move(v))
      .Floats("rotations", {1, 1, 1}, {1})
      .Param("scale", 0.0);
  return builder;
}

TEST_P(Reformer, SeesItsBucketInItsChunkAndTheOneBefore) {
  // Positive: 0, 2, 3, 5. Negative: 1, 4.
  const std::vector<float> q = {1, -1, 2, 1, -3, 1};
  RequestBuilder all = BySign(q);
  ExpectAllNear(RunByName(all.request()).at("output"), {10.0 / 3, 4, 8.0 / 3, 7.0 / 3, 1, 5.0 / 3},
                1e-6);
  // Causal: 0 and 1 have nobody else, and see themselves.
  RequestBuilder causal = BySign(q);
  causal.Param("causal", true);
  ExpectAllNear(RunByName(causal.request()).at("output"), {0, 1, 0, 1, 1, 5.0 / 3}, 1e-6);
  // Chunks of 1: 0 | 2 | 3 | 5 | 1 | 4, each sees the one before, in its bucket.
  RequestBuilder single = BySign(q);
  single.Param("hash_chunk", 1.0);
  ExpectAllNear(RunByName(single.request()).at("output"), {0, 1, 0, 2, 1, 3}, 1e-6);
}

TEST_P(Reformer, MoreRoundsFindMoreOfTheTrueTopKeys) {
  // Tokens in pairs of nearly the same direction: the partner is the true top key.
  const int64_t len = 256, dim = 16;
  std::vector<float> q = Normals(len * dim, 11), noise = Normals(len * dim, 12);
  for (int64_t i = 0; i < len / 2; ++i) {
    for (int64_t d = 0; d < dim; ++d) {
      const size_t from = static_cast<size_t>(i * dim + d);
      const size_t to = static_cast<size_t>((i + len / 2) * dim + d);
      q[to] = q[from] + 0.2f * noise[from];
    }
  }
  std::vector<double> recall;
  for (const double rounds : {1, 4}) {
    RequestBuilder builder("reformer");
    builder.Floats("q", {1, 1, len, dim}, q)
        .Floats("v", {1, 1, len, dim}, Normals(len * dim, 13))
        .Param("hash_rounds", rounds)
        .Param("hash_buckets", 16.0)
        .Param("hash_chunk", 32.0)
        .Param("return_weights", true);
    const std::vector<double> weights = RunByName(builder.request()).at("weights");
    double found = 0;
    for (int64_t i = 0; i < len; ++i) {
      const int64_t partner = (i + len / 2) % len;
      found += weights[static_cast<size_t>(i * len + partner)] > 0 ? 1 : 0;
    }
    recall.push_back(found / static_cast<double>(len));
  }
  EXPECT_GT(recall[0], 0.4);
  EXPECT_GT(recall[1], 0.9);
  EXPECT_LT(recall[0], recall[1]);
}

TEST_P(Reformer, LseSaysHowMuchOfTheSoftmaxWasCaught) {
  const SelectiveSizes s = {1, 1, 1, 128, 128, 8, 8};
  RequestBuilder hashed = Hashed(s, 5), exact = SharedQk(s, 5);
  hashed.Param("hash_rounds", 2.0)
      .Param("hash_chunk", 16.0)
      .Param("return_lse", true)
      .Param("return_weights", true);
  exact.Param("return_lse", true).Param("return_weights", true);
  const Values some = RunByName(hashed.request()), all = RunByName(exact.request());
  for (size_t i = 0; i < 128; ++i) {
    double caught = 0;
    bool alone = true;
    for (size_t j = 0; j < 128; ++j) {
      if (some.at("weights")[i * 128 + j] == 0 || i == j) continue;
      caught += all.at("weights")[i * 128 + j];
      alone = false;
    }
    if (alone) continue;
    EXPECT_NEAR(std::exp(some.at("lse")[i] - all.at("lse")[i]), caught, 1e-5) << i;
  }
}

TEST_P(Reformer, EmptyRowIsZeroAndWhatIsMaskedCannotMatter) {
  std::vector<float> q = Normals(2 * 40 * 4, 3), v = Normals(2 * 40 * 3, 4);
  const auto run = [&] {
    RequestBuilder builder("reformer");
    builder.Floats("q", {2, 1, 40, 4}, q)
        .Floats("v", {2, 1, 40, 3}, v)
        .Integers("key_lengths", {2}, {25, 0})
        .Param("hash_chunk", 8.0)
        .Param("return_lse", true);
    return RunByName(builder.request());
  };
  const Values before = run();
  for (size_t n = 25 * 4; n < q.size(); ++n) q[n] = kNan;
  for (size_t n = 25 * 3; n < v.size(); ++n) v[n] = kNan;
  EXPECT_EQ(run(), before);
  for (size_t i = 25; i < 80; ++i) {
    EXPECT_EQ(before.at("output")[3 * i], 0);
    EXPECT_EQ(before.at("lse")[i], -HUGE_VAL);
  }
}

TEST_P(Reformer, MemoryGrowsWithTheLength) {
  const auto bytes = [](int64_t len) {
    return ScratchBytes(Hashed({1, 2, 2, len, len}, 1).request());
  };
  EXPECT_LT(bytes(8192), 2.5 * static_cast<double>(bytes(4096)));
}

TEST(ReformerRefuses, NumbersThatMakeNoHash) {
  const SelectiveSizes s = {1, 1, 1, 4, 4, 2, 2};
  for (const char* name : {"hash_rounds", "hash_chunk", "hash_buckets"}) {
    RequestBuilder zero = Hashed(s, 1);
    zero.Param(name, 0.0);
    ExpectBothRefuse(zero.request(), ErrorCode::kRange, name);
  }
  RequestBuilder odd = Hashed(s, 1);
  odd.Param("hash_buckets", 3.0);
  ExpectBothRefuse(odd.request(), ErrorCode::kRange, "hash_buckets");
  RequestBuilder both = Hashed(s, 1);
  both.Floats("rotations", {1, 2, 1}, {1, 1}).Param("hash_rounds", 1.0);
  ExpectBothRefuse(both.request(), ErrorCode::kOption, "hash_rounds");
}

}  // namespace
}  // namespace heed::testing
