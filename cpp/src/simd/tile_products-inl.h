// Products of tiles of bfloat16 pairs on a unit of the processor that multiplies 16 rows at once
// (Intel AMX, tdpbf16ps), and the same numbers from vectors.
//
// The layouts are those of bfloat16-inl.h: a pair lies in the place of a float, B in panels of two
// vectors. A step is 16 pairs.
#if defined(HEED_SIMD_TILE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_SIMD_TILE_PRODUCTS_INL_H_
#undef HEED_SIMD_TILE_PRODUCTS_INL_H_
#else
#define HEED_SIMD_TILE_PRODUCTS_INL_H_
#endif

#include <stddef.h>
#include <stdint.h>

#include <utility>

#include "hwy/highway.h"
#include "src/simd/bfloat16-inl.h"
#include "src/simd/register_tile-inl.h"
#include "src/simd/tile_unit.h"

#if HWY_NATIVE_DOT_BF16

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr size_t kUnitRows = 16;   // of A and C at most
inline constexpr size_t kStepPairs = 16;  // of A's columns and B's rows
static_assert(PanelCols() == 2 * kStepPairs);

// C[rows][panels * PanelCols()] = A[rows][steps * 16 pairs] x B, whose missing pairs are zeros.
// Strides are in floats.
struct TileProduct {
  size_t rows;  // 1 to kUnitRows
  size_t steps;
  const float* a;
  size_t a_stride;
  const float* panels;  // [panel][pair][PanelCols()]
  size_t panel_stride;
  size_t num_panels;
  float* c;
  size_t c_stride;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#undef HEED_HAS_AMX_CODE
#if HWY_TARGET == HWY_AVX3_SPR && HWY_ARCH_X86_64
#define HEED_HAS_AMX_CODE 1
// Highway's attributes, and those of AMX, which it does not know.
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",amx-tile,amx-bf16")
namespace heed {
namespace HWY_NAMESPACE {

// Registers: C in tiles 0 to 3, A in 4, B in 5 to 7. The assembler's order is B, A, C.
inline constexpr int kTileA = 4;

// What ldtilecfg reads (Intel SDM, volume 1, chapter 18).
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  explicit TileConfig(size_t c_rows) {
    for (int i = 0; i < 8; ++i) {
      row_bytes[i] = 64;
      rows[i] = static_cast<uint8_t>(i <= kTileA ? c_rows : kStepPairs);
    }
  }
};

template <int kTile>
HWY_INLINE void LoadTile(const float* from, size_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                   :
                   : "r"(from), "r"(stride * sizeof(float)), "i"(kTile)
                   : "memory");
}
template <int kTile>
HWY_INLINE void StoreTile(float* to, size_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                   :
                   : "r"(to), "r"(stride * sizeof(float)), "i"(kTile)
                   : "memory");
}
template <int kTile>
HWY_INLINE void ZeroTile() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kC, int kA, int kB>
HWY_INLINE void MultiplyAddTile() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

// Tiles of C in flight, two a panel: four, because a sum waits for the one before it longer than
// two products take.
template <int... kC>
HWY_INLINE void MultiplyPanelsByAmx(const TileProduct& p, const float* panels, float* c,
                                    std::integer_sequence<int, kC...>) {
  constexpr size_t kHalf = kStepPairs;  // columns of a tile
  (ZeroTile<kC>(), ...);
  for (size_t s = 0; s < p.steps; ++s) {
    LoadTile<kTileA>(p.a + s * kStepPairs, p.a_stride);
    const float* const b = panels + s * kStepPairs * PanelCols();
    ((LoadTile<kTileA + 1 + kC % 3>(b + kC / 2 * p.panel_stride + kC % 2 * kHalf, PanelCols()),
      MultiplyAddTile<kC, kTileA, kTileA + 1 + kC % 3>()),
     ...);
  }
  (StoreTile<kC>(c + kC * kHalf, p.c_stride), ...);
}

HWY_NOINLINE inline void MultiplyByAmx(const TileProduct& p) {
  const TileConfig config(p.rows);
  __asm__ volatile("ldtilecfg %0" : : "m"(config));
  size_t i = 0;
  for (; i + 2 <= p.num_panels; i += 2) {
    MultiplyPanelsByAmx(p, p.panels + i * p.panel_stride, p.c + i * PanelCols(),
                        std::make_integer_sequence<int, 4>());
  }
  if (i < p.num_panels) {
    MultiplyPanelsByAmx(p, p.panels + i * p.panel_stride, p.c + i * PanelCols(),
                        std::make_integer_sequence<int, 2>());
  }
  // Registers that are in use would be saved with every switch of threads.
  __asm__ volatile("tilerelease");
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();
#else
#define HEED_HAS_AMX_CODE 0
#endif  // HEED_HAS_AMX_CODE

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Numbers below 2^-126 are 0 while it lives, operands and results, as the unit has them: FTZ and
// DAZ of MXCSR. What computes with it is a function that is not inlined, so that nothing moves out.
class WithoutSubnormals {
 public:
  WithoutSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~WithoutSubnormals() { _mm_setcsr(before_); }
  WithoutSubnormals(const WithoutSubnormals&) = delete;
  WithoutSubnormals& operator=(const WithoutSubnormals&) = delete;

 private:
  unsigned before_;
};

HWY_NOINLINE inline void SumByVectors(const TileProduct& p, const uint8_t* visible,
                                      size_t visible_stride) {
  const DF d;
  const hn::RebindToUnsigned<DF> du;
  const size_t lanes = hn::Lanes(d);
  const auto high = hn::Set(du, 0xFFFF0000u);
  const auto sees = [&](size_t row, size_t number) {
    return visible == nullptr || visible[row * visible_stride + number] != 0;
  };
  for (size_t col = 0; col < p.num_panels * PanelCols(); col += lanes) {
    const float* const b = p.panels + col / PanelCols() * p.panel_stride + col % PanelCols();
    for (size_t r = 0; r < p.rows; ++r) {
      VF sum = hn::Zero(d);
      for (size_t s = 0; s < p.steps; ++s) {
        VF first = hn::Zero(d);
        VF second = hn::Zero(d);
        for (size_t k = s * kStepPairs; k < (s + 1) * kStepPairs; ++k) {
          const auto pair = hn::BitCast(du, hn::Set(d, p.a[r * p.a_stride + k]));
          const auto values = hn::BitCast(du, hn::LoadU(d, b + k * PanelCols()));
          if (sees(r, 2 * k)) {
            first = hn::MulAdd(hn::BitCast(d, hn::ShiftLeft<16>(pair)),
                               hn::BitCast(d, hn::ShiftLeft<16>(values)), first);
          }
          if (sees(r, 2 * k + 1)) {
            second = hn::MulAdd(hn::BitCast(d, hn::And(pair, high)),
                                hn::BitCast(d, hn::And(values, high)), second);
          }
        }
        sum = hn::Add(sum, hn::Add(first, second));
      }
      hn::StoreU(sum, d, p.c + r * p.c_stride + col);
    }
  }
}

// The numbers of tdpbf16ps (Intel SDM): first and second numbers of pairs are summed apart over a
// step, in order, each by a fused multiply-add; then both sums are added, and that to C.
//
// With `visible`, [rows][2 * pairs] bytes `visible_stride` apart, an A that is not visible adds
// nothing, whatever B is.
inline void MultiplyByVectors(const TileProduct& p, const uint8_t* visible = nullptr,
                              size_t visible_stride = 0) {
  const WithoutSubnormals mode;
  SumByVectors(p, visible, visible_stride);
}

// The unit that this code can use.
inline TileUnit UsableTileUnit() { return CurrentTileUnit(HEED_HAS_AMX_CODE); }

inline void MultiplyTiles([[maybe_unused]] TileUnit unit, const TileProduct& p) {
#if HEED_HAS_AMX_CODE
  if (unit == TileUnit::kAmx) return MultiplyByAmx(p);
#endif
  MultiplyByVectors(p);
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();
#endif  // HWY_NATIVE_DOT_BF16

#endif  // HEED_SIMD_TILE_PRODUCTS_INL_H_
