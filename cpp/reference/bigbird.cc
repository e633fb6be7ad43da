// BigBird: blocks of tokens; a window of blocks, global blocks, random blocks.
//
// Source: Zaheer et al. 2020, arXiv:2007.14062, section 2 (internal transformer construction). The
// paper leaves the generator open; heed/keep.h states ours, which passes over the first global
// blocks and the window but not over the last blocks.
#include <cstdlib>
#include <set>
#include <vector>

#include "dropout.h"
#include "exact.h"
#include "patterns.h"

namespace heed::reference {
namespace {

// The number that SplitMix64 gives from a state, which it advances.
uint64_t Draw(uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t First(uint64_t state) { return Draw(state); }

struct Blocks {
  int64_t count, window, global, last, random;
  uint64_t seed;

  bool Certain(int64_t i, int64_t j) const {
    return i < global || j < global || std::abs(i - j) <= window / 2;
  }

  bool AtTheEnd(int64_t i, int64_t j) const { return i >= count - last || j >= count - last; }

  std::set<int64_t> Random(int64_t h, int64_t i) const {
    std::set<int64_t> left;
    for (int64_t j = 0; j < count; ++j) {
      if (!Certain(i, j)) left.insert(j);
    }
    std::set<int64_t> drawn;
    uint64_t state = First(First(seed + static_cast<uint64_t>(h)) + static_cast<uint64_t>(i));
    while (static_cast<int64_t>(drawn.size()) < random && !left.empty()) {
      const int64_t block = static_cast<int64_t>(Draw(state) % static_cast<uint64_t>(count));
      if (left.erase(block) != 0) drawn.insert(block);
    }
    return drawn;
  }
};

}  // namespace

PairRule BigBirdRule(const Request& request, const Qkv& qkv) {
  const std::vector<int64_t> sizes = ReadWholes(request, "block_size", 1);
  if (sizes.size() > 1) throw Error(ErrorCode::kShape, "block_size: expected one number");
  const int64_t size = sizes.empty() ? 64 : sizes[0];
  const Blocks blocks = {(qkv.kv_len + size - 1) / size,
                         ReadWhole(request, "window_blocks", 3, 1),
                         ReadWhole(request, "global_blocks", 2, 0),
                         ReadWhole(request, "last_blocks", 0, 0),
                         ReadWhole(request, "random_blocks", 3, 0),
                         ReadSeed(request, "pattern_seed")};
  if (blocks.window % 2 == 0) throw Error(ErrorCode::kRange, "window_blocks must be odd");
  std::vector<std::set<int64_t>> random;
  for (int64_t h = 0; h < qkv.num_heads; ++h) {
    for (int64_t i = 0; i < blocks.count; ++i) random.push_back(blocks.Random(h, i));
  }
  return [=](const Pair& at) {
    const int64_t i = at.p / size, j = at.j / size;
    return blocks.Certain(i, j) || blocks.AtTheEnd(i, j) ||
           random[at.h * blocks.count + i].count(j) != 0;
  };
}

namespace bigbird {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), SoftmaxNormalize(request, qkv));
}

}  // namespace bigbird
}  // namespace heed::reference
