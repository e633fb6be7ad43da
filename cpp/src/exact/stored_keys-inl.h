// Dot products with keys that are used where they lie and as they are stored.
#if defined(HEED_EXACT_STORED_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_STORED_KEYS_INL_H_
#undef HEED_EXACT_STORED_KEYS_INL_H_
#else
#define HEED_EXACT_STORED_KEYS_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "src/exact/stored_bytes-inl.h"
#include "src/exact/stored_rows-inl.h"
#include "src/exact/tile.h"
#include "src/simd/pack-inl.h"
#include "src/simd/reduce-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Adds dimensions [t, t + lanes) of the keys of a vector of columns, which begins at c, to the
// scores of kRows queries. Keys are transposed in registers. A score is one chain of multiply-adds
// in ascending order of dimensions, as in a register tile: the same bits.
template <class T, size_t kRows>
HWY_INLINE void AddKeySquare(const StoredRows& keys, size_t c, size_t t,
                             const float* HWY_RESTRICT queries, VF (&scores)[kRows]) {
  constexpr size_t kLanes = hn::MaxLanes(DF());
  const TransposedSquare<kLanes> square([&](size_t r) HWY_ATTR {
    return LoadStored(DF(), static_cast<const T*>(keys.rows[c + r]) + t);
  });
  HWY_UNROLL(16)
  for (size_t i = 0; i < kLanes; ++i) {
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) {
      scores[r] = Fma(hn::Set(DF(), queries[(t + i) * kRows + r]), square(i), scores[r]);
    }
  }
}

// Columns [c, c + PanelCols()) of the scores of kRows queries, [depth][kRows]. Where vectors are
// short, a query or two have too few chains to fill the pipelines: then both vectors of columns
// pass at once. Long ones would not fit the registers. Only the first `count` columns are keys:
// where the others fill a long vector, nothing is multiplied for it.
template <class T, size_t kRows>
HWY_INLINE void DotKeyPanel(const StoredRows& keys, size_t c, size_t count,
                            const float* HWY_RESTRICT queries, size_t depth,
                            float* HWY_RESTRICT scores) {
  constexpr size_t kLanes = hn::MaxLanes(DF());
  constexpr size_t kVectors = kLanes == 4 && 2 * kRows <= kTileRows ? 2 : 1;
  const DF d;
  for (size_t first = c; first < c + PanelCols(); first += kVectors * kLanes) {
    VF sums[kVectors][kRows];
    HWY_UNROLL(2)
    for (size_t i = 0; i < kVectors; ++i) {
      HWY_UNROLL(8)
      for (size_t r = 0; r < kRows; ++r) sums[i][r] = hn::Zero(d);
    }
    const size_t used = kLanes == 4 || first < c + count ? depth : 0;
    for (size_t t = 0; t < used; t += kLanes) {
      HWY_UNROLL(2)
      for (size_t i = 0; i < kVectors; ++i) {
        AddKeySquare<T, kRows>(keys, first + i * kLanes, t, queries, sums[i]);
      }
    }
    HWY_UNROLL(2)
    for (size_t i = 0; i < kVectors; ++i) {
      HWY_UNROLL(8)
      for (size_t r = 0; r < kRows; ++r) {
        hn::Store(sums[i][r], d, scores + r * kTileKeys + first + i * kLanes);
      }
    }
  }
}

// The scores of a tile of at most kTileRows queries, packed as one group. `depth` is a multiple of
// a vector.
template <class T>
void DotKeys(const StoredRows& keys, const float* queries, size_t depth, const ScoreTile& tile) {
  for (size_t c = tile.first; c < tile.last; c += PanelCols()) {
    WithRows(tile.num_rows, [&]<size_t kRows>() HWY_ATTR {
      DotKeyPanel<T, kRows>(keys, c, tile.num_keys - c, queries, depth, tile.scores);
    });
  }
}

// Types that DotStoredKeys() takes. What is stored in a byte takes so long to convert that rows are
// better converted whole (float8: 5 %, Zen 4). In WebAssembly, where the size of code counts, two
// bytes are converted and packed as well.
inline bool DotsStored(DType dtype) {
  const bool is_half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  return dtype == DType::kFloat32 || (is_half && !HWY_ARCH_WASM);
}

HWY_NOINLINE inline void DotStoredKeys([[maybe_unused]] DType dtype, const StoredRows& keys,
                                       const float* queries, size_t depth, const ScoreTile& tile) {
#if !HWY_ARCH_WASM
  if (dtype == DType::kFloat16) return DotKeys<Float16>(keys, queries, depth, tile);
  if (dtype == DType::kBFloat16) return DotKeys<BFloat16>(keys, queries, depth, tile);
#endif
  DotKeys<float>(keys, queries, depth, tile);
}

// The lanes of kRows queries, [kRows][depth], times kKeys keys, four vectors a query; kLoaded
// vectors of a key come from one load. One key at a time, and each vector of it by an instruction
// of its own: then the processor's prefetchers see one stream, in steps of a row, and run as far
// ahead as when memory is only read. Two keys share loads of queries. That is better for vectors of
// four, which take so many instructions, and for two-byte numbers in vectors of 16: one key at a
// time waits for loads, one a cycle (Zen 4). The latter are asked for ahead. Four vectors of four
// keys are no quicker from a cache, and take a third longer from memory.
template <class T, size_t kLoaded, size_t kRows, size_t kKeys>
HWY_INLINE void DotSomeKeys(const void* const* keys, const float* scales,
                            const float* HWY_RESTRICT queries, size_t depth,
                            float* HWY_RESTRICT lanes) {
  constexpr size_t kLanes = hn::MaxLanes(DF());
  constexpr bool kShares = kLanes == 16 && kKeys > 1;
  constexpr size_t kStep = kLoaded * kLanes;
  constexpr size_t kUnroll = kKeys > 1 && !kShares ? 1 : 8 / kLoaded;
  const DF d;
  VF sums[kKeys][kRows];
  for (size_t i = 0; i < kKeys; ++i) {
    for (size_t r = 0; r < kRows; ++r) sums[i][r] = hn::Zero(d);
  }
  const auto add = [&](size_t t) HWY_ATTR {
    VF k[kKeys][kLoaded];
    HWY_UNROLL(4)
    for (size_t i = 0; i < kKeys; ++i) {
      const T* from = static_cast<const T*>(keys[i]) + t;
      if (kShares) PrefetchAhead(from);
      LoadVectors(from, scales + i, k[i]);
    }
    HWY_UNROLL(16)
    for (size_t n = 0; n < kLoaded * kRows; ++n) {
      const size_t part = n / kRows;
      const size_t r = n % kRows;
      const VF query = hn::LoadU(d, queries + r * depth + t + part * kLanes);
      if (kShares) HWY_FENCE;  // once, not again for each key
      HWY_UNROLL(4)
      for (size_t i = 0; i < kKeys; ++i) sums[i][r] = Fma(query, k[i][part], sums[i][r]);
    }
  };
  size_t t = 0;
  for (; t + kUnroll * kStep <= depth; t += kUnroll * kStep) {
    HWY_UNROLL(8)
    for (size_t i = 0; i < kUnroll; ++i) add(t + i * kStep);
  }
  for (; t < depth; t += kStep) add(t);
  for (size_t i = 0; i < kKeys; ++i) {
    for (size_t r = 0; r < kRows; ++r) hn::Store(sums[i][r], d, lanes + (r * 4 + i) * kLanes);
  }
}

// The scores of kRows queries and four keys from column c on. Sums of lanes are added last.
template <class T, size_t kLoaded, size_t kRows>
HWY_INLINE void DotFourKeys(const StoredRows& keys, size_t c, const float* HWY_RESTRICT queries,
                            size_t depth, float* HWY_RESTRICT scores) {
  constexpr size_t kLanes = hn::MaxLanes(DF());
  const DF d;
  HWY_ALIGN float lanes[kRows * 4 * kLanes];
  constexpr size_t kLongKeys = kLanes == 16 && sizeof(T) == 2 ? 2 : 1;
  constexpr size_t kKeys = kLanes > 4 ? kLongKeys : 2;
  for (size_t i = 0; i < 4; i += kKeys) {
    DotSomeKeys<T, kLoaded, kRows, kKeys>(keys.rows + c + i, keys.scales + c + i, queries, depth,
                                          lanes + i * kLanes);
  }
  HWY_UNROLL(8)
  for (size_t r = 0; r < kRows; ++r) {
    VF sums[4];
    HWY_UNROLL(4)
    for (size_t i = 0; i < 4; ++i) sums[i] = hn::Load(d, lanes + (r * 4 + i) * kLanes);
    hn::StoreU(ReduceFour(d, sums, SumOf()), D4(), scores + r * kTileKeys + c);
  }
}

// The scores of a tile of few queries, [num_rows][depth], whose keys are read once and in the order
// of memory. `depth` is a multiple of kLoaded vectors, whose numbers lie as those of keys come.
template <class T, size_t kLoaded>
void DotKeyRows(const StoredRows& keys, const float* queries, size_t depth, const ScoreTile& tile) {
  WithRows(tile.num_rows, [&]<size_t kRows>() HWY_ATTR {
    for (size_t c = tile.first; c < tile.last; c += 4) {
      DotFourKeys<T, kLoaded, kRows>(keys, c, queries, depth, tile.scores);
    }
  });
}

// The same for queries whose numbers lie in order, in a multiple of one vector.
template <class T>
void DotKeysInOrder(const StoredRows& keys, const float* queries, size_t depth,
                    const ScoreTile& tile) {
  constexpr size_t kMostDepth = 256;
  if constexpr (kLoadsEvenOdd<T>) {
    if (depth % PanelCols() == 0 && depth <= kMostDepth) {
      const DF d;
      HWY_ALIGN float even_odd[kTileRows * kMostDepth];
      for (size_t t = 0; t < tile.num_rows * depth; t += PanelCols()) {
        VF even, odd;
        hn::LoadInterleaved2(d, queries + t, even, odd);
        hn::Store(even, d, even_odd + t);
        hn::Store(odd, d, even_odd + t + hn::Lanes(d));
      }
      return DotKeyRows<T, 2>(keys, even_odd, depth, tile);
    }
  }
  DotKeyRows<T, 1>(keys, queries, depth, tile);
}

HWY_NOINLINE inline void DotStoredRows([[maybe_unused]] DType dtype, const StoredRows& keys,
                                       const float* queries, size_t depth, const ScoreTile& tile) {
  if (dtype == DType::kInt8 && DotBytes(keys, queries, depth, tile)) return;
#if HWY_ARCH_WASM
  DotKeyRows<float, 1>(keys, queries, depth, tile);
#else
  WithStored(dtype, [&]<class T>() HWY_ATTR { DotKeysInOrder<T>(keys, queries, depth, tile); });
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_STORED_KEYS_INL_H_
