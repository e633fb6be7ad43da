// Keep plug: prefix language model. A query sees the keys of the prefix and those up to its own
// position. Source: Raffel 2020, arXiv:1910.10683, section 3.2.1.
#ifndef HEED_SRC_EXACT_KEEP_PREFIX_LM_H_
#define HEED_SRC_EXACT_KEEP_PREFIX_LM_H_

#include <algorithm>

#include "src/exact/problem.h"

namespace heed {

inline KeyRange PrefixKeys(const AttentionProblem& p, int64_t batch, int64_t position) {
  const auto& prefix = p.options.prefix_lengths;
  if (prefix.empty()) return {0, p.kv_len};
  return {0, std::max<int64_t>(prefix[static_cast<size_t>(batch)], position + 1)};
}

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_PREFIX_LM_H_
