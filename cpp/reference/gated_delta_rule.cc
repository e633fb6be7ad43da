// The gated delta rule: the state decays, then what it answers to the key is replaced.
//
// Source: Yang et al. 2024, arXiv:2412.06464, equation 10.
#include <cmath>
#include <string>
#include <vector>

#include "recurrent.h"

namespace heed::reference::gated_delta_rule {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  Recurrence r;
  const auto norm = ReadWord(request, "key_norm", {"unit", "none"});
  r.features = FeaturesByName(norm.value_or("unit") == "unit" ? "unit" : "identity");
  r.delta = true;
  r.log_decay = ReadPerToken(request, "log_decay", qkv);
  r.beta = ReadPerToken(request, "beta", qkv);
  r.scale = ReadScale(request, qkv);
  return RunRecurrence(request, qkv, r);
}

}  // namespace heed::reference::gated_delta_rule
