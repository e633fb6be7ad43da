// Pages of a cache: bounds of their keys, and which of them a query reads.
#include <algorithm>
#include <utility>

#include "src/cache/page_bounds.h"
#include "src/cache/state.h"
#include "src/exact/keep/block_list.h"
#include "src/sort.h"

namespace heed {
namespace {

// Query heads of one KV head that are scored together.
constexpr int64_t kHeads = 4;

// What one thread needs to choose for kHeads queries.
struct PageScratch {
  std::vector<float> row;
  std::vector<double> parts, scores;
  std::vector<int32_t> order;
};

// Column n of [2 * width][columns]: max(q, 0), then min(q, 0), which meet maxima, then minima.
void SplitSigns(const float* q, int64_t width, int64_t columns, double* parts) {
  for (int64_t d = 0; d < width; ++d) {
    parts[d * columns] = q[d] < 0 ? 0.0 : q[d];
    parts[(width + d) * columns] = q[d] > 0 ? 0.0 : q[d];
  }
}

// What kColumns queries can score at most in each of the first `count` pages: scores[n * stride +
// page]. Products are exact and summed in the order of the dimensions: the arithmetic of
// heed/selective.h. Several sums at a time, because each waits for its last term.
template <int64_t kColumns, int64_t kPages>
void BoundScores(const BlockLayout& layout, const Sequence& sequence, int64_t head,
                 const double* parts, int64_t count, double* scores, int64_t stride) {
  constexpr double kMost = std::numeric_limits<double>::max();
  for (int64_t first = 0; first < count; first += kPages) {
    const float* bounds[kPages];
    for (int64_t n = 0; n < kPages; ++n) {
      const int64_t token = std::min(first + n, count - 1) * layout.page_size;
      char* block = sequence.blocks[static_cast<size_t>(token / layout.block_size)]->data();
      bounds[n] = layout.BoundsOf(block, head, token);
    }
    double sums[kPages][kColumns] = {};
    for (int64_t t = 0; t < layout.bounds_floats(); ++t) {
      for (int64_t n = 0; n < kPages; ++n) {
        const double bound = bounds[n][t];
        for (int64_t c = 0; c < kColumns; ++c) sums[n][c] += parts[t * kColumns + c] * bound;
      }
    }
    for (int64_t n = 0; n < std::min(kPages, count - first); ++n) {
      for (int64_t c = 0; c < kColumns; ++c) {
        // NaN counts as the largest number: it is seen, not hidden.
        scores[c * stride + first + n] = sums[n][c] < kMost ? sums[n][c] : kMost;
      }
    }
  }
}

}  // namespace

void BoundPages(const BlockLayout& layout, const Sequence& sequence, int64_t begin, int64_t end,
                float* row) {
  const int64_t size = layout.page_size;
  for (int64_t page = begin / size; (page + 1) * size <= end; ++page) {
    const int64_t first = page * size;
    char* block = sequence.blocks[static_cast<size_t>(first / layout.block_size)]->data();
    for (int64_t h = 0; h < layout.num_kv_heads; ++h) {
      float* bounds = layout.BoundsOf(block, h, first);
      std::fill_n(bounds, layout.head_dim, Bounds().max);
      std::fill_n(bounds + layout.head_dim, layout.head_dim, Bounds().min);
      for (int64_t j = first; j < first + size; ++j) {
        const int64_t slot = layout.Slot(h, j);
        const float scale = layout.k_scale_offset < 0
                                ? 1.0f
                                : reinterpret_cast<float*>(block + layout.k_scale_offset)[slot];
        LoadRow(layout, block + slot * layout.k_row_bytes, scale, layout.head_dim, row);
        for (int64_t d = 0; d < layout.head_dim; ++d) {
          Bounds both = {bounds[d], bounds[layout.head_dim + d]};
          both.Add(row[d]);
          bounds[d] = both.max;
          bounds[layout.head_dim + d] = both.min;
        }
      }
    }
  }
}

void ChoosePages(AttentionProblem& p, const KvCache::State& state, int64_t pages,
                 std::span<const int32_t> query_lengths, ThreadPool& pool) {
  const BlockLayout& layout = state.layout;
  // Pages of a query up to its own; none of a query that is padding.
  const auto candidates = [&](int64_t b, int64_t i) {
    const bool padding = !query_lengths.empty() && i >= query_lengths[static_cast<size_t>(b)];
    return padding ? 0 : p.Position(b, i) / layout.page_size + 1;
  };
  BlockRows rows = {1, layout.page_size, p.q_len, p.num_heads, {}, {}, p.batch};
  int64_t start = 0, most = 0;
  for (int64_t row = 0; row < p.batch * p.num_heads * p.q_len; ++row) {
    const int64_t count = candidates(row / p.q_len / p.num_heads, row % p.q_len);
    rows.starts.push_back(start);
    start += std::min(pages, count);
    most = std::max(most, count);
  }
  rows.starts.push_back(start);
  rows.blocks.resize(static_cast<size_t>(start));
  const int64_t columns = p.group == 1 ? 1 : kHeads;
  std::vector<PageScratch> scratch(static_cast<size_t>(pool.NumThreads()));
  for (PageScratch& s : scratch) {
    s.row.resize(static_cast<size_t>(p.head_dim));
    s.parts.resize(static_cast<size_t>(layout.bounds_floats() * columns));
    s.scores.resize(static_cast<size_t>(most * columns));
    s.order.resize(static_cast<size_t>(most));
  }
  const int64_t runs = (p.group + columns - 1) / columns;  // of heads, in a group
  pool.Run(p.batch * p.num_kv_heads * runs * p.q_len, [&](int64_t task, int worker) {
    const int64_t i = task % p.q_len, run = task / p.q_len;
    const int64_t b = run / runs / p.num_kv_heads, kv_head = run / runs % p.num_kv_heads;
    const int64_t first = kv_head * p.group + run % runs * columns;
    const int64_t heads = std::min(columns, (kv_head + 1) * p.group - first);
    const int64_t own = candidates(b, i) - 1;
    const bool scored = own >= pages && pages > 1;
    PageScratch& s = scratch[static_cast<size_t>(worker)];
    for (int64_t n = 0; n < heads && scored; ++n) {
      const float* q = FloatRow(p.q, b, first + n, i, s.row.data());
      SplitSigns(q, p.head_dim, columns, s.parts.data() + n);
    }
    if (scored) {
      const Sequence& sequence = state.sequences[static_cast<size_t>(b)];
      (columns == 1 ? BoundScores<1, 8> : BoundScores<kHeads, 2>)(layout, sequence, kv_head,
                                                                  s.parts.data(), own,
                                                                  s.scores.data(), most);
    }
    for (int64_t n = 0; n < heads; ++n) {
      const size_t row = static_cast<size_t>((b * p.num_heads + first + n) * p.q_len + i);
      const std::span<int32_t> chosen(rows.blocks.data() + rows.starts[row],
                                      static_cast<size_t>(rows.starts[row + 1] - rows.starts[row]));
      std::iota(chosen.begin(), chosen.end(), 0);
      if (own < pages) continue;  // all of them
      chosen.back() = static_cast<int32_t>(own);
      if (!scored) continue;
      const size_t others = static_cast<size_t>(own);
      ChooseBest({s.scores.data() + n * most, others}, {s.order.data(), others},
                 chosen.first(chosen.size() - 1));
    }
  });
  p.chosen = std::make_shared<BlockListKeep>(std::move(rows), std::vector<int64_t>(), p);
}

}  // namespace heed
