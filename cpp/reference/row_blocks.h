// Rows of a block of layers in the oracle: layer norm and matrix products.
#ifndef HEED_REFERENCE_ROW_BLOCKS_H_
#define HEED_REFERENCE_ROW_BLOCKS_H_

#include <span>
#include <string>
#include <vector>

#include "inputs.h"

namespace heed::reference {

// (x - mean) / sqrt(variance + epsilon) * weight + bias for every row; empty lists are 1 and 0.
Array LayerNormRows(Array x, std::span<const double> weight, std::span<const double> bias,
                    double epsilon);

// x W^T + b for W [out, in] and b of out values, or empty.
Array LinearRows(const Array& x, std::span<const double> w, std::span<const double> b, int64_t out);

// What the parameter `activation` makes of x: gelu (the default), gelu_tanh, silu or relu.
std::string ReadActivation(const Request& request);
double Activate(const std::string& activation, double x);

Array SumRows(Array a, const Array& b);

// [1, 1, len, dim] repeated for every batch entry; others as they are.
Array RepeatBatch(const Array& x, int64_t batch);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_ROW_BLOCKS_H_
