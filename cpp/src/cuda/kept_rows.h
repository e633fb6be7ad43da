// Which keys rows keep, as a kernel writes it and those of attention read it: words of 64 keys, of
// which those that keep none are not stored. Plain numbers and device pointers.
#ifndef HEED_SRC_CUDA_KEPT_ROWS_H_
#define HEED_SRC_CUDA_KEPT_ROWS_H_

#include <algorithm>
#include <cstdint>

#include "src/cuda/attention_params.h"

namespace heed::cuda {

// The rows of `lists` heads, each of which `copies` neighbouring query heads share; a single list
// is that of all heads.
struct KeptRows {
  int32_t* ids;            // [batch, lists * copies, len]
  int64_t *starts, *ends;  // [batch, lists, len]
  int32_t* tiles;          // [batch, lists, len, room]
  uint64_t* words;         // the same
  int64_t room;            // words that a row may keep keys of
  int32_t lists, copies, len;

  SeenRules seen() const {
    SeenRules rules;
    const int64_t heads = int64_t{lists} * copies;
    rules.patterns = {ids, heads * len, heads > 1 ? len : 0, starts, ends, tiles, words};
    return rules;
  }
};

// Words that `runs` runs of `run` neighbouring keys touch, if they begin at multiples of `run`.
inline int64_t WordsOfBlocks(int64_t runs, int64_t run) {
  if (run % 64 == 0) return runs * (run / 64);
  return 64 % run == 0 ? runs : runs * ((run + 62) / 64 + 1);
}
// The same of one run that begins anywhere.
inline int64_t WordsOfRun(int64_t run) { return run == 0 ? 0 : (run + 62) / 64 + 1; }

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_KEPT_ROWS_H_
