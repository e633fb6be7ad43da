// Attention whose rows see a narrow band of keys each, such as windows: a few tiles of a KV head
// are packed at a time, and used before others take their place. Memory stays what fits a cache,
// however long the sequence is.
#if defined(HEED_EXACT_BANDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_BANDS_INL_H_
#undef HEED_EXACT_BANDS_INL_H_
#else
#define HEED_EXACT_BANDS_INL_H_
#endif

#include <algorithm>
#include <vector>

#include "src/exact/loop-inl.h"
#include "src/exact/split-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Packed floats of a band for each thread: 1 MiB, which a second-level cache holds or nearly so.
inline constexpr size_t kBandFloats = size_t{1} << 18;

// Blocks [first_block, last_block) of a unit, and the tiles [first_tile, last_tile) they see.
struct Band {
  int64_t unit;
  int64_t first_block, last_block;
  size_t first_tile, last_tile;

  size_t NumTiles() const { return last_tile - first_tile; }
};

// Tiles that are packed at once.
inline size_t BandTiles(const Plan& plan, int threads) {
  constexpr size_t kFewest = 4;
  const size_t tile_floats = std::max<size_t>(1, plan.KTileFloats() + plan.VTileFloats());
  return std::max(kFewest, static_cast<size_t>(threads) * kBandFloats / tile_floats);
}

inline Band BandOfBlock(const Plan& plan, int64_t unit, int64_t block) {
  Row row;
  const KeyRange keys = FillRows(plan, unit, block, [&]() -> Row& { return row; });
  return {unit, block, block + 1, static_cast<size_t>(keys.begin) / kTileKeys,
          (static_cast<size_t>(keys.end) + kTileKeys - 1) / kTileKeys};
}

// The blocks of both; `b` begins where `a` ends.
inline Band Join(const Band& a, const Band& b) {
  Band both = a.NumTiles() == 0 ? b : a;
  if (a.NumTiles() > 0 && b.NumTiles() > 0) {
    both.first_tile = std::min(a.first_tile, b.first_tile);
    both.last_tile = std::max(a.last_tile, b.last_tile);
  }
  both.first_block = a.first_block;
  both.last_block = b.last_block;
  return both;
}

// All blocks in bands of at most `most` tiles. None if a block sees more than half of that: then
// bands would share most of their tiles, and it is better to pack all.
inline ScratchVector<Band> FindBands(const Plan& plan, size_t most) {
  ScratchVector<Band> bands;
  // Scores of stages before the keep rules show every pair.
  const bool shows_all = plan.problem->outputs.scores.has_value();
  if (plan.visit != nullptr || shows_all || plan.num_tiles <= most) return bands;
  const auto is_wide = [&](const Band& band) { return 2 * band.NumTiles() > most; };
  if (is_wide(BandOfBlock(plan, 0, plan.num_blocks - 1))) return bands;
  for (int64_t unit = 0; unit < plan.num_units; ++unit) {
    for (int64_t block = 0; block < plan.num_blocks; ++block) {
      const Band next = BandOfBlock(plan, unit, block);
      if (is_wide(next)) return {};
      const Band joined = block == 0 ? next : Join(bands.back(), next);
      if (block > 0 && joined.NumTiles() <= most) {
        bands.back() = joined;
      } else {
        bands.push_back(next);
      }
    }
  }
  return bands;
}

// Tile t has place t % most among the packed ones, and stays there from band to band.
inline void RunBands(const Plan& plan, const ScratchVector<Band>& bands, size_t most,
                     ThreadPool& pool) {
  const size_t tile_floats = plan.KTileFloats() + plan.VTileFloats();
  const AlignedFloats packed(most * tile_floats);
  const auto scratch = MakeScratch(plan, pool.NumThreads(), false);
  ScratchVector<PackedTile> table(plan.num_tiles);
  for (size_t t = 0; t < table.size(); ++t) {
    float* k = packed.get() + t % most * tile_floats;
    table[t] = {k, k + plan.KTileFloats(), true};
  }
  const size_t none = plan.num_tiles;
  ScratchVector<size_t> held(most, none);
  ScratchVector<size_t> missing;
  missing.reserve(most);
  for (const Band& band : bands) {
    if (band.first_block == 0) std::fill(held.begin(), held.end(), none);
    missing.clear();
    for (size_t t = band.first_tile; t < band.last_tile; ++t) {
      if (held[t % most] != t) missing.push_back(held[t % most] = t);
    }
    pool.Run(static_cast<int64_t>(missing.size()), [&](int64_t index, int worker) {
      const size_t t = missing[static_cast<size_t>(index)];
      PackTile(plan, band.unit, t, scratch[static_cast<size_t>(worker)]->buffers(), table[t]);
    });
    pool.Run(band.last_block - band.first_block, [&](int64_t index, int worker) {
      const int64_t block = band.last_block - 1 - index;
      BlockLoop(plan, band.unit, block, {table.data()}, *scratch[static_cast<size_t>(worker)])
          .Run(block);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_BANDS_INL_H_
