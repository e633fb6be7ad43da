// Multi-query attention: multi-head attention with one projection of keys and values.
//
// Source: Shazeer 2019, arXiv:1911.02150, section 3.
#include "multi_head.h"

namespace heed::reference::multi_query {

std::vector<Result> Run(const Request& request) {
  for (const char* name : {"w_k", "w_v"}) {
    if (ReadNeeded(request, name, 3).shape[1] != 1) {
      throw Error(ErrorCode::kShape, std::string(name) + " must have one head");
    }
  }
  return RunMultiHead(request);
}

}  // namespace heed::reference::multi_query
