// The warp group that loads in the kernel of chunked recurrent attention on Hopper
// (hopper_chunk_kernel.h). It also makes what depends on the gates of tokens alone, so that the
// groups that multiply find it beside the tiles.
#ifndef HEED_SRC_CUDA_HOPPER_CHUNK_PRODUCER_H_
#define HEED_SRC_CUDA_HOPPER_CHUNK_PRODUCER_H_

#include <bit>
#include <cstdint>

#include "src/cuda/chunk_features.h"
#include "src/cuda/chunk_params.h"
#include "src/cuda/device.h"
#include "src/cuda/hopper_chunk_layout.h"
#include "src/cuda/plugs.h"
#include "src/cuda/products.h"

namespace heed::cuda {

template <class Group, class Shape>
class HopperChunkProducer {
 public:
  using Maps = ChunkMaps<typename Group::Map>;

  HEED_DEVICE HopperChunkProducer(Group& group, const ChunkParams& params, const Maps& maps)
      : group_(group), p_(params), maps_(maps) {}

  HEED_DEVICE void Run(const ChunkItem& item) {
    if constexpr (Shape::kHasGates) LoadGates(item, 0);
    HEED_NO_UNROLL for (int chunk = 0; chunk < p_.chunks; ++chunk) {
      if constexpr (Shape::kHasGates) {
        group_.WaitForPhase(Barriers::Empty(turn_.stage), turn_.parity ^ 1);
        group_.Leader([&] { LoadTiles(item, chunk); });
        FindGates(item, chunk);
        group_.ArriveWarps(Barriers::Full(turn_.stage));
      } else {
        group_.Leader([&] {
          group_.WaitForPhase(Barriers::Empty(turn_.stage), turn_.parity ^ 1);
          LoadTiles(item, chunk);
        });
      }
      turn_.Advance();
    }
  }

 private:
  using Barriers = HopperChunkBarriers<Shape::kStages>;
  template <class T, int N>
  using Registers = typename Group::template Registers<T, N>;
  static constexpr int kEight = 8;  // tokens whose logarithms a thread adds up
  static constexpr int kEights = kChunkTokens / kEight;

  HEED_DEVICE void LoadTiles(const ChunkItem& item, int chunk) {
    const int full = Barriers::Full(turn_.stage), first = chunk * kChunkTokens;
    group_.ArriveExpecting(full, 3 * Shape::kTileBytes);
    group_.LoadBox(Shape::KeysAt(turn_.stage), maps_.k, full, 0, first, item.kv_head, item.batch);
    group_.LoadBox(Shape::ValuesAt(turn_.stage), maps_.v, full, item.slice * kSliceCols, first,
                   item.kv_head, item.batch);
    group_.LoadBox(Shape::QueriesAt(turn_.stage), maps_.q, full, 0, first, item.head, item.batch);
  }

  // Decays and betas of a chunk, a token a thread. Tokens behind the last neither decay nor write.
  HEED_DEVICE void LoadGates(const ChunkItem& item, int chunk) {
    group_.Each([&](int t) {
      const int token = chunk * kChunkTokens + t;
      const bool exists = t < kChunkTokens && token < p_.len;
      next_(t, 0) = 0;
      next_(t, 1) = exists ? 1.0f : 0.0f;
      if (HasDecay() && exists) {
        next_(t, 0) = p_.log_decay.At(item.batch, item.kv_head, token, 0);
      }
      if (HasBeta() && exists) next_(t, 1) = p_.beta.At(item.batch, item.kv_head, token, 0);
    });
  }
  HEED_DEVICE bool HasDecay() const { return p_.log_decay.data != nullptr; }
  HEED_DEVICE bool HasBeta() const { return p_.beta.data != nullptr; }

  // The sum of the logarithms up to each token, made in float64 and left in two floats, and what is
  // left at the end of the chunk of what tokens write with: as in ChunkState::FindDecays. Those of
  // the next chunk are asked for meanwhile.
  HEED_DEVICE void FindGates(const ChunkItem& item, int chunk) {
    const int stage = turn_.stage;
    Registers<double, 1> sum;
    Registers<float, 1> beta;
    // Logarithms wait where strengths go to.
    group_.Each([&](int t) {
      if (t >= kChunkTokens) return;
      beta(t, 0) = next_(t, 1);
      group_.StoreWord(t, Shape::StrengthsAt(stage) + 4 * t, AsWord(BoundedLogDecay(next_(t, 0))));
    });
    if (chunk + 1 < p_.chunks) LoadGates(item, chunk + 1);
    group_.Sync();
    group_.Each([&](int t) {
      if (t >= kChunkTokens) return;
      sum(t, 0) = 0;
      HEED_UNROLL for (int first = 0; first < kEight; first += 4) {
        uint32_t words[4];
        group_.LoadChunk(t, Shape::StrengthsAt(stage) + 4 * (t / kEight * kEight + first), words);
        HEED_UNROLL for (int n = 0; n < 4; ++n) {
          sum(t, 0) += first + n <= t % kEight ? AsFloat(words[n]) : 0.0f;
        }
      }
      if (t % kEight == kEight - 1)
        StoreDouble(t, Shape::EightsAt(stage) + t / kEight * 8, sum(t, 0));
    });
    group_.Sync();
    group_.Each([&](int t) {
      if (t >= kChunkTokens) return;
      double total = 0;
      HEED_UNROLL for (int eight = 0; eight < kEights; ++eight) {
        if (eight == t / kEight) sum(t, 0) += total;
        total += LoadDouble(t, Shape::EightsAt(stage) + eight * 8);
      }
      const float rounded = static_cast<float>(sum(t, 0));
      const float rest = static_cast<float>(sum(t, 0) - rounded);
      const float strength = beta(t, 0) * Exp(static_cast<float>(total - sum(t, 0)));
      group_.StoreWord(t, Shape::DecaysAt(stage) + 8 * t, AsWord(rounded));
      group_.StoreWord(t, Shape::DecaysAt(stage) + 8 * t + 4, AsWord(rest));
      group_.StoreWord(t, Shape::BetasAt(stage) + 4 * t, AsWord(beta(t, 0)));
      group_.StoreWord(t, Shape::StrengthsAt(stage) + 4 * t, AsWord(strength));
      const float whole = Exp(static_cast<float>(total));
      if (t == 0) group_.StoreWord(t, Shape::ChunkDecayAt(stage), AsWord(whole));
    });
  }
  HEED_DEVICE void StoreDouble(int t, int at, double x) {
    const uint64_t bits = std::bit_cast<uint64_t>(x);
    group_.StoreWord(t, at, static_cast<uint32_t>(bits));
    group_.StoreWord(t, at + 4, static_cast<uint32_t>(bits >> 32));
  }
  HEED_DEVICE double LoadDouble(int t, int at) {
    const uint64_t low = group_.LoadWord(t, at), high = group_.LoadWord(t, at + 4);
    return std::bit_cast<double>(low | high << 32);
  }

  Group& group_;
  const ChunkParams& p_;
  const Maps& maps_;
  TileTurn<Shape::kStages> turn_;
  Registers<float, 2> next_;  // logarithm of the decay, and beta
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_CHUNK_PRODUCER_H_
