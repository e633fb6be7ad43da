// Gradients of exact attention on Hopper (sm_90a), in two kernels of one form. A block owns 128
// rows and takes tiles of others past them: keys and values past queries and what arrives at them,
// which gives d_k and d_v, or the other way round, which gives d_q. Every sum has one block and one
// order, so the same inputs give the same bits. One warp group loads (TMA), two compute 64 rows
// each (wgmma): both tiles of products, weights and gradients of scores in registers, and these,
// rounded, are the left operands of the sums.
#ifndef HEED_SRC_CUDA_HOPPER_GRADIENT_KERNEL_H_
#define HEED_SRC_CUDA_HOPPER_GRADIENT_KERNEL_H_

#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/gradient_params.h"
#include "src/cuda/hopper_gradient_consumer.h"
#include "src/cuda/hopper_gradient_layout.h"
#include "src/cuda/hopper_gradient_rows.h"
#include "src/cuda/hopper_rows.h"

namespace heed::cuda {

// What the group of index 0 does.
template <class Group, class Shape>
class HopperGradientProducer {
 public:
  using Maps = GradientMaps<typename Group::Map>;

  HEED_DEVICE HopperGradientProducer(Group& group, const GradientParams& params, const Maps& maps)
      : group_(group), params_(params), maps_(maps) {}

  HEED_DEVICE void Run(int32_t block, int32_t blocks) {
    EachItem(GradientItemsOf<Shape>(params_.attention), block, blocks, [&](int32_t number) {
      const GradientItem item = FindGradientItem<Shape>(group_, params_, number);
      if (item.span.begin >= item.span.end) return;
      // The item's own rows have to wait for the last item's end, its first tiles do not.
      const int tiles = item.heads * (item.span.end - item.span.begin);
      int before_own = tiles < Shape::kStages ? tiles : Shape::kStages;
      HEED_NO_UNROLL for (int head = item.first; head < item.first + item.heads; ++head) {
        HEED_NO_UNROLL for (int32_t tile = item.span.begin; tile < item.span.end; ++tile) {
          group_.Leader([&] { LoadTiles(item.batch, head, tile); });
          turn_.Advance();
          if (--before_own == 0) group_.Leader([&] { LoadOwn(item); });
        }
      }
      own_parity_ ^= 1;
    });
  }

 private:
  using Barriers = HopperGradientBarriers<Shape::kStages>;

  HEED_DEVICE void LoadOwn(const GradientItem& item) {
    group_.WaitForPhase(Barriers::OwnEmpty(), own_parity_ ^ 1);
    group_.ArriveExpecting(Barriers::OwnFull(), 2 * Shape::kOwnBytes);
    HEED_UNROLL for (int which = 0; which < 2; ++which) {
      HEED_UNROLL for (int panel = 0; panel < Shape::kPanels; ++panel) {
        group_.LoadBox(Shape::OwnAt(which) + panel * Shape::kOwnPanel, maps_.own[which],
                       Barriers::OwnFull(), panel * kPanelCols, item.tile * kOwnRows, item.head,
                       item.batch);
      }
    }
  }

  HEED_DEVICE void LoadTiles(int batch, int head, int32_t tile) {
    const int full = Barriers::Full(turn_.stage);
    group_.WaitForPhase(Barriers::Empty(turn_.stage), turn_.parity ^ 1);
    group_.ArriveExpecting(full, 2 * Shape::kTileBytes + Shape::kTableBytes);
    HEED_UNROLL for (int which = 0; which < 2; ++which) {
      HEED_UNROLL for (int panel = 0; panel < Shape::kPanels; ++panel) {
        group_.LoadBox(Shape::TileAt(turn_.stage, which) + panel * Shape::kTilePanel,
                       maps_.tiles[which], full, panel * kPanelCols, tile * Shape::kTile, head,
                       batch);
      }
    }
    if constexpr (Shape::kByKeys) {
      group_.LoadBytes(Shape::TableAt(turn_.stage), TableTile(params_, batch, head, tile),
                       Shape::kTableBytes, full);
    }
  }

  Group& group_;
  const GradientParams& params_;
  const Maps& maps_;
  uint32_t own_parity_ = 0;
  TileTurn<Shape::kStages> turn_;
};

// What each of the block's warp groups does; block `block` of `blocks`.
template <class Group, class Shape>
HEED_DEVICE void RunHopperGradient(Group& group, const GradientParams& params,
                                   const GradientMaps<typename Group::Map>& maps, int32_t block,
                                   int32_t blocks) {
  using Barriers = HopperGradientBarriers<Shape::kStages>;
  constexpr int kConsumerWarps = GradientGroups::kConsumers * kGroupThreads / kWarp;
  if (group.index() == 0) {
    group.Leader([&] {
      group.InitBarrier(Barriers::OwnFull(), 1);
      group.InitBarrier(Barriers::OwnEmpty(), kConsumerWarps);
      for (int stage = 0; stage < Shape::kStages; ++stage) {
        group.InitBarrier(Barriers::Full(stage), 1);
        group.InitBarrier(Barriers::Empty(stage), kConsumerWarps);
      }
      group.FenceInitOfBarriers();
    });
  }
  group.SyncAll();
  if (group.index() == 0) {
    group.template GiveRegistersBack<GradientGroups::kProducerRegisters>();
    HopperGradientProducer<Group, Shape>(group, params, maps).Run(block, blocks);
  } else {
    group.template TakeRegisters<GradientGroups::kConsumerRegisters>();
    HopperGradientConsumer<Group, Shape>(group, params).Run(block, blocks);
  }
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_GRADIENT_KERNEL_H_
