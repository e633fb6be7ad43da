// Indexed attention (DeepSeek sparse attention): softmax over the keys that an indexer likes best.
//
// Source: DeepSeek-AI 2025, DeepSeek-V3.2-Exp: Boosting Long-Context Efficiency with DeepSeek
// Sparse Attention, equations 1 and 2.
#include <algorithm>
#include <string>
#include <vector>

#include "choice.h"
#include "inputs.h"
#include "visibility.h"

namespace heed::reference::indexed {
namespace {

// The input has this shape.
Array ReadShaped(const Request& request, const char* name, int rank, const Extents& shape) {
  const Array array = ReadFloats(request, name, rank).value();
  if (array.shape != shape)
    throw Error(ErrorCode::kShape, std::string(name) + " has another shape");
  return array;
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  const int64_t most = ReadAtLeastOne(request, "top_k", 8);
  const bool causal = ReadFlag(request, "causal");
  const Visibility visible(request, qkv);
  const Array index_q = ReadFloats(request, "index_q", 4).value();
  const int64_t heads = index_q.shape[1], dim = index_q.shape[3];
  if (index_q.shape != Extents{qkv.batch, heads, qkv.q_len, dim}) {
    throw Error(ErrorCode::kShape, "index_q must be [batch, index_heads, q_len, index_dim]");
  }
  const Array index_k = ReadShaped(request, "index_k", 3, {1, qkv.batch, qkv.kv_len, dim});
  const Array weights = ReadShaped(request, "index_weights", 3, {1, qkv.batch, heads, qkv.q_len});
  const auto names = {"index_q", "index_k", "index_weights", "top_k"};
  return RunOverChosen(
      request, qkv, {names.begin(), names.end()}, [&](int64_t b, int64_t, int64_t i) {
        int64_t count = visible.Length(b, i);
        if (causal) count = std::min(count, visible.Position(b, i) + 1);
        std::vector<double> scores(std::max<int64_t>(count, 0), 0.0);
        for (size_t j = 0; j < scores.size(); ++j) {
          for (int64_t h = 0; h < heads; ++h) {
            const double product =
                static_cast<float>(DotInOrder(index_q.Row(b, h, i), index_k.Row(0, b, j)));
            scores[j] += weights(0, b, h, i) * (product < 0.0 ? 0.0 : product);
          }
        }
        std::vector<bool> keep(qkv.kv_len, false);
        for (const int64_t j : BestOf(scores, most)) keep[j] = true;
        return keep;
      });
}

}  // namespace heed::reference::indexed
