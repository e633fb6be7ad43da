// Keep plug: a window that leaves the first keys visible (attention sinks, Xiao 2023,
// arXiv:2309.17453). What lies between them and the window is hidden.
#ifndef HEED_SRC_EXACT_KEEP_SINK_WINDOW_H_
#define HEED_SRC_EXACT_KEEP_SINK_WINDOW_H_

#include <algorithm>

#include "src/exact/keep/keep.h"

namespace heed {

class SinkWindow final : public CellKeep {
 public:
  // Hidden for a query at position p: keys [sink_keys, p - left).
  SinkWindow(int64_t sink_keys, int64_t left) : sink_keys_(sink_keys), left_(left) {}

  bool MayMeet(const KeepTile& tile) const override {
    // The first row hides the fewest keys.
    const KeyRange keys = tile.keys();
    return keys.begin < sink_keys_ || keys.end > tile.rows[0].position - left_;
  }

  void Narrow(const KeepTile& tile, KeyBits* bits) const override {
    const int64_t count = static_cast<int64_t>(tile.num_keys);
    const int64_t sinks = std::clamp<int64_t>(sink_keys_ - tile.key_begin, 0, count);
    for (size_t r = 0; r < tile.num_rows; ++r) {
      const int64_t window = tile.rows[r].position - left_ - tile.key_begin;
      KeyBits kept;
      kept.SetRange(0, static_cast<size_t>(sinks));
      kept.SetRange(static_cast<size_t>(std::clamp<int64_t>(window, 0, count)), tile.num_keys);
      bits[r] &= kept;
    }
  }

 private:
  int64_t sink_keys_;
  int64_t left_;
};

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_SINK_WINDOW_H_
