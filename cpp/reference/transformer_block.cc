// A transformer block: self-attention and a feed-forward network, each with a residual and a norm.
//
// Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.1 (post norm); Xiong et al. 2020,
// arXiv:2002.04745 (pre norm); RMS norm: Zhang & Sennrich 2019, arXiv:1910.07467; gated
// feed-forward networks: Shazeer 2020, arXiv:2002.05202.
#include <cmath>
#include <optional>
#include <string>

#include "multi_head.h"
#include "row_blocks.h"

namespace heed::reference::transformer_block {
namespace {

// Normalises every row of x.
Array NormRows(const Request& request, Array x, const char* weight_name, const char* bias_name) {
  const size_t dim = x.shape[3];
  const bool centre = ReadWord(request, "norm", {"layer", "rms"}).value_or("layer") == "layer";
  const double epsilon = ReadNumber(request, "epsilon").value_or(1e-5);
  if (!(epsilon > 0)) throw Error(ErrorCode::kRange, "epsilon must be greater than 0");
  const std::vector<double> weight = ReadVector(request, weight_name, x.shape[3], 1);
  const std::vector<double> bias = ReadVector(request, bias_name, x.shape[3], 0);
  for (size_t start = 0; start < x.values.size(); start += dim) {
    const auto row = std::span(x.values).subspan(start, dim);
    double mean = 0, squares = 0;
    for (const double value : row) mean += centre ? value / static_cast<double>(dim) : 0;
    for (const double value : row) squares += (value - mean) * (value - mean);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + epsilon);
    for (size_t d = 0; d < dim; ++d) row[d] = (row[d] - mean) * scale * weight[d] + bias[d];
  }
  return x;
}

// x W^T + b for w [rows, dim].
Array Multiply(const Request& request, const Array& x, const char* w_name, const char* b_name) {
  const Array w = ReadNeeded(request, w_name, 2);
  const std::vector<double> b = ReadVector(request, b_name, w.shape[2], 0);
  if (w.shape[3] != x.shape[3]) {
    throw Error(ErrorCode::kShape, Describe(w_name, *FindInput(request, w_name)) +
                                       ": its last extent must be " + std::to_string(x.shape[3]));
  }
  Array product;
  product.shape = {x.shape[0], 1, x.shape[2], w.shape[2]};
  for (int64_t n = 0; n < x.shape[0]; ++n) {
    for (int64_t i = 0; i < x.shape[2]; ++i) {
      for (int64_t o = 0; o < w.shape[2]; ++o) {
        double sum = b[o];
        for (int64_t d = 0; d < w.shape[3]; ++d) sum += x.Row(n, 0, i)[d] * w.Row(0, 0, o)[d];
        product.values.push_back(sum);
      }
    }
  }
  return product;
}

Array FeedForward(const Request& request, const Array& x) {
  const std::string activation = ReadActivation(request);
  Array hidden = Multiply(request, x, "w_up", "b_up");
  const bool gated = FindInput(request, "w_gate") != nullptr;
  if (!gated && FindInput(request, "b_gate") != nullptr) {
    throw Error(ErrorCode::kOption, "b_gate is given without w_gate");
  }
  const Array gate = gated ? Multiply(request, x, "w_gate", "b_gate") : hidden;
  if (gate.shape != hidden.shape) throw Error(ErrorCode::kShape, "w_gate must be shaped as w_up");
  for (size_t n = 0; n < hidden.values.size(); ++n) {
    const double activated = Activate(activation, gate.values[n]);
    hidden.values[n] = gated ? activated * hidden.values[n] : activated;
  }
  return Multiply(request, hidden, "w_down", "b_down");
}

Array Attend(const Request& request, const Array& x) {
  const Result output = RunMultiHead(request, x, x, x)[0];
  if (output.shape[2] != x.shape[3]) {
    throw Error(ErrorCode::kShape, "the attention must give embed_dim values a row");
  }
  return {x.shape, output.values};
}

Array Sum(Array a, const Array& b) {
  if (a.shape != b.shape) throw Error(ErrorCode::kShape, "w_down must give embed_dim values a row");
  for (size_t n = 0; n < a.values.size(); ++n) a.values[n] += b.values[n];
  return a;
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Array x = ReadRows(request, "x");
  const auto norm1 = [&](const Array& rows) {
    return NormRows(request, rows, "norm1_weight", "norm1_bias");
  };
  const auto norm2 = [&](const Array& rows) {
    return NormRows(request, rows, "norm2_weight", "norm2_bias");
  };
  Array output;
  if (ReadWord(request, "norm_order", {"pre", "post"}).value_or("pre") == "pre") {
    const Array y = Sum(x, Attend(request, norm1(x)));
    output = Sum(y, FeedForward(request, norm2(y)));
  } else {
    const Array y = norm1(Sum(x, Attend(request, x)));
    output = norm2(Sum(y, FeedForward(request, y)));
  }
  return {{"output", 3, {x.shape[0], x.shape[2], x.shape[3]}, output.values}};
}

}  // namespace heed::reference::transformer_block
