// Transformer-XL: softmax(scale ((q + u).k + (q + v).r)) V, r the encoding of the distance.
//
// Source: Dai et al. 2019, arXiv:1901.02860, section 3.3.
#include <vector>

#include "exact.h"

namespace heed::reference::transformer_xl {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), SoftmaxNormalize(request, qkv));
}

}  // namespace heed::reference::transformer_xl
