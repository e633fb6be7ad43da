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

// The query of a packed row. Nearly all calls have rows of 32 bits, whose division is much shorter.
HEED_DEVICE int QueryOfRow(const AttentionParams& p, int64_t row) {
  if (p.rows <= 0x7fffff00) return static_cast<int>(row) / p.group;
  return static_cast<int>(row / p.group);
}

// Later rows first: in causal attention they see more keys, and what runs last should be short.
//
// A grid has less than 2^31 blocks (GridOf()), so they are counted in 32 bits, whose division is a
// quarter as long.
HEED_DEVICE BlockPlace PlaceOf(int64_t index, int64_t row_blocks, int64_t units, int32_t splits) {
  const uint32_t block = static_cast<uint32_t>(index), count = static_cast<uint32_t>(units);
  const uint32_t rest = block / count, parts = static_cast<uint32_t>(splits);
  return {row_blocks - 1 - rest / parts, static_cast<int32_t>(rest % parts),
          static_cast<int32_t>(block % count)};
}

// The splits of a unit: part `first` of all parts and its followers.
struct UnitSplits {
  int64_t first;
  int32_t count;
};
HEED_DEVICE UnitSplits SplitsOf(const AttentionParams& p, int32_t unit) {
  if (p.split_starts == nullptr) return {static_cast<int64_t>(unit) * p.splits, p.splits};
  const int32_t* start = p.split_starts + unit / p.num_kv_heads;
  const int32_t count = start[1] - start[0];
  return {static_cast<int64_t>(start[0]) * p.num_kv_heads + unit % p.num_kv_heads * count, count};
}

// The entry whose splits part `part` belongs to.
HEED_DEVICE int32_t EntryOfPart(const AttentionParams& p, int64_t part) {
  int32_t low = 0, high = p.batch;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    const bool behind = part < static_cast<int64_t>(p.split_starts[middle]) * p.num_kv_heads;
    (behind ? high : low) = middle;
  }
  return low;
}

// The same order where entries have splits of their own.
HEED_DEVICE BlockPlace PlaceOfBlock(const AttentionParams& p, int64_t index) {
  if (p.split_starts == nullptr) return PlaceOf(index, p.row_blocks, p.units, p.splits);
  const uint32_t block = static_cast<uint32_t>(index);
  const uint32_t parts = static_cast<uint32_t>(p.split_starts[p.batch] * p.num_kv_heads);
  const int32_t part = static_cast<int32_t>(block % parts);
  const int32_t entry = EntryOfPart(p, part);
  const int32_t within = part - p.split_starts[entry] * p.num_kv_heads;
  return {p.row_blocks - 1 - block / parts, within / p.num_kv_heads,
          entry * p.num_kv_heads + within % p.num_kv_heads};
}

// Tiles [begin, end).
struct TileSpan {
  int32_t begin;
  int32_t end;
};

// Part `split` of the tiles that meet keys [begin, end): of less than 2^18 tiles, 2^14 parts.
HEED_DEVICE TileSpan TilesOf(int32_t begin, int32_t end, int32_t tile_keys, int32_t split,
                             int32_t splits) {
  if (begin >= end) return {0, 0};
  const int32_t first = begin / tile_keys;
  const uint32_t count = static_cast<uint32_t>((end - 1) / tile_keys + 1 - first);
  const uint32_t part = static_cast<uint32_t>(split), parts = static_cast<uint32_t>(splits);
  return {first + static_cast<int32_t>(part * count / parts),
          first + static_cast<int32_t>((part + 1) * count / parts)};
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_SCHEDULE_H_
