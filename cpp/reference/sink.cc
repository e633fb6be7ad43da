// Attention sinks: softmax with one learned logit per head in its denominator.
//
// Source: Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks,
// arXiv:2309.17453; the learned logit: OpenAI 2025, gpt-oss, arXiv:2508.10925.
#include <vector>

#include "exact.h"

namespace heed::reference {

namespace sink {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), SoftmaxNormalize(request, qkv));
}

}  // namespace sink
}  // namespace heed::reference
