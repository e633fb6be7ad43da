// The keys that a query sees, one by one, outside of the tiled loop.
#ifndef HEED_SRC_COMPOSE_BACKWARD_SEEN_KEYS_H_
#define HEED_SRC_COMPOSE_BACKWARD_SEEN_KEYS_H_

#include <algorithm>
#include <cstdint>

#include "src/exact/keep/key_bits.h"
#include "src/exact/keep/plugs.h"
#include "src/exact/keep/range.h"

namespace heed {

class SeenKeys {
 public:
  // The problem must outlive it.
  explicit SeenKeys(const AttentionProblem& problem)
      : problem_(problem), keep_(MakeKeepPlugs(problem)) {}

  bool only_ranges() const { return keep_.empty(); }

  // Calls body(j) for the keys of [from, to) that query i of a head sees, ascending. A bias of -inf
  // is not looked at.
  template <class Body>
  void ForEach(int64_t b, int64_t h, int64_t i, int64_t from, int64_t to, const Body& body) const {
    const KeyRange keys = VisibleKeys(problem_, b, i);
    const Row row = {h, i, problem_.Position(b, i), keys};
    const int64_t end = std::min(to, keys.end);
    for (int64_t j = std::max(from, keys.begin); j < end;) {
      const int64_t tile = j / kTile * kTile, stop = std::min(end, tile + kTile);
      KeyBits bits;
      bits.SetRange(static_cast<size_t>(j - tile), static_cast<size_t>(stop - tile));
      const KeepTile keep_tile = {b, &row, 1, tile, static_cast<size_t>(stop - tile)};
      for (const auto& keep : keep_) keep->Narrow(keep_tile, &bits);
      for (; j < stop; ++j) {
        if (bits.Test(static_cast<size_t>(j - tile))) body(j);
      }
    }
  }

 private:
  static constexpr int64_t kTile = static_cast<int64_t>(kTileKeys);

  const AttentionProblem& problem_;
  KeepPlugs keep_;
};

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_BACKWARD_SEEN_KEYS_H_
