// The rows of a group that computes on Hopper: where they are, what they see, and which tiles it
// has to do with (hopper_consumer.h).
#ifndef HEED_SRC_CUDA_HOPPER_GROUP_H_
#define HEED_SRC_CUDA_HOPPER_GROUP_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"
#include "src/cuda/hopper_layout.h"
#include "src/cuda/hopper_params.h"
#include "src/cuda/hopper_rows.h"
#include "src/cuda/hopper_tiles.h"
#include "src/cuda/pairs.h"
#include "src/cuda/products.h"
#include "src/cuda/row_rules.h"
#include "src/cuda/schedule.h"

namespace heed::cuda {

template <class Group, class Shape>
class HopperGroup {
 protected:
  template <class T, int N>
  using Registers = typename Group::template Registers<T, N>;

  HEED_DEVICE HopperGroup(Group& group, const HopperParams& params) : group_(group), p_(params) {}

  HEED_DEVICE int Own() const { return group_.index() - 1; }  // which consumer
  HEED_DEVICE int32_t PackedRow(const BlockPlace& place, int row_in_group) const {
    return FirstRowOf<Shape>(place) + Own() * kGroupRows + row_in_group;
  }
  HEED_DEVICE int32_t Rows() const { return static_cast<int32_t>(p_.rows); }
  HEED_DEVICE int QueryOf(int32_t row) const { return p_.by_group.Quotient(row); }
  HEED_DEVICE int HeadOf(int kv_head, int32_t row) const {
    return (kv_head - QueryOf(row)) * p_.group + row;
  }

  HEED_DEVICE void FindPlace(int32_t item) {
    place_ = PlaceOfItem(p_, item);
    batch_ = p_.by_kv_heads.Quotient(place_.unit);
    kv_head_ = place_.unit - batch_ * p_.num_kv_heads;
  }
  // What each row may see. Rows behind the last one see nothing.
  HEED_DEVICE void FindRows() {
    group_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        RowKeys keys = {0, 0};
        position_(t, half) = 0;
        slope_(t, half) = 0;
        if (const int32_t row = PackedRow(place_, RowInGroup(t, half)); row < Rows()) {
          const int query = QueryOf(row);
          const int32_t length = LengthOf(group_, p_, batch_, query);
          const int64_t position = PositionOf(p_.rules, batch_, query, p_.q_len, length);
          position_(t, half) = static_cast<int32_t>(position);
          keys = KeysOfRow(p_.rules, batch_, position, length, p_.kv_len);
          if (p_.alibi_slopes != nullptr)
            slope_(t, half) = p_.alibi_slopes[HeadOf(kv_head_, row)] * p_.alibi_factor;
        }
        row_keys_(t, 2 * half) = keys.begin;
        row_keys_(t, 2 * half + 1) = keys.end;
      }
      if constexpr (Shape::kRowsInMemory) LeaveRows(t);
    });
  }
  // What all rows of the group see, the item's last tile to be visited, and its round. In shared
  // memory they take no registers from tiles; the group is in step before the first tile.
  HEED_DEVICE void LeaveItem(const KeysOfRows& own, const TileSpan& tiles, int32_t round) {
    group_.Each([&](int t) {
      if (t != 0) return;
      group_.StoreChunk(t, Shape::GroupAt(Own()),
                        {static_cast<uint32_t>(own.all.begin), static_cast<uint32_t>(own.all.end),
                         static_cast<uint32_t>(tiles.begin), static_cast<uint32_t>(round)});
    });
  }
  // In shared memory they take no registers from tiles that do not ask for them. The four threads
  // of a row have the same; the group is in step before the first tile.
  HEED_DEVICE void LeaveRows(int t) {
    if (t % 4 != 0) return;
    HEED_UNROLL for (int half = 0; half < 2; ++half) {
      group_.StoreChunk(t, Shape::RowsAt(Own()) + 16 * RowInGroup(t, half),
                        {static_cast<uint32_t>(row_keys_(t, 2 * half)),
                         static_cast<uint32_t>(row_keys_(t, 2 * half + 1)),
                         static_cast<uint32_t>(position_(t, half)), AsWord(slope_(t, half))});
    }
  }
  HEED_DEVICE void RecallRows() {
    if constexpr (!Shape::kRowsInMemory) return;
    group_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        uint32_t words[4];
        group_.LoadChunk(t, Shape::RowsAt(Own()) + 16 * RowInGroup(t, half), words);
        row_keys_(t, 2 * half) = static_cast<int32_t>(words[0]);
        row_keys_(t, 2 * half + 1) = static_cast<int32_t>(words[1]);
        position_(t, half) = static_cast<int32_t>(words[2]);
        slope_(t, half) = AsFloat(words[3]);
      }
    });
  }

  // The tiles of the item of which the group sees something: behind all of them in the order in
  // which they are visited, if there is none.
  HEED_DEVICE static TileSpan OwnTiles(const KeysOfRows& own, const TileSpan& tiles) {
    const TileSpan seen = TilesOfKeys<Shape>(own);
    return seen.begin < seen.end ? seen : TileSpan{tiles.begin, tiles.begin};
  }
  // Does every row of the block see every key of the part that begins with key `first`?
  HEED_DEVICE bool IsWhole(int32_t first) const { return IsWithin(all_, first); }
  HEED_DEVICE static bool IsWithin(const RowKeys& all, int32_t first) {
    return first >= all.begin && first + Shape::kPartKeys <= all.end;  // far below 2^31
  }
  HEED_DEVICE int32_t RecallLastTile() { return GroupWord(2); }
  HEED_DEVICE int32_t RecallRound() { return GroupWord(3); }
  HEED_DEVICE int32_t GroupWord(int n) {
    int32_t word = 0;
    group_.Each([&](int t) {  // the same in every thread
      word = static_cast<int32_t>(group_.LoadWord(t, Shape::GroupAt(Own()) + 4 * n));
    });
    return word;
  }
  // Does every row of the group? Groups of causal items see tiles whole that others do not.
  HEED_DEVICE bool IsWholeToGroup(int32_t first) {
    return IsWithin({GroupWord(0), GroupWord(1)}, first);
  }

  Group& group_;
  const HopperParams& p_;

  BlockPlace place_;
  int batch_, kv_head_;
  RowKeys all_;                     // that all rows of the block see
  Registers<int32_t, 4> row_keys_;  // begin, end; begin, end
  Registers<int32_t, 2> position_;
  Registers<float, 2> slope_;  // of ALiBi, times its factor
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_GROUP_H_
