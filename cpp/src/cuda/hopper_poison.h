// Values that are not finite, in a part of a tile where some key is hidden from some row of the
// block: 0 times such a value must not join. They are taken out, and added to the rows that see
// them alone. The other rows get the bits that they would have without.
#ifndef HEED_SRC_CUDA_HOPPER_POISON_H_
#define HEED_SRC_CUDA_HOPPER_POISON_H_

#include <cstdint>

#include "heed/dtype.h"
#include "src/cuda/device.h"
#include "src/cuda/finite.h"
#include "src/cuda/float8_tiles.h"
#include "src/cuda/fragments.h"
#include "src/cuda/hopper_layout.h"
#include "src/cuda/hopper_tiles.h"
#include "src/cuda/products.h"

namespace heed::cuda {

// Of consumer `own`, in the values of a stage.
template <class Group, class Shape>
class HopperPoison {
  template <class T, int N>
  using Registers = typename Group::template Registers<T, N>;
  static constexpr int kScores = Shape::kPartKeys / 2;
  static constexpr int kOut = Shape::kValueDim / 2;

 public:
  HEED_DEVICE HopperPoison(Group& group, int own, int stage, int part)
      : group_(group), own_(own), stage_(stage), part_(part) {}

  // Of the part that begins with key `first`. Scores are weights already: of those of a value that
  // is not finite no more matters than whether they are 0. row_keys() is what rows see. All
  // consumers come here together.
  template <class RowKeysOfGroup>
  HEED_DEVICE void KeepOut(int32_t first, Registers<float, kScores>& scores,
                           const RowKeysOfGroup& row_keys, Registers<float, kOut>& out) {
    TakeOut([&] { AddPoison(first, scores, row_keys(), out); });
  }
  // The same of a consumer none of whose rows sees any key of the tile.
  HEED_DEVICE void KeepOut() {
    TakeOut([] {});
  }

 private:
  using Element = typename Shape::Element;
  static constexpr int kWords = (kScores + 31) / 32;

  template <class Add>
  HEED_DEVICE void TakeOut(const Add& add) {
    const bool poison = group_.AnyOfConsumers([&](int t) { return FindsPoison(t); });
    if (poison) {
      add();
      group_.SyncConsumers();  // all have read it
      group_.Each([&](int t) {
        HEED_NO_UNROLL for (int n = 0; n < kChunks; ++n) {
          if (Exists(n)) ClearPoison(group_, Element{}, t, ChunkAt(t, n));
        }
      });
    }
    group_.FenceProxyAsync();  // wgmma reads, and TMA overwrites, what was read and written here
    if (poison) group_.SyncConsumers();
  }

  // A thread's share of the chunks of the part, which consumers divide: some have one less.
  static constexpr int kPartBytes = Shape::kValueBytes / Shape::kParts;
  static constexpr int kGroupBytes = kGroupThreads * 16;
  static constexpr int kShareBytes = Shape::kConsumers * kGroupBytes;
  static constexpr int kChunks = (kPartBytes + kShareBytes - 1) / kShareBytes;
  static_assert(kPartBytes % kGroupBytes == 0);
  HEED_DEVICE bool Exists(int n) const { return n * kShareBytes + own_ * kGroupBytes < kPartBytes; }
  HEED_DEVICE int ChunkAt(int t, int n) const {
    const int at = n * kShareBytes + own_ * kGroupBytes + t * 16;
    if constexpr (Shape::kParts == 1) {
      return Shape::ValuesAt(stage_) + at;
    } else {  // transposed: a part is a stretch of every row
      constexpr int kRowBytes = kPanelBytes / Shape::kParts;
      return Shape::ValuesAt(stage_) +
             SwizzledByte(Shape::kValueDim, at / kRowBytes, part_ * kRowBytes + at % kRowBytes);
    }
  }
  // All other consumers wait for this one's answer: nothing of it depends on what came before, so
  // that all of its reads are on their way at once.
  HEED_DEVICE bool FindsPoison(int t) {
    uint32_t carries = 0;
    HEED_UNROLL for (int n = 0; n < kChunks; ++n) {
      if (Exists(n)) carries |= PoisonCarries<Element>(group_, t, ChunkAt(t, n));
    }
    return (carries & kCarries<Element>) != 0;
  }

  // Adds what values that are not finite do to the rows that see their keys; 0 times one is NaN.
  HEED_DEVICE void AddPoison(int32_t part_first, Registers<float, kScores>& scores,
                             Registers<int32_t, 4>& row_keys, Registers<float, kOut>& out) {
    Registers<uint32_t, kWords> visible, positive;  // a bit for each score
    group_.Each([&](int t) {
      HEED_UNROLL for (int word = 0; word < kWords; ++word) visible(t, word) = positive(t, word) =
          0;
      const int first = FirstKey<Group>(t, part_first);
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        if (Sees(row_keys, t, first, n)) visible(t, n / 32) |= 1u << n % 32;
        if (scores(t, n) > 0) positive(t, n / 32) |= 1u << n % 32;
      }
    });
    HEED_UNROLL for (int word = 0; word < kWords; ++word) {
      Registers<uint32_t, 2> bits;  // of the keys' owner: visible, positive
      const int keys = kScores - 32 * word < 32 ? 2 * (kScores - 32 * word) : 64;
      HEED_NO_UNROLL for (int key = 0; key < keys; ++key) {
        group_.FromQuad(visible, word, key % 8 / 2, bits, 0);
        group_.FromQuad(positive, word, key % 8 / 2, bits, 1);
        group_.Each([&](int t) { AddPoisonOfKey(t, 64 * word + key, key, bits, out); });
      }
    }
  }
  // Key `key` of the part, whose scores are those of bit `bit`.
  HEED_DEVICE void AddPoisonOfKey(int t, int key, int bit, Registers<uint32_t, 2>& bits,
                                  Registers<float, kOut>& out) {
    const int column = Group::Opaque(AccumulatorCol(t % kWarp, 0));
    bool sees[2];
    float weight[2];
    HEED_UNROLL for (int half = 0; half < 2; ++half) {
      sees[half] = BitOf(bits(t, 0), bit, half);
      weight[half] = BitOf(bits(t, 1), bit, half) ? 1.0f : 0.0f;
    }
    HEED_UNROLL for (int n = 0; n < kOut; ++n) {
      const int half = n % 4 / 2;
      const Element value = ValueAt(t, part_ * Shape::kPartKeys + key, Apart(n), column);
      if (!IsNotFinite(Element{}, value.bits) || !sees[half]) continue;
      out(t, n) += ToFloat(value) * weight[half];
    }
  }

  // The value of a key in column + apart.
  HEED_DEVICE Element ValueAt(int t, int key, int apart, int column) {
    if constexpr (Shape::kIsFloat8) {
      const int at =
          Shape::ValuesAt(stage_) + TransposedByte(Shape::kValueDim, key, column + apart);
      return Element{static_cast<uint8_t>(group_.Load(t, at & ~1) >> at % 2 * 8)};
    } else {
      const int at = SwizzledOffset(Shape::kKeys, key, apart) + 2 * column;
      return Element{group_.Load(t, Shape::ValuesAt(stage_) + at)};
    }
  }

  Group& group_;
  const int own_, stage_, part_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_POISON_H_
