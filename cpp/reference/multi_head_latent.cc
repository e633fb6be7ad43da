// Multi-head latent attention: keys and values of all heads from one latent row per token, and a
// rotated key that the heads share.
//
// Source: DeepSeek-AI 2024, DeepSeek-V2, arXiv:2405.04434, section 2.1, equations 37 to 47. RoPE:
// Su et al. 2021, arXiv:2104.09864; scaled as positions.cc has it.
#include <cmath>
#include <string>

#include "multi_head.h"
#include "positions.h"

namespace heed::reference::multi_head_latent {
namespace {

// Every row of x [batch, 1, len, dim], divided by its root mean square, times factors if given.
Array NormRows(const Request& request, Array x, const char* name) {
  if (FindInput(request, name) == nullptr) return x;
  const double epsilon = ReadNumber(request, "epsilon").value_or(1e-6);
  if (!(epsilon > 0)) throw Error(ErrorCode::kRange, "epsilon must be greater than 0");
  const std::vector<double> factors = ReadVector(request, name, x.shape[3], 1);
  const size_t dim = x.shape[3];
  for (size_t start = 0; start < x.values.size(); start += dim) {
    double squares = 0;
    for (size_t d = 0; d < dim; ++d) squares += x.values[start + d] * x.values[start + d];
    const double root = std::sqrt(squares / static_cast<double>(dim) + epsilon);
    for (size_t d = 0; d < dim; ++d) x.values[start + d] *= factors[d] / root;
  }
  return x;
}

// Turns the pairs of every row by its place times their frequency.
Array Rotate(const Request& request, Array x) {
  const std::string rope =
      ReadWord(request, "rope", {"none", "half", "interleaved"}).value_or("none");
  if (rope == "none") return x;
  const int64_t dim = x.shape[3], len = x.shape[2];
  if (dim == 0 || dim % 2 != 0) throw Error(ErrorCode::kShape, "rope_dim must be even");
  const Rotation rotation = ReadRotation(request, dim, len, ReadBase(request, "rope_base"));
  const int64_t rows = x.shape[0] * x.shape[1] * len;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t t = 0; t < dim / 2; ++t) {
      const double angle = static_cast<double>(row % len) * rotation.frequency[t];
      const double cos = rotation.magnitude * std::cos(angle);
      const double sin = rotation.magnitude * std::sin(angle);
      const PairOfDims pair = DimsOfPair(rope, t, dim);
      double& first = x.values[row * dim + pair.first];
      double& second = x.values[row * dim + pair.second];
      const double turned = first * cos - second * sin;
      second = second * cos + first * sin;
      first = turned;
    }
  }
  return x;
}

// [a, b] along the last dimension; one head of b serves all heads of a.
Array Join(const Array& a, const Array& b) {
  Array joined;
  joined.shape = {a.shape[0], a.shape[1], a.shape[2], a.shape[3] + b.shape[3]};
  for (int64_t n = 0; n < a.shape[0]; ++n) {
    for (int64_t h = 0; h < a.shape[1]; ++h) {
      for (int64_t i = 0; i < a.shape[2]; ++i) {
        const auto first = a.Row(n, h, i);
        const auto second = b.Row(n, b.shape[1] == 1 ? 0 : h, i);
        joined.values.insert(joined.values.end(), first.begin(), first.end());
        joined.values.insert(joined.values.end(), second.begin(), second.end());
      }
    }
  }
  return joined;
}

Array Multiply(const Request& request, const Array& x, const char* name, int rank) {
  return Project(request, x, name, "", rank);
}

void Expect(bool holds, const char* message) {
  if (!holds) throw Error(ErrorCode::kShape, message);
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  ReadWord(request, "form", {"naive", "absorbed"});  // both compute the same
  const Array x = ReadRows(request, "x");
  const bool compressed = FindInput(request, "w_dq") != nullptr;
  if (!compressed && FindInput(request, "norm_q_weight") != nullptr) {
    throw Error(ErrorCode::kOption, "norm_q_weight is given without w_dq");
  }
  const Array a =
      compressed ? NormRows(request, Multiply(request, x, "w_dq", 2), "norm_q_weight") : x;
  const Array latent = NormRows(request, Multiply(request, x, "w_dkv", 2), "norm_kv_weight");
  const Array q_nope = Multiply(request, a, "w_uq", 3);
  const Array q_rope = Rotate(request, Multiply(request, a, "w_qr", 3));
  const Array k_nope = Multiply(request, latent, "w_uk", 3);
  const Array k_rope = Rotate(request, Multiply(request, x, "w_kr", 2));
  Qkv qkv;
  qkv.v = Multiply(request, latent, "w_uv", 3);
  Expect(q_rope.shape[1] == q_nope.shape[1] && k_nope.shape[1] == q_nope.shape[1] &&
             qkv.v.shape[1] == q_nope.shape[1],
         "w_uq, w_qr, w_uk and w_uv must have the same num_heads");
  Expect(q_nope.shape[3] == k_nope.shape[3], "w_uq and w_uk must have the same nope_dim");
  Expect(q_rope.shape[3] == k_rope.shape[3], "w_qr and w_kr must have the same rope_dim");
  qkv.q = Join(q_nope, q_rope);
  qkv.k = Join(k_nope, k_rope);
  qkv.batch = x.shape[0], qkv.num_heads = qkv.num_kv_heads = q_nope.shape[1];
  qkv.q_len = qkv.kv_len = x.shape[2];
  qkv.head_dim = qkv.q.shape[3], qkv.head_dim_v = qkv.v.shape[3];
  std::vector<Result> results =
      RunExact(request, qkv, DotScore(request, qkv), SoftmaxNormalize(request, qkv));
  const Array w_o = ReadNeeded(request, "w_o", 3);
  Expect(w_o.shape[2] == qkv.num_heads && w_o.shape[3] == qkv.head_dim_v,
         "w_o must be [out_dim, num_heads, head_dim_v]");
  Result output = {"output", 3, {qkv.batch, qkv.q_len, w_o.shape[1]}, {}};
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t i = 0; i < qkv.q_len; ++i) {
      for (int64_t o = 0; o < w_o.shape[1]; ++o) {
        double sum = 0;
        for (int64_t h = 0; h < qkv.num_heads; ++h) {
          const int64_t row = ((b * qkv.num_heads + h) * qkv.q_len + i) * qkv.head_dim_v;
          for (int64_t d = 0; d < qkv.head_dim_v; ++d) {
            sum += results[0].values[row + d] * w_o.Row(0, o, h)[d];
          }
        }
        output.values.push_back(sum);
      }
    }
  }
  results[0] = output;
  return results;
}

}  // namespace heed::reference::multi_head_latent
