// Dropout of the oracle: which weights survive, by a counter-based generator.
#ifndef HEED_REFERENCE_DROPOUT_H_
#define HEED_REFERENCE_DROPOUT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "inputs.h"

namespace heed::reference {

// Philox-4x32-10: ten rounds of multiplications over a counter of four words with a key of two.
// Source: Salmon, Moraes, Dror & Shaw 2011, Parallel Random Numbers: As Easy as 1, 2, 3, section
// 4.3.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A whole number: the parameter as a number, or as decimal digits when it is beyond 2^53. 0 when
// absent.
uint64_t ReadSeed(const Request& request, std::string_view name);

// Each weight is zeroed with probability p and divided by 1 - p otherwise. The key of the generator
// is the seed, the counter of a pair (batch, query head, query, key / 4), its word key % 4; the
// weight stays iff that word >= floor(p 2^32).
struct Dropout {
  double p;
  uint64_t seed;
  void Apply(int64_t b, int64_t h, int64_t i, std::span<double> weights) const;
};

// The parameters dropout_p and dropout_seed; absent when no weight can be dropped.
std::optional<Dropout> ReadDropout(const Request& request);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_DROPOUT_H_
