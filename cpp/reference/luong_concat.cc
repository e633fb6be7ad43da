// Concat attention: softmax(v^T tanh(W [q; k])) V.
//
// Source: Luong et al. 2015, arXiv:1508.04025, equation 8 ("concat").
#include <cmath>
#include <string>
#include <vector>

#include "exact.h"

namespace heed::reference::luong_concat {
namespace {

PairScore ConcatScore(const Request& request, const Qkv& qkv) {
  const AnyTensor& tensor = *FindInput(request, "concat_weight");
  const Array weight = ReadArray(request, "concat_weight");
  const std::vector<double> vector = ReadList(request, "score_vector");
  const int64_t concat_dim = qkv.head_dim + qkv.k.shape[3];
  if (tensor.rank != 2 || weight.shape[3] != concat_dim ||
      weight.shape[2] != static_cast<int64_t>(vector.size())) {
    throw Error(ErrorCode::kShape, Describe("concat_weight", tensor) +
                                       ": expected [hidden_dim, head_dim + head_dim_k], [" +
                                       std::to_string(vector.size()) + ", " +
                                       std::to_string(concat_dim) +
                                       "], with score_vector "
                                       "[hidden_dim]");
  }
  return [weight, vector, &qkv](int64_t b, int64_t h, int64_t i, int64_t j) {
    const auto q = qkv.q.Row(b, h, i);
    const auto k = qkv.k.Row(b, qkv.KvHead(h), j);
    std::vector<double> both(q.begin(), q.end());
    both.insert(both.end(), k.begin(), k.end());
    double sum = 0.0;
    for (size_t t = 0; t < vector.size(); ++t) {
      double x = 0.0;
      for (size_t d = 0; d < both.size(); ++d) x += weight(0, 0, t, d) * both[d];
      sum += vector[t] * std::tanh(x);
    }
    return sum;
  };
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request, KeyWidth::kFree);
  return RunExact(request, qkv, ConcatScore(request, qkv), SoftmaxNormalize(request, qkv));
}

}  // namespace heed::reference::luong_concat
