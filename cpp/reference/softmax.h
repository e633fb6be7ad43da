// The softmax of one row of the oracle.
#ifndef HEED_REFERENCE_SOFTMAX_H_
#define HEED_REFERENCE_SOFTMAX_H_

#include <limits>
#include <span>

namespace heed::reference {

inline constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Replaces scores by exp(s) / (exp(sink) + sum exp(s)) and returns the natural log of that
// denominator. A score of -inf marks a key that is not kept: its weight is 0. A row without any
// kept key becomes zeros and returns -inf, whatever the sink. A sink of -inf is no sink.
double Softmax(std::span<double> row, double sink);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_SOFTMAX_H_
