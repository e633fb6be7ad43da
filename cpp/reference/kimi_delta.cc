// Kimi delta attention: the gated delta rule with a decay per channel.
//
// Source: Kimi Team 2025, arXiv:2510.26692.
#include <vector>

#include "recurrent.h"

namespace heed::reference::kimi_delta {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  Recurrence r = DeltaRule(request, qkv);
  r.log_decay = ReadPerChannel(request, "channel_log_decay", qkv);
  return RunRecurrence(request, qkv, r);
}

}  // namespace heed::reference::kimi_delta
