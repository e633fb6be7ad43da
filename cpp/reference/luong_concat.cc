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
  const AnyTensor& vector_tensor = *FindInput(request, "score_vector");
  const Array vector = ReadArray(request, "score_vector");
  const int64_t hidden_dim = vector.shape[3];
  if (vector_tensor.rank < 1 || vector_tensor.rank > 2 ||
      (vector.shape[2] != 1 && vector.shape[2] != qkv.num_heads)) {
    throw Error(ErrorCode::kShape, Describe("score_vector", vector_tensor) +
                                       ": expected [hidden_dim] or [num_heads, hidden_dim]");
  }
  const int64_t concat_dim = qkv.head_dim + qkv.k.shape[3];
  if (tensor.rank != 2 || weight.shape[3] != concat_dim || weight.shape[2] != hidden_dim) {
    throw Error(ErrorCode::kShape, Describe("concat_weight", tensor) +
                                       ": expected [hidden_dim, head_dim + head_dim_k], [" +
                                       std::to_string(hidden_dim) + ", " +
                                       std::to_string(concat_dim) +
                                       "], with score_vector "
                                       "[hidden_dim]");
  }
  return [weight, vector, hidden_dim, &qkv](int64_t b, int64_t h, int64_t i, int64_t j) {
    const auto q = qkv.q.Row(b, h, i);
    const auto k = qkv.k.Row(b, qkv.KvHead(h), j);
    std::vector<double> both(q.begin(), q.end());
    both.insert(both.end(), k.begin(), k.end());
    double sum = 0.0;
    for (int64_t t = 0; t < hidden_dim; ++t) {
      double x = 0.0;
      for (size_t d = 0; d < both.size(); ++d) x += weight(0, 0, t, d) * both[d];
      sum += vector(0, 0, h, t) * std::tanh(x);
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
