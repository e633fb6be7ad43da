// Requests of multi-head layers with random weights, and the bound of their errors.
#ifndef HEED_TESTS_LAYER_LAYER_CASE_H_
#define HEED_TESTS_LAYER_LAYER_CASE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "heed/request.h"
#include "random.h"
#include "request_builder.h"

namespace heed::testing {

struct LayerSizes {
  int64_t batch = 2, q_len = 33, kv_len = 41;
  int64_t num_heads = 4, num_kv_heads = 4, head_dim = 16, head_dim_v = 16;
  int64_t embed_dim = 48, kdim = 48, vdim = 48, out_dim = 48;
};

// A float tensor.
struct Floats {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// Numbers ~ N(0, deviation^2).
Floats DrawFloats(Random& random, const std::vector<int64_t>& shape, double deviation);

// The tensors and parameters of one call; tests change them between making and running it.
struct LayerCase {
  std::string id;
  LayerSizes sizes;
  std::map<std::string, Floats> tensors;
  std::map<std::string, ParamValue> params;
  std::vector<uint8_t> keep;         // [q_len, kv_len]; empty = absent
  std::vector<int32_t> key_lengths;  // [batch]; empty = absent

  RequestBuilder Build() const;
};

// Queries, keys and values of unit variance, projections that keep it, biases.
LayerCase MakeLayerCase(const std::string& id, const LayerSizes& sizes, uint64_t seed = 1);

// Runs the request on the library and on the oracle: outputs within kMultiHeadMaxError, weights and
// lse within the same of 1 and of their size.
void ExpectLayerMatchesReference(const LayerCase& c);

// A view of contiguous floats for state dicts.
AnyTensor StateTensor(std::vector<float>& values, const std::vector<int64_t>& shape);

}  // namespace heed::testing

#endif  // HEED_TESTS_LAYER_LAYER_CASE_H_
