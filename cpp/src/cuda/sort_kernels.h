// Soft sorting of blocks: balanced matrices, sorted blocks, and what is seen of them. Plain
// kernels.
#ifndef HEED_SRC_CUDA_SORT_KERNELS_H_
#define HEED_SRC_CUDA_SORT_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/head_place.h"
#include "src/cuda/kept_row_writer.h"
#include "src/cuda/row_block.h"
#include "src/cuda/sort_params.h"

namespace heed::cuda {

// log of a sum of exponentials, 0 for none.
class LogOfSum {
 public:
  HEED_DEVICE void Add(double x) {
    if (x == -HUGE_VAL) return;
    const double largest = largest_ < x ? x : largest_;
    sum_ = sum_ * exp(largest_ - largest) + exp(x - largest);
    largest_ = largest;
  }
  HEED_DEVICE double log() const { return sum_ == 0 ? 0.0 : largest_ + ::log(sum_); }

 private:
  double largest_ = -1.7976931348623157e308, sum_ = 0;
};

// The matrix of one head.
template <class Block>
class BalanceKernel {
 public:
  HEED_DEVICE BalanceKernel(Block& block, const BalanceParams& params, int64_t index)
      : block_(block),
        p_(params),
        r_(params.rules),
        b_(static_cast<int>(index / params.rules.heads)),
        h_(static_cast<int>(index % params.rules.heads)),
        rows_(params.rules.Rows(b_)),
        means_(params.means + index * 2 * params.rules.blocks * params.width) {}

  HEED_DEVICE void Run() {
    if (p_.logits.data == nullptr) TakeMeans();
    // Row by row: a count of all pairs may be beyond 32 bits.
    HEED_NO_UNROLL for (int n = 0; n < r_.blocks; ++n) {
      EachOf(r_.blocks, [&](int m) {
        const bool sorted = n < rows_ && m < r_.Cols(b_, n);
        r_.Log(b_, h_, n)[m] = sorted ? Logit(n, m) / p_.temperature : -HUGE_VAL;
      });
    }
    HEED_NO_UNROLL for (int64_t step = 0; step < p_.iterations; ++step) {
      EachOf(rows_, [&](int n) { BalanceRow(n); });
      EachOf(r_.lengths[b_] / r_.size, [&](int m) { BalanceColumn(m); });
    }
  }

 private:
  template <class Body>
  HEED_DEVICE void EachOf(int count, const Body& body) {
    block_.Each(
        [&](int t) { HEED_NO_UNROLL for (int n = t; n < count; n += kBlockThreads) body(n); });
    block_.Sync();
  }

  HEED_DEVICE double Mean(const FloatRows<const float>& x, int head, int64_t begin, int64_t end,
                          int d) const {
    double sum = 0;
    HEED_NO_UNROLL for (int64_t i = begin; i < end; ++i) {
      sum += static_cast<double>(x.Row(b_, head, i)[d]);
    }
    return sum / static_cast<double>(end - begin);
  }

  // Of the queries of a block or, causal, its first one; and of the keys of whole blocks.
  HEED_DEVICE void TakeMeans() {
    const int64_t length = r_.lengths[b_];
    EachOf(rows_ * p_.width, [&](int at) {
      const int64_t begin = int64_t{at / p_.width} * r_.size;
      const int64_t last = begin + r_.size < length ? begin + r_.size : length;
      means_[at] = Mean(p_.q, h_, begin, r_.causal ? begin + 1 : last, at % p_.width);
    });
    double* keys = means_ + int64_t{r_.blocks} * p_.width;
    EachOf(static_cast<int>(length / r_.size) * p_.width, [&](int at) {
      const int64_t begin = int64_t{at / p_.width} * r_.size;
      keys[at] = Mean(p_.k, h_ / r_.group, begin, begin + r_.size, at % p_.width);
    });
  }

  HEED_DEVICE double Logit(int n, int m) const {
    if (p_.logits.data != nullptr) return static_cast<double>(p_.logits.At(b_, h_, n, m));
    const double* query = means_ + int64_t{n} * p_.width;
    const double* key = means_ + int64_t{r_.blocks + m} * p_.width;
    double product = 0;
    HEED_NO_UNROLL for (int d = 0; d < p_.width; ++d) product += query[d] * key[d];
    return p_.scale * product;
  }

  HEED_DEVICE void BalanceRow(int n) {
    double* logs = r_.Log(b_, h_, n);
    const int cols = r_.Cols(b_, n);
    LogOfSum sum;
    HEED_NO_UNROLL for (int m = 0; m < cols; ++m) sum.Add(logs[m]);
    HEED_NO_UNROLL for (int m = 0; m < cols; ++m) logs[m] -= sum.log();
  }

  // Causal: a row is divided by the sum of itself and the rows before it.
  HEED_DEVICE void BalanceColumn(int m) {
    const int first = r_.causal ? m + 1 : 0;
    LogOfSum sum;
    HEED_NO_UNROLL for (int n = first; n < rows_; ++n) {
      double& log = r_.Log(b_, h_, n)[m];
      sum.Add(log);
      if (r_.causal) log -= sum.log();
    }
    HEED_NO_UNROLL for (int n = first; n < rows_ && !r_.causal; ++n) {
      r_.Log(b_, h_, n)[m] -= sum.log();
    }
  }

  Block& block_;
  const BalanceParams& p_;
  const SortRules& r_;
  int b_, h_, rows_;
  double* means_;
};

template <class Block>
HEED_DEVICE void RunStep(Block& block, const BalanceParams& p, int64_t index) {
  BalanceKernel<Block>(block, p, index).Run();
}

// Number d of row i of the sorted block that comes to place n.
HEED_DEVICE float SortedNumber(const SortRowParams& p, int b, int h, int n, int i, int d) {
  const int cols = n < p.rules.Rows(b) ? p.rules.Cols(b, n) : 0;
  double sum = 0;
  HEED_NO_UNROLL for (int m = 0; m < cols; ++m) {
    const double share = exp(p.rules.Log(b, h, n)[m]);
    if (share == 0) continue;
    const int64_t token = int64_t{m} * p.rules.size + i;
    sum += share * static_cast<double>(p.tokens.Row(b, h / p.rules.group, token)[d]);
  }
  return static_cast<float>(sum);
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const SortRowParams& p, int64_t index) {
  const SortRules& r = p.rules;
  const HeadPlace place(index, 2 * int64_t{r.size}, r.heads * r.blocks);
  const int b = place.b, h = place.h / r.blocks, n = place.h % r.blocks, i = place.within;
  const int64_t token = (int64_t{n} - 1) * r.size + i;  // of the own block
  block.Each([&](int t) {
    for (int d = t; d < p.width; d += kBlockThreads) {
      float x = 0;
      if (i < r.size) {
        x = SortedNumber(p, b, h, n, i, d);
      } else if (token < r.lengths[b]) {
        x = p.tokens.Row(b, h / r.group, token)[d];
      }
      p.out.Row(b, place.h, i)[d] = x;
    }
  });
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const SortKeepParams& p, int64_t index) {
  const SortRules& r = p.rules;
  const HeadPlace place(index, r.size, r.heads * r.blocks);
  const int b = place.b, h = place.h / r.blocks, n = place.h % r.blocks, i = place.within;
  const int64_t left = r.lengths[b] - int64_t{n} * r.size;
  RowBlock<Block> row(block);
  const int cols = n < r.Rows(b) ? r.Cols(b, n) : 0;
  const double sorted = row.SumKeys(
      {0, cols}, [&](int, int m) { return r.Log(b, h, n)[m] != -HUGE_VAL ? 1.0 : 0.0; });
  const int64_t begin = sorted != 0 ? 0 : r.size;
  int64_t end = r.size + (r.causal ? i + 1 : left < r.size ? left : r.size);
  if (i >= left) end = 0;
  KeptRowWriter<Block>(block, p.kept).Write(index, end, [&](int64_t j) { return j >= begin; });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_SORT_KERNELS_H_
