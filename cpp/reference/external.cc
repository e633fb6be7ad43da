// External attention: softmax over the tokens for each memory unit, then rows that sum to 1.
//
// Source: Guo et al. 2021, arXiv:2105.02358, equations 5 to 9.
#include <cmath>
#include <string>
#include <vector>

#include "inputs.h"
#include "softmax.h"

namespace heed::reference::external {
namespace {

// [num_heads or 1, num_units, dim], rank 3.
Array ReadMemory(const Request& request, const char* name, const Array& q) {
  const Array memory = *ReadFloats(request, name, 3);
  if (memory.shape[1] != 1 && memory.shape[1] != q.shape[1]) {
    throw Error(ErrorCode::kShape, Describe(name, *FindInput(request, name)) +
                                       ": expected [num_heads or 1, num_units, dim]");
  }
  return memory;
}

std::vector<int64_t> ReadLengths(const Request& request, const Array& q) {
  std::vector<int64_t> lengths(q.shape[0], q.shape[2]);
  const std::optional<Array> given = ReadIntegers(request, "key_lengths");
  if (!given) return lengths;
  const AnyTensor& tensor = *FindInput(request, "key_lengths");
  if (tensor.rank != 1 || tensor.shape[0] != q.shape[0]) {
    throw Error(ErrorCode::kShape, Describe("key_lengths", tensor) + ": expected [batch]");
  }
  for (size_t b = 0; b < lengths.size(); ++b) {
    lengths[b] = static_cast<int64_t>(given->values[b]);
    if (lengths[b] < 0 || lengths[b] > q.shape[2]) {
      throw Error(ErrorCode::kRange, "key_lengths has a value outside of 0 to q_len");
    }
  }
  return lengths;
}

double Dot(const Array& q, const Array& memory, int64_t b, int64_t h, int64_t i, int64_t u) {
  double sum = 0.0;
  for (int64_t d = 0; d < q.shape[3]; ++d) sum += q(b, h, i, d) * memory(0, h, u, d);
  return sum;
}

// Attention of the tokens [0, length) of one head to all units: [length][units], rows sum to 1.
std::vector<double> NormaliseTwice(std::vector<double> scores, int64_t length, int64_t units) {
  for (int64_t u = 0; u < units; ++u) {
    std::vector<double> column(length);
    for (int64_t i = 0; i < length; ++i) column[i] = scores[i * units + u];
    Softmax(column, kMinusInfinity);
    for (int64_t i = 0; i < length; ++i) scores[i * units + u] = std::log(column[i]);
  }
  // Sums of exponentials of logarithms: a row far from every unit does not vanish.
  for (int64_t i = 0; i < length; ++i) {
    Softmax(std::span(scores).subspan(i * units, units), kMinusInfinity);
  }
  return scores;
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const AnyTensor& given = *FindInput(request, "q");
  if (given.rank != 4) throw Error(ErrorCode::kShape, Describe("q", given) + ": expected rank 4");
  const Array q = *ReadFloats(request, "q", 4);
  const Array k = ReadMemory(request, "memory_k", q);
  const Array v = ReadMemory(request, "memory_v", q);
  if (k.shape[2] != v.shape[2] || k.shape[3] != q.shape[3]) {
    throw Error(ErrorCode::kShape, "memory_k, memory_v and q do not fit together");
  }
  const double scale = ReadNumber(request, "scale").value_or(1.0);
  const std::vector<int64_t> lengths = ReadLengths(request, q);
  const auto [batch, heads, q_len, dim] = q.shape;
  const int64_t units = k.shape[2], dim_v = v.shape[3];
  Result output = {"output", 4, {batch, heads, q_len, dim_v}, {}};
  Result weights = {"weights", 4, {batch, heads, q_len, units}, {}};
  output.values.resize(batch * heads * q_len * dim_v);
  weights.values.resize(batch * heads * q_len * units);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      std::vector<double> scores(lengths[b] * units);
      for (size_t n = 0; n < scores.size(); ++n) {
        scores[n] = scale * Dot(q, k, b, h, n / units, n % units);
      }
      const std::vector<double> rows = NormaliseTwice(scores, lengths[b], units);
      for (size_t n = 0; n < rows.size(); ++n) {
        const int64_t row = (b * heads + h) * q_len + n / units;
        weights.values[row * units + n % units] = rows[n];
        for (int64_t d = 0; d < dim_v; ++d) {
          output.values[row * dim_v + d] += rows[n] * v(0, h, n % units, d);
        }
      }
    }
  }
  std::vector<Result> results = {output};
  if (ReadFlag(request, "return_weights")) results.push_back(weights);
  return results;
}

}  // namespace heed::reference::external
