// A random request of the recurrent family, and the check against the oracle that its tests share.
#ifndef HEED_TESTS_RECURRENT_CASE_H_
#define HEED_TESTS_RECURRENT_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "request_builder.h"

namespace heed::testing {

struct RecurrentSizes {
  int64_t batch = 1, num_heads = 1, num_kv_heads = 1, len = 5, head_dim = 4, head_dim_v = 3;
};

// Sizes around chunks, blocks, register tiles and panels; some with grouped heads.
std::vector<RecurrentSizes> ManySizes();

// Normal q, k and v; keys of length about 1.
RequestBuilder RecurrentRequest(const std::string& id, const RecurrentSizes& sizes, uint64_t seed);

// Gates and strengths with the shapes of their inputs: per token, or per channel.
std::vector<float> LogDecays(int64_t count, uint64_t seed);
std::vector<float> Betas(int64_t count, uint64_t seed);

// All results are within kRecurrentMaxError of the oracle's, relative to the largest of each.
void ExpectMatchesOracle(const Request& request, const std::string& what);

void ExpectResultsNear(const std::vector<double>& actual, const std::vector<double>& expected,
                       double error, const std::string& what);

}  // namespace heed::testing

#endif  // HEED_TESTS_RECURRENT_CASE_H_
