// Gradients of queries: one block takes 64 packed rows of a KV head past the keys that they see,
// as the kernel of forward does, and carries d_q = scale sum_j d_s_ij k_j (FlashAttention-2, Dao
// 2023, arXiv:2307.08691, section 3.1.2, without its atomic additions).
#ifndef HEED_SRC_CUDA_GRADIENT_QUERY_KERNEL_H_
#define HEED_SRC_CUDA_GRADIENT_QUERY_KERNEL_H_

#include "src/cuda/gradient_tile.h"
#include "src/cuda/schedule.h"

namespace heed::cuda {

template <class Block, class Products>
class QueryGradientKernel {
 public:
  static constexpr int kResident = kResidentOf<Products>;
  static constexpr int kBytes = (2 * kBlockRows + 3 * Products::kKeys) * Products::kStride *
                                    static_cast<int>(sizeof(typename Products::Element)) +
                                GradientRows<Block, kBlockRows>::kBytes;

  HEED_DEVICE QueryGradientKernel(Block& block, const GradientParams& params)
      : block_(block),
        params_(params),
        p_(params.attention),
        q_(block.template Allocate<Element>(kBlockRows * Products::kStride)),
        d_out_(block.template Allocate<Element>(kBlockRows * Products::kStride)),
        k_(block.template Allocate<Element>(kKeys * Products::kStride)),
        next_k_(block.template Allocate<Element>(kKeys * Products::kStride)),
        v_(block.template Allocate<Element>(kKeys * Products::kStride)),
        table_(block) {}

  HEED_DEVICE void Run(int64_t index) {
    const BlockPlace place = PlaceOf(index, p_.row_blocks, p_.units, 1);
    kv_head_ = place.unit % p_.num_kv_heads;
    rows_ = RowsFrom(place.unit / p_.num_kv_heads, kv_head_ * p_.group, p_.group,
                     place.row_block * kBlockRows, p_.rows);
    plain_ = IsPlain(p_) && params_.slope_terms == nullptr;
    table_.LoadArrivals(params_, rows_);
    table_.FillBounds(0, p_, rows_);
    table_.StoreArrivals(0);
    block_.Sync();
    if (HasOrderedRows(p_) && p_.patterns.ids == nullptr) {
      reach_ = ReachOfRows<kBlockRows>(block_, p_, rows_);
    } else {
      reach_ = table_.Reach(p_.kv_len);
    }
    if (p_.documents.keys != nullptr) documents_ = table_.Documents();
    ClearCells<Products::kOut>(block_, d_q_);
    ClearCells<2>(block_, slope_terms_);
    VisitTiles();
    Store();
  }

 private:
  using Element = typename Products::Element;
  template <class T, int N>
  using Registers = typename Block::template Registers<T, N>;
  using Shared = typename Block::template Shared<Element>;
  static constexpr int kKeys = Products::kKeys;
  static constexpr int kScores = Products::kScores;

  // The next keys and values travel under the product of gradients and keys.
  HEED_DEVICE void VisitTiles() {
    int64_t tile = NextTile(reach_.some.begin / kKeys);
    if (IsBehind(tile)) return;
    CopyPacked<Products, kBlockRows>(block_, q_, p_.q, rows_);
    CopyPacked<Products, kBlockRows>(block_, d_out_, params_.d_out, rows_);
    Copy(k_, p_.k, tile);
    Copy(v_, p_.v, tile);
    while (true) {
      block_.template WaitCopies<0>();
      block_.Sync();  // keys and values are there, and the keys before are read
      MultiplyTile();
      FindTile(static_cast<int32_t>(tile * kKeys));
      const bool some_hidden = HidesSome<kScores>(block_, visible_);  // values, table are read
      tile = NextTile(tile + 1);
      if (!IsBehind(tile)) {
        Copy(next_k_, p_.k, tile);
        Copy(v_, p_.v, tile);
      }
      if (params_.d_q.data != nullptr) {
        AddRows<Products>(block_, d_scores_, visible_, some_hidden, k_, d_q_);
      }
      if (IsBehind(tile)) return;
      Swap(k_, next_k_);
    }
  }
  HEED_DEVICE bool IsBehind(int64_t tile) const { return tile * kKeys >= reach_.some.end; }

  // The first tile from `tile` on that may hold a visible key.
  HEED_DEVICE int64_t NextTile(int64_t tile) {
    if (p_.documents.keys == nullptr && p_.patterns.ids == nullptr) return tile;
    for (; !IsBehind(tile); ++tile) {
      const int64_t end = tile * kKeys + kKeys;
      const int32_t first = static_cast<int32_t>(tile * kKeys);
      const int32_t last = static_cast<int32_t>(end < p_.kv_len ? end : p_.kv_len);
      if (!table_.Meet(0, p_, rows_, first, last, documents_)) continue;
      if (p_.documents.keys == nullptr || HasDocuments(first, last)) return tile;
    }
    return tile;
  }
  // Whether keys [begin, end) may be of the documents of the rows; a barrier.
  HEED_DEVICE bool HasDocuments(int32_t begin, int32_t end) {
    const int32_t* ids = p_.documents.keys + rows_.batch * p_.documents.key_stride;
    return block_.Any([&](int t) { return begin + t < end && documents_.Has(ids[begin + t]); });
  }

  HEED_DEVICE void Copy(Shared& to, const DeviceRows& from, int64_t tile) {
    CopyKeys<Products, kKeys>(block_, to, from, rows_.batch, kv_head_, tile * kKeys,
                              reach_.some.end, p_.fault);
    block_.CommitCopies();
  }

  HEED_DEVICE void MultiplyTile() {
    ClearCells<kScores>(block_, scores_);
    ClearCells<kScores>(block_, d_scores_);
    Products::ScoreTile(block_, q_, k_, scores_);
    Products::ScoreTile(block_, d_out_, v_, d_scores_);
  }

  HEED_DEVICE void FindTile(int32_t begin) {
    const bool whole = plain_ && begin >= reach_.all.begin && begin + kKeys <= reach_.all.end;
    const PairTile tile = {begin, plain_, whole};
    const bool wants_slopes = params_.slope_terms != nullptr;
    FindGradients<kScores, false, PairWant::kScore>(
        block_, p_, [&]() -> const PackedRows& { return rows_; }, table_, tile, scores_, d_scores_,
        visible_,
        [&](int t, int j, int row, int key, float d_biased) {
          if (wants_slopes) slope_terms_(t, j) -= table_.Distance(t, row, key) * d_biased;
        });
  }

  HEED_DEVICE void Store() {
    if (params_.d_q.data != nullptr) {
      StoreSums<Products>(block_, d_q_, params_.d_q.dtype, p_.q.width, p_.scale,
                          [&](int r) { return RowOfOutput(r); });
    }
    if (params_.slope_terms == nullptr) return;
    block_.template GroupSum<4>(slope_terms_);
    block_.Each([&](int t) {
      HEED_UNROLL for (int half = 0; half < 2; ++half) {
        const int r = RowInBlock(t, half);
        if (t % 4 != 0 || !rows_.Has(r)) continue;
        const int64_t at = ScratchRow(p_, rows_.batch, rows_.Head(r), rows_.Query(r));
        params_.slope_terms[at] = slope_terms_(t, half);
      }
    });
  }
  HEED_DEVICE char* RowOfOutput(int r) const {
    if (!rows_.Has(r)) return nullptr;
    const DeviceOutput& to = params_.d_q;
    return to.data + rows_.batch * to.strides[0] + rows_.Head(r) * to.strides[1] +
           rows_.Query(r) * to.strides[2];
  }

  Block& block_;
  const GradientParams& params_;
  const AttentionParams& p_;
  Shared q_, d_out_, k_, next_k_, v_;
  GradientRows<Block, kBlockRows> table_;

  PackedRows rows_;
  int kv_head_;
  RowsReach reach_;
  DocumentSpan documents_;  // of the rows
  bool plain_;

  Registers<float, kScores> scores_, d_scores_;  // then weights and gradients of scores
  Registers<uint32_t, 1> visible_;               // a bit for each of them
  Registers<float, Products::kOut> d_q_;
  Registers<float, 2> slope_terms_;  // of the thread's own columns, until the end
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GRADIENT_QUERY_KERNEL_H_
