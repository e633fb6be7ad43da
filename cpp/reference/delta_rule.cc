// The delta rule: what the state answers to a key is replaced, not added to.
//
// Source: Yang et al. 2024, arXiv:2406.06484.
#include <vector>

#include "recurrent.h"

namespace heed::reference::delta_rule {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunRecurrence(request, qkv, DeltaRule(request, qkv));
}

}  // namespace heed::reference::delta_rule
