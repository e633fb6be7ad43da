// Mixture of block attention: the blocks of keys whose mean has the largest product with the query,
// and the query's own block.
//
// Source: Lu et al. 2025, arXiv:2502.13189, section 2.2, equations 2 to 6.
#include <algorithm>
#include <vector>

#include "choice.h"
#include "inputs.h"
#include "visibility.h"

namespace heed::reference::block_mixture {
namespace {

// The mean of the keys [begin, end), rounded to float32.
std::vector<double> MeanKey(const Qkv& qkv, int64_t b, int64_t kv, int64_t begin, int64_t end) {
  std::vector<double> mean(qkv.head_dim, 0.0);
  for (int64_t d = 0; d < qkv.head_dim; ++d) {
    for (int64_t j = begin; j < end; ++j) mean[d] += qkv.k(b, kv, j, d);
    mean[d] = static_cast<float>(mean[d] / static_cast<double>(end - begin));
  }
  return mean;
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  const int64_t size = ReadAtLeastOne(request, "key_block", 64);
  const int64_t most = ReadAtLeastOne(request, "top_blocks", 8);
  RefuseLengthsPerQuery(request);
  const bool causal = ReadFlag(request, "causal");
  const Visibility visible(request, qkv);
  return RunOverChosen(
      request, qkv, {"key_block", "top_blocks"}, [&](int64_t b, int64_t h, int64_t i) {
        const int64_t length = visible.Length(b, i), position = visible.Position(b, i);
        const int64_t own = position < 0 ? -1 : position / size;
        std::vector<double> gates;
        for (int64_t n = 0; n * size < length && (!causal || n <= own); ++n) {
          const int64_t end = std::min(length, (n + 1) * size);
          const std::vector<double> mean = MeanKey(qkv, b, qkv.KvHead(h), n * size, end);
          gates.push_back(DotInOrder(qkv.q.Row(b, h, i), mean));
        }
        std::vector<int64_t> certain;
        if (own >= 0 && own < static_cast<int64_t>(gates.size())) certain.push_back(own);
        std::vector<bool> keep(qkv.kv_len, false);
        for (const int64_t n : BestOf(gates, most, certain)) {
          for (int64_t j = n * size; j < std::min(length, (n + 1) * size); ++j) keep[j] = true;
        }
        return keep;
      });
}

}  // namespace heed::reference::block_mixture
