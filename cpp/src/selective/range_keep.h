// Keep plug: one interval of keys for each row of gathered queries.
#ifndef HEED_SRC_SELECTIVE_RANGE_KEEP_H_
#define HEED_SRC_SELECTIVE_RANGE_KEEP_H_

#include <cstddef>
#include <cstdint>

#include "src/exact/keep/keep.h"
#include "src/parallel/dry_run.h"

namespace heed {

class RangeKeep final : public CellKeep {
 public:
  // Rows see [0, keys) at first.
  RangeKeep(int64_t batch, int64_t heads, int64_t rows, int64_t keys)
      : heads_(heads), rows_(rows), ranges_(static_cast<size_t>(batch * heads * rows), {0, keys}) {}

  KeyRange& at(int64_t b, int64_t h, int64_t row) { return ranges_[Index(b, h, row)]; }
  const KeyRange& at(int64_t b, int64_t h, int64_t row) const { return ranges_[Index(b, h, row)]; }

  KeyRange Hull(int64_t batch, const Row& row) const override {
    return at(batch, row.head, row.query);
  }
  void Narrow(const KeepTile&, KeyBits*) const override {}  // the hull says it all

 private:
  size_t Index(int64_t b, int64_t h, int64_t row) const {
    return static_cast<size_t>((b * heads_ + h) * rows_ + row);
  }
  int64_t heads_, rows_;
  ScratchVector<KeyRange> ranges_;
};

}  // namespace heed

#endif  // HEED_SRC_SELECTIVE_RANGE_KEEP_H_
