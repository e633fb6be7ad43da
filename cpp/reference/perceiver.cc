// The Perceiver's cross-attention block: latents read an array, then a feed-forward network.
//
// Source: Jaegle et al. 2021, arXiv:2103.03206, section 3.2 and appendix C.
#include <string>
#include <vector>

#include "multi_head.h"
#include "row_blocks.h"

namespace heed::reference::perceiver {
namespace {

Array Norm(const Request& request, const Array& x, const std::string& name) {
  const double epsilon = ReadNumber(request, "epsilon").value_or(1e-5);
  if (!(epsilon > 0.0)) throw Error(ErrorCode::kRange, "epsilon must be greater than 0");
  const auto weight = ReadVector(request, (name + "_weight").c_str(), x.shape[3], 1.0);
  const auto bias = ReadVector(request, (name + "_bias").c_str(), x.shape[3], 0.0);
  return LayerNormRows(x, weight, bias, epsilon);
}

// x W^T + b.
Array Multiply(const Request& request, const Array& x, const char* w_name, const char* b_name) {
  const Array w = ReadNeeded(request, w_name, 2);
  if (w.shape[3] != x.shape[3]) {
    throw Error(ErrorCode::kShape,
                Describe(w_name, *FindInput(request, w_name)) + ": does not fit its input");
  }
  return LinearRows(x, w.values, ReadVector(request, b_name, w.shape[2], 0.0), w.shape[2]);
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Array input = ReadRows(request, "key");
  const Array latents = RepeatBatch(ReadRows(request, "latents"), input.shape[0]);
  const Array keys = Norm(request, input, "key_norm");
  const Result read = RunMultiHead(request, Norm(request, latents, "norm1"), keys, keys)[0];
  if (read.shape[2] != latents.shape[3]) {
    throw Error(ErrorCode::kShape, "w_o must give embed_dim values a row");
  }
  const bool adds = ReadWord(request, "query_residual", {"add", "none"}).value_or("add") == "add";
  const Array attended = {latents.shape, read.values};
  const Array z = adds ? SumRows(attended, latents) : attended;
  Array hidden = Multiply(request, Norm(request, z, "norm2"), "w_up", "b_up");
  const std::string activation = ReadActivation(request);
  for (double& x : hidden.values) x = Activate(activation, x);
  const Array mlp = Multiply(request, hidden, "w_down", "b_down");
  if (mlp.shape != z.shape) {
    throw Error(ErrorCode::kShape, "w_down must give embed_dim values a row");
  }
  const Array output = SumRows(mlp, z);
  return {{"output", 3, {z.shape[0], z.shape[2], z.shape[3]}, output.values}};
}

}  // namespace heed::reference::perceiver
