// Relative position representations: keys and values get a vector that belongs to the distance.
//
// Source: Shaw et al. 2018, arXiv:1803.02155, equations 3 and 4.
#include <vector>

#include "exact.h"

namespace heed::reference::shaw_relative {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), SoftmaxNormalize(request, qkv));
}

}  // namespace heed::reference::shaw_relative
