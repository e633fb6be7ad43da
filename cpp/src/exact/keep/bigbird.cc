// The blocks of BigBird. Source: Zaheer 2020, arXiv:2007.14062.
#include <algorithm>
#include <numeric>

#include "src/exact/keep/block_list.h"
#include "src/sort.h"
#include "src/split_mix.h"

namespace heed {
namespace {

// Appends the random blocks of block i, which sees the sorted blocks `seen` already.
void DrawBlocks(const BigBird& rule, int64_t count, uint64_t head, uint64_t i,
                const std::vector<int32_t>& seen, std::vector<int32_t>& drawn) {
  SplitMix64 generator(SplitMix64(SplitMix64(rule.seed + head).Next() + i).Next());
  const int64_t wanted = std::min(rule.random_blocks, count - static_cast<int64_t>(seen.size()));
  while (static_cast<int64_t>(drawn.size()) < wanted) {
    const auto block = static_cast<int32_t>(generator.Next() % static_cast<uint64_t>(count));
    if (std::binary_search(seen.begin(), seen.end(), block)) continue;
    if (std::find(drawn.begin(), drawn.end(), block) == drawn.end()) drawn.push_back(block);
  }
}

// The first global blocks and the window around block i, ascending.
std::vector<int32_t> CertainBlocks(const BigBird& rule, int64_t count, int64_t i) {
  std::vector<int32_t> blocks;
  const int64_t side = std::min(rule.window_blocks / 2, count);
  for (int64_t j = 0; j < std::min(rule.global_blocks, count); ++j) {
    blocks.push_back(static_cast<int32_t>(j));
  }
  const int64_t first = std::max(i - side, static_cast<int64_t>(blocks.size()));
  for (int64_t j = first; j <= std::min(i + side, count - 1); ++j) {
    blocks.push_back(static_cast<int32_t>(j));
  }
  return blocks;
}

// Adds the blocks from `last` on to the ascending `blocks`.
void AddLastBlocks(int64_t last, int64_t count, std::vector<int32_t>& blocks) {
  blocks.erase(std::lower_bound(blocks.begin(), blocks.end(), last), blocks.end());
  for (int64_t j = last; j < count; ++j) blocks.push_back(static_cast<int32_t>(j));
}

}  // namespace

BlockRows BlocksOfBigBird(const BigBird& rule, const AttentionProblem& p) {
  const int64_t count = (p.kv_len + rule.block_size - 1) / rule.block_size;
  BlockRows rows = {rule.block_size, rule.block_size, count, p.num_heads, {}, {}};
  std::vector<int32_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int32_t> drawn;
  const int64_t last = count - std::min(rule.last_blocks, count);
  for (int64_t h = 0; h < p.num_heads; ++h) {
    for (int64_t i = 0; i < count; ++i) {
      rows.starts.push_back(static_cast<int64_t>(rows.blocks.size()));
      std::vector<int32_t> blocks = all;
      if (i >= rule.global_blocks && i < last) {
        blocks = CertainBlocks(rule, count, i);
        drawn.clear();
        DrawBlocks(rule, count, static_cast<uint64_t>(h), static_cast<uint64_t>(i), blocks, drawn);
        blocks.insert(blocks.end(), drawn.begin(), drawn.end());
        HeapSort(blocks.begin(), blocks.end());
        AddLastBlocks(last, count, blocks);
      }
      rows.blocks.insert(rows.blocks.end(), blocks.begin(), blocks.end());
    }
  }
  rows.starts.push_back(static_cast<int64_t>(rows.blocks.size()));
  return rows;
}

}  // namespace heed
