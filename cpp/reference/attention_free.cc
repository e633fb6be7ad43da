// Attention-free transformer: every channel is a mean of its own, weighted by exp(k + w).
//
// Source: Zhai et al. 2021, arXiv:2105.14103, equations 2 (full) and 3 (local); simple is w = 0.
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "inputs.h"
#include "softmax.h"
#include "visibility.h"

namespace heed::reference::attention_free {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  if (qkv.head_dim != qkv.head_dim_v) {
    throw Error(ErrorCode::kShape, "v must have the head_dim of k");
  }
  const Visibility visible(request, qkv);
  const std::optional<Array> bias = ReadPairs(request, "bias", qkv, DType::kFloat32);
  const std::optional<int64_t> local = ReadCount(request, "local_window");
  if (local && *local < 1) throw Error(ErrorCode::kRange, "local_window must be at least 1");
  if (local && qkv.q_len != qkv.kv_len && FindParam(request, "query_offset") == nullptr) {
    throw Error(ErrorCode::kOption, "query_offset is missing: local_window needs positions");
  }
  Result output = {"output", 4, {qkv.batch, qkv.num_heads, qkv.q_len, qkv.head_dim}, {}};
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t h = 0; h < qkv.num_heads; ++h) {
      const int64_t g = qkv.KvHead(h);
      for (int64_t i = 0; i < qkv.q_len; ++i) {
        for (int64_t c = 0; c < qkv.head_dim; ++c) {
          std::vector<double> row(qkv.kv_len, kMinusInfinity);
          for (int64_t j = 0; j < qkv.kv_len; ++j) {
            if (!visible(b, h, i, j)) continue;
            const int64_t distance = std::abs(visible.Position(b, i) - j);
            const double w = bias && (!local || distance < *local) ? (*bias)(b, h, i, j) : 0.0;
            if (w != kMinusInfinity) row[j] = qkv.k(b, g, j, c) + w;
          }
          const std::vector<double> exponents = row;
          double sum = 0.0;
          if (Softmax(row, kMinusInfinity) != kMinusInfinity) {
            for (int64_t j = 0; j < qkv.kv_len; ++j) {
              if (exponents[j] != kMinusInfinity) sum += row[j] * qkv.v(b, g, j, c);
            }
            sum /= 1.0 + std::exp(-qkv.q(b, h, i, c));
          }
          output.values.push_back(sum);
        }
      }
    }
  }
  return {output};
}

}  // namespace heed::reference::attention_free
