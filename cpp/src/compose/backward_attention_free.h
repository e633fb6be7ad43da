// What the ways back through the attention-free transformer share: its rows, and what its keys get.
#ifndef HEED_SRC_COMPOSE_BACKWARD_ATTENTION_FREE_H_
#define HEED_SRC_COMPOSE_BACKWARD_ATTENTION_FREE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "src/compose/attention_free_problem.h"
#include "src/compose/backward_seen_keys.h"
#include "src/compose/rows.h"

namespace heed {

// Channels of a task: their sums lie on the stack.
inline constexpr int64_t kFreeChannels = 64;

// A running sum of e^x and of e^x v, relative to the largest x so far.
struct RunningMean {
  double max = -std::numeric_limits<double>::infinity(), sum = 0, values = 0;

  // x is not -inf.
  void Add(double x, double value) {
    if (!(x <= max)) {  // NaN too
      const double fall = std::exp(max - x);
      sum *= fall;
      values *= fall;
      max = x;
    }
    const double weight = std::exp(x - max);
    sum += weight;
    values += weight * value;
  }
};

// Rows [batch, num_heads, q_len, head_dim]: the log of each channel's denominator (-inf: no key),
// its mean, and what arrives at the mean. Keys [batch, num_kv_heads, kv_len, head_dim]. The problem
// must outlive it.
struct FreeRows {
  const AttentionFreeProblem& p;
  OwnedTensor lse, mean, d_mean;
  OwnedTensor d_k, d_v;

  explicit FreeRows(const AttentionFreeProblem& problem)
      : p(problem),
        lse(p.q.shape),
        mean(p.q.shape),
        d_mean(p.q.shape),
        d_k(p.k.shape),
        d_v(p.k.shape) {}

  int64_t width() const { return p.q.shape[3]; }
  int64_t KvHead(int64_t h) const { return h / std::max<int64_t>(1, p.pairs.group); }

  // To the means of the channels [first, first + count) of a row.
  void AddKey(int64_t b, int64_t h, int64_t j, float bias, int64_t first, int64_t count,
              RunningMean* means) const;
  void WriteMeans(int64_t b, int64_t h, int64_t i, int64_t first, int64_t count,
                  const RunningMean* means) const;
};

// Whether each row of a batch entry sees what the row before it does, and more, without a bias.
bool Grows(const AttentionFreeProblem& p, const SeenKeys& seen);
// Such rows take one pass: the denominators and means of all rows, and the gradients of keys.
void SumGrowingRows(const FreeRows& rows, ThreadPool& pool);
void GrowingKeyGradients(const FreeRows& rows, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_BACKWARD_ATTENTION_FREE_H_
