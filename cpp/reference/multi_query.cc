// Multi-query attention: multi-head attention with one projection of keys and values.
//
// Source: Shazeer 2019, arXiv:1911.02150, section 3.
#include "multi_head.h"

namespace heed::reference::multi_query {

std::vector<Result> Run(const Request& request) {
  return RunMultiHead(request,
                      {"w_k_shared", "w_v_shared", "w_o", "b_k_shared", "b_v_shared", "b_o", 2});
}

}  // namespace heed::reference::multi_query
