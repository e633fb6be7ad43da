// Gradients of keys and values: one block takes 64 keys of a KV head past the queries that see them
// and carries d_v = sum_i p_ij d_out_i and d_k = scale sum_i d_s_ij q_i. It is the kernel of
// forward with keys in the place of queries: k q^T, v d_out^T, then both products with rows of
// d_out and q. Query heads of a group are neighbours among the packed rows, so their sum has one
// order and needs no atomic additions.
#ifndef HEED_SRC_CUDA_GRADIENT_KEY_KERNEL_H_
#define HEED_SRC_CUDA_GRADIENT_KEY_KERNEL_H_

#include "src/cuda/gradient_tile.h"

namespace heed::cuda {

// Which sums a block carries. Both at once, where registers have room for them.
enum class KeySums { kBoth, kKeys, kValues };

// Products::kKeys packed rows are a tile.
template <class Block, class Products, KeySums kSums>
class KeyGradientKernel {
 public:
  static constexpr int kResident = 2;  // three spilled registers of 64 columns (nvcc 13.0)
  static constexpr int kBytes = (2 * kBlockRows + 4 * Products::kKeys) * Products::kStride *
                                    static_cast<int>(sizeof(typename Products::Element)) +
                                GradientRows<Block, Products::kKeys, 2>::kBytes;

  HEED_DEVICE KeyGradientKernel(Block& block, const GradientParams& params)
      : block_(block),
        params_(params),
        p_(params.attention),
        k_(block.template Allocate<Element>(kBlockRows * Products::kStride)),
        v_(block.template Allocate<Element>(kBlockRows * Products::kStride)),
        q_(block.template Allocate<Element>(kRows * Products::kStride)),
        next_q_(block.template Allocate<Element>(kRows * Products::kStride)),
        d_out_(block.template Allocate<Element>(kRows * Products::kStride)),
        next_d_out_(block.template Allocate<Element>(kRows * Products::kStride)),
        table_(block) {}

  // Early keys first: in causal attention more queries see them.
  HEED_DEVICE void Run(int64_t index) {
    const int64_t unit = index % p_.units;
    batch_ = static_cast<int>(unit / p_.num_kv_heads);
    kv_head_ = static_cast<int>(unit % p_.num_kv_heads);
    const int64_t first = index / p_.units * kBlockRows;
    const int64_t last = first + kBlockRows < p_.kv_len ? first + kBlockRows : p_.kv_len;
    keys_ = {static_cast<int32_t>(first), static_cast<int32_t>(last)};
    plain_ = IsPlain(p_);
    ordered_ = HasOrderedRows(p_);
    FindDocuments();
    if (kHasKeys) ClearCells<Products::kOut>(block_, d_k_);
    if (kHasValues) ClearCells<Products::kOut>(block_, d_v_);
    CopyOwn(k_, p_.k);
    if (kHasKeys) CopyOwn(v_, p_.v);
    block_.CommitCopies();
    VisitTiles();
    block_.template WaitCopies<0>();
    if (kHasKeys) Store(d_k_, params_.d_k, p_.k.width, p_.scale);
    if (kHasValues) Store(d_v_, params_.d_v, p_.v.width, 1.0f);
  }

 private:
  using Element = typename Products::Element;
  template <class T, int N>
  using Registers = typename Block::template Registers<T, N>;
  using Shared = typename Block::template Shared<Element>;
  static constexpr int kRows = Products::kKeys;
  static constexpr int kScores = Products::kScores;
  static constexpr bool kHasKeys = kSums != KeySums::kValues;
  static constexpr bool kHasValues = kSums != KeySums::kKeys;

  HEED_DEVICE void CopyOwn(Shared& to, const DeviceRows& from) {
    CopyKeys<Products, kBlockRows>(block_, to, from, batch_, kv_head_, keys_.begin, keys_.end,
                                   p_.fault);
  }

  // The next rows travel under the products of a tile.
  HEED_DEVICE void VisitTiles() {
    RowTile tile = NextTile(FirstTile());
    if (IsBehind(tile)) return;
    CopyTile(tile, q_, d_out_);
    table_.StoreArrivals(table_.Next());
    while (!IsBehind(tile)) {
      table_.TurnToNext();
      block_.template WaitCopies<0>();
      block_.Sync();  // all rows and their table are there, and those before are read
      const RowTile next = NextTile(tile.first + kRows);
      if (!IsBehind(next)) CopyTile(next, next_q_, next_d_out_);
      MultiplyTile();
      FindGradients<kScores, true, PairWant::kScore>(
          block_, p_, [&] { return RowsOfTile(tile.first); }, table_,
          PairTile{keys_.begin, plain_, tile.whole}, scores_, d_scores_, visible_,
          [](int, int, int, int, float) {});
      if (!IsBehind(next)) table_.StoreArrivals(table_.Next());
      const bool some_hidden = HidesSome<kScores>(block_, visible_);
      if (kHasValues) AddRows<Products>(block_, scores_, visible_, some_hidden, d_out_, d_v_);
      if (kHasKeys) AddRows<Products>(block_, d_scores_, visible_, some_hidden, q_, d_k_);
      Swap(q_, next_q_);
      Swap(d_out_, next_d_out_);
      tile = next;
    }
  }

  // Packed rows `first` on; `whole`: every one sees all keys of the block, by bounds alone.
  struct RowTile {
    int64_t first;
    bool whole;
  };
  HEED_DEVICE bool IsBehind(const RowTile& tile) const { return tile.first >= p_.rows; }
  HEED_DEVICE PackedRows RowsOfTile(int64_t first) const {
    return RowsFrom(batch_, kv_head_ * p_.group, p_.group, first, p_.rows);
  }

  HEED_DEVICE void CopyTile(const RowTile& tile, Shared& q, Shared& d_out) {
    const PackedRows rows = RowsOfTile(tile.first);
    CopyPacked<Products, kRows>(block_, q, p_.q, rows);
    CopyPacked<Products, kRows>(block_, d_out, params_.d_out, rows);
    block_.CommitCopies();
    table_.LoadArrivals(params_, rows);
  }

  // The first row of the first tile that may see a key of the block. Ends of bounds grow with the
  // rows where they are ordered.
  HEED_DEVICE int64_t FirstTile() {
    if (!ordered_) return 0;
    int64_t low = 0, high = (p_.rows + kRows - 1) / kRows;
    HEED_NO_UNROLL while (low < high) {
      const int64_t middle = (low + high) / 2;
      const RowsReach reach = ReachOfRows<kRows>(block_, p_, RowsOfTile(middle * kRows));
      if (reach.some.end > keys_.begin) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low * kRows;
  }

  // The first tile from `first` on of which some row may see a key of the block. What its rows see
  // is then in the next table, where somebody will ask.
  HEED_DEVICE RowTile NextTile(int64_t first) {
    HEED_NO_UNROLL for (; first < p_.rows; first += kRows) {
      const PackedRows rows = RowsOfTile(first);
      if (ordered_) {
        const RowsReach reach = ReachOfRows<kRows>(block_, p_, rows);
        if (reach.some.begin >= keys_.end) return {p_.rows, false};  // and so do all behind it
        if (plain_ && reach.all.begin <= keys_.begin && reach.all.end >= keys_.begin + kBlockRows) {
          return {first, true};
        }
      }
      table_.FillBounds(table_.Next(), p_, rows);
      if (plain_ && ordered_) return {first, false};
      if (table_.Meet(table_.Next(), p_, rows, keys_.begin, keys_.end, documents_)) {
        return {first, false};
      }
    }
    return {first, false};
  }

  // The documents of the block's keys.
  HEED_DEVICE void FindDocuments() {
    if (p_.documents.keys == nullptr) return;
    const int32_t* ids = p_.documents.keys + batch_ * p_.documents.key_stride;
    HEED_NO_UNROLL for (int key = keys_.begin; key < keys_.end; ++key) documents_.Add(ids[key]);
  }

  HEED_DEVICE void MultiplyTile() {
    ClearCells<kScores>(block_, scores_);
    ClearCells<kScores>(block_, d_scores_);
    Products::ScoreTile(block_, k_, q_, scores_);
    if (kHasKeys) Products::ScoreTile(block_, v_, d_out_, d_scores_);
  }

  HEED_DEVICE void Store(Registers<float, Products::kOut>& sums, const DeviceOutput& to, int width,
                         float factor) {
    if (to.data == nullptr) return;
    StoreSums<Products>(block_, sums, to.dtype, width, factor, [&](int r) -> char* {
      const int64_t key = keys_.begin + static_cast<int64_t>(r);
      if (key >= keys_.end) return nullptr;
      return to.data + batch_ * to.strides[0] + kv_head_ * to.strides[1] + key * to.strides[2];
    });
  }

  Block& block_;
  const GradientParams& params_;
  const AttentionParams& p_;
  Shared k_, v_, q_, next_q_, d_out_, next_d_out_;
  GradientRows<Block, kRows, 2> table_;

  int batch_, kv_head_;
  RowKeys keys_;            // of the block
  DocumentSpan documents_;  // of its keys
  bool plain_, ordered_;

  Registers<float, kScores> scores_, d_scores_;  // then weights and gradients of scores
  Registers<uint32_t, 1> visible_;               // a bit for each of them
  Registers<float, Products::kOut> d_k_, d_v_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GRADIENT_KEY_KERNEL_H_
