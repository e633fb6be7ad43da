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
  const int32_t unit = static_cast<int32_t>(block - rest * count);
  if (row_blocks == 1) return {0, static_cast<int32_t>(rest), unit};
  return {row_blocks - 1 - rest / parts, static_cast<int32_t>(rest % parts), unit};
}

// Rows of a block times splits that its last block merges, at most (split_plan.h).
inline constexpr int kMostMergedParts = 256;

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

// The same order where entries have splits of their own. `row_blocks` is that of the parameters, or
// 1 where that is known when the kernel is compiled.
HEED_DEVICE BlockPlace PlaceOfBlock(const AttentionParams& p, int64_t index, int64_t row_blocks) {
  if (p.split_starts == nullptr) return PlaceOf(index, row_blocks, p.units, p.splits);
  const uint32_t block = static_cast<uint32_t>(index);
  const uint32_t parts = static_cast<uint32_t>(p.split_starts[p.batch] * p.num_kv_heads);
  const uint32_t rest = row_blocks == 1 ? 0 : block / parts;
  const int32_t part = static_cast<int32_t>(block - rest * parts);
  const int32_t entry = EntryOfPart(p, part);
  const int32_t within = part - p.split_starts[entry] * p.num_kv_heads;
  const int32_t split = within / p.num_kv_heads, head = within - split * p.num_kv_heads;
  return {row_blocks - 1 - rest, split, entry * p.num_kv_heads + head};
}

// Tiles [begin, end).
struct TileSpan {
  int32_t begin;
  int32_t end;
};

// Part `split` of the tiles that meet keys [begin, end). The first parts have a tile more where
// they do not come out even.
HEED_DEVICE TileSpan TilesOf(int32_t begin, int32_t end, int32_t tile_keys, int32_t split,
                             int32_t splits) {
  if (begin >= end) return {0, 0};
  const int32_t first = begin / tile_keys;
  const uint32_t count = static_cast<uint32_t>((end - 1) / tile_keys + 1 - first);
  const int32_t each = static_cast<int32_t>(count / static_cast<uint32_t>(splits));
  const int32_t more = static_cast<int32_t>(count) - each * splits;
  const int32_t from = first + split * each + (split < more ? split : more);
  return {from, from + each + (split < more ? 1 : 0)};
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_SCHEDULE_H_
