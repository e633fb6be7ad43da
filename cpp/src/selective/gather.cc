#include "src/selective/gather.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "src/compose/rows.h"
#include "src/parallel/worker_scratch.h"

namespace heed {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
// Narrower blocks leave most of a register tile's columns empty.
constexpr int64_t kLeastBlock = 32;
// Gathered rows for each block of keys, about those that the exact loop works on at a time; and of
// a slice altogether, so that short sequences take one.
constexpr int64_t kRowsOfBlock = 96;
constexpr int64_t kLeastRows = 4096;

StoredTensor HeadOf(StoredTensor view, int64_t batch, int64_t head) {
  view.data = view.Row(batch, head, 0);
  view.shape[0] = view.shape[1] = 1;
  return view;
}

// Gathered rows, in memory that slices share.
struct GatheredRows {
  AlignedFloats queries, output, lse;
  int64_t most = 0;

  void Reserve(int64_t rows, int64_t head_dim, int64_t head_dim_v) {
    if (rows <= most) return;
    most = rows;
    queries = AlignedFloats(static_cast<size_t>(rows * head_dim));
    output = AlignedFloats(static_cast<size_t>(std::max<int64_t>(1, rows * head_dim_v)));
    lse = AlignedFloats(static_cast<size_t>(rows));
  }
};

// One list of a batch entry: its query heads share a KV head and their choices.
class GatheredList {
 public:
  GatheredList(const AttentionProblem& p, const BlockRows& chosen, int64_t batch, int64_t list,
               GatheredRows& gathered, ThreadPool& pool)
      : p_(p),
        chosen_(chosen),
        batch_(batch),
        heads_(p.num_heads / chosen.heads),
        first_head_(list * heads_),
        first_row_((batch * chosen.heads + list) * chosen.rows),
        gathered_(gathered),
        pool_(pool) {}

  void Run() {
    const int64_t blocks = (p_.kv_len + chosen_.kv_block - 1) / chosen_.kv_block;
    const int64_t most = std::max(kLeastRows, kRowsOfBlock * blocks);
    for (int64_t first = 0; first < p_.q_len;) {
      int64_t end = first + 1;
      while (end < p_.q_len && (Start(end + 1) - Start(first)) * heads_ <= most) ++end;
      RunSlice(first, end, blocks);
      first = end;
    }
  }

 private:
  int64_t Start(int64_t query) const {
    return chosen_.starts[static_cast<size_t>(first_row_ + query)];
  }

  // Sorts the choices of queries [first, end) by block: place_[choice] is the gathered row of the
  // list's first head, those of the others follow.
  void Place(int64_t first, int64_t end, int64_t blocks) {
    const int64_t from = Start(first), count = Start(end) - from;
    ScratchVector<int64_t> next(static_cast<size_t>(blocks) + 1);
    for (int64_t n = 0; n < count; ++n) ++next[static_cast<size_t>(BlockOf(from + n)) + 1];
    for (size_t n = 1; n < next.size(); ++n) next[n] += next[n - 1];
    place_.resize(static_cast<size_t>(count));
    queries_.resize(static_cast<size_t>(count));
    for (int64_t i = first; i < end; ++i) {
      for (int64_t n = Start(i) - from; n < Start(i + 1) - from; ++n) {
        const int64_t place = next[static_cast<size_t>(BlockOf(from + n))]++;
        place_[static_cast<size_t>(n)] = place * heads_;
        queries_[static_cast<size_t>(place)] = i;
      }
    }
  }
  int32_t BlockOf(int64_t choice) const { return chosen_.blocks[static_cast<size_t>(choice)]; }

  void RunSlice(int64_t first, int64_t end, int64_t blocks) {
    Place(first, end, blocks);
    const int64_t rows = (Start(end) - Start(first)) * heads_;
    gathered_.Reserve(rows, p_.head_dim, p_.head_dim_v);
    const auto queries = Contiguous(gathered_.queries.get(), 1, 1, rows, p_.head_dim);
    const auto output = Contiguous(gathered_.output.get(), 1, 1, rows, p_.head_dim_v);
    const auto lse = Contiguous(gathered_.lse.get(), 1, 1, rows, 1);
    ForEachRow({1, 1, rows, 1}, pool_, [&](int64_t, int64_t, int64_t row) {
      const void* from =
          p_.q.Row(batch_, first_head_ + row % heads_, queries_[static_cast<size_t>(row / heads_)]);
      std::copy_n(static_cast<const float*>(from), p_.head_dim, &queries(0, 0, row, 0));
    });
    AttendRows(first, end, StoredTensor(queries), output, lse);
    ForEachRow({1, heads_, end - first, 1}, pool_, [&](int64_t, int64_t g, int64_t n) {
      MergeRow(first + n, g, Start(first), output, lse);
    });
  }

  // Every gathered row sees the keys of its block, as far as the length and its position allow.
  void AttendRows(int64_t first, int64_t end, const StoredTensor& queries,
                  const TensorView<float>& output, const TensorView<float>& lse) {
    AttentionProblem part;
    part.q = queries;
    part.k = HeadOf(p_.k, batch_, first_head_ / p_.group);
    part.v = HeadOf(p_.v, batch_, first_head_ / p_.group);
    part.options.scale = p_.options.scale;
    part.options.softcap = p_.options.softcap;
    part.options.causal = p_.options.causal;
    part.options.query_offset = QueryOffset::At(0);
    CompleteInputs(part, true);
    const int64_t rows = queries.shape[2], from = Start(first);
    part.packed_positions.resize(static_cast<size_t>(rows));
    part.packed_keys.resize(static_cast<size_t>(rows));
    for (int64_t i = first; i < end; ++i) {
      const int64_t length = p_.KeyLength(batch_, i);
      for (int64_t n = Start(i); n < Start(i + 1); ++n) {
        const int64_t begin = std::min(length, BlockOf(n) * chosen_.kv_block);
        const KeyRange keys = {begin, std::min(length, begin + chosen_.kv_block)};
        for (int64_t g = 0; g < heads_; ++g) {
          const size_t row = static_cast<size_t>(place_[static_cast<size_t>(n - from)] + g);
          part.packed_positions[row] = p_.Position(batch_, i);
          part.packed_keys[row] = keys;
        }
      }
    }
    AttentionOutputs outputs;
    outputs.output = output;
    outputs.lse = lse;
    CompleteOutputs(part, outputs);
    RunProblem(part, &pool_);
  }

  // As Merge() does, over the gathered rows of a query.
  void MergeRow(int64_t query, int64_t g, int64_t from, const TensorView<float>& output,
                const TensorView<float>& lse) {
    const auto row_of = [&](int64_t choice) {
      return place_[static_cast<size_t>(choice - from)] + g;
    };
    const int64_t begin = Start(query), end = Start(query + 1), head = first_head_ + g;
    float largest = kMinusInf;
    for (int64_t n = begin; n < end; ++n) {
      const float part = lse(0, 0, row_of(n), 0);
      largest = part <= largest ? largest : part;  // NaN stays
      if (std::isnan(part)) break;
    }
    const bool empty = largest == kMinusInf;
    double sum = 0;
    for (int64_t n = begin; n < end && !empty; ++n) {
      sum += std::exp(double{lse(0, 0, row_of(n), 0)} - double{largest});
    }
    if (p_.head_dim_v > 0) {
      float* to = &p_.outputs.output(batch_, head, query, 0);
      std::fill_n(to, p_.head_dim_v, 0.0f);
      for (int64_t n = begin; n < end && !empty; ++n) {
        const float part = lse(0, 0, row_of(n), 0);
        if (part == kMinusInf) continue;  // saw nothing
        const float factor = static_cast<float>(std::exp(double{part} - double{largest}) / sum);
        const float* values = &output(0, 0, row_of(n), 0);
        for (int64_t d = 0; d < p_.head_dim_v; ++d) to[d] += factor * values[d];
      }
    }
    if (!p_.outputs.lse.has_value()) return;
    p_.outputs.lse(batch_, head, query, 0) =
        empty ? kMinusInf : static_cast<float>(double{largest} + std::log(sum));
  }

  const AttentionProblem& p_;
  const BlockRows& chosen_;
  int64_t batch_, heads_, first_head_, first_row_;
  GatheredRows& gathered_;
  ThreadPool& pool_;
  ScratchVector<int64_t> place_, queries_;
};

}  // namespace

bool CanGather(const AttentionProblem& p, const BlockRows& chosen) {
  const AttentionOptions& o = p.options;
  const AttentionOutputs& out = p.outputs;
  const bool plain_scores = !HasRelativeScore(o) && !o.score_mod && !o.bias.has_value() &&
                            o.alibi_slopes.empty() && !o.distance_bias.has_value() &&
                            !o.bucket_bias.has_value() && !o.log_gates.has_value();
  const bool plain_weights = o.normalize == Normalize::kSoftmax && o.sinks.empty() && !o.prob_mod &&
                             o.dropout.p == 0 && !o.relative_values.has_value();
  return chosen.kv_block >= kLeastBlock && plain_scores && plain_weights &&
         p.q.dtype == DType::kFloat32 && out.output.has_value() && !out.weights.has_value() &&
         !out.scores.has_value() && !out.running_max.has_value();
}

void AttendGathered(const AttentionProblem& p, const BlockRows& chosen, ThreadPool& pool) {
  GatheredRows gathered;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t list = 0; list < chosen.heads; ++list) {
      GatheredList(p, chosen, b, list, gathered, pool).Run();
    }
  }
}

}  // namespace heed
