// The soft sorting of Sinkhorn attention.
#ifndef HEED_SRC_SELECTIVE_SORTER_H_
#define HEED_SRC_SELECTIVE_SORTER_H_

#include <algorithm>
#include <cstdint>
#include <memory>

#include "heed/selective.h"
#include "heed/thread_pool.h"
#include "src/exact/problem.h"
#include "src/selective/range_keep.h"

namespace heed {

// Tokens of a block. One beyond all tokens is one that no length fills: its size matters no more.
inline int64_t BlockTokens(const SinkhornOptions& options, int64_t len) {
  return std::min(options.key_block, len + 1);
}

// The matrices of one call, whose options and problem outlive it. A unit is a query head of a batch
// entry.
class Sorter {
 public:
  Sorter(const SinkhornOptions& options, const AttentionProblem& p, ThreadPool& pool);

  // The balanced matrices, as logarithms: from the given ones, or from products of means.
  void Balance(const TensorView<const float>& q, const TensorView<const float>& k);
  // The steps of it: what is balanced, and its rows and columns divided by their sums. Causal: a
  // row is divided by the sum of itself and the rows before it.
  void Start(const TensorView<const float>& q, const TensorView<const float>& k, int64_t unit);
  void BalanceRows(int64_t unit);
  void BalanceColumns(int64_t unit);

  int64_t size() const { return size_; }
  int64_t blocks() const { return blocks_; }
  double scale() const { return scale_; }
  int64_t Length(int64_t b) const { return p_.KeyLength(b, 0); }
  // Blocks of queries that hold tokens.
  int64_t Rows(int64_t b) const { return (Length(b) + size_ - 1) / size_; }
  // Blocks of keys that may be sorted to the place of block n: whole ones, and past ones if causal.
  int64_t Cols(int64_t b, int64_t n) const {
    return o_.causal ? std::min(n, Length(b) / size_) : Length(b) / size_;
  }
  double Log(int64_t unit, int64_t n, int64_t m) const {
    return logs_[static_cast<size_t>((unit * blocks_ + n) * blocks_ + m)];
  }
  // Of a unit, [blocks, blocks].
  const double* LogsOf(int64_t unit) const { return logs_.data() + unit * blocks_ * blocks_; }
  // Mean queries of blocks, then mean keys, [2, blocks, head_dim]; without given logits.
  const double* MeansOf(int64_t unit) const {
    return means_.data() + unit * 2 * blocks_ * p_.head_dim;
  }

  // Rows [batch, num_heads, len, ...] by block, [batch, num_heads * blocks, size, ...]: zeros
  // stand beyond the length.
  void GatherBlocks(const TensorView<const float>& x, const TensorView<float>& to) const;
  // Rows [sorted; own] of every block.
  void SortAndAppend(const TensorView<const float>& x, const TensorView<float>& to) const;
  // What the rows of a block see of these.
  std::shared_ptr<RangeKeep> Ranges() const;

 private:
  void MultiplyMeans(const TensorView<const float>& q, const TensorView<const float>& k, int64_t b,
                     int64_t h);
  // Whether any block comes to the place of block n.
  bool IsSorted(int64_t b, int64_t h, int64_t n) const;
  double& Log(int64_t unit, int64_t n, int64_t m) {
    return logs_[static_cast<size_t>((unit * blocks_ + n) * blocks_ + m)];
  }
  double* MeansOf(int64_t unit) { return means_.data() + unit * 2 * blocks_ * p_.head_dim; }

  const SinkhornOptions& o_;
  const AttentionProblem& p_;
  ThreadPool& pool_;
  int64_t size_, blocks_;
  double scale_;
  ScratchVector<double> logs_;   // [batch, num_heads, blocks, blocks]
  ScratchVector<double> means_;  // [batch, num_heads, 2, blocks, head_dim]: queries, keys
};

// The options of attention that sorting restricts.
AttentionOptions AttentionOf(const SinkhornOptions& options);

}  // namespace heed

#endif  // HEED_SRC_SELECTIVE_SORTER_H_
