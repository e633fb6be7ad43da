// T5's attention: softmax(q.k + b[bucket of the distance]) V, without a scale. The buckets are
// among the modifiers that all exact mechanisms share.
//
// Source: Raffel et al. 2020, arXiv:1910.10683, section 2.1.
#include <vector>

#include "exact.h"

namespace heed::reference::t5_relative {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(qkv, 1.0), SoftmaxNormalize(request, qkv));
}

}  // namespace heed::reference::t5_relative
