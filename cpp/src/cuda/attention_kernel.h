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
#include "src/cuda/finite.h"
#include "src/cuda/pairs.h"
#include "src/cuda/plugs.h"
#include "src/cuda/products.h"
#include "src/cuda/row_rules.h"
#include "src/cuda/rows_in_memory.h"
#include "src/cuda/schedule.h"

namespace heed::cuda {

template <class Products>
constexpr int SharedBytes() {
  constexpr int kRows = Products::kRows;
  constexpr int kElements = (kRows + 2 * Products::kKeys) * Products::kStride;
  return kElements * static_cast<int>(sizeof(typename Products::Element)) +
         5 * kRows * static_cast<int>(sizeof(int32_t)) +
         kRows * static_cast<int>(sizeof(uint64_t)) +
         2 * Products::kKeys * static_cast<int>(sizeof(float)) +
         (Products::kByKeys ? kBlockWarps * (kRows * (Products::kStride + 2)) : 0) *
             static_cast<int>(sizeof(float));
}

template <class Block, class Products>
class AttentionKernel {
 public:
  HEED_DEVICE AttentionKernel(Block& block, const AttentionParams& params)
      : block_(block),
        p_(params),
        q_(block.template Allocate<Element>(kRows * kStride)),
        k_(block.template Allocate<Element>(kKeys * kStride)),
        v_(block.template Allocate<Element>(kKeys * kStride)),
        row_queries_(block.template Allocate<int32_t>(kRows)),
        row_begins_(block.template Allocate<int32_t>(kRows)),
        row_ends_(block.template Allocate<int32_t>(kRows)),
        row_documents_(block.template Allocate<int32_t>(kRows)),
        row_tiles_(block.template Allocate<int32_t>(kRows)),
        row_words_(block.template Allocate<uint64_t>(kRows)),
        key_scales_(block.template Allocate<float>(kKeys)),
        value_scales_(block.template Allocate<float>(kKeys)),
        part_max_(block.template Allocate<float>(kPartRows)),
        part_sum_(block.template Allocate<float>(kPartRows)),
        part_out_(block.template Allocate<float>(kPartRows * kStride)) {}

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
  using Element = typename Products::Element;
  template <class T, int N>
  using Registers = typename Block::template Registers<T, N>;
  using Shared = typename Block::template Shared<Element>;
  using SharedInts = typename Block::template Shared<int32_t>;
  using SharedFloats = typename Block::template Shared<float>;
  static constexpr int kKeys = Products::kKeys;
  static constexpr int kStride = Products::kStride;
  static constexpr int kRows = Products::kRows;
  // Rows of the parts that warps merge, where each has keys of its own.
  static constexpr int kPartRows = Products::kByKeys ? kBlockWarps * kRows : 0;
  static constexpr int kScores = Products::kScores;
  static constexpr int kOut = Products::kOut;
  static constexpr uint32_t kAllVisible = kScores == 32 ? ~0u : (1u << kScores % 32) - 1;
  static_assert(kScores <= 32, "a thread keeps what is visible as the bits of one word");

  // The place of half `half` of a thread's rows, and whether there is a row.
  HEED_DEVICE static int RowInBlock(int t, int half) {
    return Products::FirstRow(t) + t % kWarp / 4 + 8 * half;
  }
  HEED_DEVICE int64_t PackedRow(int row_in_block) const {
    return place_.row_block * kRows + row_in_block;
  }
  // The one of the threads of two rows that stores what is said of them once.
  HEED_DEVICE static bool SpeaksForRows(int t) {
    return t % 4 == 0 && (!Products::kByKeys || t < kWarp);
  }
  // Of a row that exists, after FindRows().
  HEED_DEVICE int QueryOf(int row_in_block) const { return row_queries_.LoadUniform(row_in_block); }
  HEED_DEVICE int HeadOf(int row_in_block) const {
    const int64_t first = int64_t{QueryOf(row_in_block)} * p_.group;
    return kv_head_ * p_.group + static_cast<int>(PackedRow(row_in_block) - first);
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
      if (t < kRows) row_queries_.Store(t, t, QueryOfRow(p_, PackedRow(t)));
    });
    block_.Sync();
    block_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        const int r = RowInBlock(t, half);
        RowKeys keys = {0, 0};
        RowKeys shared = {-1, -1};
        int32_t document = -1;
        if (PackedRow(r) < p_.rows) {
          keys = shared = KeysOf(t, half);
          document = DocumentOf(p_, batch_, QueryOf(r));
        }
        row_keys_(t, 2 * half) = keys.begin;
        row_keys_(t, 2 * half + 1) = keys.end;
        row_document_(t, half) = document;
        if (!SpeaksForRows(t)) continue;
        row_begins_.Store(t, r, shared.begin);
        row_ends_.Store(t, r, shared.end);
        row_documents_.Store(t, r, document);
      }
    });
    block_.Sync();
  }

  HEED_DEVICE RowKeys KeysOf(int t, int half) {
    const int r = RowInBlock(t, half);
    const int query = QueryOf(r);
    const int32_t length = LengthOf(block_, p_, batch_, query);
    position_(t, half) = PositionOf(p_.rules, batch_, query, p_.q_len, length);
    return HullOfRow(p_, batch_, HeadOf(r), query, position_(t, half), length);
  }

  // The keys that some row sees, those that all rows see, and the documents of the rows. Every warp
  // finds them for itself.
  //
  // Minima are minima, and no maxima of negated numbers: for those of three ptxas 13.0 made code
  // that forgot a sign (sm_90a, VIMNMX3).
  HEED_DEVICE void FindKeys() {
    Registers<int32_t, 3> least, most;  // begin and end: of some row, of all rows, of documents
    block_.Each([&](int t) {
      least(t, 0) = p_.kv_len, most(t, 0) = 0;
      least(t, 1) = p_.kv_len, most(t, 1) = 0;
      least(t, 2) = 0x7fffffff, most(t, 2) = -1;
      EachRowOfLane(t, [&](int r) {
        const RowKeys row = {row_begins_.Load(t, r), row_ends_.Load(t, r)};
        const int32_t document = row_documents_.Load(t, r);
        if (row.begin < 0) return;
        Lower(least(t, 1), row.end), Raise(most(t, 1), row.begin);
        if (row.begin == row.end) return;
        Lower(least(t, 0), row.begin), Raise(most(t, 0), row.end);
        if (document >= 0) Lower(least(t, 2), document), Raise(most(t, 2), document);
      });
    });
    block_.template GroupMin<kWarp>(least);
    block_.template GroupMax<kWarp>(most);
    block_.Each([&](int t) {  // the same in every thread
      keys_ = {least(t, 0), most(t, 0)};
      full_ = {most(t, 1), least(t, 1)};
      documents_ = {least(t, 2), most(t, 2)};
    });
  }
  // Calls body(r) for a lane's share of the rows of the block.
  template <class Body>
  HEED_DEVICE static void EachRowOfLane(int t, const Body& body) {
    HEED_UNROLL for (int first = 0; first < kRows; first += kWarp) {
      if (const int r = first + t % kWarp; r < kRows) body(r);
    }
  }
  HEED_DEVICE static void Lower(int32_t& a, int32_t b) { a = b < a ? b : a; }
  HEED_DEVICE static void Raise(int32_t& a, int32_t b) { a = a < b ? b : a; }

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

  HEED_DEVICE static int InTile(int64_t key) {
    return static_cast<int>(key < 0 ? 0 : key > kKeys ? kKeys : key);
  }

  // What few calls ask for is a pass of its own over the scores, which others step over: in one
  // loop with the rest it would fill the instruction cache with code that does not run.
  HEED_DEVICE void ScoreTile(int32_t tile) {
    block_.Each([&](int t) { HEED_UNROLL for (int n = 0; n < kScores; ++n) scores_(t, n) = 0; });
    Products::ScoreTile(block_, q_, k_, scores_);
    const int64_t first = static_cast<int64_t>(tile) * kKeys;
    const bool whole = first >= full_.begin && first + kKeys <= full_.end &&
                       p_.documents.keys == nullptr && p_.keep.data == nullptr &&
                       p_.patterns.ids == nullptr;
    block_.Each([&](int t) { visible_(t, 0) = kAllVisible; });
    if (!whole) FindVisible(static_cast<int>(first));
    ScaleScores(static_cast<int>(first));
    if (p_.bias.data != nullptr) AddBias(static_cast<int>(first));
    if (p_.alibi_slopes != nullptr) AddAlibi(static_cast<int>(first));
    block_.Each([&](int t) {
      uint32_t visible = 0;
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        if ((visible_(t, 0) >> n & 1) == 0) scores_(t, n) = kMinusInfinity;
        if (scores_(t, n) != kMinusInfinity) visible |= 1u << n;
      }
      // Rows behind the last one are stored nowhere: they must not call for the slow way below.
      if (PackedRow(RowInBlock(t, 0)) >= p_.rows) visible |= kAllVisible & 0x33333333u;
      if (PackedRow(RowInBlock(t, 1)) >= p_.rows) visible |= kAllVisible & 0xccccccccu;
      visible_(t, 0) = visible;
    });
  }

  // Score n of a thread is that of key `first` + KeyInTile(t, n).
  HEED_DEVICE static int KeyInTile(int t, int n) {
    return Products::FirstKey(t) + n / 4 * 8 + AccumulatorCol(t % kWarp, n % 4);
  }
  // Calls body(n, half, key) for the scores of a thread that are visible so far.
  template <class Body>
  HEED_DEVICE void EachVisible(int t, int first, const Body& body) {
    HEED_UNROLL for (int n = 0; n < kScores; ++n) {
      if ((visible_(t, 0) >> n & 1) != 0) body(n, n % 4 / 2, first + KeyInTile(t, n));
    }
  }
  HEED_DEVICE void HideScore(int t, int n) { visible_(t, 0) &= ~(1u << n); }

  HEED_DEVICE void FindVisible(int first) {
    block_.Each([&](int t) {
      uint32_t visible = 0;
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        const int half = n % 4 / 2;
        const int key = first + KeyInTile(t, n);
        const bool sees = key >= row_keys_(t, 2 * half) && key < row_keys_(t, 2 * half + 1);
        if (sees) visible |= 1u << n;
      }
      visible_(t, 0) = visible;
    });
    if (p_.patterns.ids != nullptr) KeepPatterns(first);
    if (p_.documents.keys != nullptr) KeepDocuments(first);
    if (p_.keep.data != nullptr) KeepPairs(first);
  }
  HEED_DEVICE void KeepPatterns(int first) {
    block_.Each([&](int t) {
      const uint64_t words[2] = {row_words_.Load(t, RowInBlock(t, 0)),
                                 row_words_.Load(t, RowInBlock(t, 1))};
      EachVisible(t, first, [&](int n, int half, int key) {
        if ((words[half] >> key % kKeys & 1) == 0) HideScore(t, n);
      });
    });
  }
  HEED_DEVICE void KeepDocuments(int first) {
    block_.Each([&](int t) {
      const int32_t* ids = p_.documents.keys + batch_ * p_.documents.key_stride;
      EachVisible(t, first, [&](int n, int half, int key) {
        const int32_t id = ids[key];
        if (id < 0 || id != row_document_(t, half)) HideScore(t, n);
      });
    });
  }
  HEED_DEVICE void KeepPairs(int first) {
    block_.Each([&](int t) {
      const uint8_t* of_row[2] = {PairsOfRow(p_.keep, t, 0), PairsOfRow(p_.keep, t, 1)};
      EachVisible(t, first, [&](int n, int half, int key) {
        if (of_row[half][key * p_.keep.strides[3]] == 0) HideScore(t, n);
      });
    });
  }
  // Where the pairs of a thread's row begin; rows behind the last one have none that is read.
  template <class T>
  HEED_DEVICE const T* PairsOfRow(const DevicePairs<T>& pairs, int t, int half) const {
    const int r = RowInBlock(t, half);
    return pairs.data + batch_ * pairs.strides[0] + HeadOf(r) * pairs.strides[1] +
           QueryOf(r) * pairs.strides[2];
  }

  HEED_DEVICE void ScaleScores(int first) {
    if (p_.q.scales != nullptr) MultiplyScores(ScaleOf(p_.q, batch_, kv_head_, 0));
    if (p_.k.scales != nullptr) {
      block_.Each([&](int t) {
        EachVisible(t, first, [&](int n, int /*half*/, int /*key*/) {
          scores_(t, n) *= key_scales_.Load(t, KeyInTile(t, n));
        });
      });
    }
    if (p_.normalize == Normalize::kAverage) {  // not even NaN matters
      block_.Each([&](int t) { HEED_UNROLL for (int n = 0; n < kScores; ++n) scores_(t, n) = 0; });
    }
    MultiplyScores(p_.scale);
    if (p_.softcap != 0) {
      block_.Each([&](int t) {
        HEED_UNROLL for (int n = 0; n < kScores; ++n) scores_(t, n) = Capped(p_, scores_(t, n));
      });
    }
  }
  HEED_DEVICE void MultiplyScores(float factor) {
    block_.Each(
        [&](int t) { HEED_UNROLL for (int n = 0; n < kScores; ++n) scores_(t, n) *= factor; });
  }

  // A bias of -inf hides its key.
  HEED_DEVICE void AddBias(int first) {
    block_.Each([&](int t) {
      const float* of_row[2] = {PairsOfRow(p_.bias, t, 0), PairsOfRow(p_.bias, t, 1)};
      const bool exists[2] = {PackedRow(RowInBlock(t, 0)) < p_.rows,
                              PackedRow(RowInBlock(t, 1)) < p_.rows};
      EachVisible(t, first, [&](int n, int half, int key) {
        if (!exists[half]) return;
        const float bias = of_row[half][key * p_.bias.strides[3]];
        if (bias == kMinusInfinity) HideScore(t, n);
        scores_(t, n) += bias;
      });
    });
  }
  HEED_DEVICE void AddAlibi(int first) {
    block_.Each([&](int t) {
      float slopes[2] = {0, 0};
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        const int r = RowInBlock(t, half);
        if (PackedRow(r) < p_.rows) slopes[half] = p_.alibi_slopes[HeadOf(r)];
      }
      EachVisible(t, first, [&](int n, int half, int key) {
        const float distance = static_cast<float>(position_(t, half) - key);
        scores_(t, n) = AlibiScore(scores_(t, n), slopes[half], distance);
      });
    });
  }

  // Scores become weights, and join the sums of their rows.
  HEED_DEVICE void Weigh(int32_t tile) {
    if (HasDenominator(p_.normalize)) {
      RaiseMaximum();
      block_.Each([&](int t) {
        const float subtrahend[2] = {Subtrahend(row_max_(t, 0)), Subtrahend(row_max_(t, 1))};
        HEED_UNROLL for (int n = 0; n < kScores; ++n) {
          const int half = n % 4 / 2;
          scores_(t, n) = Exp(scores_(t, n) - subtrahend[half]);
          row_sum_(t, half) += scores_(t, n);
        }
      });
    } else {
      WithPointwiseWeight(p_, [&](const auto& weight) {
        block_.Each([&](int t) {
          HEED_UNROLL for (int n = 0; n < kScores; ++n) {
            const bool visible = (visible_(t, 0) >> n & 1) != 0;
            scores_(t, n) = visible ? weight(scores_(t, n)) : 0.0f;
            row_sum_(t, n % 4 / 2) += visible ? 1.0f : 0.0f;
          }
        });
      });
    }
    if (p_.dropout.keep_factor != 0) Drop(tile);
    if (p_.v.scales != nullptr) ScaleValues();
  }

  // What values of 8 bits are multiplied by joins their weights.
  HEED_DEVICE void ScaleValues() {
    block_.Each([&](int t) {
      EachVisible(t, 0, [&](int n, int half, int key) {
        if (PackedRow(RowInBlock(t, half)) < p_.rows) scores_(t, n) *= value_scales_.Load(t, key);
      });
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
        const int r = RowInBlock(t, n % 4 / 2);
        const int key = tile * kKeys + KeyInTile(t, n);
        uint32_t words[4];
        DropoutWords(p_.dropout, batch_, HeadOf(r), QueryOf(r), key, words);
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
    constexpr int kChunk = 16 / static_cast<int>(sizeof(Element));
    constexpr int kChunks = Products::kDim / kChunk;
    return block_.Any([&](int t) {
      bool finite = true;
      HEED_UNROLL for (int n = 0; n < kKeys * kChunks / kBlockThreads; ++n) {
        const int c = t + n * kBlockThreads;
        finite = AllFinite(Element{}, t, c / kChunks * kStride + c % kChunks * kChunk) && finite;
      }
      return !finite;
    });
  }
  // Whether the 16 bytes of values from element `at` on are all finite.
  HEED_DEVICE bool AllFinite(float, int t, int at) {
    float x[4];
    v_.LoadFour(t, at, x);
    return IsFinite(x[0]) && IsFinite(x[1]) && IsFinite(x[2]) && IsFinite(x[3]);
  }
  template <class T>
  HEED_DEVICE bool AllFinite(T type, int t, int at) {
    uint32_t pairs[4];
    v_.LoadEight(t, at, pairs);
    bool finite = true;
    HEED_UNROLL for (int n = 0; n < 4; ++n) {
      finite = finite && !IsNotFinite(type, static_cast<uint16_t>(pairs[n])) &&
               !IsNotFinite(type, static_cast<uint16_t>(pairs[n] >> 16));
    }
    return finite;
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
          p_.split_max[at] = row_max_(t, half);
          p_.split_sum[at] = row_sum_(t, half);
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
        if (PackedRow(r) < p_.rows) MergeRow<kWarp>(p_, place_.unit, PackedRow(r), t % kWarp);
      }
    });
  }

  Block& block_;
  const AttentionParams& p_;
  Shared q_, k_, v_;
  SharedInts row_queries_, row_begins_, row_ends_, row_documents_, row_tiles_;
  typename Block::template Shared<uint64_t> row_words_;  // of a tile, where there are patterns
  SharedFloats key_scales_, value_scales_;               // of a tile, where there are scales
  SharedFloats part_max_, part_sum_, part_out_;          // of the warps, where each has keys

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
