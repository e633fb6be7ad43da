// The rows of a block of attention: which queries they are and which keys they see
// (attention_kernel.h).
#ifndef HEED_SRC_CUDA_ATTENTION_ROWS_H_
#define HEED_SRC_CUDA_ATTENTION_ROWS_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"
#include "src/cuda/fragments.h"
#include "src/cuda/pairs.h"
#include "src/cuda/products.h"
#include "src/cuda/row_rules.h"
#include "src/cuda/schedule.h"

namespace heed::cuda {

template <class Products>
constexpr int SharedBytes() {
  constexpr int kRows = Products::kRows;
  constexpr int kElements = (kRows + 2 * Products::kKeys) * Products::kStride;
  return kElements * static_cast<int>(sizeof(typename Products::Element)) +
         4 * kRows * static_cast<int>(sizeof(int32_t)) +
         2 * Products::kKeys * static_cast<int>(sizeof(float)) +
         (Products::kByKeys ? kBlockWarps * (kRows * (Products::kStride + 2)) : 0) *
             static_cast<int>(sizeof(float));
}

// What the phases of a block of attention share: its rows, its shared memory and its registers.
template <class Block, class Products>
class AttentionRows {
 protected:
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

  HEED_DEVICE AttentionRows(Block& block, const AttentionParams& params)
      : block_(block),
        p_(params),
        q_(block.template Allocate<Element>(kRows * kStride)),
        k_(block.template Allocate<Element>(kKeys * kStride)),
        v_(block.template Allocate<Element>(kKeys * kStride)),
        row_queries_(block.template Allocate<int32_t>(kRows)),
        row_hulls_(block.template Allocate<int32_t>(2 * kRows)),
        row_documents_(block.template Allocate<int32_t>(kRows)),
        row_tiles_(row_documents_),
        row_words_(block.template View<uint64_t>(row_hulls_)),
        key_scales_(block.template Allocate<float>(kKeys)),
        value_scales_(block.template Allocate<float>(kKeys)),
        part_max_(block.template Allocate<float>(kPartRows)),
        part_sum_(block.template Allocate<float>(kPartRows)),
        part_out_(block.template Allocate<float>(kPartRows * kStride)) {}

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
    place_ = PlaceOfBlock(p_, index, p_.row_blocks);
    splits_ = SplitsOf(p_, place_.unit);
    batch_ = place_.unit / p_.num_kv_heads;
    kv_head_ = place_.unit - batch_ * p_.num_kv_heads;
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
        row_hulls_.Store(t, r, shared.begin);
        row_hulls_.Store(t, kRows + r, shared.end);
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
        const RowKeys row = {row_hulls_.Load(t, r), row_hulls_.Load(t, kRows + r)};
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
  HEED_DEVICE static int InTile(int64_t key) {
    return static_cast<int>(key < 0 ? 0 : key > kKeys ? kKeys : key);
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
  Block& block_;
  const AttentionParams& p_;
  Shared q_, k_, v_;
  SharedInts row_queries_;
  SharedInts row_hulls_, row_documents_;  // of FindRows() for FindKeys()
  // Where there are patterns, the next tile of each row and its keys there, in the places of those.
  SharedInts row_tiles_;
  typename Block::template Shared<uint64_t> row_words_;
  SharedFloats key_scales_, value_scales_;       // of a tile, where there are scales
  SharedFloats part_max_, part_sum_, part_out_;  // of the warps, where each has keys

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

#endif  // HEED_SRC_CUDA_ATTENTION_ROWS_H_
