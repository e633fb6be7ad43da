// The items of the Hopper kernel and which keys their rows see: what all warp groups of a block
// find out alike.
#ifndef HEED_SRC_CUDA_HOPPER_ROWS_H_
#define HEED_SRC_CUDA_HOPPER_ROWS_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"
#include "src/cuda/hopper_layout.h"
#include "src/cuda/pairs.h"
#include "src/cuda/row_rules.h"
#include "src/cuda/schedule.h"

namespace heed::cuda {

// Calls body(item, next) for each item of the block, in order; there is no next one where it is not
// less than `items`. There are fewer than 2^30.
template <class Body>
HEED_DEVICE void EachItemAndNext(int32_t items, int32_t block, int32_t blocks, const Body& body) {
  HEED_NO_UNROLL for (int32_t round = 0; ItemOf(block, blocks, round) < items; ++round) {
    body(ItemOf(block, blocks, round), ItemOf(block, blocks, round + 1));
  }
}
template <class Body>
HEED_DEVICE void EachItem(int32_t items, int32_t block, int32_t blocks, const Body& body) {
  EachItemAndNext(items, block, blocks, [&](int32_t item, int32_t) { body(item); });
}
HEED_DEVICE int32_t ItemsOf(const AttentionParams& p) {
  return static_cast<int32_t>(p.row_blocks * p.units);
}
HEED_DEVICE BlockPlace PlaceOfItem(const AttentionParams& p, int32_t item) {
  return PlaceOf(item, p.row_blocks, p.units, 1);
}

// The keys that some row of an item sees (none: begin >= end), and those that all rows see.
struct ItemKeys {
  RowKeys some;
  RowKeys all;
};

template <class Shape>
HEED_DEVICE TileSpan TilesOfItem(const ItemKeys& keys) {
  return TilesOf(keys.some.begin, keys.some.end, Shape::kKeys, 0, 1);
}

// A thread a row. Leaves the group in step.
template <class Group>
HEED_DEVICE ItemKeys FindKeys(Group& group, const AttentionParams& p, const BlockPlace& place) {
  static_assert(kGroupThreads == kHopperRows);
  typename Group::template Registers<int32_t, 4> ends;
  const int batch = place.unit / p.num_kv_heads;
  group.Each([&](int t) {
    const int64_t row = place.row_block * kHopperRows + t;
    ends(t, 0) = -p.kv_len, ends(t, 1) = 0;  // -begin, end of what some row sees
    ends(t, 2) = 0, ends(t, 3) = -p.kv_len;  // begin, -end of what all rows see
    if (row >= p.rows) return;
    const int query = static_cast<int>(row) / p.group;
    const int32_t length = LengthOf(group, p, batch, query);
    const int64_t position = PositionOf(p.rules, batch, query, p.q_len, length);
    const RowKeys keys = KeysOfRow(p.rules, batch, position, length, p.kv_len);
    ends(t, 2) = keys.begin, ends(t, 3) = -keys.end;
    if (keys.begin < keys.end) ends(t, 0) = -keys.begin, ends(t, 1) = keys.end;
  });
  group.MaxOfGroup(ends);
  ItemKeys keys;
  group.Each([&](int t) {
    keys = {{-ends(t, 0), ends(t, 1)}, {ends(t, 2), -ends(t, 3)}};  // the same in every thread
  });
  return keys;
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_ROWS_H_
