// Efficient attention: softmax over features of q, softmax over tokens of k.
//
// Source: Shen et al. 2018, arXiv:1812.01243, section 3.2.
#include <vector>

#include "inputs.h"
#include "low_rank.h"
#include "softmax.h"

namespace heed::reference::efficient {
namespace {

// Column d of the keys of a head, over the tokens that count.
std::vector<double> SharesOfTokens(const Array& k, int64_t b, int64_t h, int64_t d, int64_t len) {
  std::vector<double> column;
  for (int64_t j = 0; j < len; ++j) column.push_back(k.Row(b, h, j)[d]);
  Softmax(column, kMinusInfinity);
  return column;
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  const std::vector<int64_t> lengths = ReadBatchLengths(request, qkv);
  Result output = {"output", 4, {qkv.batch, qkv.num_heads, qkv.q_len, qkv.head_dim_v}, {}};
  Result weights = {"weights", 4, {qkv.batch, qkv.num_heads, qkv.q_len, qkv.kv_len}, {}};
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t h = 0; h < qkv.num_heads; ++h) {
      const int64_t kv = qkv.KvHead(h);
      std::vector<std::vector<double>> shares;
      for (int64_t d = 0; d < qkv.head_dim; ++d) {
        shares.push_back(SharesOfTokens(qkv.k, b, kv, d, lengths[b]));
      }
      for (int64_t i = 0; i < qkv.q_len; ++i) {
        const auto row = qkv.q.Row(b, h, i);
        std::vector<double> features(row.begin(), row.end());
        Softmax(features, kMinusInfinity);
        std::vector<double> p(qkv.kv_len);
        for (int64_t d = 0; d < qkv.head_dim; ++d) {
          for (int64_t j = 0; j < lengths[b]; ++j) p[j] += features[d] * shares[d][j];
        }
        weights.values.insert(weights.values.end(), p.begin(), p.end());
        for (int64_t d = 0; d < qkv.head_dim_v; ++d) {
          double sum = 0.0;
          for (int64_t j = 0; j < lengths[b]; ++j) sum += p[j] * qkv.v.Row(b, kv, j)[d];
          output.values.push_back(sum);
        }
      }
    }
  }
  std::vector<Result> results = {output};
  if (ReadFlag(request, "return_weights")) results.push_back(weights);
  return results;
}

}  // namespace heed::reference::efficient
