// Native sparse attention: compressed keys, blocks chosen by them, and a window, summed with gates.
#include "src/selective/native_sparse.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/exact/attention_spans.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/selective/choose.h"
#include "src/selective/dots.h"
#include "src/selective/selective_problem.h"
#include "src/view_checks.h"

namespace heed {

int64_t NumCompressed(const NativeSparseOptions& o, int64_t length) {
  return length < o.compress_block ? 0 : (length - o.compress_block) / o.compress_stride + 1;
}

namespace {

// Compressed keys that lie at or before the position.
int64_t Visible(const NativeSparseOptions& o, const AttentionProblem& p, int64_t batch,
                int64_t query) {
  return NumCompressed(o, std::min(p.KeyLength(batch, query), p.Position(batch, query) + 1));
}

// out[j] = sum of weight[n] x[j * stride + n], or the mean; summed in double, rounded once.
void Compress(const NativeSparseOptions& o, const TensorView<const float>& x,
              const TensorView<const float>& weight, const TensorView<float>& out,
              ThreadPool& pool) {
  ForEachRow(out.shape, pool, [&](int64_t b, int64_t h, int64_t j) {
    if (j >= NumCompressed(o, o.KeyLength(b, x.shape[2]))) return;
    for (int64_t d = 0; d < out.shape[3]; ++d) {
      double sum = 0;
      for (int64_t n = 0; n < o.compress_block; ++n) {
        const double factor = weight.has_value() ? weight(0, 0, h, n) : 1;
        sum += factor * static_cast<double>(x(b, h, j * o.compress_stride + n, d));
      }
      if (!weight.has_value()) sum /= static_cast<double>(o.compress_block);
      out(b, h, j, d) = static_cast<float>(sum);
    }
  });
}

// Chooses blocks by how much weight compressed keys give to their tokens, summed over the query
// heads of a KV head.
class CompressedWeights final : public Chooser {
 public:
  CompressedWeights(const NativeSparseOptions& o, const AttentionProblem& p,
                    const TensorView<const float>& q, const TensorView<const float>& keys,
                    ThreadPool& pool)
      : o_(o), p_(p), q_(q), num_keys_(keys.shape[2]), stride_(RoundUp(Size(num_keys_), 8)) {
    for (int64_t n = 0; n < p.batch * p.num_kv_heads; ++n) {
      panels_.emplace_back(num_keys_, p.head_dim);
    }
    pool.Run(p.batch * p.num_kv_heads, [&](int64_t task, int) {
      const DotPanels& panels = panels_[Size(task)];
      for (int64_t j = 0; j < num_keys_; ++j) {
        for (int64_t d = 0; d < p.head_dim; ++d) {
          panels.at(j, d) = keys(task / p.num_kv_heads, task % p.num_kv_heads, j, d);
        }
      }
      panels.FillGap();
    });
    scratch_.resize(Size(pool.NumThreads()), ScratchVector<double>(kDotRows * stride_));
  }

  // The blocks that begin at or before the position.
  int64_t Candidates(int64_t batch, int64_t query) const override {
    const int64_t position = p_.Position(batch, query);
    if (position < 0) return 0;
    const int64_t length = p_.KeyLength(batch, query);
    return std::min((length + o_.key_block - 1) / o_.key_block, position / o_.key_block + 1);
  }

  void Score(int64_t batch, int64_t list, int64_t first, size_t num_rows, int64_t count, int worker,
             double* scores, size_t stride) const override {
    for (size_t r = 0; r < num_rows; ++r) std::fill_n(scores + r * stride, count, 0.0);
    double* const weights = scratch_[Size(worker)].data();
    const DotPanels& panels = panels_[Size(batch * p_.num_kv_heads + list)];
    for (int64_t h = list * p_.group; h < (list + 1) * p_.group; ++h) {
      const float* rows[kDotRows] = {};
      int64_t most = 0;
      for (size_t r = 0; r < num_rows; ++r) {
        const int64_t i = first + static_cast<int64_t>(r);
        rows[r] = q_.data + batch * q_.strides[0] + h * q_.strides[1] + i * q_.strides[2];
        most = std::max(most, Visible(o_, p_, batch, i));
      }
      ExactDots(rows, num_rows, panels, most, weights, stride_);
      for (size_t r = 0; r < num_rows; ++r) {
        const int64_t visible = Visible(o_, p_, batch, first + static_cast<int64_t>(r));
        AddWeights(weights + r * stride_, visible, count, scores + r * stride);
      }
    }
    for (size_t r = 0; r < num_rows; ++r) {
      MarkCertain(p_.Position(batch, first + static_cast<int64_t>(r)), count, scores + r * stride);
    }
  }

  double Flops() const override {
    const int64_t compressed = o_.key_block / o_.compress_stride;  // of a candidate
    return 2 * static_cast<double>(p_.head_dim * p_.group * std::max<int64_t>(1, compressed));
  }

 private:
  static size_t Size(int64_t count) { return static_cast<size_t>(count); }

  // The softmax of scaled products, rounded to float32, times the tokens that a compressed key
  // shares with a block.
  void AddWeights(double* products, int64_t visible, int64_t blocks, double* scores) const {
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t j = 0; j < visible; ++j) {
      products[j] = static_cast<float>(products[j] * static_cast<double>(p_.scale));
      if (products[j] > largest) largest = products[j];
    }
    for (int64_t j = 0; j < visible; ++j) sum += products[j] = std::exp(products[j] - largest);
    for (int64_t j = 0; j < visible; ++j) {
      const double weight = static_cast<float>(products[j] / sum);
      const int64_t begin = j * o_.compress_stride, end = begin + o_.compress_block;
      for (int64_t n = begin / o_.key_block; n < blocks && n * o_.key_block < end; ++n) {
        const int64_t from = std::max(begin, n * o_.key_block);
        const int64_t to = std::min(end, (n + 1) * o_.key_block);
        scores[n] += weight * static_cast<double>(to - from);
      }
    }
  }

  // The first blocks, and those up to the own one.
  void MarkCertain(int64_t position, int64_t count, double* scores) const {
    const int64_t own = position / o_.key_block;
    for (int64_t n = 0; n < count; ++n) {
      const bool certain = n < o_.first_blocks || (n <= own && n > own - o_.local_blocks);
      scores[n] = certain ? kCertain : Comparable(scores[n]);
    }
  }

  const NativeSparseOptions& o_;
  const AttentionProblem& p_;
  const TensorView<const float>& q_;
  int64_t num_keys_;
  size_t stride_;
  std::vector<DotPanels> panels_;
  mutable std::vector<ScratchVector<double>> scratch_;
};

ChoiceLists SelectedLists(const NativeSparseOptions& o, const AttentionProblem& p) {
  return {p.num_kv_heads, o.key_block, o.top_blocks, (p.kv_len + o.key_block - 1) / o.key_block};
}

void CheckWeight(const char* name, const TensorView<const float>& weight, int64_t heads,
                 int64_t block) {
  if (!weight.has_value()) return;
  CheckInput(name, weight);
  const int64_t rows = weight.shape[2] == 1 ? 1 : heads;
  CheckShape(name, weight.shape, {1, 1, rows, block}, "[1, 1, 1 or num_kv_heads, compress_block]");
}

// What a branch has of its own. An empty one may have no address.
void CheckOwn(const char* name, const TensorView<const float>& own, const Extents& shape,
              const char* meaning) {
  if (!own.has_value() && own.shape == Extents{}) return;
  CheckInput(name, own);
  CheckShape(name, own.shape, shape, meaning);
}

void CheckBranches(const NativeSparseOptions& o, const Extents& k, const Extents& v) {
  constexpr const char* kKeys = "as k: [batch, num_kv_heads, kv_len, head_dim]";
  constexpr const char* kValues = "as v: [batch, num_kv_heads, kv_len, head_dim_v]";
  CheckOwn("compress_k", o.compress_k, k, kKeys);
  CheckOwn("compress_v", o.compress_v, v, kValues);
  CheckOwn("window_k", o.window_k, k, kKeys);
  CheckOwn("window_v", o.window_v, v, kValues);
}

void Attend(const TensorView<const float>& q, const TensorView<const float>& k,
            const TensorView<const float>& v, const NativeSparseOptions& o,
            const AttentionProblem& p, const TensorView<float>& compressed,
            const TensorView<float>& selected, const TensorView<float>& window, ThreadPool& pool) {
  const CompressedTokens tokens = CompressTokens(o, p, k, v, pool);
  Attention(q, tokens.keys.view(), tokens.values.view(), OverCompressed(o, tokens),
            {.output = compressed}, &pool);
  const CompressedWeights chooser(o, p, q, tokens.keys.view(), pool);
  AttentionProblem chosen = ValidateComposed(q, k, v, Branch(o), {.output = selected});
  AttendToChosen(chosen, chooser, SelectedLists(o, p), &pool);
  const BranchTokens recent = OfWindow(o, k, v);
  Attention(q, recent.k, recent.v, OverWindow(o), {.output = window}, &pool);
}

}  // namespace

TensorView<const float> PerHead(TensorView<const float> weight) {
  if (weight.shape[2] == 1) weight.strides[2] = 0;
  return weight;
}

BranchTokens OfCompressed(const NativeSparseOptions& o, const TensorView<const float>& k,
                          const TensorView<const float>& v) {
  return {o.compress_k.has_value() ? o.compress_k : k, o.compress_v.has_value() ? o.compress_v : v};
}

BranchTokens OfWindow(const NativeSparseOptions& o, const TensorView<const float>& k,
                      const TensorView<const float>& v) {
  return {o.window_k.has_value() ? o.window_k : k, o.window_v.has_value() ? o.window_v : v};
}

CompressedTokens CompressTokens(const NativeSparseOptions& o, const AttentionProblem& p,
                                const TensorView<const float>& k, const TensorView<const float>& v,
                                ThreadPool& pool) {
  const int64_t count = NumCompressed(o, p.kv_len);
  CompressedTokens tokens;
  tokens.keys = OwnedTensor({p.batch, p.num_kv_heads, count, p.head_dim});
  tokens.values = OwnedTensor({p.batch, p.num_kv_heads, count, p.head_dim_v});
  const BranchTokens from = OfCompressed(o, k, v);
  Compress(o, from.k, PerHead(o.compress_k_weight), tokens.keys.view(), pool);
  Compress(o, from.v, PerHead(o.compress_v_weight), tokens.values.view(), pool);
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t i = 0; i < p.q_len; ++i) {
      tokens.visible.push_back(static_cast<int32_t>(Visible(o, p, b, i)));
    }
  }
  return tokens;
}

AttentionOptions OverCompressed(const NativeSparseOptions& o, const CompressedTokens& tokens) {
  AttentionOptions options;
  options.scale = o.scale;
  options.key_lengths = tokens.visible;
  return options;
}

AttentionOptions Branch(const NativeSparseOptions& o) {
  AttentionOptions branch;
  branch.scale = o.scale;
  branch.causal = true;
  branch.query_offset = o.query_offset;
  branch.key_lengths = o.key_lengths;
  return branch;
}

AttentionOptions OverWindow(const NativeSparseOptions& o) {
  AttentionOptions recent = Branch(o);
  recent.window = Window{o.window_len - 1, 0};
  return recent;
}

void KeepSelected(const NativeSparseOptions& o, const TensorView<const float>& q,
                  const CompressedTokens& tokens, AttentionProblem& p, ThreadPool& pool) {
  const CompressedWeights chooser(o, p, q, tokens.keys.view(), pool);
  KeepChosen(p, chooser, SelectedLists(o, p), &pool);
}

void ValidateNativeSparse(const TensorView<const float>& q, const TensorView<const float>& k,
                          const TensorView<const float>& v,
                          const TensorView<const float>& branch_gates,
                          const NativeSparseOptions& o) {
  CheckCount("compress_block", o.compress_block);
  CheckCount("compress_stride", o.compress_stride);
  CheckCount("key_block", o.key_block);
  CheckCount("top_blocks", o.top_blocks);
  CheckCount("window_len", o.window_len);
  CheckLengthsOfBatch(o.key_lengths, q.shape[0]);
  ValidateAttentionInputs(StoredTensor(q), StoredTensor(k), StoredTensor(v), Branch(o), false);
  if (o.first_blocks < 0 || o.local_blocks < 1 || o.first_blocks >= o.top_blocks ||
      o.local_blocks > o.top_blocks - o.first_blocks) {
    Fail(ErrorCode::kRange,
         "first_blocks = {} and local_blocks = {}; they are at least 0 and 1, and together at most "
         "top_blocks = {}",
         {o.first_blocks, o.local_blocks, o.top_blocks});
  }
  CheckWeight("compress_k_weight", o.compress_k_weight, k.shape[1], o.compress_block);
  CheckWeight("compress_v_weight", o.compress_v_weight, k.shape[1], o.compress_block);
  CheckBranches(o, k.shape, v.shape);
  CheckInput("branch_gates", branch_gates);
  CheckShape("branch_gates", branch_gates.shape, {q.shape[0], q.shape[1], q.shape[2], 3},
             "[batch, num_heads, q_len, 3]");
}

void NativeSparseAttention(TensorView<const float> q, TensorView<const float> k,
                           TensorView<const float> v, TensorView<const float> branch_gates,
                           const NativeSparseOptions& options, TensorView<float> output,
                           ThreadPool* pool) {
  WithMemoryErrors("native sparse attention", [&] {
    ValidateNativeSparse(q, k, v, branch_gates, options);
    const AttentionProblem p = ValidateComposed(q, k, v, Branch(options), {.output = output});
    OutputSpans({{"output", output}})
        .ApartFrom("branch_gates", branch_gates)
        .ApartFrom("compress_k_weight", options.compress_k_weight)
        .ApartFrom("compress_v_weight", options.compress_v_weight)
        .ApartFrom("compress_k", options.compress_k)
        .ApartFrom("compress_v", options.compress_v)
        .ApartFrom("window_k", options.window_k)
        .ApartFrom("window_v", options.window_v);
    ThreadPool& threads = PoolOrDefault(pool);
    const OwnedTensor compressed(output.shape), selected(output.shape);
    Attend(q, k, v, options, p, compressed.view(), selected.view(), output, threads);
    ForEachRow(output.shape, threads, [&](int64_t b, int64_t h, int64_t i) {
      const TensorView<float> branches[] = {compressed.view(), selected.view(), output};
      for (int64_t d = 0; d < output.shape[3]; ++d) {
        double sum = 0;
        for (int64_t n = 0; n < 3; ++n) {
          const double gate = branch_gates(b, h, i, n);
          if (gate != 0) sum += gate * static_cast<double>(branches[n](b, h, i, d));
        }
        output(b, h, i, d) = static_cast<float>(sum);
      }
    });
  });
}

}  // namespace heed
