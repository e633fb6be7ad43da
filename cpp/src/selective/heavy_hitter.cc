// Heavy hitters over a whole sequence: a cache decodes it token by token.
#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "src/cache/state.h"
#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/exact/keep/block_list.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/selective/selective_problem.h"

namespace heed {
namespace {

template <class T>
TensorView<T> TokenOf(TensorView<T> view, int64_t t) {
  view.data += t * view.strides[2];
  view.shape[2] = 1;
  return view;
}

// A dry run cannot fill a cache: it decodes one query over as many tokens as there will ever be,
// and counts the work of the others.
void CountCost(const AttentionProblem& p, const StoredTensor& query, const KvCache& cache,
               const DecodeOptions& decode, const AttentionOutputs& row, DryRun& dry,
               ThreadPool* pool) {
  KvCache::State full = cache.state();
  const int64_t size = full.layout.block_size;
  const int64_t most = std::min(p.kv_len, full.options.recent_tokens + full.options.heavy_tokens);
  for (Sequence& sequence : full.sequences) {
    sequence.length = most;
    sequence.blocks.resize(static_cast<size_t>((most + size - 1) / size));
  }
  const int64_t blocks = static_cast<int64_t>(full.sequences[0].blocks.size());
  const int64_t bytes =
      p.batch * (blocks * full.layout.bytes +
                 most * p.num_kv_heads * static_cast<int64_t>(sizeof(int64_t) + sizeof(double)));
  dry.AddBytes(bytes);
  const OwnedTensor slots({p.batch, p.num_heads, 1, most});
  AttentionOutputs weighed = row;
  weighed.weights = slots.view();
  const double before = dry.flops();
  DecodeSlots(query, full, decode, weighed, pool);
  double keys = 0;
  for (int64_t t = 0; t < p.q_len; ++t) keys += static_cast<double>(std::min(t + 1, most));
  dry.AddFlops((dry.flops() - before) * (keys / static_cast<double>(most) - 1));
  dry.AddBytes(-bytes);
}

// Weights over the slots of a cache, as weights over tokens.
void Scatter(const TensorView<float>& slots, const KvCache::State& state, int64_t t,
             const TensorView<float>& weights) {
  const int64_t kv_heads = state.layout.num_kv_heads, group = slots.shape[1] / kv_heads;
  for (int64_t b = 0; b < slots.shape[0]; ++b) {
    const Sequence& sequence = state.sequences[static_cast<size_t>(b)];
    for (int64_t h = 0; h < slots.shape[1]; ++h) {
      for (int64_t j = 0; j < weights.shape[3]; ++j) weights(b, h, t, j) = 0;
      for (int64_t slot = 0; slot < sequence.slots(); ++slot) {
        const size_t at = static_cast<size_t>(slot * kv_heads + h / group);
        weights(b, h, t, sequence.tokens[at]) = slots(b, h, 0, slot);
      }
    }
  }
}

// Decodes token by token, and shows what the cache holds: see(t, weights over its slots, state). A
// dry run sees nothing.
template <class See>
void DecodeAll(const AttentionProblem& p, const TensorView<const float>& q,
               const TensorView<const float>& k, const TensorView<const float>& v,
               const HeavyHitterOptions& options, const AttentionOutputs& outputs, ThreadPool* pool,
               const See& see) {
  // No more than there are: a cache bounds what it is asked to hold.
  KvCache cache({.batch = p.batch,
                 .num_kv_heads = p.num_kv_heads,
                 .head_dim = p.head_dim,
                 .head_dim_v = p.head_dim_v,
                 .recent_tokens = std::min(options.recent_tokens, p.kv_len),
                 .heavy_tokens = std::min(options.heavy_tokens, p.kv_len)});
  std::vector<int32_t> counts(static_cast<size_t>(p.batch));
  DecodeOptions decode;
  decode.scale = options.scale;
  decode.softcap = options.softcap;
  decode.sinks = options.sinks;
  decode.query_lengths = counts;
  const auto row_of = [&](int64_t t) {
    AttentionOutputs row;
    row.output = TokenOf(outputs.output, t);
    if (outputs.lse.has_value()) row.lse = TokenOf(outputs.lse, t);
    return row;
  };
  if (DryRun* const dry = DryRun::Current()) {
    std::ranges::fill(counts, 1);
    return CountCost(p, StoredTensor(TokenOf(q, 0)), cache, decode, row_of(0), *dry, pool);
  }
  for (int64_t t = 0; t < p.q_len; ++t) {
    for (int64_t b = 0; b < p.batch; ++b) {
      counts[static_cast<size_t>(b)] = t < p.KeyLength(b, 0) ? 1 : 0;
    }
    cache.Append(TokenOf(k, t), TokenOf(v, t), counts);
    const OwnedTensor slots({p.batch, p.num_heads, 1, cache.state().MostSlots()});
    AttentionOutputs row = row_of(t);
    row.weights = slots.view();
    DecodeSlots(StoredTensor(TokenOf(q, t)), cache.state(), decode, row, pool);
    see(t, slots.view(), cache.state());
  }
}

// A list for each KV head and token, as long as what the cache holds then, of the first tokens:
// what a dry run counts with, and what ListHeld() writes over.
BlockRows FirstTokens(const AttentionProblem& p, int64_t most) {
  BlockRows rows = {1, 1, p.q_len, p.num_kv_heads, {}, {}, p.batch};
  int64_t start = 0;
  for (int64_t n = 0; n < p.batch * p.num_kv_heads * p.q_len; ++n) {
    const int64_t t = n % p.q_len;
    rows.starts.push_back(start);
    if (t < p.KeyLength(n / p.q_len / p.num_kv_heads, 0)) start += std::min(t + 1, most);
  }
  rows.starts.push_back(start);
  rows.blocks.resize(static_cast<size_t>(start));
  for (size_t n = 0; n + 1 < rows.starts.size(); ++n) {
    std::iota(rows.blocks.begin() + rows.starts[n], rows.blocks.begin() + rows.starts[n + 1], 0);
  }
  return rows;
}

// What the cache holds for token t, ascending.
void ListHeld(const KvCache::State& state, int64_t t, BlockRows& rows) {
  for (int64_t n = 0; n < rows.batches * rows.heads; ++n) {
    const size_t row = static_cast<size_t>(n * rows.rows + t);
    const auto begin = rows.blocks.begin() + rows.starts[row];
    const auto end = rows.blocks.begin() + rows.starts[row + 1];
    const Sequence& sequence = state.sequences[static_cast<size_t>(n / rows.heads)];
    for (auto to = begin; to != end; ++to) {
      const int64_t at = (to - begin) * rows.heads + n % rows.heads;
      *to = static_cast<int32_t>(sequence.tokens[static_cast<size_t>(at)]);
    }
    std::sort(begin, end);
  }
}

}  // namespace

AttentionOptions ValidateHeavyHitter(const TensorView<const float>& q,
                                     const TensorView<const float>& k,
                                     const TensorView<const float>& v,
                                     const HeavyHitterOptions& o) {
  CheckCount("recent_tokens", o.recent_tokens);
  CheckCount("heavy_tokens", o.heavy_tokens);
  AttentionOptions options;
  options.scale = o.scale;
  options.softcap = o.softcap;
  options.sinks = o.sinks;
  options.key_lengths = o.key_lengths;
  CheckChoosable(options, q.shape[0]);
  const AttentionProblem p =
      ValidateAttentionInputs(StoredTensor(q), StoredTensor(k), StoredTensor(v), options, false);
  if (p.q_len != p.kv_len) {
    Fail(ErrorCode::kShape, "q_len is {} and kv_len {}; tokens are queries and keys at once",
         {p.q_len, p.kv_len});
  }
  if (q.size() == 0 || v.size() == 0) {
    Fail(ErrorCode::kShape, "q has shape {} and v {}; a cache needs extents of at least 1",
         {q.shape, v.shape});
  }
  return options;
}

void HeavyHitterAttention(TensorView<const float> q, TensorView<const float> k,
                          TensorView<const float> v, const HeavyHitterOptions& options,
                          const AttentionOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("heavy-hitter attention", [&] {
    const AttentionProblem p =
        ValidateComposed(q, k, v, ValidateHeavyHitter(q, k, v, options), outputs);
    if (outputs.scores.has_value()) {
      Fail(ErrorCode::kUnsupported, "scores: a cache has those of the tokens that it holds alone");
    }
    RefuseTiles(outputs, "attention over a cache that forgets");
    DecodeAll(p, q, k, v, options, outputs, pool,
              [&](int64_t t, const TensorView<float>& slots, const KvCache::State& state) {
                if (outputs.weights.has_value()) Scatter(slots, state, t, outputs.weights);
              });
  });
}

void KeepHeavyHitters(const TensorView<const float>& q, const TensorView<const float>& k,
                      const TensorView<const float>& v, const HeavyHitterOptions& options,
                      AttentionProblem& p, ThreadPool* pool) {
  BlockRows held = FirstTokens(p, options.recent_tokens + options.heavy_tokens);
  const OwnedTensor row({p.batch, p.num_heads, 1, p.head_dim_v});
  AttentionOutputs outputs;  // every token's in the same place
  outputs.output = row.view();
  outputs.output.strides[2] = 0;
  DecodeAll(p, q, k, v, options, outputs, pool,
            [&](int64_t t, const TensorView<float>&, const KvCache::State& state) {
              ListHeld(state, t, held);
            });
  p.chosen = std::make_shared<BlockListKeep>(std::move(held), std::vector<int64_t>(), p);
}

}  // namespace heed
