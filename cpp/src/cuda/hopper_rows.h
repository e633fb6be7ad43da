// The items of the Hopper kernel and which keys their rows see: what all warp groups of a block
// find out alike.
#ifndef HEED_SRC_CUDA_HOPPER_ROWS_H_
#define HEED_SRC_CUDA_HOPPER_ROWS_H_

#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/hopper_layout.h"
#include "src/cuda/hopper_params.h"
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
HEED_DEVICE int32_t ItemsOf(const HopperParams& p) {
  return static_cast<int32_t>(p.row_blocks * p.units);
}
// Later rows first, as on the base path (PlaceOf).
HEED_DEVICE BlockPlace PlaceOfItem(const HopperParams& p, int32_t item) {
  const int32_t behind = p.by_units.Quotient(item);
  return {p.row_blocks - 1 - behind, 0, item - behind * p.by_units.divisor};
}

// The keys that some of several rows see (none: begin >= end), and those that all of them see.
struct KeysOfRows {
  RowKeys some;
  RowKeys all;
};

// Packed rows and items are below 2^30 (hopper_plan.h).
template <class Shape>
HEED_DEVICE int32_t FirstRowOf(const BlockPlace& place) {
  return static_cast<int32_t>(place.row_block) * Shape::kRows;
}
template <class Shape>
HEED_DEVICE TileSpan TilesOfKeys(const KeysOfRows& keys) {
  return TilesOf(keys.some.begin, keys.some.end, Shape::kKeys, 0, 1);
}

// Of rows that follow one another in a batch entry of one length, from the bounds (BoundsOfRow) of
// the first and of the last. Both grow with the position, and rows that see nothing lie before and
// behind those that see something. Where there are such rows, no key is seen by all, and `some` may
// hold keys that no row sees.
HEED_DEVICE constexpr KeysOfRows KeysBetween(const RowKeys& first, const RowKeys& last) {
  const bool each_sees_some = first.begin < first.end && last.begin < last.end;
  return {{first.begin, last.end}, {last.begin, each_sees_some ? first.end : 0}};
}

// The keys of several rows and of one more.
HEED_DEVICE KeysOfRows Join(const KeysOfRows& rows, const RowKeys& row) {
  KeysOfRows both = rows;
  both.all.begin = row.begin > rows.all.begin ? row.begin : rows.all.begin;
  both.all.end = row.end < rows.all.end ? row.end : rows.all.end;
  if (row.begin >= row.end) return both;
  both.some.begin = row.begin < rows.some.begin ? row.begin : rows.some.begin;
  both.some.end = row.end > rows.some.end ? row.end : rows.some.end;
  return both;
}

// Of packed rows [first, end), each of which has a length of its own. Leaves the group in step.
template <class Group>
HEED_DEVICE KeysOfRows JoinKeys(Group& group, const HopperParams& p, int batch, int32_t first,
                                int32_t end) {
  typename Group::template Registers<int32_t, 4> ends;
  group.Each([&](int t) {
    KeysOfRows keys = {{p.kv_len, 0}, {0, p.kv_len}};  // of no row
    HEED_NO_UNROLL for (int32_t row = first + t; row < end; row += kGroupThreads) {
      const int query = p.by_group.Quotient(row);
      // What is found by the batch entry is found again: its registers are dear.
      const int entry = Group::Opaque(batch);
      const int32_t length = LengthOf(group, p, entry, query);
      const int64_t position = PositionOf(p.rules, entry, query, p.q_len, length);
      keys = Join(keys, KeysOfRow(p.rules, entry, position, length, p.kv_len));
    }
    ends(t, 0) = -keys.some.begin, ends(t, 1) = keys.some.end;
    ends(t, 2) = keys.all.begin, ends(t, 3) = -keys.all.end;
  });
  group.MaxOfGroup(ends);
  typename Group::template Registers<int32_t, 4> same;
  HEED_UNROLL for (int n = 0; n < 4; ++n) {
    group.FromLane(
        ends, n, [](int /*t*/) { return 0; }, same, n);
  }
  KeysOfRows keys;
  group.Each([&](int t) {
    keys = {{-same(t, 0), same(t, 1)}, {same(t, 2), -same(t, 3)}};  // the same in every thread
  });
  return keys;
}

// What the rows of an item see, and those of one of its groups.
struct ItemKeys {
  KeysOfRows item;
  KeysOfRows own;
};

// All threads of the group find the same. Of rows whose lengths differ, a group is told what all
// rows of the item see.
template <class Shape, class Group>
HEED_DEVICE ItemKeys FindKeys(Group& group, const HopperParams& p, const BlockPlace& place,
                              int own) {
  const int batch = p.by_kv_heads.Quotient(place.unit);
  const int32_t rows = static_cast<int32_t>(p.rows), first = FirstRowOf<Shape>(place);
  if (p.rules.lengths_per_query) {
    const int32_t end = first + Shape::kRows < rows ? first + Shape::kRows : rows;
    const KeysOfRows keys = JoinKeys(group, p, batch, first, end);
    return {keys, keys};
  }
  // The first and the last row of both stretches, one for each thread of a quad.
  typename Group::template Registers<int32_t, 2> bounds;
  typename Group::template Registers<int32_t, 8> all_bounds;
  const int32_t own_first = first + own * kGroupRows;
  group.Each([&](int t) {
    int32_t row = t % 4 < 2 ? first : own_first;
    if (t % 2 != 0) row += t % 4 < 2 ? Shape::kRows - 1 : kGroupRows - 1;
    const int query = p.by_group.Quotient(row < rows ? row : rows - 1);
    const int32_t length = LengthOf(group, p, batch, query);
    const int64_t position = PositionOf(p.rules, batch, query, p.q_len, length);
    const RowKeys keys = BoundsOfRow(p.rules, batch, position, length, p.kv_len);
    bounds(t, 0) = keys.begin, bounds(t, 1) = keys.end;
  });
  HEED_UNROLL for (int n = 0; n < 8; ++n) {
    group.FromLane(
        bounds, n % 2, [n](int /*t*/) { return n / 2; }, all_bounds, n);
  }
  ItemKeys keys;
  group.Each([&](int t) {  // the same in every thread
    const auto bounds_of = [&](int n) {
      return RowKeys{all_bounds(t, 2 * n), all_bounds(t, 2 * n + 1)};
    };
    keys = {KeysBetween(bounds_of(0), bounds_of(1)), KeysBetween(bounds_of(2), bounds_of(3))};
    if (own_first >= rows) keys.own = {{0, 0}, {0, p.kv_len}};
  });
  return keys;
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_ROWS_H_
