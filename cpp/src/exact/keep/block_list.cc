#include "src/exact/keep/block_list.h"

#include <algorithm>
#include <utility>

#include "src/sort.h"

namespace heed {
namespace {

void SortRows(BlockRows& rows) {
  for (size_t n = 0; n + 1 < rows.starts.size(); ++n) {
    HeapSort(rows.blocks.begin() + rows.starts[n], rows.blocks.begin() + rows.starts[n + 1]);
  }
}

BlockRows BlocksOfMask(const TensorView<const uint8_t>& keep, BlockRows rows) {
  rows.heads = keep.shape[1];
  for (int64_t h = 0; h < keep.shape[1]; ++h) {
    for (int64_t i = 0; i < keep.shape[2]; ++i) {
      rows.starts.push_back(static_cast<int64_t>(rows.blocks.size()));
      for (int64_t j = 0; j < keep.shape[3]; ++j) {
        if (keep(0, h, i, j) != 0) rows.blocks.push_back(static_cast<int32_t>(j));
      }
    }
  }
  rows.starts.push_back(static_cast<int64_t>(rows.blocks.size()));
  return rows;
}

}  // namespace

BlockRows BlocksOfList(const BlockList& list, const AttentionProblem& p) {
  BlockRows rows = {
      list.q_block, list.kv_block, (p.q_len + list.q_block - 1) / list.q_block, 1, {}, {}};
  if (list.keep.has_value()) return BlocksOfMask(list.keep, std::move(rows));
  if (static_cast<int64_t>(list.indptr.size()) != rows.rows + 1) rows.heads = p.num_heads;
  rows.starts.assign(list.indptr.begin(), list.indptr.end());
  rows.blocks.assign(list.indices.begin(), list.indices.end());
  SortRows(rows);
  return rows;
}

BlockRows BlocksOfPairs(const PairList& list, const AttentionProblem& p) {
  BlockRows rows = {1, 1, p.q_len, 1, {}, {}};
  rows.starts.assign(static_cast<size_t>(p.q_len) + 1, 0);
  const std::span<const int32_t> pairs = list.pairs;
  for (size_t n = 0; n < pairs.size(); n += 2) ++rows.starts[static_cast<size_t>(pairs[n]) + 1];
  for (size_t i = 1; i < rows.starts.size(); ++i) rows.starts[i] += rows.starts[i - 1];
  rows.blocks.resize(pairs.size() / 2);
  std::vector<int64_t> next(rows.starts.begin(), rows.starts.end());
  for (size_t n = 0; n < pairs.size(); n += 2) {
    const int64_t at = next[static_cast<size_t>(pairs[n])]++;
    rows.blocks[static_cast<size_t>(at)] = pairs[n + 1];
  }
  SortRows(rows);
  return rows;
}

BlockListKeep::BlockListKeep(BlockRows rows, std::vector<int64_t> positions,
                             const AttentionProblem& p)
    : rows_(std::move(rows)),
      positions_(std::move(positions)),
      group_(p.group),
      heads_per_list_(std::max<int64_t>(1, p.num_heads / std::max<int64_t>(1, rows_.heads))),
      kv_len_(p.kv_len) {
  map_rows_ = (rows_.rows * rows_.q_block + kMapQueries - 1) / kMapQueries;
  const int64_t tiles =
      (kv_len_ + static_cast<int64_t>(kTileKeys) - 1) / static_cast<int64_t>(kTileKeys);
  map_words_ = (tiles + 63) / 64;
  map_.resize(static_cast<size_t>(rows_.batches * rows_.heads * map_rows_ * map_words_));
  FillMap();
}

void BlockListKeep::FillMap() {
  for (int64_t list = 0; list < rows_.batches * rows_.heads; ++list) {
    for (int64_t i = 0; i < rows_.rows; ++i) {
      const KeyRange tokens = {i * rows_.q_block, (i + 1) * rows_.q_block};
      for (const int32_t block : BlocksOf(list * rows_.rows + i)) Mark(list, tokens, block);
    }
  }
}

void BlockListKeep::Mark(int64_t list, const KeyRange& tokens, int32_t block) {
  const int64_t keys = static_cast<int64_t>(kTileKeys);
  const int64_t first = block * rows_.kv_block / keys;
  const int64_t last = (std::min((block + 1) * rows_.kv_block, kv_len_) - 1) / keys;
  for (int64_t m = tokens.begin / kMapQueries; m <= (tokens.end - 1) / kMapQueries; ++m) {
    uint64_t* words = &map_[static_cast<size_t>((list * map_rows_ + m) * map_words_)];
    for (int64_t t = first; t <= last; ++t) words[t / 64] |= uint64_t{1} << (t % 64);
  }
}

KeyRange BlockListKeep::Hull(int64_t batch, const Row& row) const {
  const std::span<const int32_t> blocks = BlocksOf(RowOf(batch, row));
  if (blocks.empty()) return {0, 0};
  return {blocks.front() * rows_.kv_block, (blocks.back() + 1) * rows_.kv_block};
}

bool BlockListKeep::MayMeet(const KeepTile& tile) const {
  const int64_t t = tile.key_begin / static_cast<int64_t>(kTileKeys);
  const int64_t first = Token(tile.batch, tile.rows[0].query) / kMapQueries;
  const int64_t last = Token(tile.batch, tile.rows[tile.num_rows - 1].query) / kMapQueries;
  const int64_t head = tile.rows[0].head / group_ * group_;
  const int64_t last_list = ListOf(tile.batch, head + group_ - 1);
  for (int64_t list = ListOf(tile.batch, head); list <= last_list; ++list) {
    for (int64_t m = first; m <= last; ++m) {
      const uint64_t* words = &map_[static_cast<size_t>((list * map_rows_ + m) * map_words_)];
      if ((words[t / 64] >> (t % 64) & 1) != 0) return true;
    }
  }
  return false;
}

int64_t BlockListKeep::QueryRun() const {
  for (const int64_t position : positions_) {
    if (position % rows_.q_block != 0) return 1;
  }
  return rows_.q_block;
}

void BlockListKeep::SetKeys(int64_t batch, const Row& row, const KeyRange& keys,
                            KeyBits& seen) const {
  const std::span<const int32_t> blocks = BlocksOf(RowOf(batch, row));
  auto it = std::lower_bound(blocks.begin(), blocks.end(), keys.begin / rows_.kv_block);
  for (; it != blocks.end() && *it * rows_.kv_block < keys.end; ++it) {
    SetSpan(keys, *it * rows_.kv_block, (*it + 1) * rows_.kv_block, seen);
  }
}

}  // namespace heed
