// The gated delta rule: the state decays, then what it answers to the key is replaced.
//
// Source: Yang et al. 2024, arXiv:2412.06464.
#include <vector>

#include "recurrent.h"

namespace heed::reference::gated_delta_rule {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  Recurrence r = DeltaRule(request, qkv);
  r.log_decay = ReadPerToken(request, "log_decay", qkv);
  return RunRecurrence(request, qkv, r);
}

}  // namespace heed::reference::gated_delta_rule
