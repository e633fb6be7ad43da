// Disentangled attention: content to content, content to position, position to content.
//
// Source: He et al. 2021, arXiv:2006.03654, equation 4. Its position-to-content term has the
// distance of the released code, query minus key, where the equation has key minus query.
#include <vector>

#include "exact.h"

namespace heed::reference::disentangled {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), SoftmaxNormalize(request, qkv));
}

}  // namespace heed::reference::disentangled
