// Keep patterns of a case: as options, and by name.
#ifndef HEED_TESTS_PATTERN_REQUEST_H_
#define HEED_TESTS_PATTERN_REQUEST_H_

#include <string>
#include <vector>

#include "attention_case.h"
#include "heed/keep.h"
#include "heed/request.h"

namespace heed::testing {

// Whether a case needs a mechanism that has patterns.
bool HasPatterns(const AttentionCase& c);

// The patterns that lists are.
void AppendLists(const KeepLists& lists, std::vector<KeepPattern>& patterns);

// Adds patterns, lists, prefix lengths and documents to a request; points into the case.
void AddPatterns(const AttentionCase& c, Request& request);

// What Explain() shows of the pattern alone: one line of 'x' and '.' per query, of head `head`.
std::vector<std::string> Picture(const KeepPattern& pattern, int64_t len, int64_t num_heads = 1,
                                 int64_t head = 0);

}  // namespace heed::testing

#endif  // HEED_TESTS_PATTERN_REQUEST_H_
