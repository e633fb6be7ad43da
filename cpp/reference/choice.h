// How mechanisms of the oracle choose keys: with the arithmetic that heed/selective.h fixes.
#ifndef HEED_REFERENCE_CHOICE_H_
#define HEED_REFERENCE_CHOICE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "inner.h"
#include "inputs.h"

namespace heed::reference {

// A candidate that is chosen whatever the others are.
inline constexpr double kCertain = std::numeric_limits<double>::infinity();

// Indices of the `most` largest scores, of equal ones the lower index. Scores that are NaN or
// infinite count as the largest finite number, except kCertain where `certain` says so.
std::vector<int64_t> BestOf(std::vector<double> scores, int64_t most,
                            std::span<const int64_t> certain = {});

// The sum of products in the order of the elements.
double DotInOrder(std::span<const double> a, std::span<const double> b);

// Numbers by SplitMix64 and Box-Muller, rounded to float32.
std::vector<double> SeededNormals(uint64_t seed, int64_t count);

// Refuses a parameter below 1; absent is `fallback`.
int64_t ReadAtLeastOne(const Request& request, std::string_view name, int64_t fallback);

// Refuses lengths that are not [batch].
void RefuseRankOfLengths(const Request& request);
// Refuses lengths per query.
void RefuseLengthsPerQuery(const Request& request);

// Attention over the keys that keep(b, h, i, j) leaves; `without` are the names of the choice.
using KeysOfRow = std::function<std::vector<bool>(int64_t b, int64_t h, int64_t i)>;
std::vector<Result> RunOverChosen(const Request& request, const Qkv& qkv,
                                  const std::vector<std::string_view>& without,
                                  const KeysOfRow& keep);
// The same for a request that has been made.
std::vector<Result> RunOverChosen(InnerRequest& inner, const Qkv& qkv, const KeysOfRow& keep);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_CHOICE_H_
