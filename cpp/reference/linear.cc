// Linear attention: softmax's exponential of a product becomes a product of features.
//
// Source: Katharopoulos et al. 2020, arXiv:2006.16236.
#include <vector>

#include "recurrent.h"

namespace heed::reference::linear {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  Recurrence r;
  const auto map =
      ReadWord(request, "feature_map", {"elu_plus_one", "relu", "softmax", "identity"});
  r.features = FeaturesByName(map.value_or("elu_plus_one"));
  const auto weights = ReadWord(request, "weight_sum", {"one", "free"});
  r.normalize = weights.value_or("one") == "one";
  r.causal = ReadFlag(request, "causal");
  r.scale = ReadScale(request, qkv, 1.0);
  return RunRecurrence(request, qkv, r);
}

}  // namespace heed::reference::linear
