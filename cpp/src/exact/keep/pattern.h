// Keep plugs that are patterns: they say row by row which keys of a tile are seen.
#ifndef HEED_SRC_EXACT_KEEP_PATTERN_H_
#define HEED_SRC_EXACT_KEEP_PATTERN_H_

#include "src/exact/keep/keep.h"

namespace heed {

class PatternKeep : public CellKeep {
 public:
  void Narrow(const KeepTile& tile, KeyBits* bits) const final {
    KeyBits seen;
    for (size_t r = 0; r < tile.num_rows; ++r) {
      if (r == 0 || !SameKeys(tile.batch, tile.rows[r - 1], tile.rows[r])) {
        seen = {};
        SetKeys(tile.batch, tile.rows[r], tile.keys(), seen);
      }
      bits[r] &= seen;
    }
  }

 protected:
  // Sets the bits of the keys that the row sees; bit 0 is keys.begin.
  virtual void SetKeys(int64_t batch, const Row& row, const KeyRange& keys,
                       KeyBits& seen) const = 0;
};

// Sets the bits of the keys [from, to) that lie in a tile.
inline void SetSpan(const KeyRange& keys, int64_t from, int64_t to, KeyBits& seen) {
  const int64_t begin = std::clamp(from, keys.begin, keys.end);
  const int64_t end = std::clamp(to, begin, keys.end);
  seen.SetRange(static_cast<size_t>(begin - keys.begin), static_cast<size_t>(end - keys.begin));
}

// The same for from, from + step, ..., below `to`.
inline void SetSteps(const KeyRange& keys, int64_t from, int64_t to, int64_t step, KeyBits& seen) {
  if (step == 1) return SetSpan(keys, from, to, seen);
  if (from < keys.begin) from += (keys.begin - from + step - 1) / step * step;
  for (int64_t j = from; j < std::min(to, keys.end); j += step) {
    seen.Set(static_cast<size_t>(j - keys.begin));
  }
}

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_PATTERN_H_
