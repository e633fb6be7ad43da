// Merges the splits of a row, in ascending order of their keys (FlashAttention's "flash decoding").
// The last block of a row's splits does it, or a second kernel: the same bits.
#ifndef HEED_SRC_CUDA_COMBINE_KERNEL_H_
#define HEED_SRC_CUDA_COMBINE_KERNEL_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"
#include "src/cuda/fragments.h"
#include "src/cuda/plugs.h"
#include "src/cuda/schedule.h"

namespace heed::cuda {

// The splits of a packed row, as one of the threads that merge them sees them, which has kColumns
// neighbouring columns from `column` on, those below `width`. kAtOnce splits are on their way
// together.
template <int kColumns>
class SplitRow {
 public:
  HEED_DEVICE SplitRow(const AttentionParams& p, const UnitSplits& splits, int64_t row, int column,
                       int width)
      : p_(p),
        count_(splits.count),
        apart_(static_cast<int32_t>(p.rows)),
        first_(splits.first * p.rows + row),
        column_(column),
        width_(width) {}

  // Folds the columns, and the sum of the row.
  HEED_DEVICE RowState Fold(float (&values)[kColumns]) {
    RowState state = {HasDenominator(p_.normalize) ? kMinusInfinity : 0.0f, 0};
    HEED_UNROLL for (int n = 0; n < kColumns; ++n) values[n] = 0;
    HEED_NO_UNROLL for (int s = 0; s < count_; s += kAtOnce) FoldSome(s, state, values);
    return state;
  }

 private:
  static constexpr int kAtOnce = 16;

  HEED_DEVICE void FoldSome(int first, RowState& state, float (&values)[kColumns]) {
    RowState split[kAtOnce];
    float part[kAtOnce][kColumns];
    const int64_t place = first_ + int64_t{first} * apart_;
    const RowState* states = p_.split_states + place;
    const float* parts = p_.split_values + place * p_.v.width + column_;
    HEED_UNROLL for (int s = 0; s < kAtOnce; ++s) {
      split[s].max = kMinusInfinity;
      if (first + s >= count_) continue;
      split[s] = states[s * apart_];
      LoadColumns(parts + s * (apart_ * p_.v.width), part[s]);
    }
    float highest = state.max;
    HEED_UNROLL for (int s = 0; s < kAtOnce; ++s) highest = fmaxf(highest, split[s].max);
    const float subtrahend = Subtrahend(highest);
    const float shrink = Exp(state.max - subtrahend);
    state.max = highest;
    state.sum *= shrink;
    HEED_UNROLL for (int n = 0; n < kColumns; ++n) values[n] *= shrink;
    HEED_UNROLL for (int s = 0; s < kAtOnce; ++s) {
      if (first + s >= count_) continue;
      const float factor = Exp(split[s].max - subtrahend);
      state.sum += split[s].sum * factor;
      HEED_UNROLL for (int n = 0; n < kColumns; ++n) values[n] += part[s][n] * factor;
    }
  }

  // At once where rows are multiples of kColumns: then all begin at multiples of them.
  HEED_DEVICE void LoadColumns(const float* from, float (&x)[kColumns]) const {
    struct alignas(kColumns * sizeof(float)) Columns {
      float x[kColumns];
    };
    if (width_ % kColumns == 0) {
      if (column_ >= width_) return;
      const Columns columns = *reinterpret_cast<const Columns*>(from);
      HEED_UNROLL for (int n = 0; n < kColumns; ++n) x[n] = columns.x[n];
      return;
    }
    HEED_UNROLL for (int n = 0; n < kColumns; ++n) x[n] = column_ + n < width_ ? from[n] : 0.0f;
  }

  const AttentionParams& p_;
  const int count_;
  // From split to split. All of them have less than 2^31 numbers: few rows are split
  // (split_plan.h).
  const int32_t apart_;
  const int64_t first_;
  const int column_, width_;
};

// Packed row `row` of a unit, by kThreads threads, of which this is number `thread`.
template <int kThreads>
HEED_DEVICE void MergeRow(const AttentionParams& p, int32_t unit, int64_t row, int thread) {
  constexpr int kColumns = kBlockThreads / kThreads;
  const int query = QueryOfRow(p, row);
  const int head = unit % p.num_kv_heads * p.group +
                   static_cast<int>(row - static_cast<int64_t>(query) * p.group);
  const auto row_of = [&](const DeviceOutput& output) {
    return output.data + unit / p.num_kv_heads * output.strides[0] + head * output.strides[1] +
           query * output.strides[2];
  };
  const int width = p.output.data == nullptr ? 0 : p.v.width;
  const UnitSplits splits = SplitsOf(p, unit);
  int column = kColumns * thread;
  do {
    float values[kColumns];
    const RowState state = SplitRow<kColumns>(p, splits, row, column, width).Fold(values);
    const RowEnd end = FinishRow(p, head, state);
    if (column == 0 && p.lse.data != nullptr) {
      StoreAs(DType::kFloat32, row_of(p.lse), 0, end.lse);
    }
    HEED_UNROLL for (int n = 0; n < kColumns; ++n) {
      const float value = end.empty ? 0.0f : values[n] * end.factor;
      if (column + n < width) StoreAs(p.output.dtype, row_of(p.output), column + n, value);
    }
    column += kBlockThreads;
  } while (column < width);
}

// The second kernel: block `index` takes one row of [units, rows]. Rows that are not split are
// stored already.
template <class Block>
HEED_DEVICE void CombineRow(Block& block, const AttentionParams& p, int64_t index) {
  const int32_t unit = static_cast<int32_t>(index / p.rows);
  if (SplitsOf(p, unit).count == 1) return;
  block.Each([&](int t) { MergeRow<kBlockThreads>(p, unit, index % p.rows, t); });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_COMBINE_KERNEL_H_
