// Heavy hitters: a cache that forgets the older tokens with the smallest accumulated weights.
//
// Source: Zhang et al. 2023, arXiv:2306.14048, section 4, algorithm 1.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "choice.h"
#include "exact.h"
#include "inputs.h"
#include "low_rank.h"
#include "softmax.h"

namespace heed::reference::heavy_hitter {
namespace {

struct Options {
  int64_t recent, heavy;
  std::optional<double> softcap;
  std::vector<double> sinks;
};

Options ReadOptions(const Request& request, const Qkv& qkv) {
  Options o = {ReadAtLeastOne(request, "recent_tokens", 1024),
               ReadAtLeastOne(request, "heavy_tokens", 1024), ReadNumber(request, "softcap"),
               ReadSinks(request, qkv)};
  if (o.softcap && *o.softcap <= 0.0) throw Error(ErrorCode::kRange, "softcap must be positive");
  if (qkv.q_len != qkv.kv_len) throw Error(ErrorCode::kShape, "q_len and kv_len differ");
  if (qkv.q.values.empty() || qkv.v.values.empty()) {
    throw Error(ErrorCode::kShape, "q, k and v need extents of at least 1");
  }
  return o;
}

// Tokens of a KV head and the weights that each has received.
using Held = std::map<int64_t, double>;

// Before token t comes: of those that are not among the last recent - 1, `heavy` stay.
void Forget(Held& held, const Options& o, int64_t t) {
  std::vector<int64_t> older;
  for (const auto& [token, sum] : held) {
    if (token < t - (o.recent - 1)) older.push_back(token);
  }
  const auto sum_of = [&](int64_t token) {
    const double sum = held[token];
    return std::isnan(sum) ? std::numeric_limits<double>::infinity() : sum;
  };
  std::ranges::stable_sort(older, [&](int64_t a, int64_t b) { return sum_of(a) > sum_of(b); });
  for (int64_t n = o.heavy; n < static_cast<int64_t>(older.size()); ++n) held.erase(older[n]);
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  RefuseLengthsPerQuery(request);
  const Options o = ReadOptions(request, qkv);
  const std::vector<int64_t> lengths = ReadBatchLengths(request, qkv);
  const PairScore score = DotScore(qkv, ReadScale(request, qkv));
  const int64_t heads = qkv.num_heads, len = qkv.q_len, dim_v = qkv.head_dim_v;
  Result output = {"output", 4, {qkv.batch, heads, len, dim_v}, {}};
  Result weights = {"weights", 4, {qkv.batch, heads, len, len}, {}};
  Result lse = {"lse", 3, {qkv.batch, heads, len}, {}};
  output.values.resize(qkv.batch * heads * len * dim_v);
  weights.values.resize(qkv.batch * heads * len * len);
  lse.values.resize(qkv.batch * heads * len, kMinusInfinity);
  const int64_t group = heads / qkv.num_kv_heads;
  for (int64_t b = 0; b < qkv.batch; ++b) {
    for (int64_t kv = 0; kv < qkv.num_kv_heads; ++kv) {
      Held held;
      for (int64_t t = 0; t < lengths[b]; ++t) {
        Forget(held, o, t);
        held[t] = 0.0;
        for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
          const int64_t at = (b * heads + h) * len + t;
          std::vector<double> row;
          for (const auto& [j, sum] : held) {
            const double s = score(b, h, t, j);
            row.push_back(o.softcap ? *o.softcap * std::tanh(s / *o.softcap) : s);
          }
          lse.values[at] = Softmax(row, o.sinks.empty() ? kMinusInfinity : o.sinks[h]);
          size_t n = 0;
          for (auto& [j, sum] : held) {
            const double p = row[n++];
            sum += p;
            weights.values[at * len + j] = p;
            for (int64_t d = 0; d < dim_v; ++d) {
              output.values[at * dim_v + d] += p * qkv.v.Row(b, kv, j)[d];
            }
          }
        }
      }
    }
  }
  std::vector<Result> results = {output};
  if (ReadFlag(request, "return_lse")) results.push_back(lse);
  if (ReadFlag(request, "return_weights")) results.push_back(weights);
  return results;
}

}  // namespace heed::reference::heavy_hitter
