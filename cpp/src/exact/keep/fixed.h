// Keep plug: the fixed pattern of the Sparse Transformer. Source: Child 2019, arXiv:1904.10509.
#ifndef HEED_SRC_EXACT_KEEP_FIXED_H_
#define HEED_SRC_EXACT_KEEP_FIXED_H_

#include "heed/keep.h"
#include "src/exact/keep/pattern.h"

namespace heed {

class FixedKeep final : public PatternKeep {
 public:
  explicit FixedKeep(const Fixed& rule) : block_(rule.stride), summary_(rule.summary) {}

  KeyRange Hull(int64_t, const Row& row) const override { return {0, row.position + 1}; }

  bool MayMeet(const KeepTile& tile) const override {
    const int64_t low = std::max<int64_t>(tile.rows[0].position, 0);
    const int64_t high = tile.rows[tile.num_rows - 1].position;
    const KeyRange keys = tile.keys();
    if (high < keys.begin) return false;
    if (low / block_ * block_ < keys.end) return true;
    return FirstSummary(keys.begin) < keys.end;
  }

 protected:
  bool SameKeys(int64_t, const Row& a, const Row& b) const override { return a.query == b.query; }

  void SetKeys(int64_t, const Row& row, const KeyRange& keys, KeyBits& seen) const override {
    if (row.position < 0) return;
    const int64_t end = row.position + 1;
    SetSpan(keys, row.position / block_ * block_, end, seen);
    for (int64_t from = FirstSummary(keys.begin); from < std::min(end, keys.end); from += block_) {
      SetSpan(keys, from, std::min(from + summary_, end), seen);
    }
  }

 private:
  // Where the last keys of the block around `key` begin: no earlier summary reaches beyond `key`.
  int64_t FirstSummary(int64_t key) const { return key / block_ * block_ + block_ - summary_; }

  int64_t block_;
  int64_t summary_;
};

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_FIXED_H_
