// Rows of a tile of attention backwards: which queries they are, which keys they see, and what
// arrives at them.
#ifndef HEED_SRC_CUDA_GRADIENT_ROWS_H_
#define HEED_SRC_CUDA_GRADIENT_ROWS_H_

#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/gradient_params.h"
#include "src/cuda/pairs.h"
#include "src/cuda/plugs.h"

namespace heed::cuda {

// The packed rows first, first + 1, ... of a batch entry: row r is query r / group of head
// first_head + r % group. Of `first` the query is first_query, `skip` heads into the group.
struct PackedRows {
  int batch, first_head, group;
  int32_t first_query, skip;
  int64_t left;  // rows there are from `first` on
  float inverse_group;

  HEED_DEVICE bool Has(int r) const { return r < left; }
  // A half keeps the product away from whole numbers, so it may be off by a little.
  HEED_DEVICE int Step(int r) const {
    return static_cast<int>((static_cast<float>(skip + r) + 0.5f) * inverse_group);
  }
  HEED_DEVICE int Query(int r) const { return first_query + Step(r); }
  HEED_DEVICE int Head(int r) const { return first_head + skip + r - Step(r) * group; }
};

// Of `count` rows in all. Divisions of 64 bits are long.
HEED_DEVICE PackedRows RowsFrom(int batch, int first_head, int group, int64_t first,
                                int64_t count) {
  PackedRows rows{batch, first_head, group, 0, 0, count - first, 1.0f / static_cast<float>(group)};
  if (first <= 0x7fffffff) {
    rows.first_query = static_cast<int32_t>(first) / group;
  } else {
    rows.first_query = static_cast<int32_t>(first / group);
  }
  rows.skip = static_cast<int32_t>(first - static_cast<int64_t>(rows.first_query) * group);
  return rows;
}

// Whether the rows of a batch entry have bounds that grow from query to query.
HEED_DEVICE bool HasOrderedRows(const AttentionParams& p) {
  return p.rules.key_lengths == nullptr || !p.rules.lengths_per_query;
}

// Whether it is bounds alone that say who sees whom.
HEED_DEVICE bool HasBoundsOnly(const AttentionParams& p) {
  return p.documents.keys == nullptr && p.keep.data == nullptr && p.patterns.ids == nullptr;
}

// Whether the pairs of a call need nothing but scale, bounds and softmax.
HEED_DEVICE bool IsPlain(const AttentionParams& p) {
  return HasBoundsOnly(p) && p.softcap == 0 && p.bias.data == nullptr &&
         p.alibi_slopes == nullptr && p.dropout.keep_factor == 0;
}

// Rows of a tile see no keys but `some`, and each of them sees all of `all`, as far as bounds say.
struct RowsReach {
  RowKeys some, all;
};

// Of the first kRows rows, where rows are ordered.
template <int kRows, class Block>
HEED_DEVICE RowsReach ReachOfRows(Block& block, const AttentionParams& p, const PackedRows& rows) {
  const int32_t length = LengthOf(block, p, rows.batch, 0);
  const auto bounds = [&](int r) {
    const int64_t position = PositionOf(p.rules, rows.batch, rows.Query(r), p.q_len, length);
    return BoundsOfRow(p.rules, rows.batch, position, length, p.kv_len);
  };
  const RowKeys first = bounds(0);
  const RowKeys last = bounds(rows.Has(kRows - 1) ? kRows - 1 : static_cast<int>(rows.left) - 1);
  return {{first.begin, last.end}, {last.begin, first.end}};
}

// Documents from the least to the greatest.
struct DocumentSpan {
  int32_t least = 0x7fffffff, greatest = -1;

  HEED_DEVICE void Add(int32_t document) {
    if (document < 0) return;
    least = document < least ? document : least;
    greatest = document > greatest ? document : greatest;
  }
  HEED_DEVICE bool Has(int32_t document) const { return document >= least && document <= greatest; }
};

// Tables of the rows of kTables tiles in shared memory: what rows see, and what arrives at them.
// One is current.
template <class Block, int kRows, int kTables = 1>
class GradientRows {
 public:
  HEED_DEVICE explicit GradientRows(Block& block)
      : block_(block),
        positions_(block.template Allocate<int64_t>(kCount)),
        words_(block.template Allocate<uint64_t>(kCount)),
        begins_(block.template Allocate<int32_t>(kCount)),
        ends_(block.template Allocate<int32_t>(kCount)),
        documents_(block.template Allocate<int32_t>(kCount)),
        arrivals_(block.template Allocate<float>(2 * kCount)) {}

  static constexpr int kCount = kRows * kTables;
  static_assert(kRows % 4 == 0, "every array fills 16 bytes");
  static constexpr int kBytes = kCount * static_cast<int>(2 * sizeof(int64_t) + 5 * sizeof(float));

  // The table of the current tile, and that of the next.
  HEED_DEVICE int Current() const { return first_; }
  HEED_DEVICE int Next() const { return kTables == 1 ? 0 : kRows - first_; }
  HEED_DEVICE void TurnToNext() { first_ = Next(); }

  // A phase: rows that there are not begin at key -1 and see none. No barrier.
  HEED_DEVICE void FillBounds(int table, const AttentionParams& p, const PackedRows& rows) {
    block_.Each([&](int t) {
      if (t >= kRows) return;
      RowKeys keys = {-1, -1};
      int64_t position = 0;
      int32_t document = -1;
      if (rows.Has(t)) {
        const int query = rows.Query(t);
        const int32_t length = LengthOf(block_, p, rows.batch, query);
        position = PositionOf(p.rules, rows.batch, query, p.q_len, length);
        keys = HullOfRow(p, rows.batch, rows.Head(t), query, position, length);
        document = DocumentOf(p, rows.batch, query);
      }
      begins_.Store(t, table + t, keys.begin);
      ends_.Store(t, table + t, keys.end);
      positions_.Store(t, table + t, position);
      documents_.Store(t, table + t, document);
    });
  }

  // Begins to load what arrives at the rows; the last threads do, as the first have bounds to fill.
  // A row that there is not has weights of 0.
  HEED_DEVICE void LoadArrivals(const GradientParams& params, const PackedRows& rows) {
    block_.Each([&](int t) {
      arriving_(t, 0) = HUGE_VALF;
      arriving_(t, 1) = 0;
      const int r = t - kFirstLoader;
      if (r < 0 || !rows.Has(r)) return;
      const int query = rows.Query(r), head = rows.Head(r);
      arriving_(t, 0) = params.lse.At(rows.batch, head, query, 0);
      arriving_(t, 1) = params.delta[ScratchRow(params.attention, rows.batch, head, query)];
    });
  }
  HEED_DEVICE void StoreArrivals(int table) {
    block_.Each([&](int t) {
      const int at = 2 * (table + t - kFirstLoader);
      if (t < kFirstLoader) return;
      arrivals_.Store(t, at, arriving_(t, 0) * kLog2E);
      arrivals_.Store(t, at + 1, arriving_(t, 1));
    });
  }

  // A barrier: whether bounds, patterns and those documents may let some row of a table see some of
  // the keys [begin, end), which share a word of patterns. Leaves that word of every row.
  HEED_DEVICE bool Meet(int table, const AttentionParams& p, const PackedRows& rows, int32_t begin,
                        int32_t end, const DocumentSpan& documents) {
    return block_.Any([&](int t) {
      if (t >= kRows || begins_.Load(t, table + t) >= end || ends_.Load(t, table + t) <= begin) {
        return false;
      }
      if (p.documents.keys != nullptr && !documents.Has(documents_.Load(t, table + t))) {
        return false;
      }
      if (p.patterns.ids == nullptr) return true;
      const int32_t id = PatternIdOf(p, rows.batch, rows.Head(t), rows.Query(t));
      const uint64_t word = PatternWord(p.patterns, id, begin / 64);
      words_.Store(t, table + t, word);
      const uint64_t kept = word >> begin % 64;
      return (end - begin < 64 ? kept & ((uint64_t{1} << (end - begin)) - 1) : kept) != 0;
    });
  }

  // The keys that some row sees, and those that all of them see, as intervals. By all threads,
  // after a barrier.
  HEED_DEVICE RowsReach Reach(int32_t kv_len) const {
    RowsReach reach = {{kv_len, 0}, {0, kv_len}};
    HEED_NO_UNROLL for (int r = 0; r < kRows; ++r) {
      const RowKeys row = {begins_.LoadUniform(first_ + r), ends_.LoadUniform(first_ + r)};
      if (row.begin < 0) continue;
      if (row.begin > reach.all.begin) reach.all.begin = row.begin;
      if (row.end < reach.all.end) reach.all.end = row.end;
      if (row.begin == row.end) continue;
      if (row.begin < reach.some.begin) reach.some.begin = row.begin;
      if (row.end > reach.some.end) reach.some.end = row.end;
    }
    return reach;
  }

  // The documents of the rows. By all threads, after a barrier.
  HEED_DEVICE DocumentSpan Documents() const {
    DocumentSpan span;
    HEED_NO_UNROLL for (int r = 0; r < kRows; ++r) span.Add(documents_.LoadUniform(first_ + r));
    return span;
  }

  // Of row r of the current table.
  HEED_DEVICE RowKeys Bounds(int t, int r) const {
    return {begins_.Load(t, first_ + r), ends_.Load(t, first_ + r)};
  }
  HEED_DEVICE bool HasWord(int t, int r, int key) const {
    return (words_.Load(t, first_ + r) >> key % 64 & 1) != 0;
  }
  HEED_DEVICE int32_t Document(int t, int r) const { return documents_.Load(t, first_ + r); }
  HEED_DEVICE float Distance(int t, int r, int key) const {
    return fabsf(static_cast<float>(positions_.Load(t, first_ + r) - key));
  }
  // lse in base 2, then what its row takes from gradients of weights.
  HEED_DEVICE float Lse2(int t, int r) const { return arrivals_.Load(t, 2 * (first_ + r)); }
  HEED_DEVICE float Delta(int t, int r) const { return arrivals_.Load(t, 2 * (first_ + r) + 1); }
  // Both of rows r and r + 1; r is even.
  HEED_DEVICE void LoadTwoArrivals(int t, int r, float (&x)[4]) const {
    arrivals_.LoadFour(t, 2 * (first_ + r), x);
  }

 private:
  static constexpr int kFirstLoader = kBlockThreads - kRows;

  Block& block_;
  typename Block::template Shared<int64_t> positions_;
  typename Block::template Shared<uint64_t> words_;
  typename Block::template Shared<int32_t> begins_, ends_, documents_;
  typename Block::template Shared<float> arrivals_;
  typename Block::template Registers<float, 2> arriving_;
  int first_ = 0;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GRADIENT_ROWS_H_
