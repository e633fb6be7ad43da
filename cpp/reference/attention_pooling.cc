// Attention pooling: the same learned queries attend to every batch entry.
//
// Source: Lee et al. 2019, arXiv:1810.00825, section 3.2 (PMA's seed vectors).
#include <vector>

#include "inner.h"
#include "inputs.h"

namespace heed::reference::attention_pooling {

std::vector<Result> Run(const Request& request) {
  const AnyTensor& queries = *FindInput(request, "queries");
  const AnyTensor& k = *FindInput(request, "k");
  if (queries.rank != 3) {
    throw Error(ErrorCode::kShape,
                Describe("queries", queries) + ": expected [num_heads, num_queries, head_dim]");
  }
  if (k.rank != 4) throw Error(ErrorCode::kShape, Describe("k", k) + ": expected rank 4");
  Request inner = request;
  inner.id = "attention";
  for (NamedTensor& input : inner.inputs) {
    if (input.name != "queries") continue;
    input.name = "q";
    input.tensor.rank = 4;
    input.tensor.shape = {k.shape[0], queries.shape[0], queries.shape[1], queries.shape[2]};
    input.tensor.strides = {0, queries.strides[0], queries.strides[1], queries.strides[2]};
  }
  return reference::Run(inner);
}

}  // namespace heed::reference::attention_pooling
