// Location attention: softmax(W q) V. The score of a key depends on the query and on where the key
// stands, not on what it holds.
//
// Source: Luong et al. 2015, arXiv:1508.04025, equation 9.
#include <vector>

#include "exact.h"

namespace heed::reference::luong_location {

std::vector<Result> Run(const Request& request) {
  // Row j of W takes the place of key j, for every batch entry.
  Request with_keys = request;
  AnyTensor keys = *FindInput(request, "location_weight");
  if (keys.rank != 2 && keys.rank != 3) {
    throw Error(ErrorCode::kShape, Describe("location_weight", keys) +
                                       ": expected [kv_len, head_dim] or [num_kv_heads, kv_len, "
                                       "head_dim]");
  }
  const AnyTensor& v = *FindInput(request, "v");
  const AnyTensor weight = keys;
  const bool per_head = keys.rank == 3;
  const size_t last = per_head ? 1 : 0;
  keys.rank = 4;
  keys.shape = {v.shape[0], per_head ? weight.shape[0] : v.shape[1], weight.shape[last],
                weight.shape[last + 1]};
  keys.strides = {0, per_head ? weight.strides[0] : 0, weight.strides[last],
                  weight.strides[last + 1]};
  with_keys.inputs.push_back({"k", keys});
  const Qkv qkv = ReadQkv(with_keys);
  return RunExact(request, qkv, DotScore(qkv, 1.0), SoftmaxNormalize(request, qkv));
}

}  // namespace heed::reference::luong_location
