// Softmax attention as the tiled loop computes it, with the running statistics of its rows: tile
// after tile, the largest score so far, the sum of exponentials relative to it, and the factor by
// which a new maximum shrinks what was summed before.
//
// Source: Dao et al. 2022, FlashAttention, arXiv:2205.14135, algorithm 1; Milakov & Gimelshein
// 2018, arXiv:1805.02867, algorithm 3.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "exact.h"
#include "softmax.h"

namespace heed::reference::flash {
namespace {

constexpr int64_t kTileKeys = 256;  // kAttentionTileKeys of heed/attention.h

struct Tiles {
  std::vector<double> running_max, running_sum, rescale;

  void Add(std::span<const double> row) {
    double top = kMinusInfinity, sum = 0.0;
    for (size_t begin = 0; begin < row.size(); begin += kTileKeys) {
      const auto tile = row.subspan(begin, std::min<size_t>(kTileKeys, row.size() - begin));
      const double before = top;
      for (const double s : tile) {
        if (s > top) top = s;
      }
      const double factor = top > before ? std::exp(before - top) : 1.0;
      sum *= factor;
      for (const double s : tile) {
        if (s != kMinusInfinity) sum += std::exp(s - top);
      }
      running_max.push_back(top);
      running_sum.push_back(sum);
      rescale.push_back(factor);
    }
  }
};

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  const std::optional<int64_t> query = ReadCount(request, "tiles_of_query");
  const bool wanted = ReadFlag(request, "return_tiles");
  if (query && !wanted) {
    throw Error(ErrorCode::kOption, "tiles_of_query says which row of return_tiles; set that too");
  }
  if (query && *query >= qkv.q_len) {
    throw Error(ErrorCode::kRange, "tiles_of_query is " + std::to_string(*query) +
                                       ": expected less than q_len, " + std::to_string(qkv.q_len));
  }
  if (wanted && FindParam(request, "prob_mod") != nullptr) {
    throw Error(ErrorCode::kUnsupported, "return_tiles with prob_mod: no tiles carry it");
  }
  Tiles tiles;
  const RowNormalize softmax = SoftmaxNormalize(request, qkv);
  const auto normalize = [&](const RowPlace& at, std::span<double> row) {
    if (wanted && (!query || *query == at.i)) tiles.Add(row);
    return softmax(at, row);
  };
  Request with_lse = request;
  with_lse.params.push_back({"return_lse", true});
  std::vector<Result> results = RunExact(with_lse, qkv, DotScore(request, qkv), normalize);
  if (!wanted) return results;
  const int64_t num_tiles = (qkv.kv_len + kTileKeys - 1) / kTileKeys;
  const Extents shape = {qkv.batch, qkv.num_heads, query ? 1 : qkv.q_len, num_tiles};
  results.push_back({"running_max", 4, shape, std::move(tiles.running_max)});
  results.push_back({"running_sum", 4, shape, std::move(tiles.running_sum)});
  results.push_back({"rescale", 4, shape, std::move(tiles.rescale)});
  return results;
}

}  // namespace heed::reference::flash
