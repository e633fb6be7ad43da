// Keep plug: causal. A query sees keys up to its own position.
#ifndef HEED_SRC_EXACT_KEEP_CAUSAL_H_
#define HEED_SRC_EXACT_KEEP_CAUSAL_H_

#include "src/exact/problem.h"

namespace heed {

inline KeyRange CausalKeys(const AttentionProblem& p, int64_t position) {
  return {0, p.options.causal ? position + 1 : p.kv_len};
}

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_CAUSAL_H_
