// Keep patterns of a request, from names to heed/keep.h.
#ifndef HEED_SRC_EXACT_REQUEST_PATTERNS_H_
#define HEED_SRC_EXACT_REQUEST_PATTERNS_H_

#include "heed/attention.h"
#include "src/request_reader.h"

namespace heed {

// Sizes that shapes and defaults of patterns refer to.
struct PatternSizes {
  int64_t batch;
  int64_t q_len;
  int64_t kv_len;
};

// Reads prefix lengths, documents, lists of blocks, edges, and the pattern that the request names;
// a pattern that `options` holds already is the mechanism's own and gets its numbers.
void ReadPatterns(const RequestReader& reader, const PatternSizes& sizes,
                  AttentionOptions& options);

}  // namespace heed

#endif  // HEED_SRC_EXACT_REQUEST_PATTERNS_H_
