// One bit for each key of a tile: what keep plugs narrow down.
#ifndef HEED_SRC_EXACT_KEEP_KEY_BITS_H_
#define HEED_SRC_EXACT_KEEP_KEY_BITS_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "src/exact/tile.h"

namespace heed {

// The keys of a tile that a row sees. Bit c is column c.
struct KeyBits {
  static constexpr size_t kWords = kTileKeys / 64;
  uint64_t words[kWords] = {};

  bool Test(size_t c) const { return (words[c / 64] >> (c % 64) & 1) != 0; }
  void Set(size_t c) { words[c / 64] |= uint64_t{1} << (c % 64); }

  // Sets the columns [from, to).
  void SetRange(size_t from, size_t to) {
    for (size_t w = 0; w < kWords; ++w) words[w] |= WordOf(w, from, to);
  }
  KeyBits& operator&=(const KeyBits& other) {
    for (size_t w = 0; w < kWords; ++w) words[w] &= other.words[w];
    return *this;
  }
  KeyBits& operator|=(const KeyBits& other) {
    for (size_t w = 0; w < kWords; ++w) words[w] |= other.words[w];
    return *this;
  }
  bool None() const {
    uint64_t any = 0;
    for (const uint64_t word : words) any |= word;
    return any == 0;
  }
  int64_t Count() const {
    int64_t count = 0;
    for (const uint64_t word : words) count += std::popcount(word);
    return count;
  }
  // Are all columns [from, to) set?
  bool Covers(size_t from, size_t to) const {
    for (size_t w = 0; w < kWords; ++w) {
      if ((WordOf(w, from, to) & ~words[w]) != 0) return false;
    }
    return true;
  }
  // Bit p is set when some column of panel p is; panels are `panel_cols` wide, a divisor of 64.
  uint64_t Panels(size_t panel_cols) const {
    uint64_t panels = 0;
    const uint64_t one_panel = (uint64_t{1} << panel_cols) - 1;
    for (size_t p = 0; p < kTileKeys / panel_cols; ++p) {
      const size_t c = p * panel_cols;
      const bool any = (words[c / 64] >> (c % 64) & one_panel) != 0;
      panels |= static_cast<uint64_t>(any) << p;
    }
    return panels;
  }
  // From the first to the last column that is set in `within`; begin >= end when none is.
  ColumnRange Hull(const ColumnRange& within) const {
    ColumnRange hull = {within.end, 0};
    for (size_t w = 0; w < kWords; ++w) {
      const uint64_t word = words[w] & WordOf(w, within.begin, within.end);
      if (word == 0) continue;
      hull.begin = std::min(hull.begin, w * 64 + static_cast<size_t>(std::countr_zero(word)));
      hull.end = w * 64 + 64 - static_cast<size_t>(std::countl_zero(word));
    }
    return hull;
  }

 private:
  // The columns [from, to) that lie in word w.
  static uint64_t WordOf(size_t w, size_t from, size_t to) {
    const size_t low = std::clamp(from, w * 64, w * 64 + 64) - w * 64;
    const size_t high = std::clamp(to, w * 64, w * 64 + 64) - w * 64;
    if (low >= high) return 0;
    return (~uint64_t{0} >> (64 - (high - low))) << low;
  }
};

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_KEY_BITS_H_
