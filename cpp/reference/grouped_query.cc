// Grouped-query attention: multi-head attention whose heads share projections of keys and values in
// groups of consecutive heads.
//
// Source: Ainslie et al. 2023, arXiv:2305.13245, section 2.2.
#include "multi_head.h"

namespace heed::reference::grouped_query {

std::vector<Result> Run(const Request& request) { return RunMultiHead(request); }

}  // namespace heed::reference::grouped_query
