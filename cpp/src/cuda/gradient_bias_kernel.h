// Gradients of a bias: a block owns the cells of 64 queries and a tile of keys, of one head and
// batch entry, and sums d_s over whatever the bias broadcasts along, in ascending order. Rows are
// not packed: the queries of a tile are of one head.
#ifndef HEED_SRC_CUDA_GRADIENT_BIAS_KERNEL_H_
#define HEED_SRC_CUDA_GRADIENT_BIAS_KERNEL_H_

#include "src/cuda/gradient_tile.h"

namespace heed::cuda {

// Indices [begin, end).
struct IndexSpan {
  int32_t begin, end;
};

// What block `index` owns of the axes batch, head, tile of queries, tile of keys: one index of
// each, or all of an axis that the bias broadcasts along.
struct BiasPlace {
  IndexSpan axes[4];
};
HEED_DEVICE int32_t TilesOfAxis(const AttentionParams& p, int axis, int tile_keys) {
  if (axis == 0) return p.batch;
  if (axis == 1) return p.num_heads;
  const int32_t length = axis == 2 ? p.q_len : p.kv_len;
  const int32_t tile = axis == 2 ? kBlockRows : tile_keys;
  return (length + tile - 1) / tile;
}
HEED_DEVICE BiasPlace PlaceOfBias(const GradientParams& params, int64_t index, int tile_keys) {
  BiasPlace place{};
  for (int axis = 3; axis >= 0; --axis) {
    const int32_t count = TilesOfAxis(params.attention, axis, tile_keys);
    if (params.d_bias.extents[axis] == 1) {
      place.axes[axis] = {0, count};
    } else {
      const int32_t at = static_cast<int32_t>(index % count);
      place.axes[axis] = {at, at + 1};
      index /= count;
    }
  }
  return place;
}

template <class Block, class Products>
class BiasGradientKernel {
 public:
  static constexpr int kResident = kResidentOf<Products>;
  static constexpr int kBytes = (2 * kBlockRows + 2 * Products::kKeys) * Products::kStride *
                                    static_cast<int>(sizeof(typename Products::Element)) +
                                GradientRows<Block, kBlockRows>::kBytes +
                                kBlockRows * Products::kKeys * static_cast<int>(sizeof(float));

  HEED_DEVICE BiasGradientKernel(Block& block, const GradientParams& params)
      : block_(block),
        params_(params),
        p_(params.attention),
        q_(block.template Allocate<Element>(kBlockRows * Products::kStride)),
        d_out_(block.template Allocate<Element>(kBlockRows * Products::kStride)),
        k_(block.template Allocate<Element>(kKeys * Products::kStride)),
        v_(block.template Allocate<Element>(kKeys * Products::kStride)),
        table_(block),
        cells_(block.template Allocate<float>(kBlockRows * kKeys)) {}

  HEED_DEVICE void Run(int64_t index) {
    const BiasPlace place = PlaceOfBias(params_, index, kKeys);
    ClearCells<kScores>(block_, sums_);
    const auto& [batches, heads, queries, keys] = place.axes;
    HEED_NO_UNROLL for (int32_t b = batches.begin; b < batches.end; ++b) {
      HEED_NO_UNROLL for (int32_t h = heads.begin; h < heads.end; ++h) {
        HEED_NO_UNROLL for (int32_t i = queries.begin; i < queries.end; ++i) {
          rows_ = RowsFrom(b, h, 1, static_cast<int64_t>(i) * kBlockRows, p_.q_len);
          AddRowsOfKeys(keys);
        }
      }
    }
    Store(place);
  }

 private:
  using Element = typename Products::Element;
  template <class T, int N>
  using Registers = typename Block::template Registers<T, N>;
  using Shared = typename Block::template Shared<Element>;
  static constexpr int kKeys = Products::kKeys;
  static constexpr int kScores = Products::kScores;

  // Adds the tiles of keys to the sums, for the rows.
  HEED_DEVICE void AddRowsOfKeys(const IndexSpan& tiles) {
    block_.Sync();  // the rows before are read
    table_.LoadArrivals(params_, rows_);
    table_.FillBounds(0, p_, rows_);
    CopyPacked<Products, kBlockRows>(block_, q_, p_.q, rows_);
    CopyPacked<Products, kBlockRows>(block_, d_out_, params_.d_out, rows_);
    block_.CommitCopies();
    table_.StoreArrivals(0);
    HEED_NO_UNROLL for (int32_t tile = tiles.begin; tile < tiles.end; ++tile) {
      const int32_t begin = tile * kKeys;
      const int32_t end = begin + kKeys < p_.kv_len ? begin + kKeys : p_.kv_len;
      if (table_.Meet(0, p_, rows_, begin, end, DocumentSpan{-1, 0x7fffffff})) AddTile(begin);
    }
    block_.template WaitCopies<0>();
  }

  HEED_DEVICE void AddTile(int32_t begin) {
    const int kv_head = rows_.first_head / p_.group;
    CopyKeys<Products, kKeys>(block_, k_, p_.k, rows_.batch, kv_head, begin, p_.kv_len, p_.fault);
    CopyKeys<Products, kKeys>(block_, v_, p_.v, rows_.batch, kv_head, begin, p_.kv_len, p_.fault);
    block_.CommitCopies();
    block_.template WaitCopies<0>();
    block_.Sync();  // rows, keys and values are there
    ClearCells<kScores>(block_, scores_);
    ClearCells<kScores>(block_, d_scores_);
    Products::ScoreTile(block_, q_, k_, scores_);
    Products::ScoreTile(block_, d_out_, v_, d_scores_);
    FindGradients<kScores, false, PairWant::kBiased>(
        block_, p_, [&]() -> const PackedRows& { return rows_; }, table_,
        PairTile{begin, false, false}, scores_, d_scores_, visible_,
        [](int, int, int, int, float) {});
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kScores; ++n) sums_(t, n) += d_scores_(t, n);
    });
    block_.Sync();  // keys, values and the table are read
  }

  // Cells go to shared memory, and each number of the gradient to the thread that adds it up.
  HEED_DEVICE void Store(const BiasPlace& place) {
    block_.Each([&](int t) {
      HEED_UNROLL for (int n = 0; n < kScores; ++n) {
        const int key = n / 4 * 8 + AccumulatorCol(t % kWarp, n % 4);
        cells_.Store(t, RowInBlock(t, n % 4 / 2) * kKeys + key, sums_(t, n));
      }
    });
    block_.Sync();
    const DeviceSums& to = params_.d_bias;
    const int rows = to.extents[2] == 1 ? 1 : kBlockRows;
    const int keys = to.extents[3] == 1 ? 1 : kKeys;
    block_.Each([&](int t) {
      HEED_NO_UNROLL for (int c = t; c < rows * keys; c += kBlockThreads) {
        const int64_t i = (rows == 1 ? 0 : place.axes[2].begin * int64_t{kBlockRows}) + c / keys;
        const int64_t j = (keys == 1 ? 0 : place.axes[3].begin * int64_t{kKeys}) + c % keys;
        if (i >= to.extents[2] || j >= to.extents[3]) continue;
        to.data[place.axes[0].begin * to.strides[0] + place.axes[1].begin * to.strides[1] +
                i * to.strides[2] + j * to.strides[3]] =
            SumOf(t, c / keys, rows == 1, c % keys, keys == 1);
      }
    });
  }
  // Of the tile's rows or of one, and of its keys or of one.
  HEED_DEVICE float SumOf(int t, int row, bool all_rows, int key, bool all_keys) {
    float sum = 0;
    const int last_row = all_rows ? kBlockRows : row + 1;
    const int last_key = all_keys ? kKeys : key + 1;
    HEED_NO_UNROLL for (int r = row; r < last_row; ++r) {
      HEED_NO_UNROLL for (int j = key; j < last_key; ++j) sum += cells_.Load(t, r * kKeys + j);
    }
    return sum;
  }

  Block& block_;
  const GradientParams& params_;
  const AttentionParams& p_;
  Shared q_, d_out_, k_, v_;
  GradientRows<Block, kBlockRows> table_;
  typename Block::template Shared<float> cells_;

  PackedRows rows_;
  Registers<float, kScores> scores_, d_scores_;
  Registers<float, kScores> sums_;  // of d_s, a number for each cell
  Registers<uint32_t, 1> visible_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GRADIENT_BIAS_KERNEL_H_
