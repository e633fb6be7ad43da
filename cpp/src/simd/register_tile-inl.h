// The register tile: C[rows][2 vectors] = A[rows][depth] x B[depth][2 vectors], the inner loop of
// both matrix products of attention.
#if defined(HEED_SIMD_REGISTER_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_SIMD_REGISTER_TILE_INL_H_
#undef HEED_SIMD_REGISTER_TILE_INL_H_
#else
#define HEED_SIMD_REGISTER_TILE_INL_H_
#endif

#include <stddef.h>
#include <stdint.h>

#include <utility>

#include "hwy/highway.h"
#include "src/simd/fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// Rows of a register tile: two vectors each, plus two of B and one of A, must fit the registers.
// 16 registers with FMA: 6 (12 accumulators). Without FMA a product needs a register: 4. V8 keeps
// one of 16 for itself and spills above 8 accumulators (4x8 is the only tile fast in every engine).
#if HWY_TARGET == HWY_AVX2
inline constexpr size_t kTileRows = 6;
#elif HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
inline constexpr size_t kTileRows = 8;
#else
inline constexpr size_t kTileRows = 4;
#endif

// Columns of a register tile and width of a packed panel of B: two vectors.
HWY_INLINE constexpr size_t PanelCols() { return 2 * hn::MaxLanes(DF()); }

// Where A[row][t] lies: a[t * depth_step + row * row_step]. Steps known at compile time reach all
// rows from one pointer.
template <size_t kDepthStep, size_t kRowStep>
struct ALayout {
  static constexpr size_t depth_step = kDepthStep;
  static constexpr size_t row_step = kRowStep;
};
// Rows as they lie in memory.
struct ARows {
  static constexpr size_t depth_step = 1;
  size_t row_step;
};
// Columns of a matrix whose rows lie in memory: a product with its transpose.
struct AColumns {
  size_t depth_step;
  static constexpr size_t row_step = 1;
};

// What happens at depth t: acc = Step(a, b, acc). An op with state reads it in `At(t)`, once for
// all rows.

// acc + a * b: dot products.
struct MultiplyAccumulate {
  HWY_INLINE MultiplyAccumulate At(size_t) const { return {}; }
  HWY_INLINE VF Step(VF a, VF b, VF acc) const { return Fma(a, b, acc); }
};

// acc + (a - b)^2: squared distances, without the cancellation of |a|^2 + |b|^2 - 2ab.
struct SquaredDifference {
  HWY_INLINE SquaredDifference At(size_t) const { return {}; }
  HWY_INLINE VF Step(VF a, VF b, VF acc) const {
    const VF difference = hn::Sub(a, b);
    return Fma(difference, difference, acc);
  }
};

// acc + (factor[t] * (a - b))^2: a width per dimension. Scaling a and b before the difference would
// round at their size, not at their difference's.
struct ScaledSquaredDifference {
  struct AtDepth {
    VF factor;
    HWY_INLINE VF Step(VF a, VF b, VF acc) const {
      const VF difference = hn::Mul(hn::Sub(a, b), factor);
      return Fma(difference, difference, acc);
    }
  };
  const float* factors;
  HWY_INLINE AtDepth At(size_t t) const { return {hn::Set(DF(), factors[t])}; }
};

// What becomes of the sums of row r.

// C = factor * (A op B).
struct StoreScaled {
  float factor;
  HWY_INLINE void operator()(DF d, VF acc, float* HWY_RESTRICT to, size_t) const {
    hn::StoreU(hn::Mul(acc, hn::Set(d, factor)), d, to);
  }
};
// C = A op B.
struct StoreOnly {
  HWY_INLINE void operator()(DF d, VF acc, float* HWY_RESTRICT to, size_t) const {
    hn::StoreU(acc, d, to);
  }
};
// C += A op B. One tile of keys is summed by itself before it joins the total: shorter chains, less
// rounding.
struct AddToStored {
  HWY_INLINE void operator()(DF d, VF acc, float* HWY_RESTRICT to, size_t) const {
    hn::StoreU(hn::Add(hn::LoadU(d, to), acc), d, to);
  }
};
// C = factors[row] * C + A op B.
struct AddToScaled {
  const float* factors;
  HWY_INLINE void operator()(DF d, VF acc, float* HWY_RESTRICT to, size_t r) const {
    hn::StoreU(Fma(hn::LoadU(d, to), hn::Set(d, factors[r]), acc), d, to);
  }
};

// kVectors = 1: only the first vector of each panel row, the second stays as it is.
template <class Layout, size_t kRows, size_t kVectors = 2, class Op, class Store>
HWY_INLINE void RegisterTile(Op op, const float* HWY_RESTRICT a, const float* HWY_RESTRICT panel,
                             size_t depth, float* HWY_RESTRICT c, size_t c_stride, Store store,
                             Layout layout = {}) {
  constexpr bool kBoth = kVectors == 2;
  const DF d;
  const size_t lanes = hn::Lanes(d);
  VF acc0[kRows];
  VF acc1[kRows];
  HWY_UNROLL(8)
  for (size_t r = 0; r < kRows; ++r) acc0[r] = acc1[r] = hn::Zero(d);
  for (size_t t = 0; t < depth; ++t) {
    const VF b0 = hn::LoadU(d, panel);
    const VF b1 = kBoth ? hn::LoadU(d, panel + lanes) : b0;
    panel += 2 * lanes;
    const auto at = op.At(t);
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) {
      const VF ar = hn::Set(d, a[r * layout.row_step]);
      acc0[r] = at.Step(ar, b0, acc0[r]);
      if constexpr (kBoth) acc1[r] = at.Step(ar, b1, acc1[r]);
    }
    a += layout.depth_step;
  }
  HWY_UNROLL(8)
  for (size_t r = 0; r < kRows; ++r) {
    store(d, acc0[r], c + r * c_stride, r);
    if constexpr (kBoth) store(d, acc1[r], c + r * c_stride + lanes, r);
  }
}

// Calls `body.template operator()<rows>()` for a row count known only at run time, 1..kMost.
template <size_t kMost = kTileRows, class Body>
HWY_INLINE void WithRows(size_t rows, Body&& body) {
  [&]<size_t... kIndex>(std::index_sequence<kIndex...>) HWY_ATTR {
    (void)((rows == kIndex + 1 ? (body.template operator()<kIndex + 1>(), true) : false) || ...);
  }
  (std::make_index_sequence<kMost>());
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_SIMD_REGISTER_TILE_INL_H_
