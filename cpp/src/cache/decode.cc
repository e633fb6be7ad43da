// Attention over a cache: the exact loop on blocks.
#include <algorithm>
#include <string>

#include "heed/cache.h"
#include "src/cache/state.h"
#include "src/exact/attention_spans.h"
#include "src/exact/problem.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// The tables of a call, alive while it runs.
struct CacheView {
  CachedRows k, v;
  std::vector<int32_t> key_lengths;  // [batch], or [batch, q_len] when some queries are padding
  std::vector<int64_t> positions;    // [batch]
};

int64_t QueryCount(int64_t q_len, const DecodeOptions& options, int64_t b) {
  return options.query_lengths.empty() ? q_len : options.query_lengths[static_cast<size_t>(b)];
}

void CheckQueries(const StoredTensor& q, const KvCache::State& state,
                  const DecodeOptions& options) {
  const KvCacheOptions& o = state.options;
  CheckStored("q", q);
  CheckShape("q", q.shape, {o.batch, q.shape[1], q.shape[2], o.head_dim},
             "[batch, num_heads, q_len, head_dim], batch and head_dim of the cache");
  if (!options.query_lengths.empty() &&
      options.query_lengths.size() != static_cast<size_t>(o.batch)) {
    Fail(ErrorCode::kShape, "query_lengths has {} values; expected one per sequence = {}",
         {options.query_lengths.size(), o.batch});
  }
  if (options.top_pages && o.page_size == 0) {
    Fail(ErrorCode::kOption, "top_pages = {} needs a cache with a page_size", {*options.top_pages});
  }
  if (options.top_pages && *options.top_pages < 1) {
    Fail(ErrorCode::kRange, "top_pages = {}; it must be at least 1: a query sees its own",
         {*options.top_pages});
  }
  for (int64_t b = 0; b < o.batch; ++b) {
    const int64_t count = QueryCount(q.shape[2], options, b);
    const Sequence& sequence = state.sequences[static_cast<size_t>(b)];
    if (count < 0 || count > q.shape[2]) {
      Fail(ErrorCode::kRange, "query_lengths holds {}; expected 0 to q_len = {}",
           {count, q.shape[2]});
    }
    if (count > sequence.length) {
      Fail(ErrorCode::kRange,
           "sequence {} has {} tokens and {} queries; append the queries' keys and values first",
           {b, sequence.length, count});
    }
    const int64_t begin = std::max(o.sink_tokens, state.RecentBegin(sequence.length - count));
    if (count > sequence.appended && sequence.dropped > 0) {
      Fail(ErrorCode::kRange,
           "sequence {} has {} queries and got {} tokens last: decode no more queries than were "
           "appended last",
           {b, count, sequence.appended});
    }
    if (count > 0 && begin < sequence.evicted) {
      Fail(ErrorCode::kRange,
           "query 0 of sequence {} sees token {}, which was evicted: decode no more queries than "
           "were appended last",
           {b, begin});
    }
  }
}

CachedRows RowsOf(const KvCache::State& state, int64_t row_bytes, int64_t offset,
                  int64_t scale_offset) {
  CachedRows rows;
  rows.dtype = state.layout.dtype;
  rows.block_size = state.layout.block_size;
  rows.row_bytes = row_bytes;
  rows.offset = offset;
  rows.scale_offset = scale_offset;
  for (const Sequence& sequence : state.sequences) {
    std::vector<const char*> blocks;
    blocks.reserve(sequence.blocks.size());
    for (const auto& block : sequence.blocks) {
      blocks.push_back(block == nullptr ? nullptr : block->data());
    }
    rows.blocks.push_back(std::move(blocks));
  }
  return rows;
}

// Of the `rows` queries from `first` on of a call that has q_len.
CacheView MakeView(const KvCache::State& state, const DecodeOptions& options, int64_t q_len,
                   int64_t first, int64_t rows) {
  const BlockLayout& layout = state.layout;
  CacheView view;
  view.k = RowsOf(state, layout.k_row_bytes, 0, layout.k_scale_offset);
  view.v = RowsOf(state, layout.v_row_bytes, layout.v_offset, layout.v_scale_offset);
  const int64_t lengths = options.query_lengths.empty() ? 1 : rows;
  for (int64_t b = 0; b < state.options.batch; ++b) {
    const int64_t slots = state.sequences[static_cast<size_t>(b)].slots();
    const int64_t count = QueryCount(q_len, options, b);
    view.positions.push_back(slots - count + first);
    for (int64_t i = first; i < first + lengths; ++i) {
      const bool padding = !options.query_lengths.empty() && i >= count;
      view.key_lengths.push_back(padding ? 0 : static_cast<int32_t>(slots));
    }
  }
  return view;
}

AttentionProblem MakeProblem(const StoredTensor& q, const KvCache::State& state,
                             const CacheView& view, const DecodeOptions& options) {
  const KvCacheOptions& o = state.options;
  const int64_t kv_len = state.MostSlots();
  AttentionProblem p;
  p.q = q;
  p.k = {nullptr, o.dtype, {o.batch, o.num_kv_heads, kv_len, o.head_dim}, {}};
  p.v = {nullptr, o.dtype, {o.batch, o.num_kv_heads, kv_len, o.head_dim_v}, {}};
  p.cached_k = &view.k;
  p.cached_v = &view.v;
  p.options.scale = options.scale;
  p.options.softcap = options.softcap;
  p.options.sinks = options.sinks;
  p.options.alibi_slopes = options.alibi_slopes;
  p.options.causal = true;
  p.options.key_lengths = view.key_lengths;
  p.options.query_offset = QueryOffset::PerBatch(view.positions);
  if (o.recent_tokens > 0 && !state.weighs()) {
    p.options.window = Window::LastN(o.recent_tokens);
    p.sink_keys = o.sink_tokens;
  }
  return p;
}

// Checks all of a call and runs it, or the queries from `first` on.
void DecodeRowsOf(const StoredTensor& q, const KvCache::State& state, const DecodeOptions& options,
                  int64_t q_len, int64_t first, const AttentionOutputs& outputs, bool run,
                  ThreadPool* pool) {
  const CacheView view = MakeView(state, options, q_len, first, q.shape[2]);
  AttentionProblem problem = MakeProblem(q, state, view, options);
  CompleteInputs(problem, outputs.lse.has_value());
  CompleteOutputs(problem, outputs);
  SpansOf(outputs).ApartFrom("query_lengths", options.query_lengths);
  if (options.top_pages) {
    ChoosePages(problem, state, *options.top_pages, options.query_lengths,
                pool != nullptr ? *pool : DefaultThreadPool());
  }
  if (run) RunProblem(problem, pool);
}

}  // namespace

void DecodeSlots(const StoredTensor& q, const KvCache::State& state, const DecodeOptions& options,
                 const AttentionOutputs& outputs, ThreadPool* pool) {
  const int64_t q_len = q.shape[2];
  CheckQueries(q, state, options);
  if (state.weighs() && !options.alibi_slopes.empty()) {
    Fail(ErrorCode::kUnsupported, "alibi_slopes: a cache of heavy hitters has lost the positions");
  }
  if (!state.weighs()) return DecodeRowsOf(q, state, options, q_len, 0, outputs, true, pool);
  DecodeRowsOf(q, state, options, q_len, 0, outputs, false, pool);
  const auto rows = [&](const StoredTensor& some, int64_t first, const AttentionOutputs& out) {
    DecodeRowsOf(some, state, options, q_len, first, out, true, pool);
  };
  DecodeWeighing(q, state, outputs, rows);
}

void Decode(const StoredTensor& q, const KvCache& cache, const DecodeOptions& options,
            const AttentionOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("attention over a cache", [&] {
    if (outputs.weights.has_value() || outputs.scores.has_value()) {
      Fail(
          ErrorCode::kUnsupported,
          "weights and scores of a cache are not offered: its sequences have lengths of their own");
    }
    DecodeSlots(q, cache.state(), options, outputs, pool);
  });
}

void Decode(TensorView<const float> q, const KvCache& cache, const DecodeOptions& options,
            const AttentionOutputs& outputs, ThreadPool* pool) {
  Decode(StoredTensor(q), cache, options, outputs, pool);
}

}  // namespace heed
