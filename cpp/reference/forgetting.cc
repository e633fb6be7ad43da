// Forgetting attention: causal softmax(scale q.k + sum of log gates after the key) V. The gates are
// among the modifiers that all exact mechanisms share; they make a request causal.
//
// Source: Lin et al. 2025, arXiv:2503.02130, equation 4.
#include <vector>

#include "exact.h"

namespace heed::reference::forgetting {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), SoftmaxNormalize(request, qkv));
}

}  // namespace heed::reference::forgetting
