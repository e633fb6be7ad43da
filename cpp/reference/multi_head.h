// Multi-head attention of the oracle, shared by its three rows.
#ifndef HEED_REFERENCE_MULTI_HEAD_H_
#define HEED_REFERENCE_MULTI_HEAD_H_

#include <string>
#include <vector>

#include "exact.h"
#include "inputs.h"

namespace heed::reference {

// What the projections of keys, values and output are called, and the rank of those of keys and
// values: 3 with one matrix a KV head, 2 with one for all.
struct HeadNames {
  const char *w_k, *w_v, *w_o, *b_k, *b_v, *b_o;
  int rank;
};

inline constexpr HeadNames kHeadNames = {"w_k", "w_v", "w_o", "b_k", "b_v", "b_o", 3};
inline constexpr HeadNames kSelfNames = {"w_k_self", "w_v_self", "w_o_self", "b_k",
                                         "b_v",      "b_o_self", 3};

// query, key and value are [batch, 1, len, dim].
std::vector<Result> RunMultiHead(const Request& request, const HeadNames& names, const Array& query,
                                 const Array& key, const Array& value);

// The inputs query, key and value.
std::vector<Result> RunMultiHead(const Request& request, const HeadNames& names);

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
