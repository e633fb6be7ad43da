// Sparse Sinkhorn attention: blocks of keys sorted by a balanced matrix, and the own block.
//
// Source: Tay et al. 2020, arXiv:2002.11296, sections 3.1 (sorting), 3.1.2 (balancing), 3.2
// (attention), 3.3 (causal).
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "choice.h"
#include "exact.h"
#include "inputs.h"
#include "softmax.h"
#include "visibility.h"

namespace heed::reference::sinkhorn {
namespace {

using Matrix = std::vector<std::vector<double>>;

struct Problem {
  const Qkv& qkv;
  int64_t size, iterations;
  double temperature, scale;
  bool causal;
  std::optional<Array> logits;

  // Blocks that may come to the place of block n.
  int64_t Cols(int64_t length, int64_t n) const {
    return causal ? std::min(n, length / size) : length / size;
  }
};

std::vector<double> Mean(const Array& x, int64_t b, int64_t h, int64_t begin, int64_t end) {
  std::vector<double> mean(x.shape[3], 0.0);
  for (int64_t i = begin; i < end; ++i) {
    for (size_t d = 0; d < mean.size(); ++d) mean[d] += x(b, h, i, d) / (end - begin);
  }
  return mean;
}

double LogSum(const std::vector<double>& x) {
  double largest = kMinusInfinity, sum = 0.0;
  for (const double s : x) largest = s > largest ? s : largest;
  for (const double s : x) {
    if (s != kMinusInfinity) sum += std::exp(s - largest);
  }
  return sum == 0.0 ? 0.0 : largest + std::log(sum);
}

// Logarithms of the shares; -inf where a block may not come.
Matrix Balanced(const Problem& p, int64_t b, int64_t h, int64_t length) {
  const int64_t rows = (length + p.size - 1) / p.size;
  Matrix logs(rows, std::vector<double>(rows, kMinusInfinity));
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t end = p.causal ? n * p.size + 1 : std::min(length, (n + 1) * p.size);
    const std::vector<double> query = Mean(p.qkv.q, b, h, n * p.size, end);
    for (int64_t m = 0; m < p.Cols(length, n); ++m) {
      const std::vector<double> key =
          Mean(p.qkv.k, b, p.qkv.KvHead(h), m * p.size, (m + 1) * p.size);
      const double logit =
          p.logits ? (*p.logits).Row(b, h, n)[m] : p.scale * DotInOrder(query, key);
      logs[n][m] = logit / p.temperature;
    }
  }
  for (int64_t step = 0; step < p.iterations; ++step) {
    for (std::vector<double>& row : logs) {
      const double sum = LogSum(row);
      for (double& x : row) x -= sum;
    }
    const Matrix before = logs;
    for (int64_t m = 0; m < rows; ++m) {
      std::vector<double> column;
      for (int64_t n = 0; n < rows; ++n) {
        column.push_back(before[n][m]);
        if (p.causal) logs[n][m] -= LogSum(column);  // of the rows so far
      }
      const double sum = p.causal ? 0.0 : LogSum(column);
      for (int64_t n = 0; n < rows; ++n) logs[n][m] -= sum;
    }
  }
  return logs;
}

// What comes to slot t of block n.
std::vector<double> Sorted(const Problem& p, const Array& x, int64_t b, int64_t kv,
                           const std::vector<double>& logs, int64_t t) {
  std::vector<double> row(x.shape[3], 0.0);
  for (size_t m = 0; m < logs.size(); ++m) {
    const double share = std::exp(logs[m]);
    if (share == 0.0) continue;
    for (size_t d = 0; d < row.size(); ++d) row[d] += share * x(b, kv, m * p.size + t, d);
  }
  return row;
}

std::vector<double> OutputRow(const Problem& p, const Matrix& logs, int64_t b, int64_t h, int64_t i,
                              int64_t length) {
  const Qkv& qkv = p.qkv;
  const int64_t n = i / p.size, kv = qkv.KvHead(h);
  std::vector<double> scores;
  Matrix values;
  const auto add = [&](std::span<const double> key, std::vector<double> value) {
    scores.push_back(p.scale * DotInOrder(qkv.q.Row(b, h, i), key));
    values.push_back(std::move(value));
  };
  if (std::ranges::any_of(logs[n], [](double x) { return x != kMinusInfinity; })) {
    for (int64_t t = 0; t < p.size; ++t) {
      add(Sorted(p, qkv.k, b, kv, logs[n], t), Sorted(p, qkv.v, b, kv, logs[n], t));
    }
  }
  for (int64_t j = n * p.size; j < std::min(length, (n + 1) * p.size); ++j) {
    if (p.causal && j > i) break;
    const auto value = qkv.v.Row(b, kv, j);
    add(qkv.k.Row(b, kv, j), {value.begin(), value.end()});
  }
  Softmax(scores, kMinusInfinity);
  std::vector<double> output(qkv.head_dim_v, 0.0);
  for (size_t s = 0; s < scores.size(); ++s) {
    for (size_t d = 0; d < output.size(); ++d) output[d] += scores[s] * values[s][d];
  }
  return output;
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  RefuseRankOfLengths(request);
  if (qkv.q_len != qkv.kv_len) throw Error(ErrorCode::kShape, "q_len and kv_len must be the same");
  Problem p = {qkv,
               ReadAtLeastOne(request, "key_block", 64),
               ReadAtLeastOne(request, "sort_iterations", 8),
               ReadNumber(request, "sort_temperature").value_or(0.75),
               ReadScale(request, qkv),
               ReadFlag(request, "causal"),
               ReadFloats(request, "sort_logits", 4)};
  if (!(p.temperature > 0.0)) throw Error(ErrorCode::kRange, "sort_temperature must be positive");
  if (p.iterations > 1000) throw Error(ErrorCode::kRange, "sort_iterations is above 1000");
  const int64_t blocks = (qkv.q_len + p.size - 1) / p.size;
  if (p.logits && p.logits->shape != Extents{qkv.batch, qkv.num_heads, blocks, blocks}) {
    throw Error(ErrorCode::kShape, "sort_logits must be [batch, num_heads, blocks, blocks]");
  }
  const Visibility visible(request, qkv);
  Result output = {"output", 4, {qkv.batch, qkv.num_heads, qkv.q_len, qkv.head_dim_v}, {}};
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t h = 0; h < qkv.num_heads; ++h) {
      const int64_t length = qkv.q_len == 0 ? 0 : visible.Length(b, 0);
      const Matrix logs = Balanced(p, b, h, length);
      for (int64_t i = 0; i < qkv.q_len; ++i) {
        std::vector<double> row(qkv.head_dim_v, 0.0);
        if (i < length) row = OutputRow(p, logs, b, h, i, length);
        output.values.insert(output.values.end(), row.begin(), row.end());
      }
    }
  }
  return {output};
}

}  // namespace heed::reference::sinkhorn
