// Keep plug: a list of visible blocks. PairList of a graph are blocks of one query and one key.
#ifndef HEED_SRC_EXACT_KEEP_BLOCK_LIST_H_
#define HEED_SRC_EXACT_KEEP_BLOCK_LIST_H_

#include <cstdint>
#include <span>
#include <vector>

#include "heed/keep.h"
#include "src/exact/keep/pattern.h"
#include "src/exact/problem.h"
#include "src/parallel/worker_scratch.h"

namespace heed {

// Visible blocks in CSR: those of block row n are blocks[starts[n] .. starts[n + 1]), ascending.
// Memory: O(block rows + visible blocks).
struct BlockRows {
  int64_t q_block = 1;
  int64_t kv_block = 1;
  int64_t rows = 0;   // of one list
  int64_t heads = 1;  // lists of a batch entry; neighbouring heads share one
  ScratchVector<int64_t> starts;
  ScratchVector<int32_t> blocks;
  int64_t batches = 1;  // 1: all batch entries share the lists
};

BlockRows BlocksOfList(const BlockList& list, const AttentionProblem& p);
BlockRows BlocksOfPairs(const PairList& list, const AttentionProblem& p);
BlockRows BlocksOfBigBird(const BigBird& rule, const AttentionProblem& p);

class BlockListKeep final : public PatternKeep {
 public:
  // `positions` says at which token query 0 of each batch entry stands: empty = at token 0.
  BlockListKeep(BlockRows rows, std::vector<int64_t> positions, const AttentionProblem& p);

  KeyRange Hull(int64_t batch, const Row& row) const override;
  bool MayMeet(const KeepTile& tile) const override;
  int64_t QueryRun() const override;

 protected:
  bool SameKeys(int64_t batch, const Row& a, const Row& b) const override {
    return RowOf(batch, a) == RowOf(batch, b);
  }
  void SetKeys(int64_t batch, const Row& row, const KeyRange& keys, KeyBits& seen) const override;

 private:
  // Queries of a bit of the map.
  static constexpr int64_t kMapQueries = 32;

  int64_t Token(int64_t batch, int64_t query) const {
    return positions_.empty() ? query : query + positions_[static_cast<size_t>(batch)];
  }
  int64_t RowOf(int64_t batch, const Row& row) const {
    return ListOf(batch, row.head) * rows_.rows + Token(batch, row.query) / rows_.q_block;
  }
  int64_t ListOf(int64_t batch, int64_t head) const {
    return (rows_.batches == 1 ? 0 : batch * rows_.heads) + head / heads_per_list_;
  }
  std::span<const int32_t> BlocksOf(int64_t row) const {
    const int64_t begin = rows_.starts[static_cast<size_t>(row)];
    const int64_t end = rows_.starts[static_cast<size_t>(row) + 1];
    return std::span(rows_.blocks)
        .subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }
  void FillMap();
  void Mark(int64_t list, const KeyRange& tokens, int32_t block);

  BlockRows rows_;
  std::vector<int64_t> positions_;
  int64_t group_;
  int64_t heads_per_list_;
  int64_t kv_len_;
  // Which tiles of keys each run of kMapQueries tokens of a list meets, one bit each.
  int64_t map_rows_ = 0;   // of one list
  int64_t map_words_ = 0;  // of one row
  ScratchVector<uint64_t> map_;
};

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_BLOCK_LIST_H_
