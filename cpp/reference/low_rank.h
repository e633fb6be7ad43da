// What the low-rank family of the oracle shares.
#ifndef HEED_REFERENCE_LOW_RANK_H_
#define HEED_REFERENCE_LOW_RANK_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "inputs.h"

namespace heed::reference {

// key_lengths, one for each batch entry: values in [0, kv_len], or kv_len where there are none.
std::vector<int64_t> ReadBatchLengths(const Request& request, const Qkv& qkv);

// Attention of the queries to keys and values that a mechanism has made. `sees` tells whether query
// i of batch entry b sees made key j.
std::vector<Result> AttendTo(const Request& request, const Qkv& made,
                             const std::function<bool(int64_t b, int64_t i, int64_t j)>& sees);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_LOW_RANK_H_
