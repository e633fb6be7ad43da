// Powers and hyperbolic tangents by std::exp: std::pow and std::tanh would bring tables and
// polynomials of their own, kilobytes of every download.
#ifndef HEED_SRC_POWER_H_
#define HEED_SRC_POWER_H_

#include <cmath>

namespace heed {

// base > 0. Relative error below 2^-52 * (2 + |exponent * log(base)|).
inline double Power(double base, double exponent) { return std::exp(exponent * std::log(base)); }

// Absolute error below 2^-51.
inline double Tanh(double x) { return 1 - 2 / (std::exp(2 * x) + 1); }

}  // namespace heed

#endif  // HEED_SRC_POWER_H_
