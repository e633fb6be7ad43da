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

// Calls body(round) for each of the block's rounds, whose item is ItemOf(block, blocks, round).
// There are fewer than 2^30 items.
template <class Body>
HEED_DEVICE void EachRound(int32_t items, int32_t block, int32_t blocks, const Body& body) {
  HEED_NO_UNROLL for (int32_t round = 0; ItemOf(block, blocks, round) < items; ++round) {
    body(round);
  }
}
template <class Body>
HEED_DEVICE void EachItem(int32_t items, int32_t block, int32_t blocks, const Body& body) {
  EachRound(items, block, blocks, [&](int32_t round) { body(ItemOf(block, blocks, round)); });
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

// Packed rows and items are below 2^30 (hopper_plan.h).
template <class Shape>
HEED_DEVICE int32_t FirstRowOf(const BlockPlace& place) {
  return static_cast<int32_t>(place.row_block) * Shape::kRows;
}
template <class Shape>
HEED_DEVICE TileSpan TilesOfItem(const ItemKeys& keys) {
  return TilesOf(keys.some.begin, keys.some.end, Shape::kKeys, 0, 1);
}

template <class Group>
HEED_DEVICE RowKeys KeysOfPackedRow(Group& group, const AttentionParams& p, int batch,
                                    int32_t row) {
  const int query = row / p.group;
  const int32_t length = LengthOf(group, p, batch, query);
  const int64_t position = PositionOf(p.rules, batch, query, p.q_len, length);
  return KeysOfRow(p.rules, batch, position, length, p.kv_len);
}

// The keys of an item and of one more row.
HEED_DEVICE ItemKeys Join(const ItemKeys& item, const RowKeys& row) {
  ItemKeys both = item;
  both.all.begin = row.begin > item.all.begin ? row.begin : item.all.begin;
  both.all.end = row.end < item.all.end ? row.end : item.all.end;
  if (row.begin >= row.end) return both;
  both.some.begin = row.begin < item.some.begin ? row.begin : item.some.begin;
  both.some.end = row.end > item.some.end ? row.end : item.some.end;
  return both;
}

// Leaves the group in step.
template <class Shape, class Group>
HEED_DEVICE ItemKeys FindKeys(Group& group, const AttentionParams& p, const BlockPlace& place) {
  typename Group::template Registers<int32_t, 4> ends;
  const int batch = place.unit / p.num_kv_heads;
  group.Each([&](int t) {
    ItemKeys keys = {{p.kv_len, 0}, {0, p.kv_len}};  // of no row
    HEED_NO_UNROLL for (int r = t; r < Shape::kRows; r += kGroupThreads) {
      const int32_t row = FirstRowOf<Shape>(place) + r;
      if (row >= static_cast<int32_t>(p.rows)) continue;
      // What is found by the batch entry is found again: its registers are dear.
      keys = Join(keys, KeysOfPackedRow(group, p, Group::Opaque(batch), row));
    }
    ends(t, 0) = -keys.some.begin, ends(t, 1) = keys.some.end;
    ends(t, 2) = keys.all.begin, ends(t, 3) = -keys.all.end;
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
