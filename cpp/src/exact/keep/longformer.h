// Keep plug: a dilated window and global tokens. Source: Beltagy 2020, arXiv:2004.05150.
#ifndef HEED_SRC_EXACT_KEEP_LONGFORMER_H_
#define HEED_SRC_EXACT_KEEP_LONGFORMER_H_

#include <algorithm>
#include <utility>
#include <vector>

#include "heed/keep.h"
#include "src/exact/keep/pattern.h"
#include "src/sort.h"

namespace heed {

class LongformerKeep final : public PatternKeep {
 public:
  LongformerKeep(const Longformer& rule, int64_t kv_len)
      : reach_(rule.reach),
        dilation_(rule.dilation),
        globals_(rule.global_tokens),
        kv_len_(kv_len) {
    if (dilation_.empty()) dilation_ = {1};
    widest_ = reach_ * *std::max_element(dilation_.begin(), dilation_.end());
    HeapSort(globals_.begin(), globals_.end());
  }

  KeyRange Hull(int64_t, const Row& row) const override {
    if (GlobalIn({row.position, row.position + 1})) return row.keys;
    const int64_t far = reach_ * Dilation(row);
    KeyRange hull = {row.position - far, row.position + far + 1};
    if (!globals_.empty()) {
      hull.begin = std::min(hull.begin, globals_.front());
      hull.end = std::max(hull.end, globals_.back() + 1);
    }
    return hull;
  }

  bool MayMeet(const KeepTile& tile) const override {
    const int64_t low = tile.rows[0].position;
    const int64_t high = tile.rows[tile.num_rows - 1].position;
    const KeyRange keys = tile.keys();
    if (low - widest_ < keys.end && high + widest_ >= keys.begin) return true;
    return GlobalIn({low, high + 1}) || GlobalIn(keys);
  }

 protected:
  bool SameKeys(int64_t, const Row& a, const Row& b) const override {
    return a.query == b.query && Dilation(a) == Dilation(b);
  }

  void SetKeys(int64_t, const Row& row, const KeyRange& keys, KeyBits& seen) const override {
    if (GlobalIn({row.position, row.position + 1})) return SetSpan(keys, 0, kv_len_, seen);
    const int64_t far = reach_ * Dilation(row);
    SetSteps(keys, row.position - far, row.position + far + 1, Dilation(row), seen);
    for (auto it = FirstGlobal(keys.begin); it != globals_.end() && *it < keys.end; ++it) {
      seen.Set(static_cast<size_t>(*it - keys.begin));
    }
  }

 private:
  int64_t Dilation(const Row& row) const {
    return dilation_.size() == 1 ? dilation_[0] : dilation_[static_cast<size_t>(row.head)];
  }
  std::vector<int64_t>::const_iterator FirstGlobal(int64_t from) const {
    return std::lower_bound(globals_.begin(), globals_.end(), from);
  }
  bool GlobalIn(const KeyRange& range) const {
    const auto it = FirstGlobal(range.begin);
    return it != globals_.end() && *it < range.end;
  }

  int64_t reach_;
  std::vector<int64_t> dilation_;
  std::vector<int64_t> globals_;  // ascending
  int64_t kv_len_;
  int64_t widest_;  // reach times the largest dilation
};

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_LONGFORMER_H_
