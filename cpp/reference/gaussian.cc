// Gaussian attention: softmax(-scale / 2 |(q - k) / width|^2) V.
//
// Source: Tsai et al. 2019, arXiv:1908.11775, section 3.1 (the RBF kernel).
#include <vector>

#include "exact.h"

namespace heed::reference::gaussian {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, SquaredDistanceScore(request, qkv), SoftmaxNormalize(request, qkv));
}

}  // namespace heed::reference::gaussian
