// The oracle of the functions of rows (heed/rows.h): one row at a time, in float64.
#ifndef HEED_REFERENCE_ROWS_H_
#define HEED_REFERENCE_ROWS_H_

#include <vector>

namespace heed::reference {

// exp(x) / sum exp(x) over the elements that count; the others are 0. -inf does not count either.
// No element that counts gives zeros; NaN or +inf among them makes all of them NaN, also -inf.
std::vector<double> SoftmaxOfRow(const std::vector<double>& x, const std::vector<bool>& counts);

// log of the above with every element counting: -inf where the weight is 0.
std::vector<double> LogSoftmaxOfRow(const std::vector<double>& x);

struct NormedRow {
  std::vector<double> values;
  double mean;               // 0 for RMS norm
  double inverse_deviation;  // 1 / sqrt(mean of squares of what is divided + epsilon)
};

// (x - mean) / sqrt(variance + epsilon); Ba et al. 2016, arXiv:1607.06450, equations 3 and 4.
NormedRow LayerNormOfRow(const std::vector<double>& x, double epsilon);

// x / sqrt(mean of squares + epsilon); Zhang & Sennrich 2019, arXiv:1910.07467, equation 4.
NormedRow RmsNormOfRow(const std::vector<double>& x, double epsilon);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_ROWS_H_
