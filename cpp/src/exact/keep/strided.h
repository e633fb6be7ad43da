// Keep plug: the strided pattern of the Sparse Transformer. Source: Child 2019, arXiv:1904.10509.
#ifndef HEED_SRC_EXACT_KEEP_STRIDED_H_
#define HEED_SRC_EXACT_KEEP_STRIDED_H_

#include "heed/keep.h"
#include "src/exact/keep/pattern.h"

namespace heed {

class StridedKeep final : public PatternKeep {
 public:
  explicit StridedKeep(const Strided& rule) : stride_(rule.stride) {}

  KeyRange Hull(int64_t, const Row& row) const override { return {0, row.position + 1}; }

  bool MayMeet(const KeepTile& tile) const override {
    const int64_t low = tile.rows[0].position;
    const int64_t high = tile.rows[tile.num_rows - 1].position;
    const KeyRange keys = tile.keys();
    if (high < keys.begin) return false;
    if (low - stride_ < keys.end) return true;
    // Distances run from low - (end - 1) to high - begin; is a multiple of the stride among them?
    return (high - keys.begin) / stride_ * stride_ > low - keys.end;
  }

 protected:
  bool SameKeys(int64_t, const Row& a, const Row& b) const override { return a.query == b.query; }

  void SetKeys(int64_t, const Row& row, const KeyRange& keys, KeyBits& seen) const override {
    if (row.position < 0) return;
    SetSpan(keys, row.position - stride_, row.position + 1, seen);
    SetSteps(keys, row.position % stride_, row.position + 1, stride_, seen);
  }

 private:
  int64_t stride_;
};

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_STRIDED_H_
