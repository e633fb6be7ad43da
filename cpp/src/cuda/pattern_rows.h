// Keep patterns for the device, made on the host by the plugs of the CPU: one definition of every
// pattern serves both. No CUDA here.
#ifndef HEED_SRC_CUDA_PATTERN_ROWS_H_
#define HEED_SRC_CUDA_PATTERN_ROWS_H_

#include <cstdint>
#include <vector>

#include "src/exact/problem.h"

namespace heed::cuda {

// What PatternRule (attention_params.h) points to. Batch entries and heads that see the same keys
// share ids by a stride of 0.
struct PatternRows {
  std::vector<int32_t> ids;
  int64_t batch_stride = 0, head_stride = 0;
  std::vector<int64_t> starts{0};
  std::vector<int32_t> tiles;
  std::vector<uint64_t> words;
};

// The rows of all patterns of a problem together; nothing when it has none. 4 bytes a query and
// head, and 12 for each 64 keys that a row sees one of; rows that certainly see the same, as those
// of a block do, count once.
PatternRows RowsOfPatterns(const AttentionProblem& p);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_PATTERN_ROWS_H_
