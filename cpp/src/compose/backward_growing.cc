// The attention-free transformer where rows see more and more keys, without a bias: one pass
// forward, in which each row goes on from the one before it, and one back, in which what arrives at
// rows is summed for the keys that they all see.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/compose/backward_attention_free.h"

namespace heed {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// body(b, head, first, count) for blocks of channels of [batch, heads].
template <class Body>
void ForEachChannelBlock(const FreeRows& rows, int64_t heads, ThreadPool& pool, const Body& body) {
  const int64_t blocks = (rows.width() + kFreeChannels - 1) / kFreeChannels;
  pool.Run(rows.p.q.shape[0] * heads * blocks, [&](int64_t task, int) {
    const int64_t first = task % blocks * kFreeChannels, unit = task / blocks;
    body(unit / heads, unit % heads, first, std::min(kFreeChannels, rows.width() - first));
  });
}

// What arrives at rows from the last one on, relative to the denominator of the newest: a key
// gets from all rows that see it e^(key - lse) times these sums.
struct RowSums {
  double lse = 0, d_mean = 0, d_mean_mean = 0;
  bool any = false;

  void Add(double row_lse, double row_d_mean, double mean) {
    const double fall = any ? std::exp(row_lse - lse) : 0;
    d_mean = any ? d_mean * fall + row_d_mean : row_d_mean;
    d_mean_mean = any ? d_mean_mean * fall + row_d_mean * mean : row_d_mean * mean;
    lse = row_lse;
    any = true;
  }
};

void AddToKey(const FreeRows& rows, int64_t b, int64_t h, int64_t j, int64_t first, int64_t count,
              const RowSums* sums) {
  const AttentionFreeProblem& p = rows.p;
  const int64_t kv_head = rows.KvHead(h);
  for (int64_t c = 0; c < count; ++c) {
    const RowSums& sum = sums[c];
    const float key = p.k(b, kv_head, j, first + c);
    if (!sum.any || key == kMinusInfinity) continue;
    const double weight = std::exp(static_cast<double>(key) - sum.lse);
    const double value = static_cast<double>(p.v(b, kv_head, j, first + c));
    rows.d_v.view()(b, kv_head, j, first + c) += static_cast<float>(weight * sum.d_mean);
    rows.d_k.view()(b, kv_head, j, first + c) +=
        static_cast<float>(weight * (value * sum.d_mean - sum.d_mean_mean));
  }
}

// From the last row to the first; a key gets its sums when no row that is left sees it.
void AddGrowingHead(const FreeRows& rows, int64_t b, int64_t h, int64_t first, int64_t count) {
  const AttentionFreeProblem& p = rows.p;
  RowSums sums[kFreeChannels];
  int64_t left = 0;  // keys at and beyond it are done
  for (int64_t i = p.q.shape[2]; i-- > 0;) {
    const KeyRange keys = VisibleKeys(p.pairs, b, i);
    if (keys.begin == keys.end) break;
    for (int64_t j = left; j-- > keys.end;) AddToKey(rows, b, h, j, first, count, sums);
    left = keys.end;
    for (int64_t c = 0; c < count; ++c) {
      const float lse = rows.lse.view()(b, h, i, first + c);
      if (lse == kMinusInfinity) continue;
      sums[c].Add(static_cast<double>(lse),
                  static_cast<double>(rows.d_mean.view()(b, h, i, first + c)),
                  static_cast<double>(rows.mean.view()(b, h, i, first + c)));
    }
  }
  const int64_t begin = left > 0 ? VisibleKeys(p.pairs, b, p.q.shape[2] - 1).begin : 0;
  for (int64_t j = left; j-- > begin;) AddToKey(rows, b, h, j, first, count, sums);
}

}  // namespace

bool Grows(const AttentionFreeProblem& p, const SeenKeys& seen) {
  if (p.pairs.options.bias.has_value() || !seen.only_ranges()) return false;
  for (int64_t b = 0; b < p.q.shape[0]; ++b) {
    KeyRange last = {0, 0};
    for (int64_t i = 0; i < p.q.shape[2]; ++i) {
      const KeyRange keys = VisibleKeys(p.pairs, b, i);
      if (keys.end < last.end || (last.end > 0 && keys.begin != last.begin)) return false;
      last = keys;
    }
  }
  return true;
}

void SumGrowingRows(const FreeRows& rows, ThreadPool& pool) {
  const AttentionFreeProblem& p = rows.p;
  ForEachChannelBlock(rows, p.q.shape[1], pool,
                      [&](int64_t b, int64_t h, int64_t first, int64_t count) {
                        RunningMean means[kFreeChannels];
                        int64_t done = 0;
                        for (int64_t i = 0; i < p.q.shape[2]; ++i) {
                          const KeyRange keys = VisibleKeys(p.pairs, b, i);
                          for (int64_t j = std::max(done, keys.begin); j < keys.end; ++j) {
                            rows.AddKey(b, h, j, 0, first, count, means);
                          }
                          done = std::max(done, keys.end);
                          rows.WriteMeans(b, h, i, first, count, means);
                        }
                      });
}

void GrowingKeyGradients(const FreeRows& rows, ThreadPool& pool) {
  const AttentionFreeProblem& p = rows.p;
  ForEachChannelBlock(rows, p.k.shape[1], pool,
                      [&](int64_t b, int64_t kv_head, int64_t first, int64_t count) {
                        for (int64_t j = 0; j < p.k.shape[2]; ++j) {
                          std::fill_n(&rows.d_k.view()(b, kv_head, j, first), count, 0.0f);
                          std::fill_n(&rows.d_v.view()(b, kv_head, j, first), count, 0.0f);
                        }
                        const int64_t group = p.pairs.group;
                        for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
                          AddGrowingHead(rows, b, h, first, count);
                        }
                      });
}

}  // namespace heed
