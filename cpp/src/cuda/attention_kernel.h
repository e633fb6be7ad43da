// Exact attention on the device: one block takes 64 packed rows of a KV head past the keys that
// they see, tile by tile, and carries a maximum, a sum and the weighted values of each row (online
// softmax; FlashAttention-2's loop: the next keys travel under softmax, the values under q k^T).
//
// Every step is a phase of the whole block (block.h), so the class also runs on the host.
#ifndef HEED_SRC_CUDA_ATTENTION_KERNEL_H_
#define HEED_SRC_CUDA_ATTENTION_KERNEL_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/attention_rows.h"
#include "src/cuda/attention_scores.h"
#include "src/cuda/combine_kernel.h"
#include "src/cuda/device.h"
#include "src/cuda/finite.h"
#include "src/cuda/pairs.h"
#include "src/cuda/plugs.h"
#include "src/cuda/products.h"
#include "src/cuda/row_rules.h"
#include "src/cuda/rows_in_memory.h"
#include "src/cuda/schedule.h"
#include "src/cuda/tile_poison.h"

namespace heed::cuda {

template <class Block, class Products>
class AttentionKernel : private AttentionScores<Block, Products> {
  using Scores = AttentionScores<Block, Products>;

 public:
  HEED_DEVICE AttentionKernel(Block& block, const AttentionParams& params)
      : Scores(block, params) {}

  HEED_DEVICE void Run(int64_t index) {
    FindPlace(index);
    FindRows();
    FindKeys();
    Clear();
    VisitTiles(TilesOf(keys_.begin, keys_.end, kKeys, place_.split, splits_.count));
    FindPlace(Block::Opaque(static_cast<int>(index)));  // again: registers of tiles are dear
    block_.template GroupSum<4>(row_sum_);
    if constexpr (Products::kByKeys) MergeWarps();
    if (splits_.count == 1) return StoreRows();
    StoreSplit();
    if (p_.counters == nullptr) return;
    uint32_t* counter = p_.counters + place_.row_block * p_.units + place_.unit;
    if (block_.ArrivesLast(counter, static_cast<uint32_t>(splits_.count))) MergeRows();
  }

 private:
  using typename Scores::Element;
  using typename Scores::Shared;
  using typename Scores::SharedFloats;
  template <class T, int N>
  using Registers = typename Block::template Registers<T, N>;
  using Scores::batch_;
  using Scores::block_;
  using Scores::documents_;
  using Scores::EachRowOfLane;
  using Scores::FindKeys;
  using Scores::FindPlace;
  using Scores::FindRows;
  using Scores::HeadOf;
  using Scores::InTile;
  using Scores::k_;
  using Scores::kAllVisible;
  using Scores::key_scales_;
  using Scores::keys_;
  using Scores::kKeys;
  using Scores::kOut;
  using Scores::kRows;
  using Scores::kScores;
  using Scores::kStride;
  using Scores::kv_head_;
  using Scores::Lower;
  using Scores::out_;
  using Scores::p_;
  using Scores::PackedRow;
  using Scores::part_max_;
  using Scores::part_out_;
  using Scores::part_sum_;
  using Scores::place_;
  using Scores::q_;
  using Scores::QueryOf;
  using Scores::row_max_;
  using Scores::row_sum_;
  using Scores::row_tiles_;
  using Scores::row_words_;
  using Scores::RowInBlock;
  using Scores::scores_;
  using Scores::ScoreTile;
  using Scores::SpeaksForRows;
  using Scores::splits_;
  using Scores::v_;
  using Scores::value_scales_;
  using Scores::visible_;
  using Scores::Weigh;

  HEED_DEVICE void Clear() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kOut; ++n) out_(t, n) = 0;
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        row_max_(t, half) = HasDenominator(p_.normalize) ? kMinusInfinity : 0.0f;
        row_sum_(t, half) = 0;
      }
    });
  }
  // The keys of a tile travel while the one before is weighed and its values are added, its values
  // while its scores are made.
  HEED_DEVICE void VisitTiles(TileSpan tiles) {
    if (p_.patterns.ids != nullptr) block_.Sync();  // FindKeys() has read what patterns replace
    int32_t next = NextTile(tiles.begin, tiles.end);
    if (next == tiles.end) return;
    CopyQueries();
    int32_t tile = -1;
    while (true) {
      if (next < tiles.end) {
        CopyTile(k_, key_scales_, p_.k, next);
      } else {
        block_.CommitCopies();  // an empty group, so that the wait below means the values
      }
      if (tile >= 0) {
        Weigh(tile);
        block_.template WaitCopies<1>();
        AddTile();
        block_.Sync();  // values are read
      }
      if (next == tiles.end) break;
      tile = next;
      CopyTile(v_, value_scales_, p_.v, tile);
      block_.template WaitCopies<1>();
      block_.Sync();  // keys (and queries) are there
      ScoreTile(tile);
      block_.Sync();  // keys, and the words of patterns, are read
      next = NextTile(tile + 1, tiles.end);
    }
    block_.template WaitCopies<0>();
  }

  // The first tile from `tile` on that may hold a visible key, as far as documents and patterns
  // tell. Leaves the words of its rows in shared memory.
  HEED_DEVICE int32_t NextTile(int32_t tile, int32_t end) {
    while (tile < end) {
      if (p_.patterns.ids != nullptr) tile = NextOfPatterns(tile, end);
      if (tile == end || p_.documents.keys == nullptr || MeetsDocuments(tile)) return tile;
      ++tile;
    }
    return end;
  }
  HEED_DEVICE bool MeetsDocuments(int32_t tile) {
    return block_.Any([&](int t) {
      const int64_t key = static_cast<int64_t>(tile) * kKeys + t;
      if (t >= kKeys || key >= p_.kv_len) return false;
      const int32_t id = p_.documents.keys[batch_ * p_.documents.key_stride + key];
      return id >= documents_.begin && id <= documents_.end;
    });
  }

  // The nearest tile of which some row sees a key: tiles between are passed over at once.
  HEED_DEVICE int32_t NextOfPatterns(int32_t tile, int32_t end) {
    block_.Each([&](int t) {
      if (t >= kRows) return;
      PatternTile next = {end, 0};
      if (PackedRow(t) < p_.rows) {
        const int32_t id = PatternIdOf(p_, batch_, HeadOf(t), QueryOf(t));
        next = NextPatternTile<kKeys>(p_.patterns, id, tile, end);
      }
      row_tiles_.Store(t, t, next.tile);
      row_words_.Store(t, t, next.keys);
    });
    block_.Sync();
    Registers<int32_t, 1> least;
    block_.Each([&](int t) {
      least(t, 0) = end;
      EachRowOfLane(t, [&](int r) { Lower(least(t, 0), row_tiles_.Load(t, r)); });
    });
    block_.template GroupMin<kWarp>(least);
    int32_t nearest = end;
    block_.Each([&](int t) {
      nearest = least(t, 0);  // the same in every thread
      if (t < kRows && row_tiles_.Load(t, t) != nearest) row_words_.Store(t, t, 0);
    });
    return nearest;
  }

  HEED_DEVICE void CopyQueries() {
    CopyRows<Products, kRows, true>(block_, q_, p_.q, [&](int r) -> const char* {
      if (PackedRow(r) >= p_.rows) return nullptr;
      return RowOf(block_, p_.q, batch_, HeadOf(r), QueryOf(r), p_.fault);
    });
  }
  // Keys that no row sees are not read. Scales are those of their rows.
  HEED_DEVICE void CopyTile(Shared& to, SharedFloats& scales, const DeviceRows& rows,
                            int32_t tile) {
    const int64_t first = static_cast<int64_t>(tile) * kKeys;
    const RowKeys read = {InTile(keys_.begin - first), InTile(keys_.end - first)};
    if (rows.table == nullptr) {
      CopyRowsInLine<Products, kKeys>(block_, to, rows,
                                      rows.data + batch_ * rows.strides[0] +
                                          kv_head_ * rows.strides[1] + first * rows.strides[2],
                                      read);
    } else {
      CopyRows<Products, kKeys, true>(block_, to, rows, [&](int r) -> const char* {
        if (r < read.begin || r >= read.end) return nullptr;
        return RowOf(block_, rows, batch_, kv_head_, static_cast<int>(first) + r, p_.fault);
      });
    }
    block_.CommitCopies();
    if (rows.scales == nullptr) return;
    block_.Each([&](int t) {
      if (t >= kKeys || t < read.begin || t >= read.end) return;
      scales.Store(t, t, ScaleOf(rows, batch_, kv_head_, static_cast<int>(first) + t));
    });
  }
  // Adds the weighted values. Where some key is hidden and some value is not finite, 0 times that
  // value must not join: such values are taken out, and added to the rows that see them alone. The
  // others get the bits that they would have without.
  HEED_DEVICE void AddTile() {
    const bool some_hidden = block_.Any([&](int t) { return visible_(t, 0) != kAllVisible; });
    if (some_hidden && HasPoison<Products, 4>(block_, v_)) TakePoisonOut();
    Products::AddValues(block_, scores_, v_, out_);
  }

  // Calls body(element) for the thread's share of the values.
  template <class Body>
  HEED_DEVICE void EachValue(int t, const Body& body) {
    HEED_NO_UNROLL for (int i = t; i < kKeys * Products::kDim; i += kBlockThreads) {
      body(i / Products::kDim * kStride + i % Products::kDim);
    }
  }
  HEED_DEVICE void TakePoisonOut() {
    Registers<uint32_t, 1> positive;
    block_.Each([&](int t) {
      positive(t, 0) = 0;
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        if (scores_(t, n) > 0) positive(t, 0) |= 1u << n;
      }
    });
    AddPoison<Products>(block_, visible_, positive, v_, out_);
    block_.Sync();
    block_.Each([&](int t) {
      EachValue(t, [&](int at) {
        if (!IsFinite(Widen(v_.Load(t, at)))) v_.Store(t, at, Element{});
      });
    });
    block_.Sync();
  }

  // Whether a thread has sum n of its rows after MergeWarps(): a quarter of them each.
  HEED_DEVICE static bool Owns(int t, int n) {
    return !Products::kByKeys || n / (kOut / kBlockWarps) == t / kWarp;
  }
  // What the warps have of the same rows becomes one, in ascending order of their keys.
  HEED_DEVICE void MergeWarps() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        if (t % 4 != 0) continue;
        part_max_.Store(t, PartRow(t, half, t / kWarp), row_max_(t, half));
        part_sum_.Store(t, PartRow(t, half, t / kWarp), row_sum_(t, half));
      }
    });
    block_.Sync();
    block_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        float highest = row_max_(t, half);
        HEED_UNROLL for (int w = 0; w < kBlockWarps; ++w) {
          highest = fmaxf(highest, part_max_.Load(t, PartRow(t, half, w)));
        }
        float sum = 0;
        HEED_UNROLL for (int w = 0; w < kBlockWarps; ++w) {
          const float shrink = Exp(part_max_.Load(t, PartRow(t, half, w)) - Subtrahend(highest));
          sum += part_sum_.Load(t, PartRow(t, half, w)) * shrink;
        }
        const float shrink = Exp(row_max_(t, half) - Subtrahend(highest));
        const int at = PartRow(t, half, t / kWarp) * kStride;
        HEED_UNROLL for (int n = 0; n < kOut; ++n) {
          if (Products::Half(n) != half) continue;
          part_out_.Store(t, at + Products::Column(t % kWarp, n), out_(t, n) * shrink);
        }
        row_max_(t, half) = highest;
        row_sum_(t, half) = sum;
      }
    });
    block_.Sync();
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kOut; ++n) {
        if (!Owns(t, n)) continue;
        const int column = Products::Column(t % kWarp, n);
        out_(t, n) = 0;
        HEED_UNROLL for (int w = 0; w < kBlockWarps; ++w) {
          out_(t, n) += part_out_.Load(t, PartRow(t, Products::Half(n), w) * kStride + column);
        }
      }
    });
  }
  HEED_DEVICE static int PartRow(int t, int half, int warp) {
    return warp * kRows + RowInBlock(t, half);
  }

  HEED_DEVICE void StoreRows() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        const int r = RowInBlock(t, half);
        if (PackedRow(r) >= p_.rows) continue;
        const RowEnd end = FinishRow(p_, HeadOf(r), {row_max_(t, half), row_sum_(t, half)});
        if (SpeaksForRows(t) && p_.lse.data != nullptr) {
          StoreAs(DType::kFloat32, RowOfOutput(p_.lse, r), 0, end.lse);
        }
        if (p_.output.data == nullptr) continue;
        if (end.empty) {
          HEED_UNROLL for (int n = 0; n < kOut; ++n) {
            if (Products::Half(n) == half) out_(t, n) = 0;
          }
        }
        const float factor = end.empty ? 0 : end.factor;
        char* to = RowOfOutput(p_.output, r);
        if constexpr (Products::kByKeys) {
          HEED_UNROLL for (int n = 0; n < kOut; ++n) {
            const int d = Products::Column(t % kWarp, n);
            if (Products::Half(n) != half || d >= p_.v.width || !Owns(t, n)) continue;
            StoreAs(p_.output.dtype, to, d, out_(t, n) * factor);
          }
        } else {
          Products::template StoreRow<Block>(t, half, out_, factor, p_.output.dtype, p_.v.width,
                                             to);
        }
      }
    });
  }
  HEED_DEVICE char* RowOfOutput(const DeviceOutput& output, int row_in_block) const {
    return output.data + batch_ * output.strides[0] + HeadOf(row_in_block) * output.strides[1] +
           QueryOf(row_in_block) * output.strides[2];
  }

  HEED_DEVICE void StoreSplit() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        const int64_t row = PackedRow(RowInBlock(t, half));
        if (row >= p_.rows) continue;
        const int64_t at = (splits_.first + place_.split) * p_.rows + row;
        if (SpeaksForRows(t)) {
          p_.split_states[at] = {row_max_(t, half), row_sum_(t, half)};
        }
        HEED_UNROLL for (int n = 0; n < kOut; ++n) {
          const int d = Products::Column(t % kWarp, n);
          if (Products::Half(n) != half || d >= p_.v.width || !Owns(t, n)) continue;
          p_.split_values[at * p_.v.width + d] = out_(t, n);
        }
      }
    });
  }

  // All splits of the block's rows are stored.
  HEED_DEVICE void MergeRows() {
    block_.Each([&](int t) {
      HEED_NO_UNROLL for (int r = t / kWarp; r < kRows; r += kBlockThreads / kWarp) {
        if (PackedRow(r) < p_.rows)
          MergeRow<Block, kWarp>(p_, place_.unit, PackedRow(r), t % kWarp);
      }
    });
  }
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_ATTENTION_KERNEL_H_
