// Steps that the kernels of attention backwards share: a tile of pairs, q k^T and d_out v^T in
// registers, becomes weights and gradients of scores, and both meet rows in shared memory.
#ifndef HEED_SRC_CUDA_GRADIENT_TILE_H_
#define HEED_SRC_CUDA_GRADIENT_TILE_H_

#include <cstdint>

#include "heed/dtype.h"
#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"
#include "src/cuda/finite.h"
#include "src/cuda/gradient_pairs.h"
#include "src/cuda/gradient_rows.h"
#include "src/cuda/products.h"
#include "src/cuda/rows_in_memory.h"
#include "src/cuda/tile_poison.h"

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

// Starts to copy packed rows of q or d_out, which has no pages, into a tile of kRows.
template <class Products, int kRows, class Block, class Shared>
HEED_DEVICE void CopyPacked(Block& block, Shared& to, const DeviceRows& from,
                            const PackedRows& rows) {
  const char* first = from.data + rows.batch * from.strides[0];
  CopyRows<Products, kRows>(block, to, from, [&](int r) -> const char* {
    if (!rows.Has(r)) return nullptr;
    return first + rows.Head(r) * from.strides[1] + rows.Query(r) * from.strides[2];
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

// Where a tile of pairs lies: keys `first_key` on. `plain`: nothing but bounds say who sees whom,
// and nothing but scale and softmax make weights; `whole`: besides, every row sees all keys.
struct PairTile {
  int32_t first_key;
  bool plain, whole;
};

// The place of a thread's pair n in a tile.
template <bool kKeysDown>
HEED_DEVICE int RowOfPair(int t, int n) {
  return kKeysDown ? n / 4 * 8 + AccumulatorCol(t % kWarp, n % 4) : RowInBlock(t, n % 4 / 2);
}
template <bool kKeysDown>
HEED_DEVICE int KeyOfPair(int t, int n) {
  return kKeysDown ? RowInBlock(t, n % 4 / 2) : n / 4 * 8 + AccumulatorCol(t % kWarp, n % 4);
}

// Bits for pairs of a thread: those that their rows' bounds show, and those of which there is no
// row or no key.
struct PairBits {
  uint32_t seen, missing;
};
template <int kCells, bool kKeysDown, class Table>
HEED_DEVICE PairBits FindBounds(int t, const AttentionParams& p, const Table& table,
                                const PairTile& tile) {
  PairBits bits = {0, 0};
  HEED_UNROLL for (int n = 0; n < kCells; ++n) {
    const RowKeys bounds = table.Bounds(t, RowOfPair<kKeysDown>(t, n));
    const int key = tile.first_key + KeyOfPair<kKeysDown>(t, n);
    if (key >= bounds.begin && key < bounds.end) bits.seen |= 1u << n;
    if (bounds.begin < 0 || key >= p.kv_len) bits.missing |= 1u << n;
  }
  return bits;
}

template <int kCells>
HEED_DEVICE constexpr uint32_t AllPairs() {
  static_assert(kCells <= 32, "a thread keeps what is visible as the bits of one word");
  return ~0u >> (32 - kCells);
}

// FindGradients() of a thread on a plain tile. False, and nothing is done, where the score of a
// pair that is seen is not finite: one of -inf counts as hidden.
template <int kCells, bool kKeysDown, bool kWhole, class Table, class Cells, class Bits>
HEED_DEVICE bool FindPlain(int t, const AttentionParams& p, const Table& table,
                           const PairTile& tile, Cells& dots, Cells& d_weights, Bits& visible) {
  const float factor = p.scale * kLog2E;
  PairBits bits = {AllPairs<kCells>(), 0};
  if constexpr (!kWhole) bits = FindBounds<kCells, kKeysDown>(t, p, table, tile);
  const auto sees = [&](int n) { return kWhole || (bits.seen >> n & 1) != 0; };
  float sums[4] = {0, 0, 0, 0};  // not finite where some score is not, and hardly elsewhere
  HEED_UNROLL for (int n = 0; n < kCells; ++n) {
    sums[n % 4] += (sees(n) ? dots(t, n) : 0.0f) * factor;
  }
  if (!IsFinite(sums[0] + sums[1] + (sums[2] + sums[3]))) return false;
  visible(t, 0) = bits.seen | bits.missing;
  float lse2[2], deltas[2];
  if constexpr (!kKeysDown) {
    HEED_UNROLL for (int half = 0; half < 2; ++half) {
      lse2[half] = table.Lse2(t, RowInBlock(t, half));
      deltas[half] = table.Delta(t, RowInBlock(t, half));
    }
  }
  HEED_UNROLL for (int n = 0; n < kCells; ++n) {
    if constexpr (kKeysDown) {
      if (n % 4 == 0) {
        float x[4];
        table.LoadTwoArrivals(t, RowOfPair<true>(t, n), x);
        lse2[0] = x[0], deltas[0] = x[1], lse2[1] = x[2], deltas[1] = x[3];
      }
    }
    const int j = kKeysDown ? n % 2 : n % 4 / 2;
    const float weight = PowerOfTwo(dots(t, n) * factor - lse2[j]);
    const float gradient = weight * (d_weights(t, n) - deltas[j]);
    dots(t, n) = sees(n) ? weight : 0.0f;
    d_weights(t, n) = sees(n) ? gradient : 0.0f;
  }
  return true;
}

// The same under every option, four pairs at a time, always the first: the others move up, so that
// the code stands once.
template <int kCells, bool kKeysDown, PairWant kWant, class Table, class Cells, class Bits,
          class Extra>
HEED_DEVICE void FindAny(int t, const AttentionParams& p, const PackedRows& rows,
                         const Table& table, const PairTile& tile, Cells& dots, Cells& d_weights,
                         Bits& visible, const Extra& extra) {
  visible(t, 0) = 0;
  HEED_NO_UNROLL for (int first = 0; first < kCells; first += 4) {
    FourPairs<kKeysDown> four;
    HEED_UNROLL for (int e = 0; e < 4; ++e) {
      four.rows[four.Row(e)] = RowOfPair<kKeysDown>(t, e) + (kKeysDown ? 2 * first : 0);
      four.keys[four.Key(e)] =
          tile.first_key + KeyOfPair<kKeysDown>(t, e) + (kKeysDown ? 0 : 2 * first);
      four.dots[e] = dots(t, e);
      four.d_weights[e] = d_weights(t, e);
    }
    PairSteps<kKeysDown, kWant, Table> steps(t, p, rows, table, tile.whole, four);
    visible(t, 0) |= steps.Find(extra) << first;
    HEED_UNROLL for (int n = 4; n < kCells; ++n) {
      dots(t, n - 4) = dots(t, n);
      d_weights(t, n - 4) = d_weights(t, n);
    }
    HEED_UNROLL for (int e = 0; e < 4; ++e) {
      dots(t, kCells - 4 + e) = four.dots[e];
      d_weights(t, kCells - 4 + e) = four.d_weights[e];
    }
  }
}

// Products become gradients: `dots` weights, `d_weights` gradients of scores. A thread's cells are
// those of an accumulator whose rows are packed rows, or keys where kKeysDown. `visible` gets a bit
// for each; pairs of which there is no row or no key count as visible, as nothing is kept of them.
// Of a tile that is not plain, extra(t, j, row, key, d_biased) sees every pair that is visible, of
// the thread's row j of two. rows() are the rows.
template <int kCells, bool kKeysDown, PairWant kWant, class Block, class Rows, class Table,
          class Cells, class Bits, class Extra>
HEED_DEVICE void FindGradients(Block& block, const AttentionParams& p, const Rows& rows,
                               const Table& table, const PairTile& tile, Cells& dots,
                               Cells& d_weights, Bits& visible, const Extra& extra) {
  block.Each([&](int t) {
    if (tile.whole) {
      if (FindPlain<kCells, kKeysDown, true>(t, p, table, tile, dots, d_weights, visible)) return;
    } else if (tile.plain) {
      if (FindPlain<kCells, kKeysDown, false>(t, p, table, tile, dots, d_weights, visible)) return;
    }
    FindAny<kCells, kKeysDown, kWant>(
        t, p, rows(), table, tile, dots, d_weights, visible,
        [&](int j, int row, int key, float d_biased) { extra(t, j, row, key, d_biased); });
  });
}

// out += cells rows, for the rows of a tile. Where some pair is hidden, what is not finite is taken
// out of the tile and added where it is seen: 0 times it must not join. A gradient of a score whose
// query or key is not finite is NaN itself, so AddPoison() is exact for it too.
template <class Products, class Block, class Cells, class Bits, class Shared, class Out>
HEED_DEVICE void AddRows(Block& block, Cells& cells, Bits& visible, bool some_hidden, Shared& tile,
                         Out& out) {
  if (some_hidden && HasPoison<Products, 1>(block, tile)) {
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
  return block.Any([&](int t) { return visible(t, 0) != AllPairs<kCells>(); });
}

template <int kCount, class Block, class Cells>
HEED_DEVICE void ClearCells(Block& block, Cells& cells) {
  block.Each([&](int t) { HEED_UNROLL for (int n = 0; n < kCount; ++n) cells(t, n) = 0; });
}

// Half `half` of a thread's numbers of an accumulator, times `factor`, to a row of floats or of
// elements T at `to`. Two neighbours go at once where both exist and the row is aligned to them.
template <class Products, class Block, class T, class Out>
HEED_DEVICE void StoreRowAs(T type, int t, int half, Out& out, float factor, int width, char* to) {
  constexpr int kNext = Products::Column(0, 1) == 1 ? 1 : 4;  // numbers of neighbours
  constexpr bool kIsFloat = sizeof(T) == sizeof(float);
  const bool pairs = reinterpret_cast<uintptr_t>(to) % (2 * sizeof(T)) == 0;
  HEED_UNROLL for (int n = 0; n < Products::kOut; ++n) {
    const int d = Products::Column(t % kWarp, n);
    if (Products::Half(n) != half || n / kNext % 2 != 0 || d >= width) continue;
    const float x[2] = {out(t, n) * factor, out(t, n + kNext) * factor};
    if constexpr (kIsFloat) {
      if (pairs && d + 1 < width) {
        struct alignas(8) Two {
          float x[2];
        };
        reinterpret_cast<Two*>(to)[d / 2] = {{x[0], x[1]}};
      } else {
        reinterpret_cast<float*>(to)[d] = x[0];
        if (d + 1 < width) reinterpret_cast<float*>(to)[d + 1] = x[1];
      }
    } else {
      const uint32_t both = Block::Pack(type, x[0], x[1]);
      if (pairs && d + 1 < width) {
        reinterpret_cast<uint32_t*>(to)[d / 2] = both;
      } else {
        reinterpret_cast<uint16_t*>(to)[d] = static_cast<uint16_t>(both);
        if (d + 1 < width) reinterpret_cast<uint16_t*>(to)[d + 1] = both >> 16;
      }
    }
  }
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
      const auto store = [&](auto type) {
        StoreRowAs<Products, Block>(type, t, half, out, factor, width, to);
      };
      if (dtype == DType::kFloat32) store(float{});
      if (dtype == DType::kFloat16) store(Float16{});
      if (dtype == DType::kBFloat16) store(BFloat16{});
    }
  });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GRADIENT_TILE_H_
