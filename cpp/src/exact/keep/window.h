// Keep plug: sliding window. A query sees `left` keys before and `right` keys after its position.
#ifndef HEED_SRC_EXACT_KEEP_WINDOW_H_
#define HEED_SRC_EXACT_KEEP_WINDOW_H_

#include "src/exact/problem.h"

namespace heed {

inline KeyRange WindowKeys(const AttentionProblem& p, int64_t position) {
  KeyRange keys = {0, p.kv_len};
  if (!p.options.window) return keys;
  // With sinks the hidden keys are no end of an interval: keep/sink_window.h.
  if (p.options.window->left && p.sink_keys == 0) keys.begin = position - *p.options.window->left;
  if (p.options.window->right) keys.end = position + *p.options.window->right + 1;
  return keys;
}

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_WINDOW_H_
