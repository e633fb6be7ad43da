// Sinkhorn attention: blocks of keys are sorted softly by a balanced matrix, and every block of
// queries attends to its own block of keys and to the one that was sorted to its place.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/exact/attention_spans.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/selective/selective_problem.h"
#include "src/selective/sorter.h"
#include "src/view_checks.h"

namespace heed {
namespace {

constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

// log of a sum of exponentials, 0 for none.
class LogSum {
 public:
  void Add(double x) {
    if (x == kMinusInf) return;
    const double largest = std::max(largest_, x);
    sum_ = sum_ * std::exp(largest_ - largest) + std::exp(x - largest);
    largest_ = largest;
  }
  double log() const { return sum_ == 0 ? 0 : largest_ + std::log(sum_); }

 private:
  double largest_ = std::numeric_limits<double>::lowest(), sum_ = 0;
};

// Zeros where there is nothing to copy.
void CopyRow(const float* from, const TensorView<float>& to, int64_t b, int64_t h, int64_t i) {
  float* const row = RowOf(to, b, h, i);
  if (from == nullptr) {
    std::fill_n(row, to.shape[3], 0.0f);
  } else {
    std::copy_n(from, to.shape[3], row);
  }
}

// The mean of the rows [begin, end) of a head.
void Mean(const TensorView<const float>& x, int64_t b, int64_t h, int64_t begin, int64_t end,
          double* mean) {
  for (int64_t d = 0; d < x.shape[3]; ++d) {
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) sum += static_cast<double>(x(b, h, i, d));
    mean[d] = sum / static_cast<double>(end - begin);
  }
}

}  // namespace

Sorter::Sorter(const SinkhornOptions& o, const AttentionProblem& p, ThreadPool& pool)
    : o_(o),
      p_(p),
      pool_(pool),
      size_(BlockTokens(o, p.q_len)),
      blocks_((p.q_len + size_ - 1) / size_),
      scale_(o.scale.value_or(1 / std::sqrt(static_cast<double>(p.head_dim)))),
      logs_(static_cast<size_t>(p.batch * p.num_heads * blocks_ * blocks_), kMinusInf) {
  if (o.sort_logits.has_value()) return;
  means_.resize(static_cast<size_t>(p.batch * p.num_heads * 2 * blocks_ * p.head_dim));
}

void Sorter::Balance(const TensorView<const float>& q, const TensorView<const float>& k) {
  pool_.Run(p_.batch * p_.num_heads, [&](int64_t unit, int) {
    Start(q, k, unit);
    for (int64_t step = 0; step < o_.sort_iterations; ++step) {
      BalanceRows(unit);
      BalanceColumns(unit);
    }
  });
  if (DryRun* const dry = DryRun::Current()) {
    const double pairs = static_cast<double>(logs_.size());
    dry->AddFlops(2 * pairs * static_cast<double>(size_ * (p_.head_dim + p_.head_dim_v)));
  }
}

void Sorter::Start(const TensorView<const float>& q, const TensorView<const float>& k,
                   int64_t unit) {
  const int64_t b = unit / p_.num_heads, h = unit % p_.num_heads;
  if (!o_.sort_logits.has_value()) return MultiplyMeans(q, k, b, h);
  for (int64_t n = 0; n < Rows(b); ++n) {
    for (int64_t m = 0; m < Cols(b, n); ++m) {
      Log(unit, n, m) = static_cast<double>(o_.sort_logits(b, h, n, m)) / o_.sort_temperature;
    }
  }
}

// Products of the mean key of a block with the mean query of another or, causal, its first one.
void Sorter::MultiplyMeans(const TensorView<const float>& q, const TensorView<const float>& k,
                           int64_t b, int64_t h) {
  const int64_t unit = b * p_.num_heads + h, dim = p_.head_dim;
  double* const queries = MeansOf(unit);
  double* const keys = queries + blocks_ * dim;
  for (int64_t n = 0; n < Rows(b); ++n) {
    const int64_t end = o_.causal ? n * size_ + 1 : std::min((n + 1) * size_, Length(b));
    Mean(q, b, h, n * size_, end, queries + n * dim);
  }
  for (int64_t m = 0; m < Length(b) / size_; ++m) {
    Mean(k, b, h / p_.group, m * size_, (m + 1) * size_, keys + m * dim);
  }
  for (int64_t n = 0; n < Rows(b); ++n) {
    for (int64_t m = 0; m < Cols(b, n); ++m) {
      double product = 0;
      for (int64_t d = 0; d < dim; ++d) product += queries[n * dim + d] * keys[m * dim + d];
      Log(unit, n, m) = scale_ * product / o_.sort_temperature;
    }
  }
}

void Sorter::BalanceRows(int64_t unit) {
  const int64_t b = unit / p_.num_heads;
  for (int64_t n = 0; n < Rows(b); ++n) {
    LogSum sum;
    for (int64_t m = 0; m < Cols(b, n); ++m) sum.Add(Log(unit, n, m));
    for (int64_t m = 0; m < Cols(b, n); ++m) Log(unit, n, m) -= sum.log();
  }
}

void Sorter::BalanceColumns(int64_t unit) {
  const int64_t b = unit / p_.num_heads;
  for (int64_t m = 0; m < Length(b) / size_; ++m) {
    const int64_t first = o_.causal ? m + 1 : 0;
    LogSum sum;
    for (int64_t n = first; n < Rows(b); ++n) {
      sum.Add(Log(unit, n, m));
      if (o_.causal) Log(unit, n, m) -= sum.log();
    }
    for (int64_t n = first; n < Rows(b) && !o_.causal; ++n) Log(unit, n, m) -= sum.log();
  }
}

void Sorter::GatherBlocks(const TensorView<const float>& x, const TensorView<float>& to) const {
  ForEachRow(to.shape, pool_, [&](int64_t b, int64_t head, int64_t i) {
    const int64_t h = head / blocks_, token = head % blocks_ * size_ + i;
    CopyRow(token < Length(b) ? RowOf(x, b, h, token) : nullptr, to, b, head, i);
  });
}

void Sorter::SortAndAppend(const TensorView<const float>& x, const TensorView<float>& to) const {
  ForEachRow(to.shape, pool_, [&](int64_t b, int64_t head, int64_t i) {
    const int64_t h = head / blocks_, n = head % blocks_, token = n * size_ + i - size_;
    if (i >= size_) {
      CopyRow(token < Length(b) ? RowOf(x, b, h / p_.group, token) : nullptr, to, b, head, i);
      return;
    }
    const int64_t cols = n < Rows(b) ? Cols(b, n) : 0;
    float* const row = RowOf(to, b, head, i);
    constexpr int64_t kColumns = 64;
    for (int64_t first = 0; first < to.shape[3]; first += kColumns) {
      double sums[kColumns] = {};
      const int64_t count = std::min(kColumns, to.shape[3] - first);
      for (int64_t m = 0; m < cols; ++m) {
        const double share = std::exp(Log(b * p_.num_heads + h, n, m));
        if (share == 0) continue;
        const float* const from = RowOf(x, b, h / p_.group, m * size_ + i) + first;
        for (int64_t d = 0; d < count; ++d) sums[d] += share * static_cast<double>(from[d]);
      }
      for (int64_t d = 0; d < count; ++d) row[first + d] = static_cast<float>(sums[d]);
    }
  });
}

bool Sorter::IsSorted(int64_t b, int64_t h, int64_t n) const {
  for (int64_t m = 0; m < Cols(b, n); ++m) {
    if (Log(b * p_.num_heads + h, n, m) != kMinusInf) return true;
  }
  return false;
}

std::shared_ptr<RangeKeep> Sorter::Ranges() const {
  auto ranges = std::make_shared<RangeKeep>(p_.batch, p_.num_heads * blocks_, size_, 2 * size_);
  const Extents rows = {p_.batch, p_.num_heads * blocks_, size_, 1};
  ForEachRow(rows, pool_, [&](int64_t b, int64_t head, int64_t i) {
    const int64_t n = head % blocks_, left = Length(b) - n * size_;
    KeyRange& range = ranges->at(b, head, i);
    if (i >= left) {
      range = {0, 0};
      return;
    }
    range.begin = IsSorted(b, head / blocks_, n) ? 0 : size_;
    range.end = size_ + (o_.causal ? i + 1 : std::min(size_, left));
  });
  return ranges;
}

namespace {

// Every block of queries attends to its own and its sorted block of keys.
void AttendToBlocks(const Sorter& sorter, const SinkhornOptions& o, const AttentionProblem& p,
                    const TensorView<const float>& q, const TensorView<const float>& k,
                    const TensorView<const float>& v, const TensorView<float>& output,
                    ThreadPool& pool) {
  const int64_t size = sorter.size(), heads = p.num_heads * sorter.blocks();
  const OwnedTensor own_q({p.batch, heads, size, p.head_dim});
  const OwnedTensor own_k({p.batch, heads, 2 * size, p.head_dim});
  const OwnedTensor own_v({p.batch, heads, 2 * size, p.head_dim_v});
  const OwnedTensor own_output({p.batch, heads, size, p.head_dim_v});
  sorter.GatherBlocks(q, own_q.view());
  sorter.SortAndAppend(k, own_k.view());
  sorter.SortAndAppend(v, own_v.view());
  AttentionOptions inner;
  inner.scale = o.scale;
  AttentionProblem inside = ValidateComposed(own_q.view(), own_k.view(), own_v.view(), inner,
                                             {.output = own_output.view()});
  inside.chosen = sorter.Ranges();
  RunProblem(inside, &pool);
  ForEachRow(output.shape, pool, [&](int64_t b, int64_t h, int64_t i) {
    const int64_t head = h * sorter.blocks() + i / size;
    std::copy_n(RowOf(own_output.view(), b, head, i % size), p.head_dim_v, RowOf(output, b, h, i));
  });
}

}  // namespace

AttentionOptions AttentionOf(const SinkhornOptions& o) {
  AttentionOptions attention;
  attention.scale = o.scale;
  attention.key_lengths = o.key_lengths;
  return attention;
}

void ValidateSinkhorn(const TensorView<const float>& q, const TensorView<const float>& k,
                      const TensorView<const float>& v, const SinkhornOptions& o) {
  CheckCount("key_block", o.key_block, kMaxTokens);
  CheckCount("sort_iterations", o.sort_iterations, 1000);
  CheckLengthsOfBatch(o.key_lengths, q.shape[0]);
  if (!(o.sort_temperature > 0) || !std::isfinite(o.sort_temperature)) {
    Fail(ErrorCode::kRange, "sort_temperature = {}; it must be positive and finite",
         {o.sort_temperature});
  }
  ValidateAttentionInputs(StoredTensor(q), StoredTensor(k), StoredTensor(v), AttentionOf(o), false);
  if (q.shape[2] != k.shape[2]) {
    Fail(ErrorCode::kShape, "q has {} tokens and k {}; blocks of both stand at the same places",
         {q.shape[2], k.shape[2]});
  }
  const int64_t blocks = (q.shape[2] + o.key_block - 1) / o.key_block;
  if (!o.sort_logits.has_value()) return;
  CheckInput("sort_logits", o.sort_logits);
  CheckShape("sort_logits", o.sort_logits.shape, {q.shape[0], q.shape[1], blocks, blocks},
             "[batch, num_heads, blocks, blocks]");
}

void SinkhornAttention(TensorView<const float> q, TensorView<const float> k,
                       TensorView<const float> v, const SinkhornOptions& options,
                       TensorView<float> output, ThreadPool* pool) {
  WithMemoryErrors("Sinkhorn attention", [&] {
    ValidateSinkhorn(q, k, v, options);
    const AttentionProblem p = ValidateComposed(q, k, v, AttentionOf(options), {.output = output});
    OutputSpans({{"output", output}}).ApartFrom("sort_logits", options.sort_logits);
    Sorter sorter(options, p, PoolOrDefault(pool));
    sorter.Balance(q, k);
    AttendToBlocks(sorter, options, p, q, k, v, output, PoolOrDefault(pool));
  });
}

}  // namespace heed
