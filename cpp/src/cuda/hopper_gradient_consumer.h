// One of the two warp groups that compute in a gradient kernel for Hopper: 64 rows of what the
// block owns, past one pair of tiles after the other (hopper_gradient_kernel.h).
//
// Cell n of a thread, in registers, is the pair of own row RowInGroup(t, n % 4 / 2) and tile row
// AccumulatorCol(lane, 0) + Apart(n): a key and a query where the block owns keys, else a query and
// a key.
#ifndef HEED_SRC_CUDA_HOPPER_GRADIENT_CONSUMER_H_
#define HEED_SRC_CUDA_HOPPER_GRADIENT_CONSUMER_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "src/cuda/device.h"
#include "src/cuda/fragments.h"
#include "src/cuda/gradient_params.h"
#include "src/cuda/hopper_gradient_layout.h"
#include "src/cuda/hopper_gradient_rows.h"
#include "src/cuda/hopper_rows.h"
#include "src/cuda/hopper_tiles.h"
#include "src/cuda/pairs.h"
#include "src/cuda/plugs.h"

namespace heed::cuda {

template <class Group, class Shape>
class HopperGradientConsumer {
 public:
  HEED_DEVICE HopperGradientConsumer(Group& group, const GradientParams& params)
      : group_(group),
        params_(params),
        p_(params.attention),
        own_(group.index() - 1),
        to_base_2_(p_.softcap != 0 || p_.alibi_slopes != nullptr ? kLog2E : p_.scale * kLog2E) {}

  HEED_DEVICE void Run(int32_t block, int32_t blocks) {
    EachItem(GradientItemsOf<Shape>(p_), block, blocks, [&](int32_t number) {
      const GradientItem item = FindGradientItem<Shape>(group_, params_, number);
      ClearSums();
      if (item.span.begin < item.span.end) {
        first_ = item.tile * kOwnRows;
        tile_ = item.span.begin;
        left_ = item.heads * (item.span.end - item.span.begin);
        if constexpr (!kByKeys) CopyOwnRows(item);
        VisitTiles();
      }
      Store(PlaceOfGradient<Shape>(p_, Group::Opaque(number)));  // again: registers are dear
    });
  }

 private:
  using Element = typename Shape::Element;
  using Barriers = HopperGradientBarriers<Shape::kStages>;
  using Turn = TileTurn<Shape::kStages>;
  template <class T, int N>
  using Registers = typename Group::template Registers<T, N>;
  static constexpr bool kByKeys = Shape::kByKeys;
  static constexpr int kDim = Shape::kDim;
  static constexpr int kTile = Shape::kTile;
  static constexpr int kCells = kTile / 2;
  static constexpr int kSums = kDim / 2;

  // body(thread) for every thread. Where sums of keys and of values leave few registers, the
  // compiler finds a thread's places again, rather than keep them from one tile to the next.
  template <class Body>
  HEED_DEVICE void Each(const Body& body) {
    group_.Each([&](int t) { body(kByKeys ? Group::Opaque(t) : t); });
  }

  HEED_DEVICE void ClearSums() {
    group_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kSums; ++n) {
        sums_(t, n) = 0;
        if constexpr (kByKeys) d_v_(t, n) = 0;
      }
    });
  }

  // What the table says of the group's own queries goes to shared memory: registers are dear.
  HEED_DEVICE void CopyOwnRows(const GradientItem& item) {
    all_ = {NumberOfBlock(params_, item, kAllBegin), NumberOfBlock(params_, item, kAllEnd)};
    group_.Sync();  // those of the last item are read
    Each([&](int t) {
      if (t >= kGroupRows) return;
      const int row = first_ + own_ * kGroupRows + t;
      const int32_t tile = row / kTableRows;
      const bool exists = tile < params_.table_tiles;  // else it sees no key
      HEED_UNROLL for (int number = 0; number < kRowNumbers; ++number) {
        const int at = RowWordAt(static_cast<RowNumber>(number), row % kTableRows);
        const uint32_t* words = TableTile(params_, item.batch, item.head, tile);
        group_.StoreWord(t, OwnWordAt(number, t), exists ? words[at] : 0);
      }
    });
    group_.Sync();
  }
  HEED_DEVICE int OwnWordAt(int number, int row) const {
    return Shape::OwnTableAt(own_) + 4 * (number * kGroupRows + row);
  }

  // The sums of a tile are made under the products of the next, gradients of scores under the sum
  // of d_v, weights under d_out v^T.
  HEED_DEVICE void VisitTiles() {
    group_.WaitForPhase(Barriers::OwnFull(), own_parity_);
    own_parity_ ^= 1;
    AwaitTiles();
    IssueProducts();
    group_.template MmaWait<1>();
    int read = 0;  // the stage of the tiles before
    HEED_NO_UNROLL while (true) {
      Weigh();
      group_.template MmaWait<0>();
      if constexpr (kByKeys) IssueSums(d_v_, weights_, 1);
      FindGradients();
      if constexpr (!kByKeys) {
        if (!whole_) KeepPoisonedKeysOut();
      }
      IssueSums(sums_, d_scores_, 0);
      read = turn_.stage;
      turn_.Advance();
      if (--left_ == 0) break;
      ++tile_;
      AwaitTiles();
      // Both left operands and the next products would not fit the registers together.
      if constexpr (kByKeys) group_.template MmaWait<1>();
      IssueProducts();
      group_.template MmaWait<1>();  // scores, and the sums before
      group_.ArriveWarps(Barriers::Empty(read));
    }
    group_.template MmaWait<0>();
    group_.ArriveWarps(Barriers::Empty(read));
    group_.ArriveWarps(Barriers::OwnEmpty());
  }

  // Waits for the tiles, and finds out whether every pair that there is can be seen.
  HEED_DEVICE void AwaitTiles() {
    group_.WaitForPhase(Barriers::Full(turn_.stage), turn_.parity);
    if constexpr (kByKeys) {
      const RowKeys keys = OwnKeys(p_, first_);
      Each([&](int t) {
        uint32_t words[kTileNumbers];
        group_.LoadChunk(t, Shape::TableAt(turn_.stage) + 4 * TileWordAt(kSomeBegin), words);
        whole_ = static_cast<int32_t>(words[kAllBegin]) <= keys.begin &&
                 static_cast<int32_t>(words[kAllEnd]) >= keys.end;  // the same in every thread
      });
      if (!whole_) KeepPoisonedRowsOut();
    } else {
      whole_ = all_.begin <= tile_ * kTile && all_.end >= (tile_ + 1) * kTile;
    }
  }

  // Scores and gradients of weights: own rows times rows of the tiles, q with k and d_out with v.
  HEED_DEVICE void IssueProducts() {
    IssueProduct(scores_, 0);
    IssueProduct(d_weights_, 1);
  }
  HEED_DEVICE void IssueProduct(Registers<float, kCells>& cells, int which) {
    const uint64_t own = group_.Matrix(Shape::OwnAt(which) + own_ * kGroupRows * kPanelBytes, 16);
    const uint64_t tile = group_.Matrix(Shape::TileAt(turn_.stage, which), 16);
    group_.MmaFence();
    HEED_UNROLL for (int d = 0; d < kDim; d += 16) {
      const int panel = d / kPanelCols;
      const int column = d % kPanelCols * 2;
      group_.template MmaShared<kTile>(
          Element{}, cells, AdvancedDescriptor(own, panel * Shape::kOwnPanel + column),
          AdvancedDescriptor(tile, panel * Shape::kTilePanel + column), d != 0);
    }
    group_.MmaCommit();
  }

  // sums += factors rows, for the rows of a tile.
  HEED_DEVICE void IssueSums(Registers<float, kSums>& sums,
                             Registers<uint32_t, kCells / 2>& factors, int which) {
    const uint64_t tile = group_.Matrix(Shape::TileAt(turn_.stage, which), Shape::kTilePanel);
    group_.MmaFence();
    HEED_UNROLL for (int row = 0; row < kTile; row += 16) {
      group_.template MmaRegisters<kDim>(Element{}, sums, factors, row / 4,
                                         AdvancedDescriptor(tile, row * kPanelBytes));
    }
    group_.MmaCommitAtOnce();
  }

  // A number of the query of cell n.
  HEED_DEVICE uint32_t RowWord(int t, RowNumber number, int n) {
    if constexpr (kByKeys) {
      const int row = AccumulatorCol(t % kWarp, 0) + Apart(n);
      return group_.LoadWord(t, Shape::TableAt(turn_.stage) + 4 * RowWordAt(number, row));
    } else {
      return group_.LoadWord(t, OwnWordAt(number, RowInGroup(t, n % 4 / 2)));
    }
  }
  // The same of cells n and n + 1, which are neighbours: n is even.
  HEED_DEVICE void RowFloats(int t, RowNumber number, int n, float (&two)[2]) {
    if constexpr (kByKeys) {
      const int row = AccumulatorCol(t % kWarp, 0) + Apart(n);
      uint32_t words[2];
      group_.LoadPair(t, Shape::TableAt(turn_.stage) + 4 * RowWordAt(number, row), words);
      two[0] = AsFloat(words[0]), two[1] = AsFloat(words[1]);
    } else {
      two[0] = two[1] = AsFloat(RowWord(t, number, n));
    }
  }
  HEED_DEVICE int KeyOf(int t, int n) const {
    if constexpr (kByKeys) return OwnRow(t, n % 4 / 2);
    return tile_ * kTile + AccumulatorCol(t % kWarp, 0) + Apart(n);
  }
  HEED_DEVICE int OwnRow(int t, int half) const {
    return first_ + own_ * kGroupRows + RowInGroup(t, half);
  }
  HEED_DEVICE bool Sees(int t, int n) {
    const int key = KeyOf(t, n);
    return key >= static_cast<int>(RowWord(t, kRowBegin, n)) &&
           key < static_cast<int>(RowWord(t, kRowEnd, n));
  }
  template <int N>
  HEED_DEVICE void Hide(Registers<float, N>& cells) {
    Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kCells; ++n) {
        if (!Sees(t, n)) cells(t, n) = 0;
      }
    });
  }

  // Scores become weights; those of keys, rounded, are the left operand of d_v.
  HEED_DEVICE void Weigh() {
    if (p_.softcap != 0) return WeighCapped();
    if (p_.alibi_slopes != nullptr) AddAlibi();
    Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kCells; n += 2) {
        float lse[2];
        RowFloats(t, kRowLse, n, lse);
        scores_(t, n) = Group::Exp2(fmaf(scores_(t, n), to_base_2_, -lse[0]));
        scores_(t, n + 1) = Group::Exp2(fmaf(scores_(t, n + 1), to_base_2_, -lse[1]));
      }
    });
    if (!whole_) Hide(scores_);
    if constexpr (kByKeys) PackCells(scores_, weights_);
  }
  HEED_DEVICE void AddAlibi() {
    Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kCells; ++n) {
        scores_(t, n) = WithAlibi(t, n, scores_(t, n) * p_.scale);
      }
    });
  }
  HEED_DEVICE float WithAlibi(int t, int n, float score) {
    const int32_t position = static_cast<int32_t>(RowWord(t, kRowPosition, n));
    return AlibiScore(score, AsFloat(RowWord(t, kRowSlope, n)),
                      static_cast<float>(position - KeyOf(t, n)));
  }
  // Softcap c bends a score s to c tanh(s / c), whose slope is 1 - tanh(s / c)^2: here it joins the
  // weights that gradients of scores are made of, as nothing keeps it. The slope of an infinite
  // score is 0, and 0 times the infinite key is NaN in d_q. KeepPoisonedKeysOut() takes that key
  // out, so what it leaves is made NaN here, with no register more. An infinite query is not told
  // apart.
  HEED_DEVICE void WeighCapped() {
    const float factor = p_.scale / p_.softcap;
    Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kCells; n += 2) {
        float weights[2];
        HEED_UNROLL for (int e = 0; e < 2; ++e) {
          const float ratio = scores_(t, n + e) * factor;
          float bent = tanhf(ratio);
          if constexpr (!kByKeys) bent = fmaf(ratio, 0.0f, bent);
          float score = p_.softcap * bent;
          if (p_.alibi_slopes != nullptr) score = WithAlibi(t, n + e, score);
          const float lse = AsFloat(RowWord(t, kRowLse, n + e));
          weights[e] = Sees(t, n + e) ? Group::Exp2(fmaf(score, to_base_2_, -lse)) : 0.0f;
          scores_(t, n + e) = weights[e] * (1 - bent * bent);
        }
        if constexpr (kByKeys) weights_(t, n / 2) = Group::Pack(Element{}, weights[0], weights[1]);
      }
    });
  }

  // Gradients of weights become those of scores times 1 / scale, rounded.
  HEED_DEVICE void FindGradients() {
    Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kCells; n += 2) {
        float delta[2];
        RowFloats(t, kRowDelta, n, delta);
        d_weights_(t, n) = scores_(t, n) * (d_weights_(t, n) - delta[0]);
        d_weights_(t, n + 1) = scores_(t, n + 1) * (d_weights_(t, n + 1) - delta[1]);
      }
    });
    if (!whole_) Hide(d_weights_);
    PackCells(d_weights_, d_scores_);
  }
  // Two neighbouring cells are a pair of wgmma's operand A.
  HEED_DEVICE void PackCells(Registers<float, kCells>& cells,
                             Registers<uint32_t, kCells / 2>& pairs) {
    Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kCells; n += 2) {
        pairs(t, n / 2) = Group::Pack(Element{}, cells(t, n), cells(t, n + 1));
      }
    });
  }

  // In tiles where some pair is hidden, 0 times a number that is not finite must not join. Such
  // numbers of q and d_out are taken out, and their row gets an lse of NaN: what it sees becomes
  // NaN, as its gradients of scores would anyway, and the rest keeps its bits. Four threads a row,
  // half of the rows for each group. Both groups come here together.
  HEED_DEVICE void KeepPoisonedRowsOut() {
    constexpr int kChunks = kDim / 16;  // half a row of q or d_out
    Registers<float, 1> found;
    Each([&](int t) {
      found(t, 0) = 0;
      if (PoisonRow(t) >= (own_ + 1) * kTile / GradientGroups::kConsumers) return;
      const int tile = Shape::TileAt(turn_.stage, t % 4 / 2) + PoisonRow(t) * kPanelBytes;
      HEED_NO_UNROLL for (int n = 0; n < kChunks; ++n) {
        const int chunk = t % 2 * kChunks + n;
        const int at = tile + chunk / 8 * Shape::kTilePanel + chunk % 8 * 16;
        if (!HasPoison<Element>(group_, t, at)) continue;
        ClearPoison(group_, Element{}, t, at);
        found(t, 0) = 1;
      }
    });
    group_.template GroupMax<4>(found);
    Each([&](int t) {
      if (t % 4 != 0 || found(t, 0) == 0) return;
      const int at = Shape::TableAt(turn_.stage) + 4 * RowWordAt(kRowLse, PoisonRow(t));
      group_.StoreWord(t, at, AsWord(std::numeric_limits<float>::quiet_NaN()));
    });
    group_.FenceProxyAsync();
    group_.SyncConsumers();
  }
  HEED_DEVICE int PoisonRow(int t) const {
    return own_ * (kTile / GradientGroups::kConsumers) + t / 4;
  }

  // The same of keys, after the products: what sees such a key has NaN among its gradients of
  // scores, unless the score is -infinity and the weight 0, and so the key does not matter.
  HEED_DEVICE void KeepPoisonedKeysOut() {
    const bool poison = group_.AnyOfConsumers([&](int t) {
      uint32_t carries = 0;
      EachChunk(t, [&](int at) { carries |= PoisonCarries<Element>(group_, t, at); });
      return (carries & kCarries<Element>) != 0;
    });
    if (!poison) return;
    Each([&](int t) { EachChunk(t, [&](int at) { ClearPoison(group_, Element{}, t, at); }); });
    group_.FenceProxyAsync();
    group_.SyncConsumers();
  }
  // Calls body(at) for the thread's share of the chunks of the keys: a half for each group.
  template <class Body>
  HEED_DEVICE void EachChunk(int t, const Body& body) {
    constexpr int kHalf = Shape::kTileBytes / GradientGroups::kConsumers;
    HEED_NO_UNROLL for (int at = t * 16; at < kHalf; at += kGroupThreads * 16) {
      body(Shape::TileAt(turn_.stage, 0) + own_ * kHalf + at);
    }
  }

  HEED_DEVICE void Store(const GradientItem& item) {
    if constexpr (kByKeys) {
      StoreSums(item, sums_, params_.d_k, p_.k.width, p_.scale);
      StoreSums(item, d_v_, params_.d_v, p_.v.width, 1.0f);
    } else {
      StoreSums(item, sums_, params_.d_q, p_.q.width, p_.scale);
    }
  }
  HEED_DEVICE void StoreSums(const GradientItem& item, Registers<float, kSums>& sums,
                             const DeviceOutput& to, int width, float factor) {
    if (to.data == nullptr) return;
    Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        const int row = item.tile * kOwnRows + own_ * kGroupRows + RowInGroup(t, half);
        if (row >= (kByKeys ? p_.kv_len : p_.q_len)) continue;
        char* at =
            to.data + item.batch * to.strides[0] + item.head * to.strides[1] + row * to.strides[2];
        StoreSumsOfRow<Group, kSums>(t, half, sums, factor, to.dtype, width, at);
      }
    });
  }

  Group& group_;
  const GradientParams& params_;
  const AttentionParams& p_;
  const int own_;  // which consumer
  const float to_base_2_;

  uint32_t own_parity_ = 0;
  int32_t first_;       // row that the block owns
  int32_t tile_ = 0;    // where the block owns queries: which keys
  int32_t left_ = 0;    // tiles, this one among them
  Turn turn_;           // of the tiles
  bool whole_ = false;  // every query of the tile, or the block, sees every key of the other
  RowKeys all_;         // that all queries of the block see

  Registers<float, kCells> scores_;           // then weights
  Registers<float, kCells> d_weights_;        // then gradients of scores
  Registers<uint32_t, kCells / 2> weights_;   // rounded, for the sums
  Registers<uint32_t, kCells / 2> d_scores_;  //
  Registers<float, kSums> sums_;              // of d_k or d_q
  Registers<float, kSums> d_v_;               //
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_GRADIENT_CONSUMER_H_
