// Multi-head attention of the oracle, shared by its three rows.
#ifndef HEED_REFERENCE_MULTI_HEAD_H_
#define HEED_REFERENCE_MULTI_HEAD_H_

#include <string>
#include <vector>

#include "exact.h"
#include "inputs.h"

namespace heed::reference {

// Names of the projections of keys and values, and the rank of their weights: 3 with one matrix a
// KV head, 2 with one for all.
struct KvNames {
  const char *w_k, *w_v, *b_k, *b_v;
  int rank;
};

std::vector<Result> RunMultiHead(const Request& request, const KvNames& names);

// x [batch, 1, len, dim] times w [1, heads, head_dim, dim] plus b: [batch, heads, len, head_dim].
Array Project(const Request& request, const Array& x, const char* w_name, const char* b_name,
              int w_rank);

// A required tensor [batch, len, dim] as [batch, 1, len, dim].
Array ReadRows(const Request& request, const char* name);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_MULTI_HEAD_H_
