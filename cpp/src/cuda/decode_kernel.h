// Exact attention of one query a head, as in decoding: one block takes the heads of a group past
// the keys that they see, tile by tile, as attention_kernel.h does for 64 rows. Calls of few keys
// last as long as their instructions take to arrive and to run one after the other, so there are
// few of both:
//
//   A warp has 16 keys of each tile of 64, and no barrier until the end.
//   Keys and values go from memory to the registers in which mma.sync wants them, 16 bytes at a
//   time: it does not matter which dimension a number of a product is said to have, as long as it
//   is the same in both operands.
//   Nothing but softmax and what hides whole ends of the keys is here (decode_plan.h).
//
// The second product is transposed, out^T += v^T weights^T: its right operand has room for eight
// heads, so it takes half as many instructions as 16 rows would, most of them empty.
//
// Every step is a phase of the whole block (block.h), so the class also runs on the host.
#ifndef HEED_SRC_CUDA_DECODE_KERNEL_H_
#define HEED_SRC_CUDA_DECODE_KERNEL_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/decode_end.h"
#include "src/cuda/decode_plan.h"
#include "src/cuda/device.h"
#include "src/cuda/fragments.h"
#include "src/cuda/pairs.h"
#include "src/cuda/plugs.h"
#include "src/cuda/row_rules.h"
#include "src/cuda/schedule.h"

namespace heed::cuda {

// On elements T and exactly kDim columns, 64 or 128, of keys and of values. kPaged: they lie in
// pages.
template <class Block, class T, int kDim, bool kPaged>
class DecodeKernel {
 public:
  static constexpr int kSharedBytes = DecodeEnd<Block, kDim>::kSharedBytes;

  HEED_DEVICE DecodeKernel(Block& block, const AttentionParams& params)
      : block_(block), p_(params), end_(block, params) {}

  HEED_DEVICE void Run(int64_t index) {
    const BlockPlace place = PlaceOfBlock(p_, index, 1);
    const UnitSplits splits = SplitsOf(p_, place.unit);
    FindKeys(place.unit);
    end_.Keep(place, splits, batch_, kv_head_);
    Clear();
    VisitTiles(TilesOf(keys_.begin, keys_.end, kDecodeTileKeys, place.split, splits.count));
    end_.Run(row_max_, row_sum_, out_);
  }

 private:
  template <class U, int N>
  using Registers = typename Block::template Registers<U, N>;
  using Words = Registers<uint32_t, 4>;  // 16 bytes

  static constexpr int kParts = kDim / 32;   // of a key: four lanes have 16 bytes of each
  static constexpr int kHalves = kDim / 64;  // of a value: eight lanes do

  HEED_DEVICE void FindKeys(int32_t unit) {
    batch_ = unit / p_.num_kv_heads;
    kv_head_ = unit - batch_ * p_.num_kv_heads;
    const int32_t length = LengthOf(block_, p_, batch_, 0);
    const int64_t position = PositionOf(p_.rules, batch_, 0, 1, length);
    keys_ = KeysOfRow(p_.rules, batch_, position, length, p_.kv_len);
    queries_ =
        p_.q.data + batch_ * p_.q.strides[0] + kv_head_ * int64_t{p_.group} * p_.q.strides[1];
  }

  HEED_DEVICE void Clear() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kDim / 4; ++n) out_(t, n) = 0;
      row_max_(t, 0) = kMinusInfinity;
      row_sum_(t, 0) = 0;
    });
  }

  // The keys of a tile travel while the one before is weighed and its values are added, its values
  // until its weights are made. What the first tile needs is asked for together and in front of the
  // loop: ptxas counts most loads by one counter there, and waits for all of them where a round
  // begins.
  HEED_DEVICE void VisitTiles(TileSpan tiles) {
    if (tiles.begin == tiles.end) return;
    FindPages(tiles.begin);
    OpenPages(tiles.begin);
    LoadQueries();
    LoadKeys(tiles.begin);
    LoadValues(tiles.begin);
    FindPages(tiles.begin + 1);
    HEED_NO_UNROLL for (int32_t tile = tiles.begin;; ++tile) {
      const bool is_last = tile + 1 == tiles.end;
      ScoreKeys(tile);
      if (!is_last) {
        OpenPages(tile + 1);
        LoadKeys(tile + 1);
        FindPages(tile + 2);
      }
      Weigh();
      AddValues();
      if (is_last) return;
      LoadValues(tile + 1);
    }
  }

  // A lane has 16 bytes of each part, which are four words w: w[0] and w[1] of eight heads are rows
  // of one left operand, w[2] and w[3] its other eight rows. Of each half the rows that were meant
  // are used, and of lanes behind the last head none: they have the queries of that one.
  HEED_DEVICE void LoadQueries() {
    block_.Each([&](int t) {
      const int head = RowOfLane(t) < p_.group ? RowOfLane(t) : p_.group - 1;
      const char* row = queries_ + head * p_.q.strides[1] + PlaceOfLane(t) * 16;
      HEED_UNROLL for (int part = 0; part < kParts; ++part) {
        const auto* words = reinterpret_cast<const uint32_t*>(row + part * 64);
        HEED_UNROLL for (int n = 0; n < 4; ++n) q_[part](t, n) = words[n % 2 * 2 + n / 2];
      }
    });
  }
  template <class Tile>
  HEED_DEVICE static void LoadParts(const char* from, int apart, int t, Tile& words) {
    for (Words& part : words) {
      uint32_t four[4];
      Block::LoadWords(from, four);
      HEED_UNROLL for (int n = 0; n < 4; ++n) part(t, n) = four[n];
      from += apart;
    }
  }

  // A warp's share of a tile is a step: keys from FirstKey() on, all in one page. What a lane reads
  // is always the row of a key that is seen, the nearest one.
  HEED_DEVICE static int FirstKey(int t, int32_t tile) {
    return tile * kDecodeTileKeys + t / kWarp * kDecodeStepKeys;
  }
  HEED_DEVICE bool Sees(int key) const { return key >= keys_.begin && key < keys_.end; }
  HEED_DEVICE int NearestKey(int key) const {
    const int before_end = key < keys_.end ? key : keys_.end - 1;
    return before_end > keys_.begin ? before_end : keys_.begin;
  }

  // The pages in which the keys and the values of a tile's steps lie start to travel. Tiles behind
  // the last one have that of the last key.
  HEED_DEVICE void FindPages(int32_t tile) {
    if constexpr (!kPaged) return;
    block_.Each([&](int t) { page_(t, 0) = p_.k.table[EntryOf(t, tile)]; });
  }
  HEED_DEVICE int64_t EntryOf(int t, int32_t tile) const {
    const int page = NearestKey(FirstKey(t, tile)) >> p_.k.page_shift;
    return int64_t{batch_} * p_.k.table_width + page;
  }
  // Where their rows lie. Those of a page that does not exist are the query, which can be read.
  HEED_DEVICE void OpenPages(int32_t tile) {
    block_.Each([&](int t) {
      if constexpr (kPaged) {
        has_page_(t, 0) =
            static_cast<uint32_t>(page_(t, 0)) < static_cast<uint32_t>(p_.k.num_pages);
        if (!HasPage(t)) {
          block_.Report(p_.fault, FaultKind::kPage, EntryOf(t, tile), page_(t, 0));
        }
      }
      k_rows_(t, 0) = HasPage(t) ? RowsOfPage(p_.k, t) : queries_;
      v_rows_(t, 0) = HasPage(t) ? RowsOfPage(p_.v, t) : queries_;
    });
  }
  HEED_DEVICE bool HasPage(int t) { return !kPaged || has_page_(t, 0) != 0; }
  HEED_DEVICE const char* RowsOfPage(const DeviceRows& rows, int t) {
    const int64_t entry = kPaged ? page_(t, 0) : batch_;
    return rows.data + kv_head_ * rows.strides[1] + entry * rows.strides[0];
  }
  // A row from one of its bytes on.
  HEED_DEVICE const char* RowOfKey(const char* first, const DeviceRows& rows, int t, int key,
                                   int byte) {
    const int nearest = NearestKey(key);
    const int within = kPaged ? nearest & (rows.page_size - 1) : nearest;
    const int stride = HasPage(t) ? static_cast<int32_t>(rows.strides[2]) : 0;
    return first + int64_t{within} * stride + byte;
  }
  template <class Tile>
  HEED_DEVICE static void SetZero(int t, Tile& words) {
    for (Words& part : words) {
      HEED_UNROLL for (int n = 0; n < 4; ++n) part(t, n) = 0;
    }
  }

  // Scores of keys that are not seen do not count, whatever they are.
  HEED_DEVICE void LoadKeys(int32_t tile) {
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < 2; ++n) {
        const int key = FirstKey(t, tile) + RowOfLane(t) + 8 * n;
        LoadParts(RowOfKey(k_rows_(t, 0), p_.k, t, key, PlaceOfLane(t) * 16), 64, t, k_[n]);
      }
      k_exist_(t, 0) = HasPage(t);
    });
  }
  // Those of values have weight 0, but may be infinite.
  HEED_DEVICE void LoadValues(int32_t tile) {
    block_.Each([&](int t) {
      const int first = FirstKey(t, tile);
      HEED_UNROLL for (int n = 0; n < 4; ++n) {
        const int key = first + KeyOfLane(t, n);
        LoadParts(RowOfKey(v_rows_(t, 0), p_.v, t, key, RowOfLane(t) * 16), 128, t, v_[n]);
      }
      if (HasPage(t) && Sees(first) && Sees(first + kDecodeStepKeys - 1)) return;
      HEED_UNROLL for (int n = 0; n < 4; ++n) {
        if (!HasPage(t) || !Sees(first + KeyOfLane(t, n))) SetZero(t, v_[n]);
      }
    });
  }

  // Scores of head RowOfLane(), scaled; -inf where the key is not seen, 0 where there is no page.
  // Four chains of sums.
  HEED_DEVICE void ScoreKeys(int32_t tile) {
    Registers<float, 16> sums;
    block_.Each([&](int t) { HEED_UNROLL for (int n = 0; n < 16; ++n) sums(t, n) = 0; });
    HEED_UNROLL for (int part = 0; part < kParts; ++part) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        HEED_UNROLL for (int n = 0; n < 2; ++n) {
          block_.Mma(T{}, sums, 2 * n + half, q_[part], k_[n][part], half);
        }
      }
    }
    block_.Each([&](int t) {
      const int first = FirstKey(t, tile);
      HEED_UNROLL for (int n = 0; n < 4; ++n) {
        // The first half's rows are sums 0 and 1 of a product, the second one's 2 and 3.
        const int at = n / 2 * 8 + n % 2;
        float score = (sums(t, at) + sums(t, at + 6)) * p_.scale;
        if (kPaged && k_exist_(t, 0) == 0) score = 0;
        weights_(t, n) = Sees(first + KeyOfLane(t, n)) ? score : kMinusInfinity;
      }
    });
  }

  // Scores become weights, and join the sum of their row; sums so far shrink where the largest
  // score has risen.
  HEED_DEVICE void Weigh() {
    Registers<float, 1> highest, shrink;
    block_.Each([&](int t) {
      highest(t, 0) = row_max_(t, 0);
      HEED_UNROLL for (int n = 0; n < 4; ++n) highest(t, 0) = fmaxf(highest(t, 0), weights_(t, n));
    });
    block_.template GroupMax<4>(highest);
    const bool rises = block_.AnyOfWarp([&](int t) { return highest(t, 0) > row_max_(t, 0); });
    block_.Each([&](int t) {
      const float subtrahend = Subtrahend(highest(t, 0));
      shrink(t, 0) = Exp(row_max_(t, 0) - subtrahend);
      row_max_(t, 0) = highest(t, 0);
      row_sum_(t, 0) *= shrink(t, 0);
      HEED_UNROLL for (int n = 0; n < 4; ++n) {
        weights_(t, n) = Exp(weights_(t, n) - subtrahend);
        row_sum_(t, 0) += weights_(t, n);
      }
    });
    if (rises) Shrink(shrink);
  }
  HEED_DEVICE void Shrink(Registers<float, 1>& shrink) {
    Registers<float, 2> factors;
    HEED_UNROLL for (int e = 0; e < 2; ++e) {
      block_.FromLane(
          shrink, 0, [e](int t) { return 4 * (2 * PlaceOfLane(t) + e); }, factors, e);
    }
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kDim / 4; ++n) out_(t, n) *= factors(t, n % 2);
    });
  }

  // Product n of a half has columns 8 RowOfLane() + 2 n and the next as its rows: sums 4 n on are
  // those of the first column for both heads of the lane, then of the second one.
  HEED_DEVICE void AddValues() {
    Words weights, columns;
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < 2; ++n) {
        weights(t, n) = Block::Pack(T{}, weights_(t, 2 * n), weights_(t, 2 * n + 1));
      }
    });
    HEED_UNROLL for (int half = 0; half < kHalves; ++half) {
      HEED_UNROLL for (int n = 0; n < 4; ++n) {
        block_.Each([&](int t) {
          HEED_UNROLL for (int e = 0; e < 2; ++e) {
            const uint32_t first = v_[2 * e][half](t, n), second = v_[2 * e + 1][half](t, n);
            columns(t, 2 * e) = LowerHalves(first, second);
            columns(t, 2 * e + 1) = UpperHalves(first, second);
          }
        });
        block_.Mma(T{}, out_, 4 * half + n, columns, weights, 0);
      }
    }
  }
  HEED_DEVICE static uint32_t LowerHalves(uint32_t a, uint32_t b) {
    return (a & 0xffffu) | b << 16;
  }
  HEED_DEVICE static uint32_t UpperHalves(uint32_t a, uint32_t b) {
    return a >> 16 | (b & 0xffff0000u);
  }

  Block& block_;
  const AttentionParams& p_;
  DecodeEnd<Block, kDim> end_;

  int batch_, kv_head_;
  RowKeys keys_;         // that the query sees
  const char* queries_;  // of the unit's first head

  Registers<int32_t, 1> page_;                 // of the step to load next
  Registers<int32_t, 1> has_page_, k_exist_;   // 0 or 1
  Registers<const char*, 1> k_rows_, v_rows_;  // of the page
  Words q_[kParts], k_[2][kParts], v_[4][kHalves];
  Registers<float, 4> weights_;     // before Weigh(), scores
  Registers<float, kDim / 4> out_;  // sums of weighted values
  Registers<float, 1> row_max_;     // of head RowOfLane(), alike in a quad
  Registers<float, 1> row_sum_;     // of the lane's own keys, until the end
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_DECODE_KERNEL_H_
