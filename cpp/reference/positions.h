// What the position mechanisms of the oracle share: x, where its rows stand, frequencies of RoPE.
#ifndef HEED_REFERENCE_POSITIONS_H_
#define HEED_REFERENCE_POSITIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "inputs.h"

namespace heed::reference {

// x as [batch, num_heads, len, dim], and the rank in which it came.
struct PositionedInput {
  Array x;
  int rank = 0;
  int64_t batch = 0, num_heads = 0, len = 0, dim = 0;
  std::vector<int64_t> position;  // [batch, len]

  int64_t Position(int64_t b, int64_t i) const { return position[b * len + i]; }
  int64_t LargestPosition() const;
};

// Reads x, positions and position_offset.
PositionedInput ReadPositioned(const Request& request);

// The word `name`; Error(kOption) when it is absent.
std::string ReadChoice(const Request& request, const std::string& name,
                       const std::vector<std::string>& allowed);

double ReadBase(const Request& request, const char* name = "base");

// rotary_dim, by default the last extent of x; a multiple of `multiple`.
int64_t ReadRotaryDim(const Request& request, const PositionedInput& in, int64_t multiple);

// Radians per position of each of rotary_dim / 2 pairs, and what they are multiplied by.
struct Rotation {
  std::vector<double> frequency;
  double magnitude = 1;
};
Rotation ReadRotation(const Request& request, int64_t rotary_dim, int64_t call_len, double base);

// The two dimensions of pair t.
struct PairOfDims {
  int64_t first, second;
};
PairOfDims DimsOfPair(const std::string& pairing, int64_t t, int64_t rotary_dim);

// `values` as the output of the shape that x had.
std::vector<Result> OutputLike(const PositionedInput& in, std::vector<double> values);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_POSITIONS_H_
