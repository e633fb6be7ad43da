// Merges the splits of a row, in ascending order of their keys (FlashAttention's "flash decoding").
// The last block of a row's splits does it, or a second kernel: the same bits.
#ifndef HEED_SRC_CUDA_COMBINE_KERNEL_H_
#define HEED_SRC_CUDA_COMBINE_KERNEL_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"
#include "src/cuda/four_numbers.h"
#include "src/cuda/fragments.h"
#include "src/cuda/plugs.h"
#include "src/cuda/schedule.h"

namespace heed::cuda {

// What a split counts in its row, by the largest scores of both.
HEED_DEVICE float ShrinkOf(float split_max, float row_max) {
  return Exp(split_max - Subtrahend(row_max));
}
// A split joins the sums of its row, as seen from the row's largest score.
template <int kColumns>
HEED_DEVICE void FoldSplit(float shrink, float sum, const float (&part)[kColumns], RowState& row,
                           float (&values)[kColumns]) {
  row.sum += sum * shrink;
  HEED_UNROLL for (int n = 0; n < kColumns; ++n) values[n] += part[n] * shrink;
}

// The splits of a packed row, as one of the kThreads threads that merge them sees them: kColumns
// columns, kThreads apart. Loads of kAtOnce splits are on their way before the first is used.
template <int kThreads>
class SplitRow {
 public:
  static constexpr int kColumns = kBlockThreads / kThreads;

  HEED_DEVICE SplitRow(const AttentionParams& p, const UnitSplits& splits, int64_t row)
      : p_(p), count_(splits.count), first_(splits.first * p.rows + row) {
    state_ = {HasDenominator(p.normalize) ? kMinusInfinity : 0.0f, 0};
    HEED_NO_UNROLL for (int first = 0; first < count_; first += kAtOnce) {
      float largest[kAtOnce];
      HEED_UNROLL for (int s = 0; s < kAtOnce; ++s) {
        const bool exists = first + s < count_;
        largest[s] = exists ? p_.split_states[PlaceOf(first + s)].max : kMinusInfinity;
      }
      HEED_UNROLL for (int s = 0; s < kAtOnce; ++s) state_.max = fmaxf(state_.max, largest[s]);
    }
  }

  // Folds the columns below `width`, and the sum of the row.
  HEED_DEVICE RowState Fold(int column, int width, float (&values)[kColumns]) {
    state_.sum = 0;
    HEED_UNROLL for (int n = 0; n < kColumns; ++n) values[n] = 0;
    HEED_NO_UNROLL for (int s = 0; s < count_; s += kAtOnce) FoldSome(s, column, width, values);
    return state_;
  }

 private:
  static constexpr int kAtOnce = kColumns == 1 ? 16 : 8;

  HEED_DEVICE int64_t PlaceOf(int s) const { return first_ + s * p_.rows; }

  HEED_DEVICE void FoldSome(int first, int column, int width, float (&values)[kColumns]) {
    RowState split[kAtOnce] = {};
    float part[kAtOnce][kColumns] = {};
    HEED_UNROLL for (int s = 0; s < kAtOnce; ++s) {
      if (first + s >= count_) continue;
      const int64_t at = PlaceOf(first + s);
      split[s] = p_.split_states[at];
      HEED_UNROLL for (int n = 0; n < kColumns; ++n) {
        const int d = column + n * kThreads;
        if (d < width) part[s][n] = p_.split_values[at * p_.v.width + d];
      }
    }
    HEED_UNROLL for (int s = 0; s < kAtOnce; ++s) {
      if (first + s >= count_) continue;
      FoldSplit(ShrinkOf(split[s].max, state_.max), split[s].sum, part[s], state_, values);
    }
  }

  const AttentionParams& p_;
  const int count_;
  const int64_t first_;
  RowState state_;
};

// Packed row `row` of a unit, by kThreads threads, of which this is number `thread`.
template <class Block, int kThreads>
HEED_DEVICE void MergeRow(const AttentionParams& p, int32_t unit, int64_t row, int thread) {
  using Splits = SplitRow<kThreads>;
  const int head = unit % p.num_kv_heads * p.group + static_cast<int>(row % p.group);
  const auto row_of = [&](const DeviceOutput& output) {
    return output.data + unit / p.num_kv_heads * output.strides[0] + head * output.strides[1] +
           row / p.group * output.strides[2];
  };
  const int width = p.output.data == nullptr ? 0 : p.v.width;
  Splits splits(p, SplitsOf(p, unit), row);
  int column = thread;
  do {
    float values[Splits::kColumns];
    const RowEnd end = FinishRow(p, head, splits.Fold(column, width, values));
    if (column == 0 && p.lse.data != nullptr) {
      StoreAs(DType::kFloat32, row_of(p.lse), 0, end.lse);
    }
    HEED_UNROLL for (int n = 0; n < Splits::kColumns; ++n) {
      const int d = column + n * kThreads;
      const float value = end.empty ? 0.0f : values[n] * end.factor;
      if (d < width) StoreOne<Block>(p.output.dtype, row_of(p.output), d, value);
    }
    column += Splits::kColumns * kThreads;
  } while (column < width);
}

// The second kernel: block `index` takes one row of [units, rows]. Rows that are not split are
// stored already.
template <class Block>
HEED_DEVICE void CombineRow(Block& block, const AttentionParams& p, int64_t index) {
  const int32_t unit = static_cast<int32_t>(index / p.rows);
  if (SplitsOf(p, unit).count == 1) return;
  block.Each([&](int t) { MergeRow<Block, kBlockThreads>(p, unit, index % p.rows, t); });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_COMBINE_KERNEL_H_
