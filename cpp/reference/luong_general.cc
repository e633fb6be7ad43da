// General attention: softmax(scale * q^T M k) V.
//
// Source: Luong et al. 2015, arXiv:1508.04025, equation 8 ("general").
#include <string>
#include <vector>

#include "exact.h"

namespace heed::reference {

PairScore BilinearScore(const Request& request, const Qkv& qkv) {
  const AnyTensor* tensor = FindInput(request, "score_matrix");
  if (tensor == nullptr) throw Error(ErrorCode::kOption, "input score_matrix is missing");
  const Array matrix = ReadArray(request, "score_matrix");
  const bool fits = (tensor->rank == 2 || tensor->rank == 3) &&
                    (matrix.shape[1] == 1 || matrix.shape[1] == qkv.num_heads) &&
                    matrix.shape[2] == qkv.head_dim && matrix.shape[3] == qkv.k.shape[3];
  if (!fits) {
    throw Error(ErrorCode::kShape, Describe("score_matrix", *tensor) +
                                       ": expected [head_dim, head_dim_k] or [num_heads, head_dim, "
                                       "head_dim_k]");
  }
  const double scale = ReadNumber(request, "scale").value_or(1.0);
  return [matrix, scale, &qkv](int64_t b, int64_t h, int64_t i, int64_t j) {
    const auto q = qkv.q.Row(b, h, i);
    const auto k = qkv.k.Row(b, qkv.KvHead(h), j);
    double sum = 0.0;
    for (size_t m = 0; m < q.size(); ++m) {
      for (size_t n = 0; n < k.size(); ++n) sum += q[m] * matrix(0, h, m, n) * k[n];
    }
    return scale * sum;
  };
}

namespace luong_general {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request, KeyWidth::kFree);
  return RunExact(request, qkv, BilinearScore(request, qkv), SoftmaxNormalize(request, qkv));
}

}  // namespace luong_general
}  // namespace heed::reference
