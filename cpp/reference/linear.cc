// Linear attention: softmax's exponential of a product becomes a product of features.
//
// Source: Katharopoulos et al. 2020, arXiv:2006.16236.
#include <vector>

#include "formula.h"
#include "recurrent.h"

namespace heed::reference::linear {
namespace {

// By name, or the user's expression of each element.
RowFeatures ReadFeatures(const Request& request) {
  const auto map =
      ReadWord(request, "feature_map", {"elu_plus_one", "relu", "softmax", "identity", "user"});
  const auto formula = ReadFormula(request, "feature_mod", "x");
  if (map && formula.has_value() != (*map == "user")) {
    throw Error(ErrorCode::kOption, "feature_mod goes with feature_map user, and with no other");
  }
  if (!formula) return FeaturesByName(map.value_or("elu_plus_one"));
  return [f = *formula](std::vector<double> row, const Place& place) {
    for (size_t d = 0; d < row.size(); ++d) {
      const int64_t is_key = place.side == Side::kKey ? 1 : 0;
      row[d] = f({row[d], place.b, place.h, is_key, static_cast<int64_t>(d), 0});
    }
    return row;
  };
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  Recurrence r;
  r.features = ReadFeatures(request);
  const auto weights = ReadWord(request, "weight_sum", {"one", "free"});
  r.normalize = weights.value_or("one") == "one";
  r.causal = ReadFlag(request, "causal");
  r.scale = ReadScale(request, qkv, 1.0);
  return RunRecurrence(request, qkv, r);
}

}  // namespace heed::reference::linear
