// Merges the splits of a row, in ascending order of their keys: the second kernel of split
// attention (FlashAttention's "flash decoding").
#ifndef HEED_SRC_CUDA_COMBINE_KERNEL_H_
#define HEED_SRC_CUDA_COMBINE_KERNEL_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"
#include "src/cuda/plugs.h"

namespace heed::cuda {

// The largest score and the sum of the whole row.
HEED_DEVICE RowState MergedState(const AttentionParams& p, int64_t place) {
  const int64_t step = p.units * p.rows;
  RowState row = {HasDenominator(p.normalize) ? kMinusInfinity : 0.0f, 0};
  for (int s = 0; s < p.splits; ++s) row.max = fmaxf(row.max, p.split_max[s * step + place]);
  for (int s = 0; s < p.splits; ++s) {
    const int64_t at = s * step + place;
    row.sum += p.split_sum[at] * Exp(p.split_max[at] - Subtrahend(row.max));
  }
  return row;
}

// One block a row: row `index` of [units, rows]. Threads take columns.
template <class Block>
HEED_DEVICE void CombineRow(Block& block, const AttentionParams& p, int64_t index) {
  const int64_t step = p.units * p.rows;
  const int64_t row = index % p.rows;
  const int unit = static_cast<int>(index / p.rows);
  const int head = unit % p.num_kv_heads * p.group + static_cast<int>(row % p.group);
  const auto row_of = [&](const DeviceOutput& output) {
    return output.data + unit / p.num_kv_heads * output.strides[0] + head * output.strides[1] +
           row / p.group * output.strides[2];
  };
  block.Each([&](int t) {
    const RowState state = MergedState(p, index);
    const RowEnd end = FinishRow(p, head, state);
    if (t == 0 && p.lse.data != nullptr) StoreAs(DType::kFloat32, row_of(p.lse), 0, end.lse);
    if (p.output.data == nullptr) return;
    for (int d = t; d < p.v.width; d += kBlockThreads) {
      float sum = 0;
      for (int s = 0; s < p.splits; ++s) {
        const int64_t at = s * step + index;
        const float shrink = Exp(p.split_max[at] - Subtrahend(state.max));
        sum += p.split_values[at * p.v.width + d] * shrink;
      }
      StoreAs(p.output.dtype, row_of(p.output), d, end.empty ? 0.0f : sum * end.factor);
    }
  });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_COMBINE_KERNEL_H_
