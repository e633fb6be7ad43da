// Multi-head attention of the oracle, shared by its three rows.
#ifndef HEED_REFERENCE_MULTI_HEAD_H_
#define HEED_REFERENCE_MULTI_HEAD_H_

#include <string>
#include <vector>

#include "exact.h"
#include "inputs.h"

namespace heed::reference {

// query, key and value are [batch, 1, len, dim].
std::vector<Result> RunMultiHead(const Request& request, const Array& query, const Array& key,
                                 const Array& value);

// The inputs query, key and value.
std::vector<Result> RunMultiHead(const Request& request);

// x [batch, 1, len, dim] times w [1, heads, head_dim, dim] plus b: [batch, heads, len, head_dim].
Array Project(const Request& request, const Array& x, const char* w_name, const char* b_name,
              int w_rank);

// A required tensor [batch, len, dim] as [batch, 1, len, dim].
Array ReadRows(const Request& request, const char* name);

// A required tensor of this rank, with leading extents of 1.
Array ReadNeeded(const Request& request, const char* name, int rank);

// A list of `count` values, all `otherwise` when the request does not have it.
std::vector<double> ReadVector(const Request& request, const char* name, int64_t count,
                               double otherwise);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_MULTI_HEAD_H_
