// Steps that the kernels of attention backwards share: a tile of pairs, q k^T and d_out v^T in
// registers, becomes weights and gradients of scores, and both meet rows in shared memory.
#ifndef HEED_SRC_CUDA_GRADIENT_TILE_H_
#define HEED_SRC_CUDA_GRADIENT_TILE_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"
#include "src/cuda/gradient_pairs.h"
#include "src/cuda/products.h"
#include "src/cuda/rows_in_memory.h"

namespace heed::cuda {

// The place of half `half` of a thread's rows of an accumulator in the block.
HEED_DEVICE int RowInBlock(int t, int half) {
  return t / kWarp * kWarpRows + t % kWarp / 4 + 8 * half;
}

template <class T>
HEED_DEVICE void Swap(T& a, T& b) {
  const T first = a;
  a = b;
  b = first;
}

// Starts to copy packed rows of q or d_out into a tile of kRows.
template <class Products, int kRows, class Block, class Shared>
HEED_DEVICE void CopyPacked(Block& block, Shared& to, const DeviceRows& from,
                            const PackedRows& rows, Fault* fault) {
  CopyRows<Products, kRows>(block, to, from, [&](int r) -> const char* {
    if (!rows.Has(r)) return nullptr;
    return RowOf(block, from, rows.batch, rows.Head(r), rows.Query(r), fault);
  });
}

// Starts to copy keys or values first, first + 1, ... before `end`.
template <class Products, int kRows, class Block, class Shared>
HEED_DEVICE void CopyKeys(Block& block, Shared& to, const DeviceRows& from, int batch, int kv_head,
                          int64_t first, int64_t end, Fault* fault) {
  CopyRows<Products, kRows>(block, to, from, [&](int r) -> const char* {
    if (first + r >= end) return nullptr;
    return RowOf(block, from, batch, kv_head, static_cast<int>(first + r), fault);
  });
}

// Where a tile of pairs lies: keys `first_key` on, and whether every row sees all of them.
struct PairTile {
  int64_t first_key;
  bool whole;
};

// Products become gradients: `dots` weights, `d_weights` gradients of scores. A thread's cells are
// those of an accumulator whose rows are packed rows, or keys where kKeysDown. `visible` gets a bit
// for each; pairs of which there is no row or no key count as visible, as nothing is kept of them.
// extra(t, n, row, key, pair) sees every pair that there is.
template <int kCells, bool kKeysDown, class Block, class Table, class Cells, class Bits,
          class Extra>
HEED_DEVICE void FindGradients(Block& block, const AttentionParams& p, const PackedRows& rows,
                               const Table& table, const PairTile& tile, Cells& dots,
                               Cells& d_weights, Bits& visible, const Extra& extra) {
  static_assert(kCells <= 32, "a thread keeps what is visible as the bits of one word");
  block.Each([&](int t) {
    visible(t, 0) = 0;
    HEED_UNROLL for (int n = 0; n < kCells; ++n) {
      const int down = RowInBlock(t, n % 4 / 2);
      const int across = n / 4 * 8 + AccumulatorCol(t % kWarp, n % 4);
      const int r = kKeysDown ? across : down;
      const int key = static_cast<int>(tile.first_key) + (kKeysDown ? down : across);
      PairGradient pair = {0, 0, 0, true};
      if (rows.Has(r) && key < p.kv_len) {
        pair.visible = false;
        if (tile.whole || table.Sees(t, p, rows, r, key)) {
          pair = table.Gradient(t, p, rows, r, key, dots(t, n), d_weights(t, n));
        }
        extra(t, n, r, key, pair);
      }
      dots(t, n) = pair.weight;
      d_weights(t, n) = pair.d_score;
      if (pair.visible) visible(t, 0) |= 1u << n;
    }
  });
}

// Are numbers of the tile not finite? A barrier.
template <class Products, class Block, class Shared>
HEED_DEVICE bool HasPoison(Block& block, const Shared& tile) {
  return block.Any([&](int t) {
    bool finite = true;
    HEED_NO_UNROLL for (int i = t; i < Products::kKeys * Products::kDim; i += kBlockThreads) {
      const int at = i / Products::kDim * Products::kStride + i % Products::kDim;
      finite = finite && IsFinite(Widen(tile.Load(t, at)));
    }
    return !finite;
  });
}

// out += cells rows, for the rows of a tile. Where some pair is hidden, what is not finite is taken
// out of the tile and added where it is seen: 0 times it must not join. A gradient of a score whose
// query or key is not finite is NaN itself, so AddPoison() is exact for it too.
template <class Products, class Block, class Cells, class Bits, class Shared, class Out>
HEED_DEVICE void AddRows(Block& block, Cells& cells, Bits& visible, bool some_hidden, Shared& tile,
                         Out& out) {
  if (some_hidden && HasPoison<Products>(block, tile)) {
    Bits positive;
    block.Each([&](int t) {
      positive(t, 0) = 0;
      HEED_UNROLL for (int n = 0; n < Products::kScores; ++n) {
        if (cells(t, n) > 0) positive(t, 0) |= 1u << n;
      }
    });
    AddPoison<Products>(block, visible, positive, tile, out);
    block.Sync();
    block.Each([&](int t) {
      HEED_NO_UNROLL for (int i = t; i < Products::kKeys * Products::kDim; i += kBlockThreads) {
        const int at = i / Products::kDim * Products::kStride + i % Products::kDim;
        if (!IsFinite(Widen(tile.Load(t, at)))) tile.Store(t, at, typename Products::Element{});
      }
    });
    block.Sync();
  }
  Products::AddValues(block, cells, tile, out);
}

// Whether a tile hides some pair; a barrier.
template <int kCells, class Block, class Bits>
HEED_DEVICE bool HidesSome(Block& block, Bits& visible) {
  constexpr uint32_t kAll = kCells == 32 ? ~0u : (1u << kCells % 32) - 1;
  return block.Any([&](int t) { return visible(t, 0) != kAll; });
}

template <int kCount, class Block, class Cells>
HEED_DEVICE void ClearCells(Block& block, Cells& cells) {
  block.Each([&](int t) { HEED_UNROLL for (int n = 0; n < kCount; ++n) cells(t, n) = 0; });
}

// Stores the thread's numbers of an accumulator, times `factor`: row_of(r) is where row r of the
// block goes, nullptr where it goes nowhere.
template <class Products, class Block, class Out, class RowOfBlock>
HEED_DEVICE void StoreSums(Block& block, Out& out, DType dtype, int width, float factor,
                           const RowOfBlock& row_of) {
  block.Each([&](int t) {
    HEED_UNROLL for (int half = 0; half < 2; ++half) {
      char* to = row_of(RowInBlock(t, half));
      if (to == nullptr) continue;
      HEED_UNROLL for (int n = 0; n < Products::kOut; ++n) {
        const int d = Products::Column(t % kWarp, n);
        if (Products::Half(n) == half && d < width) StoreAs(dtype, to, d, out(t, n) * factor);
      }
    }
  });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GRADIENT_TILE_H_
