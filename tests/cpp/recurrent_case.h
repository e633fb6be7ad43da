// A random request of the recurrent family, and the check against the oracle that its tests share.
#ifndef HEED_TESTS_RECURRENT_CASE_H_
#define HEED_TESTS_RECURRENT_CASE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "request_builder.h"

namespace heed::testing {

struct RecurrentSizes {
  int64_t batch = 1, num_heads = 1, num_kv_heads = 1, len = 5, head_dim = 4, head_dim_v = 3;
};

// Sizes around chunks, blocks, register tiles and panels; some with grouped heads.
std::vector<RecurrentSizes> ManySizes();

// Normal q, k (where the row has it) and v; keys of length about 1.
RequestBuilder RecurrentRequest(const std::string& id, const RecurrentSizes& sizes, uint64_t seed);

// Numbers below 0, by more than a step of a difference, and between 0 and 1.
std::vector<float> LogDecays(int64_t count, uint64_t seed);
std::vector<float> Betas(int64_t count, uint64_t seed);

// Inputs of those numbers: per token, per token, and per token and channel.
void AddLogDecay(RequestBuilder& builder, const RecurrentSizes& sizes);
void AddBeta(RequestBuilder& builder, const RecurrentSizes& sizes);
void AddChannelLogDecay(RequestBuilder& builder, const RecurrentSizes& sizes);

// All results are within kRecurrentMaxError of the oracle's, relative to the largest of each.
void ExpectMatchesOracle(const Request& request, const std::string& what);

void ExpectResultsNear(const std::vector<double>& actual, const std::vector<double>& expected,
                       double error, const std::string& what);

// What a row is given beside q, k and v.
using AddInputs = std::function<void(RequestBuilder&, const RecurrentSizes&)>;

// Outputs and states of every size, in chunks of several lengths.
void ExpectRowMatchesOracle(const std::string& id, const AddInputs& add);

// From a state on, with batch entries of lengths 0 and 70 of 90, head_dim 12; `more_cols` is what
// the state has beyond head_dim_v, `features` its rows (0: head_dim).
void ExpectStatesAndLengthsMatchOracle(const std::string& id, const AddInputs& add,
                                       int64_t more_cols = 0, int64_t features = 0);

}  // namespace heed::testing

#endif  // HEED_TESTS_RECURRENT_CASE_H_
