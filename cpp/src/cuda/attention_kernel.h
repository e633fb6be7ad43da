// Exact attention on the device: one block takes 64 packed rows of a KV head past the keys that
// they see, tile by tile, and carries a maximum, a sum and the weighted values of each row (online
// softmax; FlashAttention-2's loop: the next keys travel under softmax, the values under q k^T).
//
// Every step is a phase of the whole block (block.h), so the class also runs on the host.
#ifndef HEED_SRC_CUDA_ATTENTION_KERNEL_H_
#define HEED_SRC_CUDA_ATTENTION_KERNEL_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/combine_kernel.h"
#include "src/cuda/device.h"
#include "src/cuda/pairs.h"
#include "src/cuda/plugs.h"
#include "src/cuda/products.h"
#include "src/cuda/row_rules.h"
#include "src/cuda/rows_in_memory.h"
#include "src/cuda/schedule.h"

namespace heed::cuda {

template <class Products>
constexpr int SharedBytes() {
  constexpr int kElements = (kBlockRows + 2 * Products::kKeys) * Products::kStride;
  return kElements * static_cast<int>(sizeof(typename Products::Element)) +
         4 * kBlockRows * static_cast<int>(sizeof(int32_t)) +
         kBlockRows * static_cast<int>(sizeof(uint64_t));
}

template <class Block, class Products>
class AttentionKernel {
 public:
  HEED_DEVICE AttentionKernel(Block& block, const AttentionParams& params)
      : block_(block),
        p_(params),
        q_(block.template Allocate<Element>(kBlockRows * kStride)),
        k_(block.template Allocate<Element>(kKeys * kStride)),
        v_(block.template Allocate<Element>(kKeys * kStride)),
        row_begins_(block.template Allocate<int32_t>(kBlockRows)),
        row_ends_(block.template Allocate<int32_t>(kBlockRows)),
        row_documents_(block.template Allocate<int32_t>(kBlockRows)),
        row_tiles_(block.template Allocate<int32_t>(kBlockRows)),
        row_words_(block.template Allocate<uint64_t>(kBlockRows)) {}

  HEED_DEVICE void Run(int64_t index) {
    FindPlace(index);
    FindRows();
    FindKeys();
    Clear();
    VisitTiles(TilesOf(keys_.begin, keys_.end, kKeys, place_.split, splits_.count));
    FindPlace(Block::Opaque(static_cast<int>(index)));  // again: registers of tiles are dear
    block_.template GroupSum<4>(row_sum_);
    if (splits_.count == 1) return StoreRows();
    StoreSplit();
    if (p_.counters == nullptr) return;
    uint32_t* counter = p_.counters + place_.row_block * p_.units + place_.unit;
    if (block_.ArrivesLast(counter, static_cast<uint32_t>(splits_.count))) MergeRows();
  }

 private:
  using Element = typename Products::Element;
  template <class T, int N>
  using Registers = typename Block::template Registers<T, N>;
  using Shared = typename Block::template Shared<Element>;
  using SharedInts = typename Block::template Shared<int32_t>;
  static constexpr int kKeys = Products::kKeys;
  static constexpr int kStride = Products::kStride;
  static constexpr int kScores = Products::kScores;
  static constexpr int kOut = Products::kOut;
  static constexpr uint32_t kAllVisible = kScores == 32 ? ~0u : (1u << kScores % 32) - 1;
  static_assert(kScores <= 32, "a thread keeps what is visible as the bits of one word");

  // The place of half `half` of a thread's rows, and whether there is a row.
  HEED_DEVICE static int RowInBlock(int t, int half) {
    return t / kWarp * kWarpRows + t % kWarp / 4 + 8 * half;
  }
  HEED_DEVICE int64_t PackedRow(int row_in_block) const {
    return place_.row_block * kBlockRows + row_in_block;
  }
  HEED_DEVICE int QueryOf(int64_t row) const { return static_cast<int>(row / p_.group); }
  HEED_DEVICE int HeadOf(int64_t row) const {
    return kv_head_ * p_.group + static_cast<int>(row % p_.group);
  }

  HEED_DEVICE void FindPlace(int64_t index) {
    place_ = PlaceOfBlock(p_, index);
    splits_ = SplitsOf(p_, place_.unit);
    batch_ = place_.unit / p_.num_kv_heads;
    kv_head_ = place_.unit % p_.num_kv_heads;
  }

  // What each row may see. Rows behind the last one see nothing; in shared memory they are -1.
  HEED_DEVICE void FindRows() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        const int64_t row = PackedRow(RowInBlock(t, half));
        RowKeys keys = {0, 0};
        RowKeys shared = {-1, -1};
        int32_t document = -1;
        if (row < p_.rows) {
          keys = shared = KeysOf(t, half, row);
          document = DocumentOf(p_, batch_, QueryOf(row));
        }
        row_keys_(t, 2 * half) = keys.begin;
        row_keys_(t, 2 * half + 1) = keys.end;
        row_document_(t, half) = document;
        if (t % 4 != 0) continue;
        row_begins_.Store(t, RowInBlock(t, half), shared.begin);
        row_ends_.Store(t, RowInBlock(t, half), shared.end);
        row_documents_.Store(t, RowInBlock(t, half), document);
      }
    });
    block_.Sync();
  }

  HEED_DEVICE RowKeys KeysOf(int t, int half, int64_t row) {
    const int query = QueryOf(row);
    const int32_t length = LengthOf(block_, p_, batch_, query);
    position_(t, half) = PositionOf(p_.rules, batch_, query, p_.q_len, length);
    return HullOfRow(p_, batch_, HeadOf(row), query, position_(t, half), length);
  }

  // The keys that some row sees, those that all rows see, and the documents of the rows.
  HEED_DEVICE void FindKeys() {
    keys_ = {p_.kv_len, 0};
    full_ = {0, p_.kv_len};
    documents_ = {0x7fffffff, -1};
    HEED_NO_UNROLL for (int r = 0; r < kBlockRows; ++r) {
      const RowKeys row = {row_begins_.LoadUniform(r), row_ends_.LoadUniform(r)};
      const int32_t document = row_documents_.LoadUniform(r);
      if (row.begin < 0) continue;
      full_ = {Larger(full_.begin, row.begin), Smaller(full_.end, row.end)};
      if (row.begin == row.end) continue;
      keys_ = {Smaller(keys_.begin, row.begin), Larger(keys_.end, row.end)};
      if (document < 0) continue;
      documents_ = {Smaller(documents_.begin, document), Larger(documents_.end, document)};
    }
  }
  HEED_DEVICE static int32_t Smaller(int32_t a, int32_t b) { return a < b ? a : b; }
  HEED_DEVICE static int32_t Larger(int32_t a, int32_t b) { return a < b ? b : a; }

  HEED_DEVICE void Clear() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kOut; ++n) out_(t, n) = 0;
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        row_max_(t, half) = HasDenominator(p_.normalize) ? kMinusInfinity : 0.0f;
        row_sum_(t, half) = 0;
      }
    });
  }

  HEED_DEVICE void VisitTiles(TileSpan tiles) {
    int32_t tile = NextTile(tiles.begin, tiles.end);
    if (tile == tiles.end) return;
    CopyQueries();
    CopyTile(k_, p_.k, tile);
    while (tile < tiles.end) {
      CopyTile(v_, p_.v, tile);
      block_.template WaitCopies<1>();
      block_.Sync();  // keys (and queries) are there
      ScoreTile(tile);
      block_.Sync();  // keys, and the words of patterns, are read
      const int32_t next = NextTile(tile + 1, tiles.end);
      if (next < tiles.end) {
        CopyTile(k_, p_.k, next);
      } else {
        block_.CommitCopies();  // an empty group, so that the wait below means the values
      }
      Weigh(tile);
      block_.template WaitCopies<1>();
      AddTile();
      block_.Sync();  // values are read
      tile = next;
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
      if (t >= kBlockRows) return;
      PatternTile next = {end, 0};
      if (const int64_t row = PackedRow(t); row < p_.rows) {
        const int32_t id = PatternIdOf(p_, batch_, HeadOf(row), QueryOf(row));
        next = NextPatternTile<kKeys>(p_.patterns, id, tile, end);
      }
      row_tiles_.Store(t, t, next.tile);
      row_words_.Store(t, t, next.keys);
    });
    block_.Sync();
    int32_t nearest = end;
    HEED_NO_UNROLL for (int r = 0; r < kBlockRows; ++r) {
      nearest = Smaller(nearest, row_tiles_.LoadUniform(r));
    }
    block_.Each([&](int t) {
      if (t < kBlockRows && row_tiles_.Load(t, t) != nearest) row_words_.Store(t, t, 0);
    });
    return nearest;
  }

  HEED_DEVICE void CopyQueries() {
    CopyRows<Products, kBlockRows>(block_, q_, p_.q, [&](int r) -> const char* {
      const int64_t row = PackedRow(r);
      if (row >= p_.rows) return nullptr;
      return RowOf(block_, p_.q, batch_, HeadOf(row), QueryOf(row), p_.fault);
    });
  }
  // Keys that no row sees are not read.
  HEED_DEVICE void CopyTile(Shared& to, const DeviceRows& rows, int32_t tile) {
    CopyRows<Products, kKeys>(block_, to, rows, [&](int r) -> const char* {
      const int64_t key = static_cast<int64_t>(tile) * kKeys + r;
      if (key < keys_.begin || key >= keys_.end) return nullptr;
      return RowOf(block_, rows, batch_, kv_head_, static_cast<int>(key), p_.fault);
    });
    block_.CommitCopies();
  }

  HEED_DEVICE void ScoreTile(int32_t tile) {
    block_.Each([&](int t) { HEED_UNROLL for (int n = 0; n < kScores; ++n) scores_(t, n) = 0; });
    Products::ScoreTile(block_, q_, k_, scores_);
    const int64_t first = static_cast<int64_t>(tile) * kKeys;
    const bool whole = first >= full_.begin && first + kKeys <= full_.end &&
                       p_.documents.keys == nullptr && p_.keep.data == nullptr &&
                       p_.patterns.ids == nullptr;
    block_.Each([&](int t) {
      visible_(t, 0) = 0;
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        const int key = static_cast<int>(first) + n / 4 * 8 + AccumulatorCol(t % kWarp, n % 4);
        const int half = n % 4 / 2;
        float score = kMinusInfinity;
        if (whole || Sees(t, half, key)) score = ModifiedScore(t, half, key, scores_(t, n));
        scores_(t, n) = score;
        if (score != kMinusInfinity) visible_(t, 0) |= 1u << n;
      }
      // Rows behind the last one are stored nowhere: they must not call for the slow way below.
      if (PackedRow(RowInBlock(t, 0)) >= p_.rows) visible_(t, 0) |= kAllVisible & 0x33333333u;
      if (PackedRow(RowInBlock(t, 1)) >= p_.rows) visible_(t, 0) |= kAllVisible & 0xccccccccu;
    });
  }

  HEED_DEVICE bool Sees(int t, int half, int key) {
    if (key < row_keys_(t, 2 * half) || key >= row_keys_(t, 2 * half + 1)) return false;
    const int row_in_block = RowInBlock(t, half);
    if (p_.patterns.ids != nullptr && (row_words_.Load(t, row_in_block) >> key % kKeys & 1) == 0) {
      return false;
    }
    const int64_t row = PackedRow(row_in_block);
    return SeesKey(p_, batch_, HeadOf(row), QueryOf(row), row_document_(t, half), key);
  }

  // The score of a visible pair; a bias of -inf hides it.
  HEED_DEVICE float ModifiedScore(int t, int half, int key, float dot) {
    if (p_.q.scales != nullptr) dot *= ScaleOf(p_.q, batch_, kv_head_, 0);
    if (p_.k.scales != nullptr) dot *= ScaleOf(p_.k, batch_, kv_head_, key);
    const float score = ScaledScore(p_, dot);
    const int64_t row = PackedRow(RowInBlock(t, half));
    if (row >= p_.rows) return score;
    return BiasedScore(p_, batch_, HeadOf(row), QueryOf(row), position_(t, half), key, score);
  }

  // Scores become weights, and join the sums of their rows.
  HEED_DEVICE void Weigh(int32_t tile) {
    if (HasDenominator(p_.normalize)) {
      RaiseMaximum();
      block_.Each([&](int t) {
        HEED_UNROLL for (int n = 0; n < kScores; ++n) {
          const int half = n % 4 / 2;
          scores_(t, n) = Exp(scores_(t, n) - Subtrahend(row_max_(t, half)));
          row_sum_(t, half) += scores_(t, n);
        }
      });
    } else {
      block_.Each([&](int t) {
        HEED_UNROLL for (int n = 0; n < kScores; ++n) {
          const bool visible = (visible_(t, 0) >> n & 1) != 0;
          scores_(t, n) = visible ? PointwiseWeight(p_, scores_(t, n)) : 0.0f;
          row_sum_(t, n % 4 / 2) += visible ? 1.0f : 0.0f;
        }
      });
    }
    if (p_.dropout.keep_factor != 0) Drop(tile);
    if (p_.v.scales != nullptr) ScaleValues(tile);
  }

  // What values of 8 bits are multiplied by joins their weights.
  HEED_DEVICE void ScaleValues(int32_t tile) {
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        const int key = tile * kKeys + n / 4 * 8 + AccumulatorCol(t % kWarp, n % 4);
        const bool visible = PackedRow(RowInBlock(t, n % 4 / 2)) < p_.rows && key < p_.kv_len &&
                             (visible_(t, 0) >> n & 1) != 0;
        if (visible) scores_(t, n) *= ScaleOf(p_.v, batch_, kv_head_, key);
      }
    });
  }

  // The running maximum takes the tile in; sums so far shrink to match.
  HEED_DEVICE void RaiseMaximum() {
    Registers<float, 2> highest;
    block_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) highest(t, half) = row_max_(t, half);
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        highest(t, n % 4 / 2) = fmaxf(highest(t, n % 4 / 2), scores_(t, n));
      }
    });
    block_.template GroupMax<4>(highest);
    block_.Each([&](int t) {
      float shrink[2];
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        shrink[half] = Exp(row_max_(t, half) - Subtrahend(highest(t, half)));
        row_max_(t, half) = highest(t, half);
        row_sum_(t, half) *= shrink[half];
      }
      HEED_UNROLL for (int n = 0; n < kOut; ++n) out_(t, n) *= shrink[Products::Half(n)];
    });
  }

  // Dropped weights become 0; sums are those of all weights. Two neighbouring keys share a counter.
  HEED_DEVICE void Drop(int32_t tile) {
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kScores; n += 2) {
        const int64_t row = PackedRow(RowInBlock(t, n % 4 / 2));
        const int key = tile * kKeys + n / 4 * 8 + AccumulatorCol(t % kWarp, 0);
        uint32_t words[4];
        DropoutWords(p_.dropout, batch_, HeadOf(row), QueryOf(row), key, words);
        const bool upper = key % 4 != 0;
        const uint32_t pair[2] = {upper ? words[2] : words[0], upper ? words[3] : words[1]};
        HEED_UNROLL for (int e = 0; e < 2; ++e) {
          scores_(t, n + e) *= pair[e] >= p_.dropout.threshold ? p_.dropout.keep_factor : 0.0f;
        }
      }
    });
  }

  // Adds the weighted values. Where some key is hidden and some value is not finite, 0 times that
  // value must not join: such values are taken out, and added to the rows that see them alone. The
  // others get the bits that they would have without.
  HEED_DEVICE void AddTile() {
    const bool some_hidden = block_.Any([&](int t) { return visible_(t, 0) != kAllVisible; });
    if (some_hidden && HasPoison()) TakePoisonOut();
    Products::AddValues(block_, scores_, v_, out_);
  }

  // Calls body(element) for the thread's share of the values.
  template <class Body>
  HEED_DEVICE void EachValue(int t, const Body& body) {
    HEED_NO_UNROLL for (int i = t; i < kKeys * Products::kDim; i += kBlockThreads) {
      body(i / Products::kDim * kStride + i % Products::kDim);
    }
  }
  HEED_DEVICE bool HasPoison() {
    return block_.Any([&](int t) {
      bool finite = true;
      EachValue(t, [&](int at) { finite = finite && IsFinite(Widen(v_.Load(t, at))); });
      return !finite;
    });
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

  HEED_DEVICE void StoreRows() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        const int64_t row = PackedRow(RowInBlock(t, half));
        if (row >= p_.rows) continue;
        const RowEnd end = FinishRow(p_, HeadOf(row), {row_max_(t, half), row_sum_(t, half)});
        if (t % 4 == 0 && p_.lse.data != nullptr) {
          StoreAs(DType::kFloat32, RowOfOutput(p_.lse, row), 0, end.lse);
        }
        if (p_.output.data == nullptr) continue;
        char* to = RowOfOutput(p_.output, row);
        HEED_UNROLL for (int n = 0; n < kOut; ++n) {
          const int d = Products::Column(t % kWarp, n);
          if (Products::Half(n) != half || d >= p_.v.width) continue;
          StoreAs(p_.output.dtype, to, d, end.empty ? 0.0f : out_(t, n) * end.factor);
        }
      }
    });
  }
  HEED_DEVICE char* RowOfOutput(const DeviceOutput& output, int64_t row) const {
    return output.data + batch_ * output.strides[0] + HeadOf(row) * output.strides[1] +
           QueryOf(row) * output.strides[2];
  }

  HEED_DEVICE void StoreSplit() {
    block_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        const int64_t row = PackedRow(RowInBlock(t, half));
        if (row >= p_.rows) continue;
        const int64_t at = (splits_.first + place_.split) * p_.rows + row;
        if (t % 4 == 0) {
          p_.split_max[at] = row_max_(t, half);
          p_.split_sum[at] = row_sum_(t, half);
        }
        HEED_UNROLL for (int n = 0; n < kOut; ++n) {
          const int d = Products::Column(t % kWarp, n);
          if (Products::Half(n) != half || d >= p_.v.width) continue;
          p_.split_values[at * p_.v.width + d] = out_(t, n);
        }
      }
    });
  }

  // All splits of the block's rows are stored.
  HEED_DEVICE void MergeRows() {
    block_.Each([&](int t) {
      HEED_NO_UNROLL for (int r = t / kWarp; r < kBlockRows; r += kBlockThreads / kWarp) {
        if (PackedRow(r) < p_.rows) MergeRow<kWarp>(p_, place_.unit, PackedRow(r), t % kWarp);
      }
    });
  }

  Block& block_;
  const AttentionParams& p_;
  Shared q_, k_, v_;
  SharedInts row_begins_, row_ends_, row_documents_, row_tiles_;
  typename Block::template Shared<uint64_t> row_words_;  // of a tile, where there are patterns

  BlockPlace place_;
  UnitSplits splits_;
  int batch_, kv_head_;
  RowKeys keys_;       // that some row sees
  RowKeys full_;       // that all rows see
  RowKeys documents_;  // the smallest and the largest id of the rows

  Registers<float, kScores> scores_;    // then weights
  Registers<uint32_t, 1> visible_;      // a bit for each of them
  Registers<float, kOut> out_;          // sums of weighted values
  Registers<float, 2> row_max_;         // alike in a quad
  Registers<float, 2> row_sum_;         // of the thread's own columns, until the end
  Registers<int32_t, 4> row_keys_;      // begin, end; begin, end
  Registers<int32_t, 2> row_document_;  // -1: none
  Registers<int64_t, 2> position_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_ATTENTION_KERNEL_H_
