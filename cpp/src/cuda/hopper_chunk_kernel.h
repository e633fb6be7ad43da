// Recurrent attention in chunks on Hopper (sm_90a), in one pass: a block takes a query head and 64
// columns of its values from the first chunk of tokens to the last. Two warp groups answer the
// queries of chunks in turn (wgmma), and load the tiles of later ones (TMA). One carries the state,
// and leaves it beside them. One makes what does not depend on the state, features of keys and
// decays. Chunks stand in a ring of stages, so that each group may be some of them ahead of those
// that wait for it: a chunk takes as long as the slowest group, not as all of them together.
//
// Every step is a phase of a warp group (warp_group.h), so the classes also run on the host.
#ifndef HEED_SRC_CUDA_HOPPER_CHUNK_KERNEL_H_
#define HEED_SRC_CUDA_HOPPER_CHUNK_KERNEL_H_

#include <cstdint>

#include "src/cuda/chunk_params.h"
#include "src/cuda/device.h"
#include "src/cuda/hopper_chunk_layout.h"
#include "src/cuda/hopper_chunk_reader.h"
#include "src/cuda/hopper_chunk_state.h"
#include "src/cuda/hopper_chunk_tokens.h"

namespace heed::cuda {

// Before the barrier of all groups.
template <class Group, class Shape>
HEED_DEVICE void BeginChunks(Group& group) {
  using Barriers = HopperChunkBarriers<Shape::kStages>;
  group.Leader([&] {
    for (int stage = 0; stage < Shape::kStages; ++stage) {
      group.InitBarrier(Barriers::Full(stage), 1);
      group.InitBarrier(Barriers::Found(stage), kGroupWarps);
      group.InitBarrier(Barriers::Ready(stage), kGroupWarps);
      group.InitBarrier(Barriers::Empty(stage), 2 * kGroupWarps);  // the state, and who reads it
    }
    group.FenceInitOfBarriers();
  });
  if constexpr (Shape::kNormalizes) {
    group.Each([&](int t) {
      if (t >= Shape::kSumBytes / 16) return;
      const uint32_t word = t / 8 % 2 == 0 ? kOnesOfBFloat16 : 0;  // alike in all of a row
      group.StoreChunk(t, Shape::OnesAt() + 16 * t, {word, word, word, word});
    });
    group.FenceProxyAsync();
  }
}

// What each of the block's warp groups does; block `index` of the query heads times slices.
template <class Group, class Shape>
HEED_DEVICE void RunHopperChunks(Group& group, const ChunkParams& params,
                                 const ChunkMaps<typename Group::Map>& maps, int32_t index) {
  if (group.index() == 0) BeginChunks<Group, Shape>(group);
  group.SyncAll();
  const ChunkItem item = ItemOfChunks(params, index);
  if (group.index() == 0) {
    group.template GiveRegistersBack<ChunkGroups::kTokenRegisters>();
    HopperChunkTokens<Group, Shape>(group, params).Run(item);
  } else if (group.index() == 1) {
    group.template GiveRegistersBack<ChunkGroups::kStateRegisters>();
    HopperChunkState<Group, Shape>(group, params).Run(item);
  } else {
    group.template TakeRegisters<ChunkGroups::kReaderRegisters>();
    HopperChunkReader<Group, Shape>(group, params, maps).Run(item, group.index() - 2);
  }
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_CHUNK_KERNEL_H_
