// Dot attention: softmax(Q K^T) V, without a scale.
//
// Source: Luong et al. 2015, arXiv:1508.04025, equation 8 ("dot").
#include <vector>

#include "exact.h"

namespace heed::reference::luong_dot {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(qkv, 1.0), SoftmaxNormalize(request, qkv));
}

}  // namespace heed::reference::luong_dot
