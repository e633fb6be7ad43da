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

// On elements T and exactly kDim columns, 64 or 128, of keys and of values.
template <class Block, class T, int kDim>
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
      page_(t, 0) = batch_;
    });
  }

  // The keys of a tile travel while the one before is weighed and its values are added, its values
  // until its weights are made. One round more than there are tiles, so that everything stands here
  // once.
  HEED_DEVICE void VisitTiles(TileSpan tiles) {
    if (tiles.begin == tiles.end) return;
    FindPages(tiles.begin);
    LoadQueries();
    HEED_NO_UNROLL for (int32_t tile = tiles.begin; tile <= tiles.end; ++tile) {
      const bool is_first = tile == tiles.begin, is_behind = tile == tiles.end;
      if (!is_first) ScoreKeys(tile - 1);
      if (!is_behind) LoadKeys(tile);
      if (!is_first) {
        Weigh();
        AddValues();
      }
      if (!is_behind) {
        LoadValues(tile);
        FindPages(tile + 1);
      }
    }
  }

  HEED_DEVICE void LoadQueries() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int part = 0; part < kParts; ++part) {
        uint32_t words[4] = {};
        const char* row = queries_ + RowOfLane(t) * p_.q.strides[1] + PlaceOfLane(t) * 16;
        if (RowOfLane(t) < p_.group) Block::LoadWords(row + part * 64, words);
        HEED_UNROLL for (int n = 0; n < 4; ++n) q_[part](t, n) = words[n];
      }
    });
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

  // The pages in which the keys and the values of a tile's steps lie start to travel.
  HEED_DEVICE void FindPages(int32_t tile) {
    if (p_.k.table == nullptr) return;
    block_.Each([&](int t) { page_(t, 0) = p_.k.table[EntryOf(t, tile)]; });
  }
  HEED_DEVICE int64_t EntryOf(int t, int32_t tile) const {
    const int page = NearestKey(FirstKey(t, tile)) >> p_.k.page_shift;
    return int64_t{batch_} * p_.k.table_width + page;
  }
  HEED_DEVICE bool HasPage(int t) {
    return static_cast<uint32_t>(page_(t, 0)) < static_cast<uint32_t>(p_.k.num_pages);
  }

  // Rows of a page that does not exist are the query, which can be read.
  struct PageRows {
    const char* first;
    int32_t stride;
  };
  HEED_DEVICE PageRows RowsOfPage(const DeviceRows& rows, int t) {
    if (!HasPage(t)) return {queries_, 0};
    return {rows.data + kv_head_ * rows.strides[1] + page_(t, 0) * rows.strides[0],
            static_cast<int32_t>(rows.strides[2])};
  }
  template <class Tile>
  HEED_DEVICE void LoadRow(const PageRows& page, const DeviceRows& rows, int t, int key, int byte,
                           int apart, Tile& words) const {
    // Without pages page_size is 0, and the mask leaves all bits.
    const int within = NearestKey(key) & (rows.page_size - 1);
    const char* from = page.first + int64_t{within} * page.stride + byte;
    for (Words& part : words) {
      uint32_t four[4];
      Block::LoadWords(from, four);
      HEED_UNROLL for (int n = 0; n < 4; ++n) part(t, n) = four[n];
      from += apart;
    }
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
      const int first = FirstKey(t, tile);
      const PageRows page = RowsOfPage(p_.k, t);
      HEED_UNROLL for (int n = 0; n < 2; ++n) {
        LoadRow(page, p_.k, t, first + RowOfLane(t) + 8 * n, PlaceOfLane(t) * 16, 64, k_[n]);
      }
      if (HasPage(t)) return;
      block_.Report(p_.fault, FaultKind::kPage, EntryOf(t, tile), page_(t, 0));
      HEED_UNROLL for (int n = 0; n < 2; ++n) SetZero(t, k_[n]);
    });
  }
  // Those of values have weight 0, but may be infinite.
  HEED_DEVICE void LoadValues(int32_t tile) {
    block_.Each([&](int t) {
      const int first = FirstKey(t, tile);
      const PageRows page = RowsOfPage(p_.v, t);
      HEED_UNROLL for (int n = 0; n < 4; ++n) {
        LoadRow(page, p_.v, t, first + KeyOfLane(t, n), RowOfLane(t) * 16, 128, v_[n]);
      }
      if (HasPage(t) && Sees(first) && Sees(first + kDecodeStepKeys - 1)) return;
      HEED_UNROLL for (int n = 0; n < 4; ++n) {
        if (!HasPage(t) || !Sees(first + KeyOfLane(t, n))) SetZero(t, v_[n]);
      }
    });
  }

  // Scores of head RowOfLane(), scaled; -inf where the key is not seen. Four chains of sums.
  HEED_DEVICE void ScoreKeys(int32_t tile) {
    Registers<float, 16> sums;
    block_.Each([&](int t) { HEED_UNROLL for (int n = 0; n < 16; ++n) sums(t, n) = 0; });
    Words rows;
    HEED_UNROLL for (int part = 0; part < kParts; ++part) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        block_.Each([&](int t) {
          rows(t, 0) = q_[part](t, 2 * half), rows(t, 1) = 0;
          rows(t, 2) = q_[part](t, 2 * half + 1), rows(t, 3) = 0;
        });
        HEED_UNROLL for (int n = 0; n < 2; ++n) {
          block_.Mma(T{}, sums, 2 * n + half, rows, k_[n][part], half);
        }
      }
    }
    block_.Each([&](int t) {
      const int first = FirstKey(t, tile);
      HEED_UNROLL for (int n = 0; n < 4; ++n) {
        const int at = n / 2 * 8 + n % 2;
        const bool sees = Sees(first + KeyOfLane(t, n));
        weights_(t, n) = sees ? (sums(t, at) + sums(t, at + 4)) * p_.scale : kMinusInfinity;
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

  Registers<int32_t, 1> page_;  // of the step to load next; without pages the batch entry

  Words q_[kParts], k_[2][kParts], v_[4][kHalves];
  Registers<float, 4> weights_;     // before Weigh(), scores
  Registers<float, kDim / 4> out_;  // sums of weighted values
  Registers<float, 1> row_max_;     // of head RowOfLane(), alike in a quad
  Registers<float, 1> row_sum_;     // of the lane's own keys, until the end
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_DECODE_KERNEL_H_
