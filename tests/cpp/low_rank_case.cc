#include "low_rank_case.h"

#include <algorithm>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/low_rank.h"

namespace heed::testing {

std::vector<LowRankSizes> ManyLowRankSizes(bool same_len) {
  std::vector<LowRankSizes> all = {
      {},
      {.batch = 1, .num_heads = 1, .num_kv_heads = 1, .q_len = 1, .kv_len = 1, .head_dim = 1},
      {.num_heads = 3, .num_kv_heads = 3, .q_len = 65, .kv_len = 300, .head_dim = 64},
      {.num_heads = 6,
       .num_kv_heads = 1,
       .q_len = 7,
       .kv_len = 1000,
       .head_dim = 40,
       .head_dim_v = 80},
  };
  if (!same_len) return all;
  // The reference has a matrix of q_len x kv_len numbers.
  for (LowRankSizes& sizes : all) sizes.q_len = sizes.kv_len = std::min<int64_t>(sizes.kv_len, 400);
  return all;
}

std::vector<float> Normals(int64_t count, uint64_t seed, double size) {
  Random random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = random.Normal() * static_cast<float>(size);
  return values;
}

Tokens::Tokens(const LowRankSizes& s, uint64_t seed)
    : sizes(s),
      q(Normals(s.batch * s.num_heads * s.q_len * s.head_dim, seed)),
      k(Normals(s.batch * s.num_kv_heads * s.kv_len * s.head_dim, seed + 1)),
      v(Normals(s.batch * s.num_kv_heads * s.kv_len * s.head_dim_v, seed + 2)) {}

RequestBuilder Tokens::Request(const std::string& id) const {
  RequestBuilder builder(id);
  builder.Floats("q", {sizes.batch, sizes.num_heads, sizes.q_len, sizes.head_dim}, q)
      .Floats("k", {sizes.batch, sizes.num_kv_heads, sizes.kv_len, sizes.head_dim}, k)
      .Floats("v", {sizes.batch, sizes.num_kv_heads, sizes.kv_len, sizes.head_dim_v}, v);
  return builder;
}

float& Tokens::Key(int64_t b, int64_t h, int64_t j, int64_t d) {
  const int64_t row = (b * sizes.num_kv_heads + h) * sizes.kv_len + j;
  return k[static_cast<size_t>(row * sizes.head_dim + d)];
}

float& Tokens::Value(int64_t b, int64_t h, int64_t j, int64_t d) {
  const int64_t row = (b * sizes.num_kv_heads + h) * sizes.kv_len + j;
  return v[static_cast<size_t>(row * sizes.head_dim_v + d)];
}

void ExpectMatchesLowRankOracle(const Request& request, double size, const std::string& what,
                                const std::function<Values(const Request&)>& run) {
  const Values expected = RunOracle(request), actual = run(request);
  for (const auto& [name, values] : expected) {
    const double factor = name == "output" ? size : name == "lse" ? 4 : 1;
    const double bound = kLowRankMaxError * factor;
    const std::vector<float> floats(actual.at(name).begin(), actual.at(name).end());
    ExpectWithin(floats, values, std::vector<double>(values.size(), bound), name + " of " + what);
  }
}

}  // namespace heed::testing
