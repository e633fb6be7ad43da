// Scores and sums of int8 keys and values as they are stored, in fixed point: half the time that
// they take as floats (Zen 4). Cached rows were rounded to bytes before, by up to 1 / 254 of their
// largest number. What fixed point rounds is at most 0.4 % of what that may have cost.
#if defined(HEED_EXACT_STORED_BYTES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_STORED_BYTES_INL_H_
#undef HEED_EXACT_STORED_BYTES_INL_H_
#else
#define HEED_EXACT_STORED_BYTES_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "src/exact/stored_rows-inl.h"
#include "src/exact/tile.h"
#include "src/simd/fixed_point-inl.h"
#include "src/simd/pack-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HEED_MULTIPLIES_BYTES

// Signed bytes, 128 more each.
HWY_INLINE VU8 LoadRaised(const void* from) {
  const DU8 d;
  return hn::Xor(hn::LoadU(d, static_cast<const uint8_t*>(from)), hn::Set(d, 0x80));
}

// The scores of rows [r, r + kRows) of the tile. Keys are transposed four bytes at a time: then
// each lane adds up the score of one key.
template <size_t kRows>
HWY_NOINLINE void DotByteKeys(const StoredRows& keys, const FixedRows& queries, size_t depth,
                              size_t r0, const ScoreTile& tile) {
  constexpr size_t kLanes = hn::MaxLanes(DF());
  const DF d;
  for (size_t c = tile.first; c < tile.last; c += kLanes) {
    VI32 sums[kRows][kDigits];
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t i = 0; i < kDigits; ++i) sums[r][i] = hn::Set(DI32(), queries.offsets[r][i]);
    }
    for (size_t t = 0; t < depth; t += 4 * kLanes) {
      const TransposedSquare<kLanes> square([&](size_t r) HWY_ATTR {
        return hn::BitCast(d, LoadRaised(static_cast<const uint8_t*>(keys.rows[c + r]) + t));
      });
      HWY_UNROLL(16)
      for (size_t i = 0; i < kLanes; ++i) {
        PrefetchAhead(static_cast<const uint8_t*>(keys.rows[c + i]) + t);
        AddFourBytes<kRows>(hn::BitCast(DU8(), square(i)), queries.fours + t / 4 + i, sums);
      }
    }
    const VF scales = hn::LoadU(d, keys.scales + c);
    for (size_t r = 0; r < kRows; ++r) {
      const VF dots = hn::Mul(JoinDigits(sums[r]), hn::Set(d, queries.units[r]));
      hn::Store(hn::Mul(dots, scales), d, tile.row_scores(r0 + r) + c);
    }
  }
}

// The scores of a tile of few queries, [num_rows][depth]. False if they are not what fixed point
// holds: then all are still to be computed.
inline bool DotBytes(const StoredRows& keys, const float* queries, size_t depth,
                     const ScoreTile& tile) {
  if (depth % hn::Lanes(DU8()) != 0 || depth > kMostBytes) return false;
  FixedRows fixed;
  for (size_t r0 = 0; r0 < tile.num_rows; r0 += kByteRows) {
    bool holds = true;
    WithRows<kByteRows>(std::min(kByteRows, tile.num_rows - r0), [&]<size_t kRows>() HWY_ATTR {
      for (size_t r = 0; holds && r < kRows; ++r) {
        const float* row = queries + (r0 + r) * depth;
        holds = FixRow(
            depth, r, [&](size_t t) HWY_ATTR { return hn::LoadU(DF(), row + t); }, fixed);
      }
      if (holds) DotByteKeys<kRows>(keys, fixed, depth, r0, tile);
    });
    if (!holds) return false;
  }
  return true;
}

// Keys of a panel of values, and what the sums of kRows rows are made from: vectors of
// panel[v_cols / 16][keys / 4] hold four keys of 16 columns, four bytes side by side.
inline constexpr size_t kByteKeys = 32;
struct BytePanel {
  HWY_ALIGN uint8_t bytes[kByteKeys * kMostBytes];
  HWY_ALIGN int32_t sums[kMostBytes * kByteRows * kDigits];
};

// Columns come as bytes interleave: in each 64 of them, vector n holds 4 n + [0, 4) of every 16.
HWY_INLINE void PackByteValues(const StoredRows& values, size_t key, size_t v_cols,
                               uint8_t* HWY_RESTRICT to) {
  const DU8 d;
  const hn::Repartition<uint16_t, DU8> d2;
  constexpr size_t kVector = hn::MaxLanes(DU8());
  constexpr size_t kStep = kByteKeys / 4 * kVector;  // to the next vector of columns
  for (size_t j = 0; j < kByteKeys; j += 4, to += kVector) {
    const uint8_t* rows[4];
    for (size_t r = 0; r < 4; ++r) rows[r] = static_cast<const uint8_t*>(values.rows[key + j + r]);
    for (size_t c = 0; c < v_cols; c += kVector) {
      const VU8 r0 = LoadRaised(rows[0] + c);
      const VU8 r1 = LoadRaised(rows[1] + c);
      const VU8 r2 = LoadRaised(rows[2] + c);
      const VU8 r3 = LoadRaised(rows[3] + c);
      const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d, r0, r1));
      const auto high01 = hn::BitCast(d2, hn::InterleaveUpper(d, r0, r1));
      const auto low23 = hn::BitCast(d2, hn::InterleaveLower(d, r2, r3));
      const auto high23 = hn::BitCast(d2, hn::InterleaveUpper(d, r2, r3));
      uint8_t* const vectors = to + c / kVector * 4 * kStep;
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d2, low01, low23)), d, vectors);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d2, low01, low23)), d, vectors + kStep);
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d2, high01, high23)), d, vectors + 2 * kStep);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d2, high01, high23)), d, vectors + 3 * kStep);
    }
  }
}

// Adds weights x values of a panel, whose first key is column `key` of the tile and whose weights
// begin at `first`. The next ones are asked for meanwhile, a line for each four keys of a vector of
// columns: as many as are used.
template <size_t kRows>
HWY_INLINE void AddBytePanel(const StoredRows& values, size_t key, const FixedRows& weights,
                             size_t first, size_t v_cols, BytePanel& panel) {
  constexpr size_t kLanes = hn::MaxLanes(DF());
  constexpr size_t kVector = hn::MaxLanes(DU8());
  constexpr size_t kFours = kByteKeys / 4;
  const DI32 di;
  constexpr size_t kLines = kByteKeys / kFours;  // of as many columns, one a row
  const uint8_t* HWY_RESTRICT bytes = panel.bytes;
  const FourNumbers* const fours = weights.fours + first / 4;
  int32_t* HWY_RESTRICT totals = panel.sums;
  for (size_t c = 0; c < v_cols / kLanes; ++c) {
    VI32 sums[kRows][kDigits];
    for (size_t n = 0; n < kRows * kDigits; ++n) {
      sums[n / kDigits][n % kDigits] = hn::Load(di, totals + n * kLanes);
    }
    HWY_UNROLL(16)
    for (size_t g = 0; g < kFours; ++g) {
      const void* row = values.rows[key + c % kLines * kFours + g];
      PrefetchAhead(static_cast<const uint8_t*>(row) + c / kLines * kVector);
      AddFourBytes<kRows>(hn::Load(DU8(), bytes + g * kVector), fours + g, sums);
    }
    for (size_t n = 0; n < kRows * kDigits; ++n) {
      hn::Store(sums[n / kDigits][n % kDigits], di, totals + n * kLanes);
    }
    bytes += kFours * kVector;
    totals += kRows * kDigits * kLanes;
  }
}

// 64 columns of a row, whose sums lie as PackByteValues() left the bytes, a vector every `step`.
HWY_INLINE void StoreByteSums(const int32_t* HWY_RESTRICT sums, size_t step, float unit,
                              float* HWY_RESTRICT to) {
  constexpr size_t kLanes = hn::MaxLanes(DF());
  const DF d;
  VF columns[4];
  for (size_t n = 0; n < 4; ++n, sums += step) {
    VI32 digits[kDigits];
    for (size_t i = 0; i < kDigits; ++i) digits[i] = hn::Load(DI32(), sums + i * kLanes);
    columns[n] = hn::Mul(JoinDigits(digits), hn::Set(d, unit));
  }
  TransposeBlocks(columns);
  for (size_t n = 0; n < 4; ++n) hn::StoreU(columns[n], d, to + n * kLanes);
}

// Rows [r0, r0 + kRows) of sums = weights x values.
template <size_t kRows>
HWY_NOINLINE void SumByteRows(const StoredRows& values, const FixedRows& weights, size_t r0,
                              const ScoreTile& tile, size_t v_cols, float* HWY_RESTRICT sums) {
  constexpr size_t kLanes = hn::MaxLanes(DF());
  constexpr size_t kNumbers = kRows * kDigits;
  const DI32 di;
  BytePanel panel;
  for (size_t c = 0; c < v_cols; c += kLanes) {
    for (size_t n = 0; n < kNumbers; ++n) {
      const VI32 offset = hn::Set(di, weights.offsets[n / kDigits][n % kDigits]);
      hn::Store(offset, di, panel.sums + (c / kLanes * kNumbers + n) * kLanes);
    }
  }
  for (size_t key = tile.first; key < tile.last; key += kByteKeys) {
    PackByteValues(values, key, v_cols, panel.bytes);
    AddBytePanel<kRows>(values, key, weights, key - tile.first, v_cols, panel);
  }
  for (size_t c = 0; c < v_cols; c += 4 * kLanes) {
    for (size_t r = 0; r < kRows; ++r) {
      StoreByteSums(panel.sums + (c / kLanes * kRows + r) * kDigits * kLanes, kNumbers * kLanes,
                    weights.units[r], sums + (r0 + r) * v_cols + c);
    }
  }
}

// sums[row][v_cols] = weights x values. False if they are not what fixed point holds: then all are
// still to be computed.
inline bool SumBytes(const StoredRows& values, const ScoreTile& tile, size_t v_cols, float* sums) {
  const DF d;
  if (v_cols % hn::Lanes(DU8()) != 0 || v_cols > kMostBytes) return false;
  const size_t end = std::min(tile.last, tile.num_keys) - tile.first;
  FixedRows fixed;
  for (size_t r0 = 0; r0 < tile.num_rows; r0 += kByteRows) {
    bool holds = true;
    WithRows<kByteRows>(std::min(kByteRows, tile.num_rows - r0), [&]<size_t kRows>() HWY_ATTR {
      for (size_t r = 0; holds && r < kRows; ++r) {
        const float* weights = tile.row_scores(r0 + r) + tile.first;
        const auto scaled = [&](size_t t) HWY_ATTR {
          const VF scale = hn::LoadU(d, values.scales + tile.first + t);
          const auto is_key = hn::FirstN(d, end - std::min(t, end));
          return hn::IfThenElseZero(is_key, hn::Mul(hn::LoadU(d, weights + t), scale));
        };
        holds = FixRow(tile.last - tile.first, r, scaled, fixed);
      }
      if (holds) SumByteRows<kRows>(values, fixed, r0, tile, v_cols, sums);
    });
    if (!holds) return false;
  }
  return true;
}

#else

inline bool DotBytes(const StoredRows&, const float*, size_t, const ScoreTile&) { return false; }
inline bool SumBytes(const StoredRows&, const ScoreTile&, size_t, float*) { return false; }

#endif  // HEED_MULTIPLIES_BYTES

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_STORED_BYTES_INL_H_
