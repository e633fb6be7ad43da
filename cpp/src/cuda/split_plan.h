// How the keys of few rows are split between blocks: plain functions of sizes, on the host.
#ifndef HEED_SRC_CUDA_SPLIT_PLAN_H_
#define HEED_SRC_CUDA_SPLIT_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

namespace heed::cuda {

// How many parts the keys are split into, so that `blocks` blocks of `tiles` tiles each occupy
// `places` places for blocks: 1 when they already do or there is little to split; else the smallest
// count by which blocks take at most a ninth longer than by the best one: waves, times the tiles of
// the longest part.
int64_t NumSplits(int64_t blocks, int64_t tiles, int64_t places);

// The same for batch entries of different lengths: entry b, whose rows are `blocks` blocks of
// tiles[b] tiles each, is split into starts[b + 1] - starts[b] parts. The longest part is as short
// as it can be while every part of every block has a place at once, but where the parts that
// NumSplits() has for equal entries take less time in several waves. Where the entries alone are
// more than the places, parts are about as long as an even share of all tiles. Either way nearly
// equal entries have about as many blocks as equal ones.
std::vector<int32_t> SplitStarts(std::span<const int64_t> tiles, int64_t blocks, int64_t places);

// Blocks of the attention kernel that share a multiprocessor, and hide each other's waits: as many
// as its registers hold, where its shared memory has room for them: block_bytes each, when a block
// may have most_bytes.
int64_t ResidentBlocks(int64_t by_registers, int64_t block_bytes, int64_t most_bytes);

// Whether the last block of a row's splits merges them, which takes about as long as a launch when
// rows * splits is the limit here; else a second kernel does, with more blocks.
bool MergesInKernel(int64_t rows_of_block, int64_t splits);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_SPLIT_PLAN_H_
