// The kernel itself, for the instruction set `Arch` of xsimd. Included by one file per instruction
// set, each compiled with its own flags; everything is in an unnamed namespace, so that no file can
// end up with code that another file's flags produced.
#ifndef HEED_NATIVE_BENCH_PEERS_XSIMD_FLASH_KERNEL_H_
#define HEED_NATIVE_BENCH_PEERS_XSIMD_FLASH_KERNEL_H_

#include <xsimd/xsimd.hpp>

#include "native_bench/peers/xsimd/flash.h"

namespace heed::bench::xsimd_peer {
namespace {

// For loops over arrays of registers: without it GCC keeps the arrays in memory.
#if defined(__clang__)
#define HEED_BENCH_UNROLL _Pragma("unroll")
#else
#define HEED_BENCH_UNROLL _Pragma("GCC unroll 16")
#endif

// Tiled online softmax (Milakov & Gimelshein 2018, Dao 2022). A block of kBlock queries meets tiles
// of kTile keys: scores of the tile, running maximum and sum, weights times values. Register tiles
// are kRows queries x 2 vectors; 16 registers hold 6 x 2 accumulators, 32 hold 12 x 2.
template <class Arch>
class Flash {
 public:
  using Floats = xsimd::batch<float, Arch>;
  static constexpr int64_t kLanes = static_cast<int64_t>(Floats::size);
  static constexpr int64_t kPanel = 2 * kLanes;
  static constexpr int64_t kRows = kLanes >= 16 ? 12 : 6;
  static constexpr int64_t kBlock = 48;
  static constexpr int64_t kStripes = kBlock / kRows;
  static constexpr int64_t kTile = 128;
  static_assert(kBlock % kRows == 0 && kTile % kPanel == 0);

  static int64_t PackedSize(int64_t kv_len, int64_t head_dim) {
    return (kv_len + kPanel - 1) / kPanel * kPanel * head_dim;
  }
  // Packed queries and outputs of a block, scores of a tile, maxima and sums.
  static int64_t ScratchSize(int64_t head_dim) {
    return 2 * kBlock * head_dim + kBlock * kTile + 2 * kBlock;
  }

  // Panels of kPanel keys, [head_dim][kPanel] each; keys beyond the last are zeros.
  static void Pack(const Head& head, float* packed) {
    for (int64_t first = 0; first < head.kv_len; first += kPanel) {
      const int64_t keys = Least(kPanel, head.kv_len - first);
      for (int64_t d = 0; d < head.head_dim; ++d) {
        for (int64_t j = 0; j < keys; ++j) packed[j] = head.k[(first + j) * head.head_dim + d];
        for (int64_t j = keys; j < kPanel; ++j) packed[j] = 0;
        packed += kPanel;
      }
    }
  }

  static void Attend(const Head& head, const float* packed, int64_t first_query, float* scratch) {
    Block block = OpenBlock(head, first_query, scratch);
    const int64_t last = first_query + block.rows - 1;
    const int64_t end =
        head.causal ? Clamp(last + head.query_offset + 1, head.kv_len) : head.kv_len;
    for (int64_t first_key = 0; first_key < end; first_key += kTile) {
      const int64_t keys = Least(kTile, end - first_key);
      Scores(head, block, packed + first_key * head.head_dim, keys);
      for (int64_t i = 0; i < block.rows; ++i) {
        const int64_t seen =
            head.causal ? first_query + i + head.query_offset + 1 - first_key : keys;
        UpdateMax(head, block, i, Clamp(seen, keys), keys);
      }
      for (int64_t i = 0; i < block.rows; ++i) UpdateSum(block, i, keys);
      Values(head, block, first_key, keys);
    }
    CloseBlock(head, block, first_query);
  }

 private:
  struct Block {
    int64_t rows;     // queries that exist
    int64_t stripes;  // of kRows queries
    float* q;         // [stripes][head_dim][kRows], times scale and log2(e)
    float* o;         // [kBlock][head_dim]
    float* s;         // [kBlock][kTile]
    float* row_max;   // [kBlock], in powers of two
    float* row_sum;   // [kBlock]
  };

  static int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }
  static int64_t Clamp(int64_t value, int64_t most) { return value < 0 ? 0 : Least(value, most); }

  static Block OpenBlock(const Head& head, int64_t first_query, float* scratch) {
    const int64_t size = kBlock * head.head_dim;
    Block block = {};
    block.rows = Least(kBlock, head.q_len - first_query);
    block.stripes = (block.rows + kRows - 1) / kRows;
    block.q = scratch;
    block.o = scratch + size;
    block.s = scratch + 2 * size;
    block.row_max = block.s + kBlock * kTile;
    block.row_sum = block.row_max + kBlock;
    constexpr float kLog2E = 1.44269504f;
    const float scale = kLog2E / __builtin_sqrtf(static_cast<float>(head.head_dim));
    for (int64_t i = 0; i < block.stripes * kRows; ++i) {
      float* packed = block.q + i / kRows * kRows * head.head_dim + i % kRows;
      const float* row = head.q + (first_query + i) * head.head_dim;
      for (int64_t d = 0; d < head.head_dim; ++d) {
        packed[d * kRows] = i < block.rows ? scale * row[d] : 0.0f;
        block.o[i * head.head_dim + d] = 0;
      }
      block.row_max[i] = kNothing;
      block.row_sum[i] = 0;
    }
    // Rows beyond the last are multiplied too; their weights stay zero.
    for (int64_t j = 0; j < kBlock * kTile; ++j) block.s[j] = 0;
    return block;
  }

  // s <- q k of a tile. A panel of keys stays in L1 while all stripes pass over it.
  static void Scores(const Head& head, const Block& block, const float* panels, int64_t keys) {
    for (int64_t j = 0; j < keys; j += kPanel, panels += kPanel * head.head_dim) {
      for (int64_t stripe = 0; stripe < block.stripes; ++stripe) {
        ScoreTile(block.q + stripe * kRows * head.head_dim, panels, head.head_dim,
                  block.s + stripe * kRows * kTile + j);
      }
    }
  }

  static void ScoreTile(const float* q, const float* panel, int64_t head_dim, float* s) {
    Floats left[kRows], right[kRows];
    HEED_BENCH_UNROLL
    for (int64_t r = 0; r < kRows; ++r) left[r] = right[r] = Floats(0.0f);
    for (int64_t d = 0; d < head_dim; ++d, q += kRows, panel += kPanel) {
      const Floats k0 = Floats::load_aligned(panel);
      const Floats k1 = Floats::load_aligned(panel + kLanes);
      HEED_BENCH_UNROLL
      for (int64_t r = 0; r < kRows; ++r) {
        const Floats factor(q[r]);
        left[r] = xsimd::fma(factor, k0, left[r]);
        right[r] = xsimd::fma(factor, k1, right[r]);
      }
    }
    HEED_BENCH_UNROLL
    for (int64_t r = 0; r < kRows; ++r) {
      left[r].store_aligned(s + r * kTile);
      right[r].store_aligned(s + r * kTile + kLanes);
    }
  }

  // 2^x for x <= 0: whole part by adding 1.5 * 2^23, fraction by a minimax polynomial of degree 5
  // (relative error 7.5e-8). Below -126 the result stays 2^-126, which no sum of weights notices.
  static Floats Exp2(Floats x) {
    const Floats magic(12582912.0f);
    x = xsimd::max(x, Floats(-126.0f));
    const Floats shifted = x + magic;
    const Floats f = x - (shifted - magic);
    Floats p(1.3276472e-3f);
    p = xsimd::fma(p, f, Floats(9.6755413e-3f));
    p = xsimd::fma(p, f, Floats(5.5507133e-2f));
    p = xsimd::fma(p, f, Floats(2.4022120e-1f));
    p = xsimd::fma(p, f, Floats(6.9314697e-1f));
    p = xsimd::fma(p, f, Floats(1.0000001f));
    const auto exponent = xsimd::bitwise_cast<int32_t>(shifted) << 23;
    return xsimd::bitwise_cast<float>(xsimd::bitwise_cast<int32_t>(p) + exponent);
  }

  // The maximum of row i joins the running one; the first `seen` of `keys` keys are visible, and
  // the others are made to weigh nothing.
  static void UpdateMax(const Head& head, const Block& block, int64_t i, int64_t seen,
                        int64_t keys) {
    float* s = block.s + i * kTile;
    const int64_t padded = (keys + kPanel - 1) / kPanel * kPanel;
    for (int64_t j = seen; j < padded; ++j) s[j] = kNothing;
    Floats max0(kNothing), max1(kNothing);
    for (int64_t j = 0; j < padded; j += kPanel) {
      max0 = xsimd::max(max0, Floats::load_aligned(s + j));
      max1 = xsimd::max(max1, Floats::load_aligned(s + j + kLanes));
    }
    const float tile_max = xsimd::reduce_max(xsimd::max(max0, max1));
    if (tile_max > block.row_max[i]) RaiseMax(head, block, i, tile_max);
  }

  // Scores of row i become weights relative to the running maximum, and join the running sum.
  static void UpdateSum(const Block& block, int64_t i, int64_t keys) {
    float* s = block.s + i * kTile;
    // A row that has seen nothing so far: its maximum is as low as the scores it must not see.
    const Floats row_max(block.row_max[i] == kNothing ? 0.0f : block.row_max[i]);
    Floats sum0(0.0f), sum1(0.0f);
    for (int64_t j = 0; j < keys; j += kPanel) {
      const Floats p0 = Exp2(Floats::load_aligned(s + j) - row_max);
      const Floats p1 = Exp2(Floats::load_aligned(s + j + kLanes) - row_max);
      p0.store_aligned(s + j);
      p1.store_aligned(s + j + kLanes);
      sum0 += p0;
      sum1 += p1;
    }
    block.row_sum[i] += xsimd::reduce_add(sum0 + sum1);
  }

  static void RaiseMax(const Head& head, const Block& block, int64_t i, float row_max) {
    const float factor = __builtin_exp2f(block.row_max[i] - row_max);
    block.row_max[i] = row_max;
    block.row_sum[i] *= factor;
    float* o = block.o + i * head.head_dim;
    for (int64_t d = 0; d < head.head_dim; d += kLanes) {
      (Floats::load_aligned(o + d) * factor).store_aligned(o + d);
    }
  }

  // o += p v of a tile.
  static void Values(const Head& head, const Block& block, int64_t first_key, int64_t keys) {
    const float* v = head.v + first_key * head.head_dim;
    for (int64_t d = 0; d < head.head_dim; d += kPanel) {
      for (int64_t stripe = 0; stripe < block.stripes; ++stripe) {
        const float* p = block.s + stripe * kRows * kTile;
        float* o = block.o + stripe * kRows * head.head_dim + d;
        if (d + kPanel <= head.head_dim) {
          ValueTile<2>(p, v + d, keys, head.head_dim, o);
        } else {
          ValueTile<1>(p, v + d, keys, head.head_dim, o);
        }
      }
    }
  }

  template <int64_t kVectors>
  static void ValueTile(const float* p, const float* v, int64_t keys, int64_t stride, float* o) {
    Floats sum[kRows * kVectors];
    HEED_BENCH_UNROLL
    for (int64_t r = 0; r < kRows; ++r) {
      HEED_BENCH_UNROLL
      for (int64_t n = 0; n < kVectors; ++n) {
        sum[r * kVectors + n] = Floats::load_unaligned(o + r * stride + n * kLanes);
      }
    }
    for (int64_t j = 0; j < keys; ++j, v += stride) {
      Floats value[kVectors];
      HEED_BENCH_UNROLL
      for (int64_t n = 0; n < kVectors; ++n) value[n] = Floats::load_unaligned(v + n * kLanes);
      HEED_BENCH_UNROLL
      for (int64_t r = 0; r < kRows; ++r) {
        const Floats weight(p[r * kTile + j]);
        HEED_BENCH_UNROLL
        for (int64_t n = 0; n < kVectors; ++n) {
          sum[r * kVectors + n] = xsimd::fma(weight, value[n], sum[r * kVectors + n]);
        }
      }
    }
    HEED_BENCH_UNROLL
    for (int64_t r = 0; r < kRows; ++r) {
      HEED_BENCH_UNROLL
      for (int64_t n = 0; n < kVectors; ++n) {
        sum[r * kVectors + n].store_unaligned(o + r * stride + n * kLanes);
      }
    }
  }

  static void CloseBlock(const Head& head, const Block& block, int64_t first_query) {
    for (int64_t i = 0; i < block.rows; ++i) {
      const float factor = block.row_max[i] == kNothing ? 0.0f : 1.0f / block.row_sum[i];
      const float* o = block.o + i * head.head_dim;
      float* output = head.output + (first_query + i) * head.head_dim;
      for (int64_t d = 0; d < head.head_dim; d += kLanes) {
        (Floats::load_aligned(o + d) * factor).store_unaligned(output + d);
      }
    }
  }

  // Below every score, and finite, so that differences of two of them are no NaN.
  static constexpr float kNothing = -1e30f;
};

template <class Arch>
Kernel MakeKernel() {
  return {.name = Arch::name(),
          .lanes = Flash<Arch>::kLanes,
          .block = Flash<Arch>::kBlock,
          .packed_size = Flash<Arch>::PackedSize,
          .pack = Flash<Arch>::Pack,
          .scratch_size = Flash<Arch>::ScratchSize,
          .attend = Flash<Arch>::Attend};
}

}  // namespace
}  // namespace heed::bench::xsimd_peer

#endif  // HEED_NATIVE_BENCH_PEERS_XSIMD_FLASH_KERNEL_H_
