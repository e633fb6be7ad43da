// Requests of the low-rank family, and the check against the oracle that its tests share.
#ifndef HEED_TESTS_LOW_RANK_CASE_H_
#define HEED_TESTS_LOW_RANK_CASE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "request_builder.h"

namespace heed::testing {

struct LowRankSizes {
  int64_t batch = 2, num_heads = 4, num_kv_heads = 2, q_len = 33, kv_len = 70, head_dim = 16,
          head_dim_v = 9;
};

// Sizes around register tiles, panels and tiles of keys; tokens are queries and keys at once where
// a mechanism wants it so.
std::vector<LowRankSizes> ManyLowRankSizes(bool same_len = false);

// Normal numbers times `size`.
std::vector<float> Normals(int64_t count, uint64_t seed, double size = 1);

// Tokens of a request with normal numbers.
struct Tokens {
  explicit Tokens(const LowRankSizes& sizes, uint64_t seed = 1);
  LowRankSizes sizes;
  std::vector<float> q, k, v;

  RequestBuilder Request(const std::string& id) const;
  // Element d of token j of KV head h of batch entry b.
  float& Key(int64_t b, int64_t h, int64_t j, int64_t d);
  float& Value(int64_t b, int64_t h, int64_t j, int64_t d);
};

// The output of `run` is within kLowRankMaxError times `size` of the oracle's, weights within
// kLowRankMaxError, lse within four times that.
void ExpectMatchesLowRankOracle(const Request& request, double size, const std::string& what,
                                const std::function<Values(const Request&)>& run = RunByName);

}  // namespace heed::testing

#endif  // HEED_TESTS_LOW_RANK_CASE_H_
