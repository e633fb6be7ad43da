// The delta rule: what the state answers to a key is replaced, not added to.
//
// Source: Yang et al. 2024, arXiv:2406.06484, equation 4.
#include <cmath>
#include <string>
#include <vector>

#include "recurrent.h"

namespace heed::reference::delta_rule {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  Recurrence r;
  const auto norm = ReadWord(request, "key_norm", {"unit", "none"});
  r.features = FeaturesByName(norm.value_or("unit") == "unit" ? "unit" : "identity");
  r.delta = true;
  r.beta = ReadPerToken(request, "beta", qkv);
  r.scale = ReadScale(request, qkv);
  return RunRecurrence(request, qkv, r);
}

}  // namespace heed::reference::delta_rule
