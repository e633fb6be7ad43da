// Gradients of Sinkhorn attention: of attention within blocks, of the shares by which blocks were
// sorted, and back through every step of balancing to the logits.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "src/compose/rows.h"
#include "src/gradient/request.h"
#include "src/selective/backward_attention.h"
#include "src/selective/backward_request.h"
#include "src/selective/request.h"
#include "src/selective/selective_problem.h"
#include "src/selective/sorter.h"

namespace heed {
namespace {

constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

struct SinkhornGradients {
  TensorView<float> d_q, d_k, d_v, d_logits;  // absent: not computed
};

// One matrix of logarithms and what arrives at it, on their way back through balancing.
class Unbalance {
 public:
  // Logarithms and `d_logs` are [stride, stride], of which the first rows hold tokens.
  Unbalance(int64_t rows, int64_t stride, ScratchVector<double>& d_logs)
      : rows_(rows), stride_(stride), d_logs_(d_logs) {}

  // x' = x - log(sum of e^x over a row): dx = dx' - e^x' (sum of dx' over it).
  void Rows(const double* after) {
    for (int64_t n = 0; n < rows_; ++n) Normalize(after, n * stride_, 1);
  }
  void Columns(const double* after) {
    for (int64_t m = 0; m < stride_; ++m) Normalize(after, m, stride_);
  }

  // The same of sums over the rows so far, which ascend: e^(sum - sum of the next row) is at
  // most 1.
  void ColumnsSoFar(const double* before, const double* after) {
    for (int64_t m = 0; m < stride_; ++m) {
      double given = 0, sum_of_next = 0;
      for (int64_t n = rows_ - 1; n >= 0; --n) {
        const int64_t at = n * stride_ + m;
        if (after[at] == kMinusInf) continue;
        const double sum = before[at] - after[at];
        given = d(at) + (given == 0 ? 0 : std::exp(sum - sum_of_next) * given);
        sum_of_next = sum;
        d(at) -= std::exp(after[at]) * given;
      }
    }
  }

 private:
  double& d(int64_t at) { return d_logs_[static_cast<size_t>(at)]; }

  void Normalize(const double* after, int64_t first, int64_t step) {
    const int64_t count = step == 1 ? stride_ : rows_;
    double sum = 0;
    for (int64_t n = 0; n < count; ++n) sum += d(first + n * step);
    for (int64_t n = 0; n < count; ++n) {
      const double share = std::exp(after[first + n * step]);
      if (share != 0) d(first + n * step) -= share * sum;
    }
  }

  int64_t rows_, stride_;
  ScratchVector<double>& d_logs_;
};

class SinkhornBackward {
 public:
  SinkhornBackward(const SinkhornRequest& r, const AttentionProblem& p, ThreadPool& pool)
      : r_(r),
        o_(r.options),
        p_(p),
        pool_(pool),
        size_(BlockTokens(o_, p.q_len)),
        sorter_(o_, p, pool) {
    sorter_.Balance(r.q, r.k);
    blocks_ = sorter_.blocks();
    const int64_t heads = p.num_heads * blocks_;
    q_ = OwnedTensor({p.batch, heads, size_, p.head_dim});
    k_ = OwnedTensor({p.batch, heads, 2 * size_, p.head_dim});
    v_ = OwnedTensor({p.batch, heads, 2 * size_, p.head_dim_v});
    d_q_ = OwnedTensor(q_.view().shape);
    d_k_ = OwnedTensor(k_.view().shape);
    d_v_ = OwnedTensor(v_.view().shape);
    sorter_.GatherBlocks(r.q, q_.view());
    sorter_.SortAndAppend(r.k, k_.view());
    sorter_.SortAndAppend(r.v, v_.view());
    if (!o_.sort_logits.has_value()) d_means_.resize(Size(Units() * 2 * blocks_ * p.head_dim));
    const size_t cells = Size(blocks_ * blocks_);
    scratch_.resize(Size(pool.NumThreads()));
    for (Scratch& s : scratch_) {
      s.d_logs.resize(cells);
      s.steps.resize(2 * Size(o_.sort_iterations) * cells);
    }
  }

  void Run(const TensorView<const float>& d_out, const SinkhornGradients& to) {
    RunBlocks(d_out);
    pool_.Run(Units(), [&](int64_t unit, int worker) {
      RunUnit(unit, scratch_[Size(worker)], to.d_logits);
    });
    if (to.d_q.has_value()) WriteQueries(to.d_q);
    if (to.d_k.has_value()) WriteSorted(d_k_.view(), !d_means_.empty(), to.d_k);
    if (to.d_v.has_value()) WriteSorted(d_v_.view(), false, to.d_v);
  }

 private:
  // Memory of one thread.
  struct Scratch {
    ScratchVector<double> d_logs;  // [blocks, blocks]
    ScratchVector<double> steps;   // [2 iterations, blocks, blocks]: logarithms after each
  };

  static size_t Size(int64_t count) { return static_cast<size_t>(count); }
  int64_t Units() const { return p_.batch * p_.num_heads; }
  int64_t HeadOf(int64_t unit, int64_t block) const {
    return unit % p_.num_heads * blocks_ + block;
  }

  void RunBlocks(const TensorView<const float>& d_out) const {
    AttentionOptions inner;
    inner.scale = o_.scale;
    const ChosenAttention attention(q_.view(), k_.view(), v_.view(), inner, sorter_.Ranges(),
                                    pool_);
    const OwnedTensor own_d_out(attention.out().shape);
    sorter_.GatherBlocks(d_out, own_d_out.view());
    attention.Backward(own_d_out.view(),
                       {.d_q = d_q_.view(), .d_k = d_k_.view(), .d_v = d_v_.view()});
  }

  void RunUnit(int64_t unit, Scratch& s, const TensorView<float>& d_logits) {
    const int64_t b = unit / p_.num_heads, cells = blocks_ * blocks_;
    DifferentiateShares(unit, s.d_logs);
    sorter_.Start(r_.q, r_.k, unit);
    const Sorter& sorter = sorter_;
    for (int64_t step = 0; step < o_.sort_iterations; ++step) {
      double* const after_rows = s.steps.data() + 2 * step * cells;
      sorter_.BalanceRows(unit);
      std::copy_n(sorter.LogsOf(unit), cells, after_rows);
      sorter_.BalanceColumns(unit);
      std::copy_n(sorter.LogsOf(unit), cells, after_rows + cells);
    }
    Unbalance back(sorter.Rows(b), blocks_, s.d_logs);
    for (int64_t step = o_.sort_iterations - 1; step >= 0; --step) {
      const double* const after_rows = s.steps.data() + 2 * step * cells;
      if (o_.causal) {
        back.ColumnsSoFar(after_rows, after_rows + cells);
      } else {
        back.Columns(after_rows + cells);
      }
      back.Rows(after_rows);
    }
    for (double& x : s.d_logs) x /= o_.sort_temperature;
    if (!d_means_.empty()) DifferentiateMeans(unit, s.d_logs);
    if (!d_logits.has_value()) return;
    for (int64_t at = 0; at < cells; ++at) {
      d_logits(b, unit % p_.num_heads, at / blocks_, at % blocks_) =
          static_cast<float>(s.d_logs[Size(at)]);
    }
  }

  // What arrives at the logarithm of a share R: R (sum of d(sorted row) . row).
  void DifferentiateShares(int64_t unit, ScratchVector<double>& d_logs) const {
    const int64_t b = unit / p_.num_heads, kv_head = unit % p_.num_heads / p_.group;
    std::fill(d_logs.begin(), d_logs.end(), 0.0);
    for (int64_t n = 0; n < sorter_.Rows(b); ++n) {
      for (int64_t m = 0; m < sorter_.Cols(b, n); ++m) {
        const double share = std::exp(sorter_.Log(unit, n, m));
        if (share == 0) continue;
        double sum = 0;
        for (int64_t i = 0; i < size_; ++i) {
          sum += Dot(RowOf(d_k_.view(), b, HeadOf(unit, n), i),
                     RowOf(r_.k, b, kv_head, m * size_ + i), p_.head_dim);
          sum += Dot(RowOf(d_v_.view(), b, HeadOf(unit, n), i),
                     RowOf(r_.v, b, kv_head, m * size_ + i), p_.head_dim_v);
        }
        d_logs[Size(n * blocks_ + m)] = share * sum;
      }
    }
  }
  static double Dot(const float* x, const float* y, int64_t count) {
    double sum = 0;
    for (int64_t d = 0; d < count; ++d)
      sum += static_cast<double>(x[d]) * static_cast<double>(y[d]);
    return sum;
  }

  // A logit is scale * mean query . mean key.
  void DifferentiateMeans(int64_t unit, const ScratchVector<double>& d_logits) {
    const int64_t b = unit / p_.num_heads, dim = p_.head_dim;
    const Sorter& sorter = sorter_;
    const double* const queries = sorter.MeansOf(unit);
    const double* const keys = queries + blocks_ * dim;
    double* const d_queries = d_means_.data() + unit * 2 * blocks_ * dim;
    double* const d_keys = d_queries + blocks_ * dim;
    for (int64_t n = 0; n < sorter.Rows(b); ++n) {
      for (int64_t m = 0; m < sorter.Cols(b, n); ++m) {
        const double d_product = sorter.scale() * d_logits[Size(n * blocks_ + m)];
        if (d_product == 0) continue;
        for (int64_t d = 0; d < dim; ++d) {
          d_queries[n * dim + d] += d_product * keys[m * dim + d];
          d_keys[m * dim + d] += d_product * queries[n * dim + d];
        }
      }
    }
  }

  void WriteQueries(const TensorView<float>& to) const {
    ForEachRow(to.shape, pool_, [&](int64_t b, int64_t h, int64_t i) {
      const int64_t unit = b * p_.num_heads + h, n = i / size_, length = sorter_.Length(b);
      float* const row = RowOf(to, b, h, i);
      if (i >= length) {
        std::fill_n(row, p_.head_dim, 0.0f);
        return;
      }
      std::copy_n(RowOf(d_q_.view(), b, HeadOf(unit, n), i % size_), p_.head_dim, row);
      if (d_means_.empty() || (o_.causal && i != n * size_)) return;
      const int64_t count = o_.causal ? 1 : std::min(size_, length - n * size_);
      const double* const mean = d_means_.data() + (unit * 2 * blocks_ + n) * p_.head_dim;
      for (int64_t d = 0; d < p_.head_dim; ++d) {
        row[d] += static_cast<float>(mean[d] / static_cast<double>(count));
      }
    });
  }

  // Adds up what tokens give in their own block and where their block was sorted to, in all heads
  // that share a KV head.
  void WriteSorted(const TensorView<float>& from, bool with_means,
                   const TensorView<float>& to) const {
    ForEachRow(to.shape, pool_, [&](int64_t b, int64_t kv_head, int64_t i) {
      const int64_t m = i / size_, slot = i % size_, width = to.shape[3];
      float* const row = RowOf(to, b, kv_head, i);
      std::fill_n(row, width, 0.0f);
      if (i >= sorter_.Length(b)) return;
      const bool whole = (m + 1) * size_ <= sorter_.Length(b);
      for (int64_t h = kv_head * p_.group; h < (kv_head + 1) * p_.group; ++h) {
        const int64_t unit = b * p_.num_heads + h;
        AddRow(1, RowOf(from, b, HeadOf(unit, m), size_ + slot), width, row);
        for (int64_t n = 0; whole && n < sorter_.Rows(b); ++n) {
          if (m >= sorter_.Cols(b, n)) continue;
          const double share = std::exp(sorter_.Log(unit, n, m));
          if (share == 0) continue;
          AddRow(static_cast<float>(share), RowOf(from, b, HeadOf(unit, n), slot), width, row);
        }
        if (!with_means || !whole) continue;
        const double* const mean = d_means_.data() + ((unit * 2 + 1) * blocks_ + m) * width;
        for (int64_t d = 0; d < width; ++d) {
          row[d] += static_cast<float>(mean[d] / static_cast<double>(size_));
        }
      }
    });
  }
  static void AddRow(float share, const float* from, int64_t width, float* to) {
    for (int64_t d = 0; d < width; ++d) to[d] += share * from[d];
  }

  const SinkhornRequest& r_;
  const SinkhornOptions& o_;
  const AttentionProblem& p_;
  ThreadPool& pool_;
  int64_t size_, blocks_ = 0;
  Sorter sorter_;
  OwnedTensor q_, k_, v_, d_q_, d_k_, d_v_;  // [batch, num_heads * blocks, ...]
  ScratchVector<double> d_means_;            // [batch, num_heads, 2, blocks, head_dim]
  std::vector<Scratch> scratch_;
};

SinkhornRequest ReadValid(const Request& request) {
  SinkhornRequest r = ReadSinkhorn(DifferentiableReader(request));
  ValidateSinkhorn(r.q, r.k, r.v, r.options);
  return r;
}

BackwardPlan PlanSinkhornBackward(const Request& request) {
  const SinkhornRequest r = ReadValid(request);
  return PlanOfRow(request, r.q.shape, r.v.shape[3], {"q", "k", "v", "sort_logits"});
}

void RunSinkhornForward(const Request& request, std::span<const NamedTensor> results,
                        ThreadPool* pool) {
  const SinkhornRequest r = ReadSinkhorn(DifferentiableReader(request));
  SinkhornAttention(r.q, r.k, r.v, r.options, LeadingViewOf(FindTensor(results, "output")), pool);
}

void RunSinkhornBackward(const Request& request, std::span<const NamedTensor>,
                         std::span<const NamedTensor> d_results,
                         std::span<const NamedTensor> gradients, ThreadPool* pool) {
  CheckAreFloats(d_results, gradients);
  CheckAreRows(gradients);
  const SinkhornRequest r = ReadValid(request);
  const AttentionProblem p = ValidateAttentionInputs(
      StoredTensor(r.q), StoredTensor(r.k), StoredTensor(r.v), AttentionOf(r.options), false);
  const auto find = [&](const char* name) { return LeadingViewOf(FindTensor(gradients, name)); };
  const SinkhornGradients to = {find("q"), find("k"), find("v"), find("sort_logits")};
  SinkhornBackward(r, p, PoolOrDefault(pool))
      .Run(LeadingViewOf(FindTensor(d_results, "output")), to);
}

}  // namespace

const GradientVerbs kSinkhornGradient = {PlanSinkhornBackward, RunSinkhornForward,
                                         RunSinkhornBackward};

}  // namespace heed
