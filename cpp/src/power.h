// base^exponent without std::pow, whose tables alone are 4 KiB of a download.
#ifndef HEED_SRC_POWER_H_
#define HEED_SRC_POWER_H_

#include <cmath>

namespace heed {

// base > 0. Relative error below 2^-52 * (2 + |exponent * log(base)|).
inline double Power(double base, double exponent) { return std::exp(exponent * std::log(base)); }

}  // namespace heed

#endif  // HEED_SRC_POWER_H_
