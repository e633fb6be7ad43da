// Keep plug: documents. A query sees the keys with its own document id; negative ids are padding.
#ifndef HEED_SRC_EXACT_KEEP_DOCUMENTS_H_
#define HEED_SRC_EXACT_KEEP_DOCUMENTS_H_

#include <limits>
#include <span>
#include <vector>

#include "src/exact/keep/pattern.h"

namespace heed {

class DocumentKeep final : public PatternKeep {
 public:
  // Ids [q_len] or [batch, q_len], and [kv_len] or [batch, kv_len].
  DocumentKeep(std::span<const int32_t> queries, std::span<const int32_t> keys, int64_t q_len,
               int64_t kv_len)
      : queries_(queries, q_len, kQueryChunk), keys_(keys, kv_len, kTileKeys) {}

  bool MayMeet(const KeepTile& tile) const override {
    const IdRange seen = keys_.ChunkOf(tile.batch, tile.key_begin);
    const int64_t last = tile.rows[tile.num_rows - 1].query;
    const int64_t step = static_cast<int64_t>(kQueryChunk);
    for (int64_t query = tile.rows[0].query / step * step; query <= last; query += step) {
      const IdRange ids = queries_.ChunkOf(tile.batch, query);
      if (ids.low <= seen.high && seen.low <= ids.high) return true;
    }
    return false;
  }

 protected:
  bool SameKeys(int64_t batch, const Row& a, const Row& b) const override {
    return queries_.Id(batch, a.query) == queries_.Id(batch, b.query);
  }

  void SetKeys(int64_t batch, const Row& row, const KeyRange& keys, KeyBits& seen) const override {
    const int32_t id = queries_.Id(batch, row.query);
    const IdRange here = keys_.ChunkOf(batch, keys.begin);
    if (id < here.low || id > here.high) return;
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const size_t c = static_cast<size_t>(j - keys.begin);
      seen.words[c / 64] |= uint64_t{keys_.Id(batch, j) == id} << (c % 64);
    }
  }

 private:
  static constexpr size_t kQueryChunk = 32;

  struct IdRange {
    int32_t low = std::numeric_limits<int32_t>::max();
    int32_t high = -1;  // below every id: nothing meets it
  };

  // Ids of tokens, and the smallest and largest id of each chunk of them, padding left out.
  class Ids {
   public:
    Ids(std::span<const int32_t> ids, int64_t len, size_t chunk)
        : ids_(ids),
          len_(len),
          chunk_(static_cast<int64_t>(chunk)),
          num_chunks_((len + chunk_ - 1) / chunk_),
          shared_(static_cast<int64_t>(ids.size()) == len) {
      const int64_t entries = len == 0 ? 0 : static_cast<int64_t>(ids.size()) / len;
      chunks_.resize(static_cast<size_t>(entries * num_chunks_));
      for (size_t n = 0; n < ids.size(); ++n) {
        if (ids[n] < 0) continue;
        const int64_t token = static_cast<int64_t>(n);
        IdRange& range =
            chunks_[static_cast<size_t>(token / len * num_chunks_ + token % len / chunk_)];
        range.low = std::min(range.low, ids[n]);
        range.high = std::max(range.high, ids[n]);
      }
    }
    int32_t Id(int64_t batch, int64_t token) const {
      return ids_[static_cast<size_t>(shared_ ? token : batch * len_ + token)];
    }
    IdRange ChunkOf(int64_t batch, int64_t token) const {
      return chunks_[static_cast<size_t>((shared_ ? 0 : batch * num_chunks_) + token / chunk_)];
    }

   private:
    std::span<const int32_t> ids_;
    int64_t len_;
    int64_t chunk_;
    int64_t num_chunks_;
    bool shared_;  // by all batch entries
    std::vector<IdRange> chunks_;
  };

  Ids queries_;
  Ids keys_;
};

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_DOCUMENTS_H_
