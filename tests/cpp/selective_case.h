// A random request of the selective family, and the checks that its tests share.
#ifndef HEED_TESTS_SELECTIVE_CASE_H_
#define HEED_TESTS_SELECTIVE_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "random.h"
#include "request_builder.h"

namespace heed::testing {

struct SelectiveSizes {
  int64_t batch = 1, num_heads = 1, num_kv_heads = 1, q_len = 16, kv_len = 16, head_dim = 8,
          head_dim_v = 8;
};

// Sizes around blocks, register tiles, panels and score tiles; some with grouped heads.
std::vector<SelectiveSizes> SelfSizes();   // q_len = kv_len
std::vector<SelectiveSizes> CrossSizes();  // of any lengths

std::vector<float> Normals(int64_t count, uint64_t seed);

// Normal q, k and v.
RequestBuilder SelectiveRequest(const std::string& id, const SelectiveSizes& sizes, uint64_t seed);

// All results are within `factor` kAttentionMaxError of the oracle's, relative to the largest of
// each where that is above 1. Choices are the same or the error is of order 1.
void ExpectChoiceMatchesOracle(const Request& request, const std::string& what, double factor = 1);

// Two requests have the same output within `factor` kAttentionMaxError.
void ExpectSameOutput(const Request& request, const Request& other, double factor = 2);

// Bytes that a call of this length allocates at most, on 2 threads.
int64_t ScratchBytes(const Request& request);
// The same of its gradients.
int64_t BackwardScratchBytes(const Request& request);

}  // namespace heed::testing

#endif  // HEED_TESTS_SELECTIVE_CASE_H_
