// How the position functions split a tensor into tasks: blocks of rows that share what is computed
// per position, times groups of heads that use it.
#ifndef HEED_SRC_POSITION_ROW_BLOCKS_H_
#define HEED_SRC_POSITION_ROW_BLOCKS_H_

#include <algorithm>
#include <cstdint>

#include "heed/tensor.h"

namespace heed {

struct RowBlock {
  int64_t first_row, last_row;    // [first, last) of len
  int64_t first_unit, last_unit;  // [first, last) of (batch entry, head) pairs, heads innermost
};

// Rows of a block share a table row each, which pays when many heads use it; a table of a block
// stays in the caches; a task moves about 1 MB.
class RowBlocks {
 public:
  // `per_batch`: batch entries have positions of their own. `row_floats`: table floats per row.
  RowBlocks(const Extents& shape, bool per_batch, int64_t row_floats)
      : heads_(shape[1]), len_(shape[2]) {
    groups_ = per_batch ? shape[0] : 1;
    units_ = per_batch ? heads_ : shape[0] * heads_;
    rows_ = std::clamp<int64_t>(int64_t{16384} / std::max<int64_t>(row_floats, 1), 1, 64);
    const int64_t unit_floats = std::max<int64_t>(1, rows_ * shape[3]);
    chunk_ = std::clamp<int64_t>(int64_t{262144} / unit_floats, 1, std::max<int64_t>(units_, 1));
    num_blocks_ = (len_ + rows_ - 1) / rows_;
    num_chunks_ = (units_ + chunk_ - 1) / chunk_;
  }

  int64_t rows() const { return rows_; }
  int64_t count() const { return groups_ * num_blocks_ * num_chunks_; }

  RowBlock operator[](int64_t task) const {
    const int64_t chunk = task % num_chunks_;
    const int64_t block = task / num_chunks_ % num_blocks_;
    const int64_t group = task / num_chunks_ / num_blocks_;
    const int64_t unit = group * (groups_ > 1 ? units_ : 0);
    return {block * rows_, std::min(len_, (block + 1) * rows_), unit + chunk * chunk_,
            unit + std::min(units_, (chunk + 1) * chunk_)};
  }

 private:
  int64_t heads_, len_;
  int64_t groups_, units_, rows_, chunk_;
  int64_t num_blocks_, num_chunks_;
};

}  // namespace heed

#endif  // HEED_SRC_POSITION_ROW_BLOCKS_H_
