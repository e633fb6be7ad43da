// Range plugs: keep rules that leave each row one interval of keys. The loop starts at the first
// visible key, stops after the last, and masks only tiles that an end of an interval cuts.
//
// A plug is a function `KeyRange(problem, batch, query, position)`; `VisibleKeys` intersects all.
#ifndef HEED_SRC_EXACT_KEEP_RANGE_H_
#define HEED_SRC_EXACT_KEEP_RANGE_H_

#include <algorithm>
#include <cstdint>

#include "src/exact/keep/causal.h"
#include "src/exact/keep/lengths.h"
#include "src/exact/keep/prefix_lm.h"
#include "src/exact/keep/window.h"
#include "src/exact/problem.h"

namespace heed {

// Keys that every range plug lets the query see; begin == end when there is none.
inline KeyRange VisibleKeys(const AttentionProblem& p, int64_t batch, int64_t query) {
  const int64_t position = p.Position(batch, query);
  KeyRange keys = LengthKeys(p, batch, query);
  if (!p.packed_keys.empty()) keys = p.packed_keys[static_cast<size_t>(query)];
  for (const KeyRange other :
       {CausalKeys(p, position), WindowKeys(p, position), PrefixKeys(p, batch, position)}) {
    keys.begin = std::max(keys.begin, other.begin);
    keys.end = std::min(keys.end, other.end);
  }
  if (keys.begin >= keys.end) return {0, 0};
  return keys;
}

// Do the range plugs leave all queries of a batch entry the same keys?
inline bool SeeTheSameKeys(const AttentionProblem& p) {
  const AttentionOptions& o = p.options;
  return p.packed_keys.empty() && !o.causal && !o.window && o.prefix_lengths.empty() &&
         (o.key_lengths.empty() || o.key_lengths.size() == static_cast<size_t>(p.batch));
}

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_RANGE_H_
