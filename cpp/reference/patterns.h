// Keep patterns of the oracle: each a predicate on one pair, written from its definition.
#ifndef HEED_REFERENCE_PATTERNS_H_
#define HEED_REFERENCE_PATTERNS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "inputs.h"

namespace heed::reference {

// Query i of head h at position p, and key j.
struct Pair {
  int64_t b, h, i, p, j;
};

using PairRule = std::function<bool(const Pair&)>;

// Whether a rule of the request reads positions.
bool PatternsReadPositions(const Request& request);

// All patterns of the request; a key is seen when every rule says so. offsets[b] is the position of
// query 0.
std::vector<PairRule> ReadPatterns(const Request& request, const Qkv& qkv,
                                   const std::vector<int64_t>& offsets);

// The rules, each defined in the file of the mechanism that it is named after.
PairRule LongformerRule(const Request& request, const Qkv& qkv);
PairRule BigBirdRule(const Request& request, const Qkv& qkv);
PairRule SwinWindowRule(const Request& request, const Qkv& qkv);
PairRule NeighborhoodRule(const Request& request, const Qkv& qkv);
PairRule StridedRule(const Request& request);  // block_sparse.cc, as those below
PairRule FixedRule(const Request& request);
PairRule AxialRule(const Request& request, const Qkv& qkv);
std::vector<PairRule> ListRules(const Request& request, const Qkv& qkv);  // blocks and edges

// Parameters: one whole number >= `least`; a list of them; the extents of the grid, whose product
// must be kv_len (absent: one line of `axes` axes).
int64_t ReadWhole(const Request& request, const char* name, int64_t fallback, int64_t least);
std::vector<int64_t> ReadWholes(const Request& request, const char* name, int64_t least);
std::vector<int64_t> ReadGrid(const Request& request, const Qkv& qkv, size_t least, size_t most);

// The coordinates of a token in a grid, row by row.
std::vector<int64_t> Coordinates(int64_t token, const std::vector<int64_t>& grid);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_PATTERNS_H_
