// Exact attention on Hopper (sm_90a). A block stays on its multiprocessor and takes one item after
// the other: 128 or 192 packed rows of a KV head. One warp group loads tiles of keys and values
// (TMA), two or three compute 64 rows each (wgmma) and carry a maximum, a sum and the weighted
// values of each row. Scores of the next tile are issued before the values of the last one, so that
// softmax runs under the second product (FlashAttention-3, arXiv:2407.08608, section 3.2).
//
// Every step is a phase of a warp group (warp_group.h), so the classes also run on the host.
#ifndef HEED_SRC_CUDA_HOPPER_KERNEL_H_
#define HEED_SRC_CUDA_HOPPER_KERNEL_H_

#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/float8_tiles.h"
#include "src/cuda/hopper_consumer.h"
#include "src/cuda/hopper_layout.h"
#include "src/cuda/hopper_params.h"
#include "src/cuda/hopper_rows.h"
#include "src/cuda/schedule.h"

namespace heed::cuda {

// What the group of index 0 does.
template <class Group, class Shape>
class HopperProducer {
 public:
  HEED_DEVICE HopperProducer(Group& group, const HopperParams& params,
                             const typename Group::Map& keys, const typename Group::Map& values)
      : group_(group), p_(params), keys_(keys), values_(values) {}

  HEED_DEVICE void Run(int32_t block, int32_t blocks) {
    EachRound(ItemsOf(p_), block, blocks, [&](int32_t round) {
      const BlockPlace place = PlaceOfItem(p_, ItemOf(block, blocks, round));
      const TileSpan tiles = TilesOfKeys<Shape>(FindKeys<Shape>(group_, p_, place, 0).item);
      // Again: registers of rows are dear.
      const int32_t unit = PlaceOfItem(p_, ItemOf(block, blocks, Group::Opaque(round))).unit;
      if constexpr (Shape::kIsFloat8) {
        LoadAndTranspose(tiles, unit);
      } else {
        LoadTiles(tiles, unit);
      }
    });
  }

 private:
  using Barriers = HopperBarriers<Shape::kStages>;
  using Turn = TileTurn<Shape::kStages>;

  // From the last one to the first, as consumers visit them.
  HEED_DEVICE void LoadTiles(TileSpan tiles, int32_t unit) {
    HEED_NO_UNROLL for (int32_t tile = tiles.end - 1; tile >= tiles.begin; --tile) {
      group_.Leader([&] {
        LoadKeys(tile, unit);
        group_.WaitForPhase(Barriers::ValuesEmpty(turn_.stage), turn_.parity ^ 1);
        LoadTile(values_, Barriers::ValuesFull(turn_.stage), Shape::ValuesAt(turn_.stage),
                 Shape::kValueBytes, tile, unit);
      });
      turn_.Advance();
    }
  }

  // All threads transpose a tile of values while TMA brings the next one.
  HEED_DEVICE void LoadAndTranspose(TileSpan tiles, int32_t unit) {
    if (tiles.begin < tiles.end) group_.Leader([&] { LoadRaw(turn_, tiles.end - 1, unit); });
    HEED_NO_UNROLL for (int32_t tile = tiles.end - 1; tile >= tiles.begin; --tile) {
      group_.Leader([&] {
        Turn next = turn_;
        next.Advance();
        if (tile > tiles.begin) LoadRaw(next, tile - 1, unit);
        LoadKeys(tile, unit);
      });
      group_.WaitForPhase(Barriers::RawFull(turn_.stage), turn_.parity);
      group_.WaitForPhase(Barriers::ValuesEmpty(turn_.stage), turn_.parity ^ 1);
      group_.Each([&](int t) {
        TransposeValues<Shape>(group_, t, Shape::RawAt(turn_.stage), Shape::ValuesAt(turn_.stage));
      });
      group_.FenceProxyAsync();
      group_.Sync();  // the raw tile is read, and TMA may overwrite it
      group_.ArriveWarps(Barriers::ValuesFull(turn_.stage));
      turn_.Advance();
    }
  }

  HEED_DEVICE void LoadKeys(int32_t tile, int32_t unit) {
    group_.WaitForPhase(Barriers::KeysEmpty(turn_.stage), turn_.parity ^ 1);
    LoadTile(keys_, Barriers::KeysFull(turn_.stage), Shape::KeysAt(turn_.stage), Shape::kKeyBytes,
             tile, unit);
  }
  HEED_DEVICE void LoadRaw(Turn turn, int32_t tile, int32_t unit) {
    LoadTile(values_, Barriers::RawFull(turn.stage), Shape::RawAt(turn.stage), Shape::kRawBytes,
             tile, unit);
  }
  HEED_DEVICE void LoadTile(const typename Group::Map& map, int full, int to, int bytes,
                            int32_t tile, int32_t unit) {
    group_.ArriveExpecting(full, bytes);
    const int entry = p_.by_kv_heads.Quotient(unit);
    HEED_UNROLL for (int panel = 0; panel < bytes / Shape::kPanelOfKeys; ++panel) {
      group_.LoadBox(to + panel * Shape::kPanelOfKeys, map, full, panel * Shape::kPanelColumns,
                     tile * Shape::kKeys, unit - entry * p_.num_kv_heads, entry);
    }
  }

  Group& group_;
  const HopperParams& p_;
  const typename Group::Map& keys_;
  const typename Group::Map& values_;
  Turn turn_;
};

// What each of the block's warp groups does; block `block` of `blocks`.
template <class Group, class Shape>
HEED_DEVICE void RunHopper(Group& group, const HopperParams& params,
                           const typename Group::Map& keys, const typename Group::Map& values,
                           int32_t block, int32_t blocks) {
  using Barriers = HopperBarriers<Shape::kStages>;
  if (group.index() == 0) {
    group.Leader([&] {
      for (int stage = 0; stage < Shape::kStages; ++stage) {
        group.InitBarrier(Barriers::KeysFull(stage), 1);
        group.InitBarrier(Barriers::ValuesFull(stage), Shape::kIsFloat8 ? kGroupWarps : 1);
        if (Shape::kIsFloat8) group.InitBarrier(Barriers::RawFull(stage), 1);
        group.InitBarrier(Barriers::KeysEmpty(stage), Shape::kConsumers * kGroupWarps);
        group.InitBarrier(Barriers::ValuesEmpty(stage), Shape::kConsumers * kGroupWarps);
      }
      group.FenceInitOfBarriers();
    });
  }
  group.SyncAll();
  if (group.index() == 0) {
    group.template GiveRegistersBack<Shape::Groups::kProducerRegisters>();
    HopperProducer<Group, Shape>(group, params, keys, values).Run(block, blocks);
  } else {
    group.template TakeRegisters<Shape::Groups::kConsumerRegisters>();
    HopperConsumer<Group, Shape>(group, params).Run(block, blocks);
  }
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_KERNEL_H_
