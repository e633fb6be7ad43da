// Kimi delta attention: the gated delta rule with a decay per channel.
//
// Source: Kimi Team 2025, arXiv:2510.26692, equation 1.
#include <cmath>
#include <string>
#include <vector>

#include "recurrent.h"

namespace heed::reference::kimi_delta {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  Recurrence r;
  const auto norm = ReadWord(request, "key_norm", {"unit", "none"});
  r.features = FeaturesByName(norm.value_or("unit") == "unit" ? "unit" : "identity");
  r.delta = true;
  r.log_decay = ReadPerChannel(request, "channel_log_decay", qkv);
  r.beta = ReadPerToken(request, "beta", qkv);
  r.scale = ReadScale(request, qkv);
  return RunRecurrence(request, qkv, r);
}

}  // namespace heed::reference::kimi_delta
