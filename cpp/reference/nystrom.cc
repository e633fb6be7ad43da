// Nystrom attention: softmax(q K^T) pinv(softmax(Q K^T)) softmax(Q k^T) v with landmarks Q and K,
// and a depthwise convolution of the values.
//
// Source: Xiong et al. 2021, arXiv:2102.03902, equations 9, 13 and 14.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "exact.h"
#include "inputs.h"
#include "low_rank.h"
#include "softmax.h"

namespace heed::reference::nystrom {
namespace {

using Matrix = std::vector<std::vector<double>>;

// The first `len` rows of a head.
Matrix RowsOfHead(const Array& array, int64_t b, int64_t h, int64_t len) {
  Matrix rows;
  for (int64_t i = 0; i < len; ++i) {
    const auto row = array.Row(b, h, i);
    rows.emplace_back(row.begin(), row.end());
  }
  return rows;
}

// Means of `count` segments of rows.
Matrix Landmarks(const Matrix& rows, int64_t count) {
  const int64_t len = static_cast<int64_t>(rows.size());
  Matrix means;
  for (int64_t n = 0; n < count; ++n) {
    const int64_t begin = n * len / count, end = (n + 1) * len / count;
    std::vector<double> mean(rows[0].size());
    for (int64_t i = begin; i < end; ++i) {
      for (size_t d = 0; d < mean.size(); ++d) mean[d] += rows[i][d] / (end - begin);
    }
    means.push_back(mean);
  }
  return means;
}

// softmax(scale a b^T).
Matrix Weights(const Matrix& a, const Matrix& b, double scale) {
  Matrix weights;
  for (const auto& x : a) {
    std::vector<double> row;
    for (const auto& y : b) {
      double dot = 0.0;
      for (size_t d = 0; d < x.size(); ++d) dot += x[d] * y[d];
      row.push_back(scale * dot);
    }
    Softmax(row, kMinusInfinity);
    weights.push_back(row);
  }
  return weights;
}

Matrix Product(const Matrix& a, const Matrix& b) {
  Matrix product(a.size(), std::vector<double>(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t t = 0; t < b.size(); ++t) {
      for (size_t j = 0; j < b[t].size(); ++j) product[i][j] += a[i][t] * b[t][j];
    }
  }
  return product;
}

// diagonal * identity - a.
Matrix Minus(double diagonal, Matrix a) {
  for (size_t i = 0; i < a.size(); ++i) {
    for (double& x : a[i]) x = -x;
    a[i][i] += diagonal;
  }
  return a;
}

Matrix PseudoInverse(const Matrix& a, int64_t iterations) {
  double rows = 0.0, cols = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    double row = 0.0, col = 0.0;
    for (size_t j = 0; j < a.size(); ++j) {
      row += std::abs(a[i][j]);
      col += std::abs(a[j][i]);
    }
    rows = std::max(rows, row);
    cols = std::max(cols, col);
  }
  Matrix z = a;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a.size(); ++j) z[i][j] = a[j][i] / (rows * cols);
  }
  for (int64_t n = 0; n < iterations; ++n) {
    const Matrix az = Product(a, z);
    z = Product(z, Minus(13, Product(az, Minus(15, Product(az, Minus(7, az))))));
    for (auto& row : z) {
      for (double& x : row) x /= 4;
    }
  }
  return z;
}

// |a z a - a| / |a|.
double Residual(const Matrix& a, const Matrix& z) {
  const Matrix aza = Product(Product(a, z), a);
  double far = 0.0, size = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a.size(); ++j) {
      far += std::pow(aza[i][j] - a[i][j], 2);
      size += std::pow(a[i][j], 2);
    }
  }
  return std::sqrt(far / size);
}

struct Options {
  int64_t num_landmarks, iterations;
  double scale;
  std::optional<Array> conv;  // [1, 1, 1 or num_heads, kernel_len]
};

Options ReadOptions(const Request& request, const Qkv& qkv) {
  if (qkv.q_len != qkv.kv_len) throw Error(ErrorCode::kShape, "q_len and kv_len differ");
  const std::optional<int64_t> given = ReadCount(request, "num_landmarks");
  Options o = {given.value_or(std::min<int64_t>(64, qkv.kv_len)),
               ReadCount(request, "iterations").value_or(6), ReadScale(request, qkv),
               ReadFloats(request, "depthwise_conv", 2)};
  if (given && (o.num_landmarks < 1 || o.num_landmarks > qkv.kv_len)) {
    throw Error(ErrorCode::kRange, "num_landmarks must lie in [1, kv_len]");
  }
  if (o.iterations < 1 || o.iterations > 100) {
    throw Error(ErrorCode::kRange, "iterations must lie in [1, 100]");
  }
  if (o.conv &&
      (o.conv->shape[3] % 2 == 0 || (o.conv->shape[2] != 1 && o.conv->shape[2] != qkv.num_heads))) {
    throw Error(ErrorCode::kShape, "depthwise_conv: expected [1 or num_heads, odd]");
  }
  return o;
}

// The weights of one head's queries over its tokens, and the residual.
Matrix WeightsOfHead(const Matrix& q, const Matrix& k, const Options& o, double& residual) {
  const int64_t len = static_cast<int64_t>(k.size());
  residual = 0.0;
  if (len <= o.num_landmarks) return Weights(q, k, o.scale);
  const Matrix tokens(q.begin(), q.begin() + len);
  const Matrix queries = Landmarks(tokens, o.num_landmarks), keys = Landmarks(k, o.num_landmarks);
  const Matrix a = Weights(queries, keys, o.scale);
  const Matrix z = PseudoInverse(a, o.iterations);
  residual = Residual(a, z);
  return Product(Weights(q, keys, o.scale), Product(z, Weights(queries, k, o.scale)));
}

double Convolved(const Options& o, const Matrix& v, int64_t h, int64_t i, int64_t d) {
  if (!o.conv) return 0.0;
  const int64_t taps = o.conv->shape[3], len = static_cast<int64_t>(v.size());
  double sum = 0.0;
  for (int64_t t = 0; t < taps; ++t) {
    const int64_t j = i + t - taps / 2;
    if (j >= 0 && j < len) sum += (*o.conv)(0, 0, h, t) * v[j][d];
  }
  return sum;
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  const std::vector<int64_t> lengths = ReadBatchLengths(request, qkv);
  const Options o = ReadOptions(request, qkv);
  Result output = {"output", 4, {qkv.batch, qkv.num_heads, qkv.q_len, qkv.head_dim_v}, {}};
  Result weights = {"weights", 4, {qkv.batch, qkv.num_heads, qkv.q_len, qkv.kv_len}, {}};
  Result residuals = {"residual", 2, {qkv.batch, qkv.num_heads}, {}};
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t h = 0; h < qkv.num_heads; ++h) {
      const int64_t kv = qkv.KvHead(h);
      const Matrix v = RowsOfHead(qkv.v, b, kv, lengths[b]);
      double residual = 0.0;
      Matrix p = WeightsOfHead(RowsOfHead(qkv.q, b, h, qkv.q_len),
                               RowsOfHead(qkv.k, b, kv, lengths[b]), o, residual);
      residuals.values.push_back(residual);
      for (int64_t i = 0; i < qkv.q_len; ++i) {
        for (int64_t d = 0; d < qkv.head_dim_v; ++d) {
          double sum = Convolved(o, v, h, i, d);
          for (size_t j = 0; j < v.size(); ++j) sum += p[i][j] * v[j][d];
          output.values.push_back(sum);
        }
        p[i].resize(qkv.kv_len);
        weights.values.insert(weights.values.end(), p[i].begin(), p[i].end());
      }
    }
  }
  std::vector<Result> results = {output};
  if (ReadFlag(request, "return_weights")) results.push_back(weights);
  if (ReadFlag(request, "return_residual")) results.push_back(residuals);
  return results;
}

}  // namespace heed::reference::nystrom
