// The schedule as plain functions: which block computes what.
#ifndef HEED_SRC_CUDA_SCHEDULE_H_
#define HEED_SRC_CUDA_SCHEDULE_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"

namespace heed::cuda {

struct BlockPlace {
  int64_t row_block;
  int32_t split;
  int32_t unit;  // batch entry * num_kv_heads + KV head
};

// Later rows first: in causal attention they see more keys, and what runs last should be short.
HEED_DEVICE BlockPlace PlaceOf(int64_t index, int64_t row_blocks, int64_t units, int32_t splits) {
  const int64_t unit = index % units;
  const int64_t rest = index / units;
  return {row_blocks - 1 - rest / splits, static_cast<int32_t>(rest % splits),
          static_cast<int32_t>(unit)};
}

// Tiles [begin, end).
struct TileSpan {
  int32_t begin;
  int32_t end;
};

// Part `split` of the tiles that meet keys [begin, end).
HEED_DEVICE TileSpan TilesOf(int32_t begin, int32_t end, int32_t tile_keys, int32_t split,
                             int32_t splits) {
  if (begin >= end) return {0, 0};
  const int64_t first = begin / tile_keys;
  const int64_t count = (end - 1) / tile_keys + 1 - first;
  return {static_cast<int32_t>(first + split * count / splits),
          static_cast<int32_t>(first + (split + 1) * count / splits)};
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_SCHEDULE_H_
