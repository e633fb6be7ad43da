// The plan of a recurrent call that the kernel for chunks on Hopper runs, made on the host: which
// calls it takes, and what TMA is told. No CUDA here.
#ifndef HEED_SRC_CUDA_HOPPER_CHUNK_PLAN_H_
#define HEED_SRC_CUDA_HOPPER_CHUNK_PLAN_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "src/cuda/chunk_plan.h"
#include "src/cuda/hopper_chunk_layout.h"
#include "src/cuda/hopper_plan.h"

namespace heed::cuda {

// Can the kernel compute a call? One that TakesChunks(), of bfloat16, up to 64 features, without
// lengths, whose tensors TMA reads.
bool FitsHopperChunks(const StoredRecurrentProblem& call);

// Do so many blocks, one on each multiprocessor at a time, leave at most a fourth of the
// multiprocessors' time idle? Blocks of a call take equally long.
bool FillsTurns(int64_t blocks, int64_t processors);

// Should the kernel compute the call, on a GPU that has it? Where it would leave multiprocessors
// idle, spans give them work. kBase and kHopper are what the caller wants instead.
bool TakesHopperChunks(const StoredRecurrentProblem& call, int64_t processors, TilePath path);

class HopperChunkPlan {
 public:
  explicit HopperChunkPlan(const StoredRecurrentProblem& call);

  TokenGates gates() const { return gates_; }
  ChunkRowEnd row_end() const { return row_end_; }
  int64_t num_blocks() const { return num_blocks_; }
  const ChunkMaps<TileMap>& maps() const { return maps_; }
  const std::vector<char>& host_arrays() const { return plan_.host_arrays(); }

  // The parameters, given where a copy of host_arrays() lies.
  ChunkParams Params(const char* arrays) const { return plan_.Params(arrays, nullptr); }

 private:
  ChunkPlan plan_;
  TokenGates gates_;
  ChunkRowEnd row_end_;
  int64_t num_blocks_;
  ChunkMaps<TileMap> maps_;
};

// Calls body(HopperChunkShape<plan.gates(), plan.row_end()>()).
template <class Body>
void WithHopperChunks(const HopperChunkPlan& plan, const Body& body) {
  const auto with = [&](auto gates) {
    constexpr TokenGates kGates = decltype(gates)::value;
    if (plan.row_end() == ChunkRowEnd::kScaled) {
      return body(HopperChunkShape<kGates, ChunkRowEnd::kScaled>());
    }
    body(HopperChunkShape<kGates, ChunkRowEnd::kNormalized>());
  };
  if (plan.gates() == TokenGates::kNone) {
    return with(std::integral_constant<TokenGates, TokenGates::kNone>());
  }
  with(std::integral_constant<TokenGates, TokenGates::kSome>());
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_CHUNK_PLAN_H_
