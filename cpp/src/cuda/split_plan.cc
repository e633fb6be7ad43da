#include "src/cuda/split_plan.h"

#include <algorithm>

#include "src/cuda/grid.h"
#include "src/cuda/schedule.h"

namespace heed::cuda {
namespace {

constexpr int64_t kFewTiles = 4;
constexpr int64_t kMostSplits = 128;

int64_t Longest(std::span<const int64_t> tiles) {
  return tiles.empty() ? 0 : *std::max_element(tiles.begin(), tiles.end());
}

// Parts of so many tiles at most. An empty entry has one too.
int64_t PartsOf(std::span<const int64_t> tiles, int64_t share) {
  int64_t parts = 0;
  for (const int64_t count : tiles) parts += std::max<int64_t>(CeilDiv(count, share), 1);
  return parts;
}

// The smallest share with which all parts, one place for each of `blocks`, are one wave.
int64_t ShareOfOneWave(std::span<const int64_t> tiles, int64_t blocks, int64_t places) {
  int64_t low = 1, high = Longest(tiles);
  while (low < high) {
    const int64_t share = low + (high - low) / 2;
    if (PartsOf(tiles, share) * blocks <= places) {
      high = share;
    } else {
      low = share + 1;
    }
  }
  return low;
}

// The better one of that and of what NumSplits() gives to entries that are all as long as the
// longest: where one wave leaves many places empty, several may take less time.
int64_t LeastShare(std::span<const int64_t> tiles, int64_t blocks, int64_t places) {
  const int64_t longest = Longest(tiles), entries = static_cast<int64_t>(tiles.size());
  const int64_t one_wave = ShareOfOneWave(tiles, blocks, places);
  const int64_t equal = CeilDiv(longest, NumSplits(entries * blocks, longest, places));
  const int64_t waves = CeilDiv(PartsOf(tiles, equal) * blocks, places);
  return waves * equal < one_wave ? equal : one_wave;
}

int64_t EvenShare(std::span<const int64_t> tiles, int64_t blocks, int64_t places) {
  int64_t all = 0;
  for (const int64_t count : tiles) all += count * blocks;
  return CeilDiv(all, places);
}

// How many tiles, one after the other, blocks take that are split into so many parts: of their
// waves, and the longest part.
int64_t TurnsOf(int64_t blocks, int64_t tiles, int64_t places, int64_t splits) {
  return CeilDiv(blocks * splits, places) * CeilDiv(tiles, splits);
}

}  // namespace

int64_t NumSplits(int64_t blocks, int64_t tiles, int64_t places) {
  if (blocks == 0 || 5 * blocks >= 4 * places || tiles <= kFewTiles) return 1;
  const int64_t most = std::min({kMostSplits, places, tiles});
  int64_t best = TurnsOf(blocks, tiles, places, most);
  for (int64_t s = 1; s < most; ++s) best = std::min(best, TurnsOf(blocks, tiles, places, s));
  int64_t splits = 1;
  while (9 * TurnsOf(blocks, tiles, places, splits) > 10 * best) ++splits;
  return splits;
}

std::vector<int32_t> SplitStarts(std::span<const int64_t> tiles, int64_t blocks, int64_t places) {
  const bool fits = static_cast<int64_t>(tiles.size()) * blocks <= places;
  int64_t share = std::max<int64_t>(Longest(tiles), 1);  // few tiles are not split: NumSplits()
  if (share > kFewTiles) {
    share = fits ? LeastShare(tiles, blocks, places) : EvenShare(tiles, blocks, places);
  }
  const int64_t rounding = fits ? share - 1 : share / 2;
  std::vector<int32_t> starts = {0};
  for (const int64_t count : tiles) {
    const int64_t parts = std::clamp((count + rounding) / share, int64_t{1}, kMostSplits);
    starts.push_back(starts.back() + static_cast<int32_t>(parts));
  }
  return starts;
}

int64_t ResidentBlocks(int64_t by_registers, int64_t block_bytes, int64_t most_bytes) {
  const int64_t room = (most_bytes + kReservedBytes) / (block_bytes + kReservedBytes);
  return std::clamp(room, int64_t{1}, by_registers);
}

bool MergesInKernel(int64_t rows_of_block, int64_t splits) {
  return rows_of_block * splits <= kMostMergedParts;
}

}  // namespace heed::cuda
