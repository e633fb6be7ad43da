// The warp group that makes what concerns tokens alone in the kernel of chunked recurrent attention
// on Hopper (hopper_chunk_kernel.h): features of keys, decays, and values that are not finite. It
// finds them as tiles arrive, ahead of the groups that multiply.
#ifndef HEED_SRC_CUDA_HOPPER_CHUNK_TOKENS_H_
#define HEED_SRC_CUDA_HOPPER_CHUNK_TOKENS_H_

#include <bit>
#include <cstdint>
#include <type_traits>

#include "heed/dtype.h"
#include "heed/recurrent.h"
#include "src/cuda/chunk_features.h"
#include "src/cuda/chunk_params.h"
#include "src/cuda/device.h"
#include "src/cuda/finite.h"
#include "src/cuda/hopper_chunk_layout.h"
#include "src/cuda/plugs.h"
#include "src/cuda/products.h"

namespace heed::cuda {

inline constexpr uint32_t kOnesOfBFloat16 = 0x3f803f80;

// Two bfloat16 numbers become their features, rounded. Of the maps that chunks take, those that
// change numbers.
template <class Group, FeatureMap kMap>
HEED_DEVICE uint32_t MapPair(uint32_t pair) {
  const float low = Group::Unpack(BFloat16{}, static_cast<uint16_t>(pair));
  const float high = Group::Unpack(BFloat16{}, static_cast<uint16_t>(pair >> 16));
  if constexpr (kMap == FeatureMap::kRelu) {
    return Group::Pack(BFloat16{}, low <= 0 ? 0.0f : low, high <= 0 ? 0.0f : high);
  }
  // Both sides for all numbers: exp(x) below 0, x + 1 from it on, where 0 and -0 are 1 on both.
  const uint32_t below = Group::Pack(BFloat16{}, Exp(low), Exp(high));
  const uint32_t above = Group::MultiplyAddPairs(pair, kOnesOfBFloat16, kOnesOfBFloat16);
  const uint32_t signs = Group::SignsOfPair(pair);
  return (below & signs) | (above & ~signs);
}
// Calls body(std::integral_constant<FeatureMap, map>()), if the map changes numbers.
template <class Body>
HEED_DEVICE void WithMap(FeatureMap map, const Body& body) {
  if (map == FeatureMap::kRelu) {
    body(std::integral_constant<FeatureMap, FeatureMap::kRelu>());
  } else if (map == FeatureMap::kEluPlusOne) {
    body(std::integral_constant<FeatureMap, FeatureMap::kEluPlusOne>());
  }
}

template <class Group, class Shape>
class HopperChunkTokens {
 public:
  HEED_DEVICE HopperChunkTokens(Group& group, const ChunkParams& params)
      : group_(group), p_(params) {}

  HEED_DEVICE void Run(const ChunkItem& item) {
    group_.Each([&](int t) { eight_(t, 0) = EightAt(t); });
    if constexpr (Shape::kHasGates) LoadGates(item, 0);
    HEED_NO_UNROLL for (int chunk = 0; chunk < p_.chunks; ++chunk) {
      group_.WaitForPhase(Barriers::Full(turn_.stage), turn_.parity);
      WithMap(p_.feature_map,
              [&](auto map) { MapKeys<decltype(map)::value>(p_.len - chunk * kChunkTokens); });
      if constexpr (Shape::kHasGates) FindGates(item, chunk);
      group_.FenceProxyAsync();
      const bool has_poison = group_.AnyOfGroup([&](int t) { return HasPoison(t); });
      if (has_poison) TakePoisonOut();
      group_.Each([&](int t) {
        if (t == 0) group_.StoreWord(t, Shape::HasPoisonAt(turn_.stage), has_poison ? 1 : 0);
      });
      group_.ArriveWarps(Barriers::Found(turn_.stage));
      turn_.Advance();
    }
  }

 private:
  using Barriers = HopperChunkBarriers<Shape::kStages>;
  template <class T, int N>
  using Registers = typename Group::template Registers<T, N>;
  static constexpr int kEight = 8;  // tokens whose logarithms a thread adds up
  static constexpr int kEights = kChunkTokens / kEight;

  // Keys become features in their place, but for what lies behind them and behind the last token.
  template <FeatureMap kMap>
  HEED_DEVICE void MapKeys(int tokens) {
    group_.Each([&](int t) {
      const int left = p_.features - t % 8 * 8;  // from the first of the eight on
      if (left <= 0) return;
      HEED_UNROLL for (int n = 0; n < kEightsOfTile; ++n) {
        if (t / 8 + n * kEightRows >= tokens) continue;
        const int at = Shape::KeysAt(turn_.stage) + NextEight(eight_(t, 0), n);
        uint32_t pairs[4];
        group_.LoadChunk(t, at, pairs);
        HEED_UNROLL for (int m = 0; m < 4; ++m) pairs[m] = MapPair<Group, kMap>(pairs[m]);
        if (left < 8) {
          HEED_UNROLL for (int m = 0; m < 4; ++m) {
            pairs[m] &= 2 * m + 1 < left ? ~0u : 2 * m < left ? 0xffffu : 0u;
          }
        }
        group_.StoreChunk(t, at, pairs);
      }
    });
  }

  // Values that are not finite are taken out, as their product with the weight 0 of a row before
  // them would be NaN. Their columns are NaN from their rows on.
  HEED_DEVICE bool HasPoison(int t) {
    uint32_t sums[2] = {};  // of zero times each number: NaN where one is not finite
    HEED_UNROLL for (int n = 0; n < kEightsOfTile; ++n) {
      uint32_t pairs[4];
      group_.LoadChunk(t, Shape::ValuesAt(turn_.stage) + NextEight(eight_(t, 0), n), pairs);
      HEED_UNROLL for (int m = 0; m < 4; ++m) {
        sums[m % 2] = Group::MultiplyAddPairs(pairs[m], 0, sums[m % 2]);
      }
    }
    return ((sums[0] | sums[1]) & 0x7fff7fff) != 0;
  }
  HEED_DEVICE void TakePoisonOut() {
    group_.Each([&](int t) {
      if (t >= kSliceCols) return;
      int first = kChunkTokens;
      HEED_NO_UNROLL for (int token = kChunkTokens - 1; token >= 0; --token) {
        const int at = Shape::ValuesAt(turn_.stage) + SwizzledOffset(kChunkTokens, token, t);
        if (!IsNotFinite(BFloat16{}, group_.Load(t, at))) continue;
        first = token;
        group_.Store(t, at, 0);
      }
      group_.StoreWord(t, Shape::FirstPoisonAt(turn_.stage) + 4 * t, static_cast<uint32_t>(first));
    });
    group_.FenceProxyAsync();
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
  TileTurn<Shape::kStages> turn_;
  Registers<int, 1> eight_;   // a place of the thread: EightAt()
  Registers<float, 2> next_;  // logarithm of the decay, and beta
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_CHUNK_TOKENS_H_
